//! A program that ends while it holds.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backends::Memory;
use distlock::blocking::Locks;
use distlock_testkit::{Faults, Faulty};

/// Names the store to a child process.
const STORE: &str = "DISTLOCK_TEST_BLOCKING_STORE";

#[test]
fn a_guard_that_is_dropped_at_the_end_of_a_program_is_released() {
    let folder = std::env::temp_dir().join(format!("distlock-blocking-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let url = format!("sqlite:{}", folder.join("locks.db").display());
    let program = std::env::current_exe().unwrap();
    let ended = Command::new(program)
        .args(["--exact", "ending::the_program_that_holds_and_ends"])
        .env(STORE, &url)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let locks = Locks::connect(&url).unwrap();
    let free = locks.mutex("k").unwrap().try_lock();
    assert!(free.as_ref().is_ok_and(|guard| guard.waited() < Duration::from_secs(5)), "{free:?}");
    // The program did hold it: the fence is not the first.
    assert!(locks.mutex("held").unwrap().try_lock().is_err(), "a lease is left to its ttl");
    drop((free, locks));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Does nothing unless it is started by the test above.
#[test]
fn the_program_that_holds_and_ends() {
    let Ok(url) = std::env::var(STORE) else { return };
    let locks = Locks::connect(&url).unwrap();
    let _lease = locks.lease("held").unwrap().acquire().unwrap();
    let guard = locks.mutex("k").unwrap().lock().unwrap();
    assert!(guard.is_held());
}

#[test]
fn a_drop_waits_for_a_store_that_does_not_answer_as_long_as_a_release_may() {
    let never =
        Faults { lose_reply: 1.0, response_timeout: Duration::from_secs(60), ..Faults::NONE };
    let network = Faulty::new(Arc::new(Memory::new()), 1, Faults::NONE);
    let locks = Locks::new(Arc::new(network.clone())).unwrap();
    let locks = locks.configure(|o| o.release_timeout(Duration::from_millis(100))).unwrap();
    let guard = locks.mutex("k").unwrap().lock().unwrap();
    network.set(never);
    let began = Instant::now();
    drop(guard);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(100), "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    network.heal();
}
