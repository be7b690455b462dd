//! The command under the lock: its streams, its arguments, its environment, its end.

use std::process::{Command, Stdio};

use crate::support::*;

#[test]
fn standard_streams_pass_through() {
    let locker = on(&some()).stdin("one\ntwo\n");
    locker.run("run streams -- cat").code(0).prints("one\ntwo").quietly();
    locker.run("run streams -- sh -c 'cat >&2'").code(0).prints("").says("two");
}

#[test]
fn arguments_reach_the_command_as_they_are() {
    let locker = on(&some());
    locker
        .run("run -n arguments -- printf '%s|' -n --wait 5s -- '' 'a b' '$HOME' '*'")
        .code(0)
        .prints("-n|--wait|5s|--||a b|$HOME|*|");
    // Flags after the command are the command's, also without the two dashes.
    locker.run("run -n arguments printf %s. -E --shared").code(0).prints("-E.--shared.");
}

#[test]
fn the_command_knows_what_it_holds() {
    let script = "echo \"$DISTLOCK_KEY $DISTLOCK_OWNER $DISTLOCK_HELD $DISTLOCK_FENCE\"";
    let line = format!("run --owner me 'a key' -- sh -c '{script}'");
    let done = on(&some()).run(&line).code(0);
    let (known, fence) = done.stdout.trim().rsplit_once(' ').unwrap();
    assert_eq!(known, "a key me a%20key");
    let first: u64 = fence.parse().unwrap();
    let again = on(&some()).run(&line);
    let second: u64 = again.stdout.trim().rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(second > first, "the fence grows: {first}, then {second}");
}

#[test]
fn asking_again_inside_is_refused_instead_of_waiting_for_ever() {
    let binary = env!("CARGO_BIN_EXE_distlock");
    let locker = on(&some());
    let inner = |flags: &str| format!("run nested -- {binary} run {flags} nested -- echo inside");
    locker.run(&inner("")).code(64).says("already held by this command");
    locker.run(&inner("--reentrant")).code(0).prints("inside");
    locker.run(&format!("run nested -- {binary} run -n other -- echo other")).prints("other");
    // The outer one holds on after the inner one has gone.
    let script = format!("{binary} run --reentrant kept -- true; {binary} status --exit-code kept");
    locker.run(&format!("run kept -- sh -c '{script}'")).code(75);
    locker.run("status --exit-code kept").code(0);
}

#[test]
fn a_command_without_a_terminal_leads_a_group_of_its_own() {
    let script = "ps -o pgid= -p $$ | tr -d \" \"; echo $$";
    let done = on(&some()).run(&format!("run group -- sh -c '{script}'")).code(0);
    let (group, pid) = done.stdout.trim().split_once('\n').unwrap();
    assert_eq!(group, pid);
}

#[test]
fn signals_that_are_ignored_stay_ignored() {
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$0\" run ignoring -- sh -c 'kill -HUP $$; echo survived'";
    command.args(["-c", script, env!("CARGO_BIN_EXE_distlock")]).env("DISTLOCK_URL", some().url());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "survived", "as under nohup");
}

#[test]
fn the_lock_is_free_when_the_command_line_returns() {
    for store in Store::each() {
        let locker = on(&store);
        for _ in 0..5 {
            locker.run("run -n returned -- true").code(0).quietly();
        }
        locker.run("status --exit-code returned").code(0).prints("returned: free");
    }
}

#[test]
fn nothing_leaks_into_the_command() {
    let list = ["ls", "/proc/self/fd"];
    let bare = Command::new(list[0]).arg(list[1]).stdin(Stdio::null()).output().unwrap();
    let bare = String::from_utf8(bare.stdout).unwrap();
    on(&some()).run("run leaks -- ls /proc/self/fd").code(0).prints(bare.trim_end());
}

#[test]
fn an_environment_of_any_size_reaches_the_command() {
    // More than fits into a pipe.
    let many = vec!["k".repeat(100); 900].join(" ");
    let locker = on(&some()).env("DISTLOCK_HELD", &many);
    let script = "echo ${#DISTLOCK_HELD} $DISTLOCK_KEY";
    let expected = format!("{} large", many.len() + " large".len());
    locker.run(&format!("run large -- sh -c '{script}'")).code(0).prints(&expected);
}
