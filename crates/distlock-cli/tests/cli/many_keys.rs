//! `run -k`: several keys that are held together.

use crate::support::*;

#[test]
fn several_keys_are_held_while_the_command_runs_and_all_are_free_afterwards() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let line = "run -k many/b -k many/a -k many/b -- \
                    sh -c 'echo $DISTLOCK_KEYS; echo $DISTLOCK_FENCES; echo -$DISTLOCK_KEY-'";
        let done = locker.run(line).code(0);
        let lines: Vec<_> = done.stdout.lines().collect();
        assert_eq!((lines[0], lines[2]), ("many/a many/b", "--"));
        assert_eq!(lines[1].split(' ').count(), 2, "{lines:?}");
        for key in ["many/a", "many/b"] {
            locker.run(&format!("run -n {key} -- true")).code(0);
        }
    }
}

#[test]
fn one_key_in_use_keeps_the_command_from_running_and_takes_no_other() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let holder = hold(&locker, &folder, "", "busy");
        let refused = locker.run("run -n -k other -k busy -- echo ran").code(75);
        assert_eq!(refused.stdout, "");
        refused.says("busy");
        locker.run("run -n other -- echo free").code(0).prints("free");
        let waiting = locker.start("run -w 1m -k other -k busy -- echo both");
        until("it waits", || locker.run("status --json busy").json()["waitersTotal"] == 1);
        holder.signal(rustix::process::Signal::TERM);
        waiting.end().code(0).prints("both");
    }
}

#[test]
fn the_report_names_every_key_and_its_fence() {
    let (store, folder) = (Store::sqlite(), Folder::new());
    let locker = on(&store).inside(&folder);
    locker.run("run --report done.json -k x -k y -- true").code(0);
    let report: serde_json::Value = serde_json::from_str(&folder.read("done.json")).unwrap();
    assert_eq!(report["keys"], serde_json::json!(["x", "y"]));
    assert!(report["fences"]["x"].is_u64() && report["fences"]["y"].is_u64(), "{report}");
    assert!(report["fence"].is_null());
}

#[test]
fn keys_of_a_surrounding_run_are_not_waited_for() {
    let (store, folder) = (Store::sqlite(), Folder::new());
    let locker = on(&store).inside(&folder);
    let exe = env!("CARGO_BIN_EXE_distlock");
    let line = format!("run -k x -k y -- {exe} run -k y -k z -- true");
    locker.run(&line).code(64).says("already held");
    let line = format!("run -k x -k y -- {exe} run --reentrant x -- true");
    locker.run(&line).code(64).says("cannot be entered again");
    locker.run("run -s -k x -k y -- true").code(64);
}
