//! Waiting without a terminal: plain lines and JSON events on stderr.

use serde_json::Value;

use crate::support::*;

#[test]
fn a_log_is_told_at_once_whom_it_waits_for() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let holder = hold(&locker, &folder, "--owner deploy@ci-7", "logged");
        let first = locker.start("run -w 5m logged -- echo first");
        let waiters = || locker.run("status --json logged").json()["waitersTotal"].as_u64();
        until("the first waits", || waiters() == Some(1));
        let second = locker.start("run logged -- echo second");
        until("the second waits", || waiters() == Some(2));
        std::thread::sleep(std::time::Duration::from_millis(700));
        holder.signal(rustix::process::Signal::TERM);
        let first = first.end().code(0).prints("first");
        let first = first.says("distlock: waiting for logged: held ").says(" by deploy@ci-7; ");
        first.says("position 1 of ").says("; waited 0s of 5m\n");
        second.end().code(0).prints("second").says("position 2 of 2; waited 0s\n");
    }
}

#[test]
fn machines_are_told_in_events() {
    let (store, folder) = (Store::redis(), Folder::new());
    let locker = on(&store).inside(&folder);
    let holder = hold(&locker, &folder, "--owner deploy@ci-7 --reason why", "events");
    let waiting = locker.start("run --progress json -w 5m events -- sh -c 'exit 3'");
    until("it waits", || locker.run("status --json events").json()["waitersTotal"] == 1);
    std::thread::sleep(std::time::Duration::from_millis(700));
    holder.signal(rustix::process::Signal::TERM);
    let done = waiting.end().code(3);
    let events: Vec<Value> =
        done.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["waiting", "acquired", "ended"]);
    let waiting = &events[0];
    assert_eq!((&waiting["key"], &waiting["position"]), (&"events".into(), &1.into()));
    assert_eq!(waiting["holder"]["owner"], "deploy@ci-7");
    assert_eq!(waiting["maxWaitMs"], 300_000);
    assert!(events[1]["fence"].as_u64() > waiting["holder"]["fence"].as_u64());
}

#[test]
fn a_store_that_refuses_connections_fails_a_command_that_does_not_wait_at_once() {
    for line in ["run -n down -- true", "acquire -n down"] {
        let started = std::time::Instant::now();
        let done = at("redis://127.0.0.1:1").run(line).code(69).says("at redis://127.0.0.1:1");
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_millis(900), "{line} took {took:?}");
        assert!(!done.stderr.contains("of 0s"), "{}", done.stderr);
    }
}

#[test]
fn text_of_other_people_stays_on_its_line() {
    let (store, folder) = (Store::redis(), Folder::new());
    let locker = on(&store).inside(&folder);
    let hostile = "a\u{202e}b\u{200b}c";
    let flags = format!("--owner o{hostile} --reason r{hostile}");
    let _holder = hold(&locker, &folder, &flags, &format!("k{hostile}"));
    let newline = "'line\nbreak\u{1b}[2J'";
    locker.run(&format!("acquire {newline}")).code(0);
    for line in [
        format!("run -n k{hostile} -- true"),
        format!("run -w 600ms k{hostile} -- true"),
        format!("run -n {newline} -- true"),
        format!("status k{hostile}"),
        format!("status {newline}"),
        "ls".to_owned(),
        format!("history k{hostile}"),
        format!("history {newline}"),
    ] {
        let done = locker.run(&line);
        let shown = format!("{}{}", done.stdout, done.stderr);
        assert!(!shown.contains(['\u{202e}', '\u{200b}', '\u{1b}']), "{line}: {shown:?}");
        assert!(!shown.contains("line\nbreak"), "{line}: {shown:?}");
        assert!(!shown.is_empty(), "{line}");
    }
    locker.run("ls").shows("ka\\u{202e}b\\u{200b}c").shows("line\\nbreak");
}

#[test]
fn a_store_that_is_gone_is_named_while_it_is_waited_for() {
    let done = at("redis://127.0.0.1:1").run("run -w 1500ms gone -- true").code(69);
    done.says("waiting for gone: redis://127.0.0.1:1: could not")
        .says("refused")
        .says("; trying again");
}
