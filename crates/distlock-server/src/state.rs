//! What all requests share: the locks, the choices, the limits, the counters. No lock state.

use std::net::SocketAddr;

use distlock::{Locks, Order};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::summary::Watcher;

/// The service as its handlers see it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) locks: Locks,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) watcher: Watcher,
    /// Cancelled when the service is to stop: whoever waits is sent away.
    pub(crate) stop: CancellationToken,
}

impl App {
    pub(crate) fn new(config: Config, locks: Locks) -> Self {
        Self {
            locks,
            limits: Limits::new(&config),
            config,
            metrics: Metrics::default(),
            watcher: Watcher::default(),
            stop: CancellationToken::new(),
        }
    }

    /// The order of mutexes, so that those who share and those who do not can meet; or what the
    /// backend offers instead.
    pub(crate) fn default_order(&self) -> Order {
        let orders = self.locks.capabilities().orders;
        match orders.contains(&Order::Fifo) {
            true => Order::Fifo,
            false => orders.first().copied().unwrap_or_default(),
        }
    }
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);
