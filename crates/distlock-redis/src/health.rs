//! What a server tells about itself, as far as locks care.

use std::collections::HashMap;

use distlock_core::Health;

/// What `INFO` says.
pub(super) fn of(info: &str) -> Health {
    let fields: HashMap<_, _> =
        info.lines().filter_map(|line| line.trim().split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let mut health = Health::new(field("run_id"), field("run_id"));
    health.persistent = field("aof_enabled") == "1";
    health.replica = field("role") == "slave";
    health.clock_us = field("server_time_usec").parse().ok();
    let server = if fields.contains_key("valkey_version") { "valkey" } else { "redis" };
    let version = fields.get("valkey_version").copied().unwrap_or(field("redis_version"));
    health.facts = vec![
        ("version", format!("{server} {version}")),
        ("role", if field("role") == "slave" { "replica" } else { "primary" }.into()),
        ("replicas", field("connected_slaves").into()),
        ("eviction", field("maxmemory_policy").into()),
        ("persistence", if health.persistent { "append-only file" } else { "" }.into()),
    ];
    health.facts.retain(|(_, value)| !value.is_empty());
    let warnings = &mut health.warnings;
    let policy = field("maxmemory_policy");
    if policy != "noeviction" && !policy.is_empty() {
        warnings.push(format!(
            "the eviction policy is {policy}, which deletes locks when memory is short: \
             set maxmemory-policy noeviction"
        ));
    }
    if health.replica {
        warnings.push("this server is a replica: connect to the primary".to_owned());
    }
    if field("loading") == "1" {
        warnings.push("the server is still loading its data: wait until it has".to_owned());
    }
    if matches!(field("aof_last_write_status"), "err") {
        warnings.push("the append-only file cannot be written: free the disk".to_owned());
    }
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < 7) {
        warnings.push(format!("{server} {version} is too old: use version 7 or later"));
    }
    health
}

/// Several nodes of one store as one: known by the first of them, as good as the worst.
pub(super) fn whole(mut nodes: Vec<Health>) -> Health {
    nodes.sort_by(|a, b| a.identity.cmp(&b.identity));
    let mut all = nodes.first().cloned().unwrap_or_else(|| Health::new("", ""));
    if nodes.len() > 1 {
        let copies: u64 = nodes.iter().filter_map(replicas).sum();
        all.facts.retain(|(name, _)| *name != "replicas");
        all.facts.push(("primaries", nodes.len().to_string()));
        all.facts.push(("replicas", copies.to_string()));
    }
    all.persistent = nodes.iter().all(|node| node.persistent);
    all.replica = nodes.iter().any(|node| node.replica);
    all.warnings = nodes.into_iter().flat_map(|node| node.warnings).collect();
    all.warnings.sort();
    all.warnings.dedup();
    all
}

/// How many servers copy this one, if it says.
pub(super) fn replicas(health: &Health) -> Option<u64> {
    let fact = health.facts.iter().find(|(name, _)| *name == "replicas");
    fact.and_then(|(_, count)| count.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_info() {
        let health = of(
            "redis_version:7.0.15\r\nrun_id:abc\r\nserver_time_usec:1700000000000000\r\n\
             role:master\r\nconnected_slaves:2\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n",
        );
        assert!(health.persistent && health.warnings.is_empty(), "{health:?}");
        assert_eq!(health.clock_us, Some(1_700_000_000_000_000));
        assert!(health.facts.contains(&("version", "redis 7.0.15".to_owned())));
        assert!(health.facts.contains(&("replicas", "2".to_owned())));
    }

    #[test]
    fn what_endangers_locks_is_told_with_its_cure() {
        for (info, cure) in [
            ("maxmemory_policy:allkeys-lru", "noeviction"),
            ("role:slave", "primary"),
            ("redis_version:6.2.1", "version 7"),
            ("loading:1", "wait"),
            ("aof_last_write_status:err", "disk"),
        ] {
            let warnings = of(info).warnings;
            assert!(warnings.len() == 1 && warnings[0].contains(cure), "{info}: {warnings:?}");
        }
    }

    #[test]
    fn many_nodes_are_as_good_as_the_worst() {
        let good = of("run_id:b\naof_enabled:1\nconnected_slaves:2");
        let bad = of("run_id:a\nrole:slave\nconnected_slaves:1");
        let all = whole(vec![good, bad]);
        assert_eq!(replicas(&all), Some(3));
        assert_eq!((all.identity.as_str(), all.persistent, all.warnings.len()), ("a", false, 1));
    }
}
