//! Every flag of `run` does what the manual says.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::*;

#[test]
fn those_who_share_run_together_and_exclude_those_who_do_not() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let reader = hold(&locker, &folder, "--shared", "shared");
        locker.run("run -n -s shared -- echo too").code(0).prints("too");
        locker.run("run -n shared -- true").code(75);
        reader.stop();
        let _writer = hold(&locker, &folder, "-w 60s", "shared");
        locker.run("run -n -s shared -- true").code(75);
    }
}

#[test]
fn at_most_so_many_hold_at_once() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let _first = hold(&locker, &folder, "-N 2", "permits");
        let second = hold(&locker, &folder, "--permits 2", "permits");
        locker.run("run -n -N 2 permits -- true").code(75);
        locker.run("run -n -N 3 permits -- true").code(0);
        second.stop();
        locker.run("run -w 60s -N 2 permits -- true").code(0);
    }
}

#[test]
fn a_key_is_kept_for_at_least_as_long_as_asked() {
    let locker = on(&some());
    let started = Instant::now();
    locker.run("run --at-least 100s at-least -- true").code(0);
    assert!(started.elapsed() < Duration::from_secs(50), "distlock itself returns at once");
    locker.run("run -n at-least -- true").code(75);
    locker.run("run --preset cron at-least -- echo ran").code(0).prints("").quietly();
    locker.run("run --preset cron in-cron -- echo ran").code(0).prints("ran");
    locker.run("run --preset cron in-cron -- echo ran").code(0).prints("");
}

#[test]
fn a_command_that_holds_too_long_is_stopped() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let script = "trap \"echo TERM > seen; exit 0\" TERM; sleep 100 & wait";
    let line = format!("run --max-hold 300ms max-hold -- sh -c '{script}'");
    locker.run(&line).code(124).says("SIGTERM");
    assert_eq!(folder.read("seen"), "TERM\n");
    // One that does not listen is killed, with all it has started.
    let script = "trap \"\" TERM; sleep 100 & echo $! > grandchild; while :; do wait; done";
    let line = format!("run --max-hold 300ms --kill-after 200ms max-hold -- sh -c '{script}'");
    locker.run(&line).code(124).says("SIGKILL");
    assert!(!lives(&folder.read("grandchild")));
    locker.run("status --exit-code max-hold").code(0);
}

#[test]
fn owner_and_reason_are_shown_to_those_who_wait() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let _holder = hold(&locker, &folder, "--owner deploy@ci-7 --reason 'release 1.9'", "shown");
    locker.run("run -w 100ms shown -- true").code(75).says("by deploy@ci-7 (release 1.9)");
    let seen = locker.run("status --json shown").json();
    assert_eq!(seen["holders"][0]["owner"], "deploy@ci-7");
    assert_eq!(seen["holders"][0]["reason"], "release 1.9");
    let mine = locker.run("run mine -- sh -c 'echo $DISTLOCK_OWNER'").stdout;
    assert!(mine.starts_with("tester@") && mine.contains(':'), "{mine}");
    // Without a name in the environment, the system's own name of this user.
    let known = std::process::Command::new("id").arg("-un").output().unwrap().stdout;
    let known = String::from_utf8(known).unwrap();
    let mut bare = locker.command("run mine -- sh -c 'echo $DISTLOCK_OWNER'");
    bare.env_remove("USER").env_remove("LOGNAME");
    let owner = String::from_utf8(bare.output().unwrap().stdout).unwrap();
    assert!(owner.starts_with(&format!("{}@", known.trim())), "{owner}");
}

#[test]
fn a_report_tells_machines_how_it_went() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let report = |line: &str| -> Value {
        locker.run(line);
        serde_json::from_str(&folder.read("report")).unwrap()
    };
    let fine = report("run --report report --owner me reported -- sh -c 'exit 3'");
    let members = ["key", "owner", "outcome", "exitCode", "signal", "renewals"];
    let told = members.map(|member| fine[member].clone());
    assert_eq!(json!(told), json!(["reported", "me", "exited", 3, null, 0]));
    assert!(fine["fence"].as_u64() > Some(0) && fine["heldMs"].is_u64(), "{fine}");
    let killed = report("run --report report reported -- sh -c 'kill -9 $$'");
    assert_eq!(json!([killed["outcome"], killed["signal"]]), json!(["signalled", 9]));
    let stopped = report("run --report report --max-hold 50ms reported -- sleep 100");
    assert_eq!(json!([stopped["outcome"], stopped["exitCode"]]), json!(["maxHold", 124]));
    let _holder = hold(&locker, &folder, "", "reported");
    let busy = report("run -n --report report reported -- true");
    assert_eq!(json!([busy["outcome"], busy["fence"]]), json!(["notAcquired", null]));
}

#[test]
fn without_its_backend_a_command_runs_only_if_it_may() {
    let nowhere = at("redis://127.0.0.1:1");
    nowhere.run("run -n down -- echo ran").code(69).prints("");
    nowhere
        .run("run -n --if-down run down -- sh -c 'echo ran${DISTLOCK_FENCE}; exit 4'")
        .code(4)
        .prints("ran")
        .says("WITHOUT the lock down");
}

#[test]
fn chatter_can_be_had_and_be_spared() {
    let locker = on(&some());
    locker.run("run chatter -- true").quietly();
    locker.run("run -v chatter -- true").says("acquired chatter, fence").says("released chatter");
    locker.run("run -q -v chatter -- true").code(64);
    let folder = Folder::new();
    let _holder = hold(&on(&some()).inside(&folder), &folder, "", "chatter");
    locker.run("run -q -w 50ms chatter -- true").code(75).quietly();
    locker.run("run --progress none -w 50ms chatter -- true").code(75).says("could not acquire");
}

#[test]
fn a_jitter_delays_no_longer_than_it_says() {
    on(&some()).run("run --jitter 50ms jitter -- echo ran").code(0).prints("ran");
    let waiting = on(&some()).start("run --jitter 1000h jitter -- echo ran");
    std::thread::sleep(Duration::from_millis(300));
    waiting.signal(rustix::process::Signal::INT);
    waiting.end().code(130).prints("");
}

#[test]
fn a_lock_delay_counts_after_a_loss_and_not_after_a_release() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    locker.run("run --lock-delay 100s delayed -- true").code(0);
    locker.run("run -n delayed -- true").code(0);
    let flags = "--lock-delay 100s -t 2s --kill-after 1s";
    let holder = hold(&locker, &folder, flags, "delayed");
    holder.signal(rustix::process::Signal::KILL);
    holder.end();
    // Two seconds would be enough without the delay.
    locker.run("run -w 3s delayed -- true").code(75);
}
