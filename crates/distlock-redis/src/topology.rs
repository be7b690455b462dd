//! How the servers of one store stand together: what only Sentinel and Cluster can have amiss.

use distlock_core::{Fault, Health};
use redis::Value;

use super::codec;
use super::config::Topology;
use super::connection::Node;
use super::connections::RedisConnections;
use super::health;
use super::library;

/// Every key is in one of so many slots.
const SLOTS: u64 = 16_384;

/// Every Sentinel listens to this on the primary that it watches.
const HELLO: &str = "__sentinel__:hello";

/// Fewer Sentinels cannot agree on a failover when one of them goes with the primary.
const SENTINELS_MIN: u64 = 3;

/// What all servers of a store say about themselves and about each other.
pub(super) async fn probe(connections: &RedisConnections) -> Result<Health, Fault> {
    let mut seen = Vec::new();
    for node in &connections.nodes().await? {
        let info = connections.run_at(node, "probe", &redis::cmd("INFO")).await?;
        seen.push(health::of(&codec::as_str(&info)?));
    }
    let mut health = health::whole(seen);
    health.warnings.extend(other_libraries(connections).await);
    add_topology(connections, &mut health).await;
    Ok(health)
}

/// Libraries of other versions of distlock. They are there as long as clients of these versions may
/// call them, which only an operator knows.
async fn other_libraries(connections: &RedisConnections) -> Vec<String> {
    let mut cmd = redis::cmd("FUNCTION");
    cmd.arg("LIST").arg("LIBRARYNAME").arg(format!("{}*", library::PREFIX));
    // A user who may not know gets no advice.
    let Ok(listed) = connections.run_at(&Node::Any, "list libraries", &cmd).await else {
        return Vec::new();
    };
    let advice = |name: String| {
        format!(
            "the server has the library {name} of another version of distlock: when no client of \
             that version is left, remove it with redis-cli FUNCTION DELETE {name}"
        )
    };
    names_in(&listed)
        .into_iter()
        .filter(|name| library::is_other_version(name))
        .map(advice)
        .collect()
}

/// All texts in an answer that begin like the name of a library of ours, wherever they stand: the
/// shape depends on the protocol.
fn names_in(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(names_in).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(_, value)| names_in(value)).collect(),
        text => {
            let name = codec::as_str(text).ok().filter(|text| library::is_name(text));
            name.map(|name| vec![name.into_owned()]).unwrap_or_default()
        }
    }
}

/// Adds what the servers say about each other to what they say about themselves. All of it comes
/// over the connection that is there: whoever is down costs no time.
async fn add_topology(connections: &RedisConnections, health: &mut Health) {
    match &connections.config().topology {
        Topology::Sentinel { sentinels, .. } => {
            let mut cmd = redis::cmd("PUBSUB");
            cmd.arg("NUMSUB").arg(HELLO);
            let answer = connections.run("count the Sentinels", &cmd).await;
            // Who may not know cannot be told.
            let watching = answer.ok().and_then(|answer| listeners(&answer));
            watched(health, sentinels.len() as u64, watching);
        }
        Topology::Cluster(_) => {
            let ask = async |what: &str| {
                let mut cmd = redis::cmd("CLUSTER");
                let cmd = cmd.arg(what);
                let answer = connections.run_at(&Node::Any, "look at the cluster", cmd).await?;
                codec::as_str(&answer).map(|text| text.to_string())
            };
            match (ask("INFO").await, ask("NODES").await) {
                (Ok(info), Ok(nodes)) => joined(health, &info, &nodes),
                (Err(fault), _) | (_, Err(fault)) => health.warnings.push(format!(
                    "{fault}: let the user see the cluster, +cluster|info +cluster|nodes"
                )),
            }
        }
        Topology::Server(_) | Topology::Shared(_) => {}
    }
}

/// The number in the answer to `PUBSUB NUMSUB`: the channel, then how many listen to it.
fn listeners(answer: &Value) -> Option<u64> {
    let number = |value: &Value| match value {
        Value::Int(count) => u64::try_from(*count).ok(),
        _ => None,
    };
    match answer {
        Value::Array(pair) => pair.iter().find_map(number),
        Value::Map(pairs) => pairs.iter().find_map(|(_, count)| number(count)),
        _ => None,
    }
}

/// A primary that Sentinels watch, so many of them by the URL and so many in truth.
fn watched(health: &mut Health, listed: u64, watching: Option<u64>) {
    if let Some(watching) = watching {
        health.facts.push(("sentinels", watching.to_string()));
        if watching < listed {
            health.warnings.push(format!(
                "{watching} of the {listed} Sentinels of the URL watch the primary: start the \
                 others, or take them out of the URL"
            ));
        } else if watching < SENTINELS_MIN {
            health.warnings.push(format!(
                "{watching} Sentinels watch the primary, too few to agree when one is down: run \
                 at least {SENTINELS_MIN}, on different machines"
            ));
        }
    }
    if health::replicas(health) == Some(0) {
        let nobody = "the primary has no replica, so nobody can take over when it fails: add one";
        health.warnings.push(nobody.to_owned());
    }
}

/// A cluster, from what `CLUSTER INFO` and `CLUSTER NODES` tell.
fn joined(health: &mut Health, info: &str, nodes: &str) {
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|rest| rest.strip_prefix(':')).unwrap_or_default()
    };
    let served = field("cluster_slots_ok").parse().unwrap_or(0);
    if field("cluster_state") != "ok" || served < SLOTS {
        health.warnings.push(format!(
            "the cluster serves {served} of {SLOTS} slots, so some keys cannot be locked: start \
             the missing nodes, or give their slots away with redis-cli --cluster fix"
        ));
    }
    let nodes: Vec<_> = nodes.lines().filter_map(Member::read).collect();
    let (failed, living): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.failed);
    for node in failed {
        health.warnings.push(format!(
            "the others have given up the node at {}: start it, or let them forget it with \
             redis-cli --cluster del-node",
            node.at
        ));
    }
    let primaries = || living.iter().filter(|node| node.copies.is_none());
    let copied = |id: &str| living.iter().any(|node| node.copies == Some(id));
    let alone: Vec<_> = primaries().filter(|node| !copied(node.id)).map(|node| node.at).collect();
    if !alone.is_empty() {
        health.warnings.push(format!(
            "{} of {} primaries have no replica ({}), so a part of the keys cannot be locked while \
             such a one is down: add replicas with redis-cli --cluster add-node --cluster-slave",
            alone.len(),
            primaries().count(),
            alone.join(", ")
        ));
    }
}

/// A line of `CLUSTER NODES`.
struct Member<'a> {
    id: &'a str,
    at: &'a str,
    /// The id of its primary, if it is a replica.
    copies: Option<&'a str>,
    failed: bool,
}

impl<'a> Member<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let (id, at, flags, copies) = (words.next()?, words.next()?, words.next()?, words.next()?);
        Some(Self {
            id,
            at: at.split(['@', ',']).next()?,
            copies: Some(copies).filter(|id| *id != "-"),
            failed: flags.split(',').any(|flag| flag == "fail"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(look: impl Fn(&mut Health)) -> Vec<String> {
        let mut health = Health::new("", "");
        look(&mut health);
        health.warnings
    }

    #[test]
    fn a_whole_cluster_needs_nothing() {
        let info = "cluster_state:ok\r\ncluster_slots_ok:16384\r\n";
        let nodes = "a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383\n\
                     b 127.0.0.1:3@4 slave a 0 0 1 connected\n";
        assert_eq!(warnings(|health| joined(health, info, nodes)), Vec::<String>::new());
    }

    #[test]
    fn what_a_cluster_lacks_is_told_with_its_cure() {
        let info = "cluster_state:fail\r\ncluster_slots_ok:10923\r\n";
        let nodes = "a 127.0.0.1:1@2,host myself,master - 0 0 1 connected 0-5460\n\
                     b 127.0.0.1:3@4 slave a 0 0 1 connected\n\
                     c 127.0.0.1:5@6 master,fail - 0 0 2 disconnected 5461-10922\n\
                     d 127.0.0.1:7@8 master - 0 0 3 connected 10923-16383\n";
        let warnings = warnings(|health| joined(health, info, nodes));
        let parts = ["10923 of 16384", "127.0.0.1:5: start it", "1 of 2 primaries have no replica"];
        assert_eq!(warnings.len(), parts.len(), "{warnings:#?}");
        for (warning, part) in warnings.iter().zip(parts) {
            assert!(warning.contains(part), "no {part:?} in {warning}");
        }
        assert!(warnings[2].contains("(127.0.0.1:7)"), "{warnings:#?}");
    }

    #[test]
    fn what_sentinels_lack_is_told_with_its_cure() {
        for (listed, watching, replicas, part) in [
            (3, Some(3), "1", ""),
            (3, None, "1", ""),
            (3, Some(2), "1", "2 of the 3 Sentinels of the URL watch the primary: start"),
            (1, Some(1), "1", "run at least 3"),
            (1, Some(3), "0", "no replica, so nobody can take over when it fails: add one"),
        ] {
            let warnings = warnings(|health| {
                health.facts.push(("replicas", replicas.to_owned()));
                watched(health, listed, watching);
            });
            assert_eq!(warnings.len(), usize::from(!part.is_empty()), "{warnings:#?}");
            assert!(warnings.iter().all(|warning| warning.contains(part)), "{warnings:#?}");
        }
    }

    #[test]
    fn listeners_are_counted_in_every_shape() {
        let name = || Value::BulkString(HELLO.into());
        assert_eq!(listeners(&Value::Array(vec![name(), Value::Int(3)])), Some(3));
        assert_eq!(listeners(&Value::Map(vec![(name(), Value::Int(2))])), Some(2));
        assert_eq!(listeners(&Value::Nil), None);
    }
}
