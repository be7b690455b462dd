//! What all requests share: the locks, the choices, the limits, the counters. No lock state.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use axum::http::HeaderMap;
use distlock::{Locks, StartAt};
use tokio_util::sync::CancellationToken;

use crate::auth_throttle::AuthThrottle;
use crate::compat::states::States;
use crate::compat::transfers::Transfers;
use crate::connections::Connections;
use crate::health::Readiness;
use crate::limits::{HTTP_WAIT_MAX, Limits};
use crate::metrics::Metrics;
use crate::renewed_ttls::RenewedTtls;
use crate::summary::Watcher;
use crate::sync::Swap;
use crate::{ServerConfig, ServerTls, Tokens};

/// The service as its handlers see it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) locks: Locks,
    /// Serves the pattern `redlock`, if that is not for `locks` to do.
    pub(crate) redlock: Option<Locks>,
    /// What happens may be noted down.
    pub(crate) journal: bool,
    pub(crate) config: ServerConfig,
    pub(crate) limits: Limits,
    /// Those of the file as it was last read.
    pub(crate) tokens: Swap<Tokens>,
    pub(crate) tls: Option<Swap<ServerTls>>,
    pub(crate) auth_throttle: AuthThrottle,
    pub(crate) connections: Connections,
    pub(crate) metrics: Metrics,
    pub(crate) states: Option<States>,
    pub(crate) transfers: Transfers,
    pub(crate) renewed_ttls: RenewedTtls,
    pub(crate) watcher: Watcher,
    pub(crate) readiness: Readiness,
    /// Cancelled when the service is to stop: a client that waits is sent away.
    pub(crate) stop: CancellationToken,
}

impl App {
    pub(crate) fn new(mut config: ServerConfig, locks: Locks) -> Self {
        let metrics = Metrics::new();
        let locks = metrics.of(locks);
        // A store without a journal carries locks all the same.
        let (locks, journal) = match config.journal {
            Some(retention) => match locks.configure(|o| o.journal(retention)) {
                Ok(noting) => (noting, true),
                Err(_) => (locks, false),
            },
            None => {
                let journal = locks.feed(StartAt::Now).is_ok();
                (locks, journal)
            }
        };
        Self {
            locks,
            redlock: config.redlock.clone().map(|redlock| metrics.of(redlock)),
            journal,
            limits: Limits::new(&config),
            states: config.terraform_state.clone().map(States::new),
            tokens: Swap::new(std::mem::take(&mut config.tokens)),
            tls: config.tls.take().map(Swap::new),
            connections: Connections::new(connections_max(config.connections_max)),
            transfers: Transfers::default(),
            renewed_ttls: RenewedTtls::default(),
            config,
            auth_throttle: AuthThrottle::default(),
            metrics,
            watcher: Watcher::default(),
            readiness: Readiness::default(),
            stop: CancellationToken::new(),
        }
    }

    /// How long a request may wait.
    pub(crate) fn waits(&self) -> RangeInclusive<Duration> {
        Duration::ZERO..=self.config.wait_max.min(HTTP_WAIT_MAX)
    }
}

/// File descriptors for other things than connections: the store, files, the runtime.
#[cfg(unix)]
const FILES_KEPT: u64 = 128;

/// How many connections there may be: as many as configured, if the system allows so many files.
#[cfg(unix)]
fn connections_max(wanted: usize) -> usize {
    use rustix::process::{Resource, getrlimit};
    let Some(files) = getrlimit(Resource::Nofile).current else { return wanted };
    let most = usize::try_from(files.saturating_sub(FILES_KEPT).max(1)).unwrap_or(usize::MAX);
    if most < wanted {
        tracing::warn!(
            wanted,
            most,
            "fewer connections: raise the limit of open files (ulimit -n)"
        );
    }
    wanted.min(most)
}

#[cfg(not(unix))]
fn connections_max(wanted: usize) -> usize {
    wanted
}

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Peer {
    /// Whom the proxy at the other end speaks for: the last that it names itself. What stands
    /// before that came with the request and may be anybody's invention.
    pub(crate) fn behind(self, headers: &HeaderMap) -> Self {
        let named = headers.get_all("x-forwarded-for").iter().next_back();
        let last = named.and_then(|value| value.to_str().ok()?.rsplit(',').next());
        match last.map(str::trim).and_then(address) {
            Some(address) => Self(SocketAddr::new(address, 0)),
            None => self,
        }
    }
}

/// An address as proxies write it: alone, in brackets, or with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let socket = || text.parse().ok().map(|socket: SocketAddr| socket.ip());
    bare.parse().ok().or_else(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_proxy_its_own_word_counts() {
        let proxy = Peer("10.0.0.1:80".parse().unwrap());
        let seen = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            proxy.behind(&headers).0.ip().to_string()
        };
        assert_eq!(seen(&["192.0.2.7"]), "192.0.2.7");
        assert_eq!(seen(&["8.8.8.8, 192.0.2.7"]), "192.0.2.7");
        assert_eq!(seen(&["8.8.8.8", "192.0.2.7:4711"]), "192.0.2.7");
        assert_eq!(seen(&["[2001:db8::1]:80"]), "2001:db8::1");
        assert_eq!(seen(&["[2001:db8::1]"]), "2001:db8::1");
        for nothing in [&[][..], &["unknown"], &[""], &["192.0.2.7, "]] {
            assert_eq!(seen(nothing), "10.0.0.1", "{nothing:?}");
        }
    }
}
