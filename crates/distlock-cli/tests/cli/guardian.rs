//! Killing the wrapper: nothing of the command works on without the lock.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::*;

/// A command with five more processes below it: one in its group, one two steps below, one in a
/// session of its own, one that was forked twice and left for a session, and one that is stopped.
/// All of them ignore TERM.
const TREE: &str = "trap \"\" TERM HUP; echo $$ > new; sleep 100 & echo $! >> new; \
    sh -c \"sleep 101 & echo \\$! >> new; wait\" & \
    setsid sleep 102 & echo $! >> new; \
    (setsid sh -c \"sleep 103 & echo \\$! >> new\" &); \
    sleep 104 & echo $! >> new; kill -STOP $!; \
    while test $(wc -l < new) -lt 6; do sleep 0.01; done; mv new pids; while :; do wait; done";

/// Says whether anything of the former command still lives.
const LOOK: &str = "for p in $(cat pids); do \
    grep -qs \"^State:.[^ZX]\" /proc/$p/status && echo alive $p; done; echo in";

fn pids(folder: &Folder) -> Vec<String> {
    folder.read("pids").lines().map(str::to_owned).collect()
}

/// Waits until nothing of the tree lives; returns how long that took.
fn until_dead(pids: &[String]) -> Duration {
    let started = Instant::now();
    until("nothing of the tree lives", || !pids.iter().any(|pid| lives(pid)));
    started.elapsed()
}

/// The parent of a process.
fn parent(pid: &str) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit_once(')').unwrap().1;
    Pid::from_raw(after.split_whitespace().nth(1).unwrap().parse().unwrap()).unwrap()
}

#[test]
fn a_killed_wrapper_takes_the_whole_tree_along_before_the_lease_ends() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let running = locker.start(&format!("run -t 4s --kill-after 1s tree -- sh -c '{TREE}'"));
        until("the command runs", || !folder.read("pids").is_empty());
        let pids = pids(&folder);
        assert!(pids.len() == 6 && pids.iter().all(|pid| lives(pid)), "{pids:?}");
        let next = locker.start(&format!("run -q -w 60s tree -- sh -c '{LOOK}'"));
        running.signal(Signal::KILL);
        let took = until_dead(&pids);
        assert!(took < Duration::from_millis(2_500), "dead after {took:?}, of a lease of 4 s");
        running.end();
        next.end().code(0).prints("in");
    }
}

#[test]
fn a_process_that_starts_others_all_the_time_is_caught() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    // Each one starts the next and ends: a process that is seen has gone already.
    std::fs::write(folder.path("chain"), "echo >> alive; sh ./chain &").unwrap();
    let running = locker.start("run chain -- sh -c 'setsid sh ./chain & sleep 100'");
    let links = || folder.read("alive").len();
    until("the chain runs", || links() > 5);
    running.signal(Signal::KILL);
    running.end();
    let mut before = (links(), Instant::now());
    until("the chain has ended", || {
        if links() > before.0 {
            before = (links(), Instant::now());
        }
        before.1.elapsed() > Duration::from_secs(1)
    });
}

#[test]
fn a_wrapper_killed_with_its_group_takes_the_whole_tree_along() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let mut command = locker.command(&format!("run group-kill -- sh -c '{TREE}'"));
    let mut wrapper = command.process_group(0).spawn().unwrap();
    until("the command runs", || !folder.read("pids").is_empty());
    kill_process_group(Pid::from_child(&wrapper), Signal::KILL).unwrap();
    until_dead(&pids(&folder));
    wrapper.wait().unwrap();
}

#[test]
fn a_wrapper_on_a_terminal_takes_the_whole_tree_along() {
    let folder = Folder::new();
    let script = format!(
        "({TREE}) & until test -s pids; do sleep 0.01; done; \
        kill -9 $(ps -o ppid= -p $PPID); sleep 100"
    );
    std::fs::write(folder.path("tree.sh"), script).unwrap();
    let line = format!("{} run tty-kill -- sh ./tree.sh", env!("CARGO_BIN_EXE_distlock"));
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).current_dir(folder.path(""));
    command.env("DISTLOCK_URL", some().url()).stdin(Stdio::null()).stdout(Stdio::null());
    command.status().expect("script(1) is there");
    assert_eq!(pids(&folder).len(), 6);
    until_dead(&pids(&folder));
}

#[test]
fn without_its_guardian_a_command_does_not_run_on() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let running = locker.start(&format!("run orphaned -- sh -c '{TREE}'"));
    until("the command runs", || !folder.read("pids").is_empty());
    let pids = pids(&folder);
    let guardian = parent(&pids[0]);
    assert_ne!(guardian, running.pid());
    kill_process(guardian, Signal::KILL).unwrap();
    running.end().code(125).says("guardian");
    assert!(!pids.iter().any(|pid| lives(pid)), "dead before the lock is free");
    locker.run("status --exit-code orphaned").code(0);
}

#[test]
fn what_a_command_leaves_behind_when_it_ends_by_itself_goes_on() {
    let folder = Folder::new();
    let script = "setsid sleep 100 > /dev/null 2>&1 & echo $! > left; exit 3";
    on(&some()).inside(&folder).run(&format!("run leaves -- sh -c '{script}'")).code(3);
    let left = folder.read("left");
    let pid = Pid::from_raw(left.trim().parse().unwrap()).unwrap();
    let guardians_left = || parent(left.trim()).as_raw_nonzero().get();
    until("its guardian has gone", || {
        let name = std::fs::read_to_string(format!("/proc/{}/cmdline", guardians_left()));
        !name.is_ok_and(|name| name.contains("__guard"))
    });
    assert!(lives(&left));
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    // The orphan's parent has ended, so it has become a child of the guardian.
    let script = "(sh -c \"echo \\$\\$ > orphan; exit 0\" &); until test -s orphan; do sleep 0.01; \
        done; while test -e /proc/$(cat orphan); do sleep 0.01; done; echo reaped";
    let folder = Folder::new();
    on(&some())
        .inside(&folder)
        .run(&format!("run -w 5s reap -- sh -c '{script}'"))
        .prints("reaped");
}

#[test]
fn a_script_that_names_no_shell_is_run_by_one() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    std::fs::write(folder.path("plain"), "echo \"$1\"; exit 5").unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path("plain"), mode).unwrap();
    on(&some()).inside(&folder).run("run script -- ./plain 'a b'").code(5).prints("a b");
}
