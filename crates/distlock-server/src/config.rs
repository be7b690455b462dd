//! What an operator may choose.

use std::path::PathBuf;
use std::time::Duration;

use distlock::{Locks, Retention};

use crate::limits::HTTP_WAIT_MAX;
use crate::{Listen, ServerTls, Tokens};

/// The choices behind a service. Every one but the address has a default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Where to listen. Anything but loopback needs tokens.
    pub listen: Listen,
    /// Encrypt connections. None speaks plain HTTP.
    pub tls: Option<ServerTls>,
    /// Who may do what. Without tokens every client that can connect may do everything.
    pub tokens: Tokens,
    /// Further names that clients may call this service by, beside loopback names. Without tokens
    /// all others are refused, so that no web page can reach it under a name of its own.
    pub hosts: Vec<String>,
    /// How many requests of one token may wait at the same time. Default 4,096.
    pub waiters_max: usize,
    /// How long a request may wait at most. Default and longest 55 s.
    pub wait_max: Duration,
    /// How long a place in the queue is kept for a client that said it comes back. Default 10 s.
    pub place: Duration,
    /// How many leases of one token may be alive, as far as this replica has granted them.
    /// Default 10,000.
    pub leases_max: usize,
    /// How many connections are served at the same time, if the system allows so many files.
    /// Default 10,000. A quarter is kept for clients that have shown a token.
    pub connections_max: usize,
    /// How much of the past is kept, where the backend can keep it. None leaves it to the options
    /// of the locks.
    pub journal: Option<Retention>,
    /// Clients come through a proxy. Proxies reset connections whose answers they have read, so a
    /// reset no longer tells that a client died with its grant unread: such leases then end with
    /// their ttl. Requests that say that a proxy passed them on are treated so in any case. With
    /// this, and only with this, the last entry of `X-Forwarded-For` is the address of a client:
    /// wrong tokens are counted by it.
    pub behind_proxy: bool,
    /// The backend is a quorum of independent servers, so that `redlock` means something.
    pub quorum: bool,
    /// The quorum that serves the pattern `redlock`, beside a backend that is none. Without it the
    /// pattern needs a backend that is a quorum.
    pub redlock: Option<Locks>,
    /// The lock stores that clients of Dapr may name. Default `lockstore`.
    pub dapr_stores: Vec<String>,
    /// Where Terraform states are kept. Without it the mount has locks only.
    pub terraform_state: Option<PathBuf>,
}

impl ServerConfig {
    /// The defaults, on an address.
    pub fn new(listen: Listen) -> Self {
        Self {
            listen,
            tls: None,
            tokens: Tokens::default(),
            hosts: Vec::new(),
            waiters_max: 4_096,
            wait_max: HTTP_WAIT_MAX,
            place: Duration::from_secs(10),
            leases_max: 10_000,
            connections_max: 10_000,
            journal: Some(Retention::default()),
            behind_proxy: false,
            quorum: false,
            redlock: None,
            dapr_stores: vec!["lockstore".to_owned()],
            terraform_state: None,
        }
    }
}
