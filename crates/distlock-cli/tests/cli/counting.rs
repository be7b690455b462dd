//! The oldest test of a lock: many processes count together and none of them is lost.

use std::thread;

use crate::support::*;

/// Reads a number, sleeps, and writes the next: without a lock this loses nearly all of them.
const INCREMENT: &str = "n=$(cat counter); sleep 0.002; echo $((n + 1)) > counter";

fn count(store: &Store, processes: usize, times: usize) {
    let folder = Folder::new();
    std::fs::write(folder.path("counter"), "0\n").unwrap();
    thread::scope(|scope| {
        for _ in 0..processes {
            scope.spawn(|| {
                let locker = on(store).inside(&folder);
                for _ in 0..times {
                    locker.run(&format!("run -q -w 5m counter -- sh -c '{INCREMENT}'")).code(0);
                }
            });
        }
    });
    assert_eq!(folder.read("counter").trim(), (processes * times).to_string());
}

#[test]
fn sixteen_processes_count_without_a_miss_on_a_file() {
    count(&Store::sqlite(), 16, rounds(5, 50));
}

#[test]
fn sixteen_processes_count_without_a_miss_on_a_server() {
    count(&Store::redis(), 16, rounds(5, 50));
}
