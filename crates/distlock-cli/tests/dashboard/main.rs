//! The dashboard in a real browser, with locks taken by the real command.
//!
//! The promises stand in `dashboard.test.mjs`, in the language of the page; this runs them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_dashboard_shows_what_the_locks_do() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let driver = here.join("../../target/browser");
    assert!(
        driver.join("node_modules/playwright-core").is_dir(),
        "nothing drives a browser here: run scripts/setup.sh"
    );
    let run = Command::new("node")
        .arg("--test")
        .arg("--test-reporter=spec")
        .arg(here.join("tests/dashboard/dashboard.test.mjs"))
        .env("DISTLOCK_BIN", env!("CARGO_BIN_EXE_distlock"))
        .env("DISTLOCK_BROWSER", driver)
        .env_remove("DISTLOCK_URL")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout).into_owned();
    println!("{told}");
    assert!(run.status.success(), "{told}{}", String::from_utf8_lossy(&run.stderr));
}
