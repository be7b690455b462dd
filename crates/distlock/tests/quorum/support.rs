//! Nodes to make quorums of: real servers, and memories that can forget.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use distlock::Backend;
use distlock::backends::{Quorum, QuorumOptions, Redis};
use distlock_testkit::servers::RedisServer;

/// Gives nodes names by their sequence.
pub(crate) fn named(
    nodes: impl Iterator<Item = Arc<dyn Backend>>,
) -> Vec<(String, Arc<dyn Backend>)> {
    nodes.enumerate().map(|(index, node)| (format!("node-{index}"), node)).collect()
}

/// Redis servers of a test's own.
pub(crate) struct Servers(Vec<RedisServer>);

impl Servers {
    pub(crate) fn start(count: usize) -> Self {
        Self((0..count).map(|_| RedisServer::start()).collect())
    }

    /// A client of the quorum of all of them.
    pub(crate) fn quorum(&self, options: QuorumOptions) -> Quorum {
        // A node gives up when the quorum does, not before.
        let patience = options.node_timeout.as_millis();
        let node = |server: &RedisServer| {
            let url = format!("{}?response_timeout_ms={patience}", server.url());
            Arc::new(Redis::open(&url).unwrap()) as Arc<dyn Backend>
        };
        Quorum::with_options(named(self.0.iter().map(node)), options).unwrap()
    }
}

impl Deref for Servers {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.0
    }
}

impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut [RedisServer] {
        &mut self.0
    }
}
