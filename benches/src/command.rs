//! The whole command `distlock run k -- true` on a file, beside `flock f true`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::report::Report;
use crate::round::{Effort, median};

/// How many commands one contender runs in one round.
const COMMANDS: usize = 40;

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let folder = std::env::temp_dir().join(format!("distlock-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary things is writable");
    let file = folder.join("flock").display().to_string();
    let url = format!("sqlite:{}", folder.join("locks.db").display());
    let ours = binary().display().to_string();
    let (mut distlock, mut flock) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        for _ in 0..COMMANDS {
            flock.push(seconds(&["flock", &file, "true"], &url));
            distlock.push(seconds(&[&ours, "run", "k", "--", "true"], &url));
        }
    }
    let (distlock, flock) = (median(&mut distlock), median(&mut flock));
    report.add("run_ms", distlock * 1e3);
    report.add("flock_ms", flock * 1e3);
    report.add("run_vs_flock", distlock / flock);
    // What cannot be removed lies among temporary things.
    let _ = std::fs::remove_dir_all(&folder);
}

/// `make bench` has built it.
fn binary() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::var_os("DISTLOCK_BIN")
        .map_or_else(|| root.join("target/release/distlock"), Into::into)
}

fn seconds(words: &[&str], url: &str) -> f64 {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("DISTLOCK_URL", url).stdin(Stdio::null());
    let start = Instant::now();
    let status = command.status().expect("flock is there, and `make bench` builds distlock");
    let took = start.elapsed().as_secs_f64();
    assert!(status.success(), "{words:?} failed");
    took
}
