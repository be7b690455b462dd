//! What distlock costs, beside the least that can be done by hand and beside its peers.
//!
//! Everything is measured in interleaved rounds on one machine, so that whatever else that machine
//! does falls on all contenders alike, and reported as ratios of the same round.

mod ablation;
mod command;
mod contender;
mod crowd;
mod handover;
#[cfg(feature = "http")]
mod http;
mod kinds;
mod outage;
mod place;
mod proxy;
mod quorum;
mod readme;
mod renewal;
mod report;
mod round;
mod server;
mod postgres;
mod sqlite;
mod targets;
mod uncontended;
mod worker;

use std::path::Path;

use crate::report::Report;
use crate::round::Effort;

const USAGE: &str = "usage: distlock-bench [--quick] \
    [--only uncontended,kinds,ablation,handover,renewal,crowd,sqlite,postgres,command,quorum,http]";

/// Measures something and reports it.
type Workload = fn(Effort, &mut Report);

/// The workloads, by the names that `--only` takes.
const WORKLOADS: &[(&str, Workload)] = &[
    ("uncontended", uncontended::measure),
    ("kinds", kinds::measure),
    ("ablation", ablation::measure),
    ("handover", handover::measure),
    ("renewal", renewal::measure),
    ("crowd", crowd::measure),
    ("sqlite", sqlite::measure),
    ("postgres", postgres::measure),
    ("command", command::measure),
    ("quorum", quorum::measure),
    #[cfg(feature = "http")]
    ("http", http::measure),
];

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("worker", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        worker::run(rest);
        return Ok(());
    }
    let (mut effort, mut only) = (Effort::FULL, None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--only" => only = words.next().cloned(),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only.split(',').any(|o| o == name));
    let mut report = Report::default();
    for (name, measure) in WORKLOADS.iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name} ...");
        measure(effort, &mut report);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let json = root.join("target/bench/report.json");
    let whole = effort == Effort::FULL && only.is_none() && !cfg!(feature = "http");
    if whole {
        // Another build of this program has measured these, just before.
        report.take_over("http_", &json);
    }
    print!("{}", report.table());
    report.write_json(&json).map_err(|e| e.to_string())?;
    // What is published comes from whole runs only.
    if whole {
        let page = root.join("docs/benchmarks.md");
        report.write_markdown(&page).map_err(|e| e.to_string())?;
        readme::write(&report, &root.join("README.md")).map_err(|e| e.to_string())?;
    }
    Ok(())
}
