//! Signals to the wrapper: passed on, escalated, and never a command left behind.

use rustix::process::Signal;

use crate::support::*;

/// Starts a command that notes signals down and goes on, with a child of its own.
fn stubborn(locker: &Distlock, folder: &Folder, key: &str) -> Running {
    let script = "trap \"echo INT >> seen\" INT; trap \"echo TERM >> seen\" TERM; \
        sleep 100 & echo $! > grandchild; echo $$ > child; while :; do wait; done";
    let running = locker.start(&format!("run {key} -- sh -c '{script}'"));
    until("the command runs", || folder.read("child").ends_with('\n'));
    running
}

#[test]
fn a_signal_is_passed_on_and_its_effect_passed_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let folder = Folder::new();
        let locker = on(&some()).inside(&folder);
        let key = format!("passed-on-{code}");
        let running = hold(&locker, &folder, "", &key);
        running.signal(signal);
        running.end().code(code);
        locker.run(&format!("status --exit-code {key}")).code(0);
    }
}

#[test]
fn one_signal_is_a_request_and_a_second_an_order() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT")] {
        let folder = Folder::new();
        let locker = on(&some()).inside(&folder);
        let key = format!("twice-{name}");
        let mut running = stubborn(&locker, &folder, &key);
        running.signal(signal);
        until("the command has heard it", || folder.read("seen").contains(name));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!running.is_over(), "a command that handles {name} goes on");
        locker.run(&format!("status --exit-code {key}")).code(75);
        running.signal(signal);
        running.end().code(137);
        until("all of it is dead", || {
            !lives(&folder.read("child")) && !lives(&folder.read("grandchild"))
        });
        locker.run(&format!("status --exit-code {key}")).code(0);
    }
}

#[test]
fn user_signals_pass_through_as_often_as_they_come() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let script = "trap \"echo one >> seen\" USR1; echo $$ > child; while :; do sleep 0.05; done";
    let running = locker.start(&format!("run usr -- sh -c '{script}'"));
    until("the command runs", || folder.read("child").ends_with('\n'));
    for times in 1..=3 {
        running.signal(Signal::USR1);
        until("it was heard", || folder.read("seen").lines().count() == times);
    }
    running.signal(Signal::TERM);
    running.end().code(143);
}

#[test]
fn killing_the_wrapper_takes_the_command_along() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let running = hold(&locker, &folder, "-t 2s --kill-after 1s", "killed");
        let child = folder.read("held");
        assert!(lives(&child));
        running.signal(Signal::KILL);
        until("the command is dead", || !lives(&child));
        assert_eq!(running.end().status.code(), None);
        // No client has released the key; it is free when the lease ends.
        locker.run("run -w 30s killed -- echo next").code(0).prints("next");
    }
}

#[test]
fn killing_a_wrapper_that_waits_leaves_nobody_behind() {
    let (store, folder) = (Store::sqlite(), Folder::new());
    let locker = on(&store).inside(&folder);
    let _holder = hold(&locker, &folder, "", "standing");
    let waiting = locker.start("run standing -- touch ran");
    let pid = waiting.pid().as_raw_nonzero().to_string();
    let standing_by = || {
        let found = std::process::Command::new("ps").args(["-o", "pid=", "--ppid", &pid]).output();
        String::from_utf8(found.unwrap().stdout).unwrap().trim().to_owned()
    };
    until("a client stands by", || lives(&standing_by()));
    let launcher = standing_by();
    waiting.signal(Signal::KILL);
    until("no client stands by", || !lives(&launcher));
    waiting.end();
    assert_eq!(folder.names(), ["held"], "nothing of the command has run");
}

#[test]
fn a_signal_while_waiting_leaves_the_queue_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (store, folder) = (Store::redis(), Folder::new());
        let locker = on(&store).inside(&folder);
        let _holder = hold(&locker, &folder, "", "queue");
        let waiting = locker.start("run queue -- touch ran");
        let waiters = || locker.run("status --json queue").json()["waitersTotal"].as_u64();
        until("it waits", || waiters() == Some(1));
        waiting.signal(signal);
        waiting.end().code(code);
        assert_eq!(waiters(), Some(0), "the place is gone with the waiter");
        assert_eq!(folder.read("ran"), "");
    }
}

#[test]
fn a_wrapper_that_stood_still_too_long_ends_its_command_first_thing() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let mut running = hold(&locker, &folder, "-t 2s --kill-after 1s", "stopped");
        let child = folder.read("held");
        running.signal(Signal::STOP);
        // Another client enters when the lease is over; the fence tells the two apart.
        locker.run("run -w 30s stopped -- true").code(0);
        assert!(!running.is_over() && lives(&child), "no client could stop it meanwhile");
        running.signal(Signal::CONT);
        running.end().code(79).says("LOST stopped").says("SIGKILL");
        assert!(!lives(&child));
    }
}
