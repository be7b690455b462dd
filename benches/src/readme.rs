//! The figures that the README shows, between two marks, so that they are never copied by hand.

use std::io;
use std::path::Path;

use crate::report::Report;

const BEGIN: &str = "<!-- figures: written by make bench -->";
const END: &str = "<!-- /figures -->";

/// A row: what was measured, beside what, and its figures with a word on them.
type Row = (&'static str, &'static str, &'static [&'static str], &'static str);

const ROWS: [Row; 9] = [
    (
        "acquire + release, 1 / 8 / 64 / 512 tasks, fenced and renewed",
        "`SET NX PX` and compare-and-delete by hand, neither",
        &[
            "uncontended_1_vs_limit",
            "uncontended_8_vs_limit",
            "uncontended_64_vs_limit",
            "uncontended_512_vs_limit",
        ],
        "",
    ),
    (
        "changes of owner, 16 tasks on one key",
        "rslock / distkit",
        &["handovers_16_vs_rslock", "handovers_16_vs_distkit"],
        " times as many",
    ),
    (
        "release to next holder, median",
        "one round trip, on loopback / at 1 ms",
        &["handover_p50_rtts", "handover_p50_rtts_1ms"],
        "",
    ),
    (
        "letting the next in, 100,000 waiters behind",
        "the same with 10",
        &["grant_cost_100k_vs_10"],
        "",
    ),
    (
        "keeping 10,000 leases: client CPU, one task",
        "distkit, 10,000 tasks",
        &["renew_client_cpu_vs_distkit"],
        "",
    ),
    ("a quorum of five", "five raw commands, twice", &["quorum5_vs_raw"], " times as long"),
    ("`sqlite:`, acquire + release", "", &["sqlite_uncontended_per_s"], " a second"),
    ("`distlock run k -- true`", "`flock f true`", &["run_vs_flock"], " times as long"),
    (
        "a lease over HTTP",
        "the same scripts in a route by hand",
        &["http_lease_vs_handwritten"],
        "",
    ),
];

/// Writes the figures of a report into a README.
pub(crate) fn write(report: &Report, path: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let marked = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}\n{}{END}{after}", table(report)))
    });
    let missing = || io::Error::other(format!("{} lacks the marks for figures", path.display()));
    std::fs::write(path, marked.ok_or_else(missing)?)
}

fn table(report: &Report) -> String {
    let mut table = String::from("| What | Beside | Figure |\n|---|---|---|\n");
    for (what, beside, metrics, words) in ROWS {
        let figures: Vec<_> = metrics.iter().map(|metric| report.shown(metric)).collect();
        table.push_str(&format!("| {what} | {beside} | {}{words} |\n", figures.join(" / ")));
    }
    table
}
