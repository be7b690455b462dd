//! The doctor: finds what is amiss with a store, and says what to do about it.

use distlock_testkit::servers::{RedisCluster, RedisSentinel, RedisServer, RedisServerOptions};
use serde_json::Value;

use crate::support::*;

fn findings(done: &Done) -> Vec<Value> {
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no {check} among {findings:#?}"))
}

fn grade<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    &of(findings, check)["grade"]
}

#[test]
fn doctor_finds_a_healthy_store_healthy() {
    for store in Store::each() {
        let findings = findings(&on(&store).run("doctor --json").code(0));
        assert_eq!(grade(&findings, "reach"), "ok", "{findings:#?}");
        assert_eq!(grade(&findings, "lock"), "ok", "{findings:#?}");
        on(&store).run("ls").says("nothing is held");
    }
}

#[test]
fn doctor_says_what_to_mend() {
    let args = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"].map(str::to_owned);
    let server = RedisServer::start_with(RedisServerOptions { args: args.into() });
    let done = at(&server.url()).run("doctor").code(0);
    assert!(done.stdout.contains("set maxmemory-policy noeviction"), "{}", done.stdout);
    assert!(done.stdout.contains("set appendonly yes"), "{}", done.stdout);
    server.command(&["ACL", "SETUSER", "locker", "on", ">pw", "~*", "resetchannels", "+@all"]);
    let url = format!("redis://locker:pw@127.0.0.1:{}/", server.port());
    let done = at(&url).run("doctor").code(0);
    assert!(done.stdout.contains("+subscribe"), "{}", done.stdout);
    server.command(&["ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+info", "+hello"]);
    let url = format!("redis://reader:pw@127.0.0.1:{}/", server.port());
    let done = at(&url).run("doctor").code(77);
    assert!(done.stdout.contains("fail"), "{}", done.stdout);
    at("memory:").run("doctor").code(0);
}

#[test]
fn doctor_knows_what_sentinels_need() {
    let mut sentinel = RedisSentinel::start();
    let url = sentinel.url();
    let findings = findings(&at(&url).run("doctor --json").code(0));
    for (check, says) in [("sentinels", "3"), ("replicas", "1"), ("role", "primary")] {
        assert_eq!(of(&findings, check)["finding"], says, "{findings:#?}");
    }
    assert_eq!(grade(&findings, "lock"), "ok", "{findings:#?}");
    assert!(!findings.iter().any(|finding| finding["check"] == "store"), "{findings:#?}");

    let (hosts, name) = url.rsplit_once('/').unwrap();
    let done = at(&format!("{hosts},127.0.0.1:1/{name}")).run("doctor").code(0);
    done.shows("warn  store").shows("3 of the 4 Sentinels of the URL watch the primary: start");
    sentinel.replica.kill();
    let alone = || at(&url).run("doctor").stdout.contains("nobody can take over");
    until("the primary notices that its replica is gone", alone);

    let unknown = at(&format!("{hosts}/nobody")).run("doctor").code(69);
    unknown.shows("fail  reach").shows("knows the primary by that name");
    at("redis-sentinel://127.0.0.1:1/locks").run("doctor").code(69).shows("a Sentinel of the URL");
}

#[test]
fn doctor_knows_what_a_cluster_needs() {
    let mut cluster = RedisCluster::start();
    let url = cluster.url();
    let done = at(&url).run("doctor --json").code(0);
    let findings = findings(&done);
    for (check, says) in [("primaries", "3"), ("replicas", "0")] {
        assert_eq!(of(&findings, check)["finding"], says, "{findings:#?}");
    }
    assert_eq!(grade(&findings, "lock"), "ok", "{findings:#?}");
    done.shows("3 of 3 primaries have no replica").shows("add replicas");

    cluster.primaries()[2].kill();
    until("the others give it up", || {
        let info = cluster.primaries()[0].command(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:fail")
    });
    let done = at(&url).run("doctor").code(69);
    done.shows("of 16384 slots").shows("start the missing nodes").shows("fail  lock");
    drop(cluster);
    at(&url).run("doctor").code(69).shows("fail  reach").shows("a node of the URL runs");
}
