//! Looking at locks, and an operator's hand on them.

use std::io::{BufRead, BufReader};

use crate::support::*;

#[test]
fn status_and_ls_show_holder_and_queue() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        locker.run("ls").code(0).prints("").says("nothing is held");
        let _holder = hold(&locker, &folder, "--owner deploy@ci-7 --reason why", "deploy/prod");
        let _waiter = locker.start("run --owner next@ci-8 -q deploy/prod -- true");
        let seen = || locker.run("status --json deploy/prod").json();
        until("a client waits", || seen()["waitersTotal"] == 1);
        let seen = seen();
        assert_eq!((&seen["held"], &seen["holdersTotal"]), (&true.into(), &1.into()));
        assert_eq!(seen["waiters"][0]["owner"], "next@ci-8");
        let page = locker.run("status deploy/prod").code(0).stdout;
        for part in ["deploy@ci-7 (why)", "fence ", "1.      next@ci-8", "unless renewed"] {
            assert!(page.contains(part), "no {part:?} in {page}");
        }
        let _other = hold(&locker, &folder, "", "nightly");
        let table = locker.run("ls").code(0).stdout;
        let first: Vec<_> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(first, ["KEY", "deploy/prod", "nightly"]);
        let listed = locker.run("ls --json deploy/").code(0);
        assert_eq!(listed.json()["key"], "deploy/prod");
    }
}

#[test]
fn a_watch_without_a_store_does_not_say_that_nothing_is_held() {
    let server = distlock_testkit::servers::RedisServer::start();
    let url = server.url();
    drop(server);
    let mut watch = at(&url).command("watch --interval 100ms").spawn().unwrap();
    let mut shown = String::new();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    while shown.matches(" since ").count() < 3 {
        shown.push_str(&lines.next().unwrap().unwrap());
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(!shown.contains("nothing is held") && !shown.contains("HOLDER"), "{shown}");
    assert!(
        shown.contains("nothing is known, since ") && shown.contains(url.trim_end_matches('/')),
        "{shown}"
    );
}

#[test]
fn an_operator_breaks_what_was_seen_and_nothing_newer() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        let holder = hold(&locker, &folder, "-t 3s --kill-after 1s", "stuck");
        let child = folder.read("held");
        let seen = locker.run("status --json stuck").json();
        let fence = seen["holders"][0]["fence"].as_u64().unwrap();
        let break_at = |fence: u64| format!("break stuck --fence {fence} --reason 'it hangs'");
        locker.run(&break_at(fence - 1)).code(75).says("any more");
        assert!(lives(&child));
        locker.run(&break_at(fence)).code(0).says("it hangs");
        locker.run("run -n stuck -- true").code(0);
        holder.end().code(79).says("LOST stuck");
        assert!(!lives(&child));
        locker.run(&break_at(fence)).code(75);
    }
}

#[test]
fn a_leader_stands_again_when_leadership_goes() {
    let (store, folder) = (Store::redis(), Folder::new());
    let locker = on(&store).inside(&folder);
    let script = "echo $DISTLOCK_FENCE >> terms; exec sleep 100";
    let leader = locker.start(&format!("elect -t 3s --kill-after 1s lead -- sh -c '{script}'"));
    until("it leads", || folder.read("terms").lines().count() == 1);
    let fence = folder.read("terms").trim().to_owned();
    locker.run(&format!("break lead --fence {fence} --reason coup")).code(0);
    until("it leads again", || folder.read("terms").lines().count() == 2);
    leader.signal(rustix::process::Signal::TERM);
    leader.end().code(143).says("LOST lead");
    locker.run("elect lead -- sh -c 'exit 5'").code(5);
    locker.run("status --exit-code lead").code(0);
}
