//! What all requests share: the locks, the choices, the limits, the counters. No lock state.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use distlock::{Locks, Order, Since};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::compat::states::States;
use crate::limits::{Limits, WAIT_MAX};
use crate::metrics::Metrics;
use crate::summary::Watcher;

/// The service as its handlers see it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) locks: Locks,
    /// What happens may be noted down.
    pub(crate) journal: bool,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) states: Option<States>,
    pub(crate) watcher: Watcher,
    /// Cancelled when the service is to stop: whoever waits is sent away.
    pub(crate) stop: CancellationToken,
}

impl App {
    pub(crate) fn new(config: Config, locks: Locks) -> Self {
        // A store without a journal carries locks all the same.
        let (locks, journal) = match config.journal {
            Some(retention) => match locks.configure(|o| o.journal(retention)) {
                Ok(noting) => (noting, true),
                Err(_) => (locks, false),
            },
            None => {
                let journal = locks.feed(Since::Now).is_ok();
                (locks, journal)
            }
        };
        Self {
            locks,
            journal,
            limits: Limits::new(&config),
            states: config.terraform_state.clone().map(States::new),
            config,
            metrics: Metrics::default(),
            watcher: Watcher::default(),
            stop: CancellationToken::new(),
        }
    }

    /// How long a request may wait.
    pub(crate) fn waits(&self) -> RangeInclusive<Duration> {
        Duration::ZERO..=self.config.wait_max.min(WAIT_MAX)
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
