//! Whether the answer that carried a grant arrived. One that did not is undone at once.
//!
//! A client can die in three places. While it is queued, its connection ends and the request is
//! dropped: the library leaves the queue. Before the answer is written, its end of the connection
//! is closed already, which is seen right before the write. After the write, its system answers
//! with a reset, because data came for a socket that is closed or died with data unread; a client
//! that has read everything closes without one. So a reset soon after the answer means that no
//! client has the lease, and a plain end means that a client has. Proxies reset connections whose
//! answers they have read and passed on: behind one a reset says nothing, and the lease is left to
//! its ttl.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::{HoldEnd, Lease, Leases};

use crate::lease_quota::LeaseQuota;
use crate::socket::Socket;
use crate::sync::lock;

/// For so long after an answer a reset says that it was never read. Later ones say nothing: proxies
/// and idle connections end that way, too.
const IN_TRANSIT: Duration = Duration::from_secs(1);

/// A plain end of the connection is followed by a reset within this time, or not at all.
const RESET_AFTER: Duration = Duration::from_millis(250);

/// How often a connection that has ended is looked at until it is known how.
const SOCKET_POLL_EVERY: Duration = Duration::from_millis(10);

/// How often a release that failed is repeated. After that the lease ends by itself.
const UNDO_ATTEMPTS_MAX: u32 = 3;

/// Leases that no client has unless the answer arrives.
#[derive(Debug)]
pub(crate) struct Undo {
    leases: Vec<(Leases, Lease)>,
    quota: LeaseQuota,
}

impl Undo {
    pub(crate) fn new(leases: Leases, lease: Lease, quota: &LeaseQuota) -> Self {
        Self::all(vec![(leases, lease)], quota)
    }

    /// The same for several that were granted together.
    pub(crate) fn all(leases: Vec<(Leases, Lease)>, quota: &LeaseQuota) -> Self {
        Self { leases, quota: quota.clone() }
    }

    fn run(self) {
        tokio::spawn(async move {
            for (leases, lease) in &self.leases {
                undo(leases, lease, &self.quota).await;
            }
        });
    }
}

async fn undo(leases: &Leases, lease: &Lease, quota: &LeaseQuota) {
    let key = lease.key();
    tracing::info!(%key, "the client is gone: its lease is released");
    for attempt in 1..=UNDO_ATTEMPTS_MAX {
        // Only what this request got: the client may have repeated it, here or elsewhere, and have
        // the lease from there.
        match leases.give_up(lease).await {
            Ok(HoldEnd::Released) => return quota.ended(lease),
            Ok(_) => return,
            Err(error) => tracing::warn!(%key, attempt, %error, "not released yet"),
        }
    }
}

/// The grant on its way over one connection: there is one at most, since answers go one by one.
#[derive(Debug)]
pub(crate) struct Transit {
    cargo: Mutex<Option<Cargo>>,
    /// At the other end is a proxy.
    proxied: AtomicBool,
}

#[derive(Debug)]
struct Cargo {
    undo: Undo,
    written: Option<Instant>,
}

impl Transit {
    pub(crate) fn new(behind_proxy: bool) -> Self {
        Self { cargo: Mutex::default(), proxied: AtomicBool::new(behind_proxy) }
    }

    /// A request says of itself that a proxy has passed it on.
    pub(crate) fn passed_on(&self) {
        self.proxied.store(true, Ordering::Relaxed);
    }

    /// A grant is about to be written.
    pub(crate) fn carry(&self, undo: Undo) {
        *lock(&self.cargo) = Some(Cargo { undo, written: None });
    }

    /// True if a grant waits to be written.
    pub(crate) fn is_loaded(&self) -> bool {
        lock(&self.cargo).as_ref().is_some_and(|cargo| cargo.written.is_none())
    }

    /// Something was written.
    pub(crate) fn wrote(&self) {
        if let Some(cargo) = &mut *lock(&self.cargo) {
            cargo.written = Some(Instant::now());
        }
    }

    /// The client said something: it has read the answer before.
    pub(crate) fn heard(&self) {
        let mut cargo = lock(&self.cargo);
        if cargo.as_ref().is_some_and(|cargo| cargo.written.is_some()) {
            *cargo = None;
        }
    }

    /// The connection broke.
    pub(crate) fn broke(&self) {
        let cargo = lock(&self.cargo).take();
        if let Some(cargo) = cargo
            && cargo.written.is_none_or(|written| self.resets_tell(written))
        {
            cargo.undo.run();
        }
    }

    /// True if a reset now means that what was written then was not read.
    fn resets_tell(&self, written: Instant) -> bool {
        !self.proxied.load(Ordering::Relaxed) && written.elapsed() < IN_TRANSIT
    }

    /// The connection is over: finds out whether what was written last has arrived.
    pub(crate) async fn settle(&self, socket: &Socket) {
        loop {
            let written = match &*lock(&self.cargo) {
                None => return,
                Some(cargo) => cargo.written,
            };
            let Some(written) = written else { return self.broke() };
            let patience = match look(socket) {
                SocketState::Broken => return self.broke(),
                SocketState::Talking => return self.heard(),
                SocketState::Ended => RESET_AFTER,
                SocketState::Open => IN_TRANSIT,
            };
            if written.elapsed() >= patience {
                return self.heard();
            }
            tokio::time::sleep(SOCKET_POLL_EVERY).await;
        }
    }
}

/// How a connection stands.
enum SocketState {
    Open,
    Talking,
    Ended,
    Broken,
}

fn look(socket: &Socket) -> SocketState {
    if !matches!(socket.take_error(), Ok(None)) {
        return SocketState::Broken;
    }
    match socket.try_read(&mut [0; 1]) {
        Ok(0) => SocketState::Ended,
        Ok(_) => SocketState::Talking,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => SocketState::Open,
        Err(_) => SocketState::Broken,
    }
}
