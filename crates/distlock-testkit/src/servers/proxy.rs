//! A network that fails on demand: a TCP proxy in front of a server.
//!
//! It runs on threads of its own, so a test whose runtime is busy or paused does not slow it down.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// More connections than this at once are closed as they come.
const PROXY_CONNECTIONS_MAX: usize = 512;

/// How many chunks of one direction are under way before its reader pauses.
const CHUNKS_MAX: usize = 1024;

const CHUNK: usize = 16 * 1024;

/// What happens to bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// They pass at once.
    #[default]
    Pass,
    /// They arrive this much later, in order.
    Delay(Duration),
    /// They are kept back and arrive when the flow changes: a partition that heals.
    Hold,
    /// They are gone. A stream with a gap is of no use, so a connection that lost anything stays
    /// silent in that direction for ever: a half-open connection.
    Swallow,
}

/// A proxy on a free port of the loopback interface. It ends with this value.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<ProxyShared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ProxyShared {
    upstream: u16,
    state: Mutex<ProxyState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ProxyState {
    flows: [Flow; 2],
    refusing: bool,
    ended: bool,
    /// How many more bytes clients get before their connection is cut.
    bytes_left: Option<usize>,
    /// What comes in front of the next bytes to a client.
    extra: Option<Vec<u8>>,
    links: Vec<ProxyLink>,
    accepted: u64,
}

/// One connection, seen from both sides.
#[derive(Debug)]
struct ProxyLink {
    number: u64,
    ends: [TcpStream; 2],
    frozen: bool,
    swallowed: [bool; 2],
    /// How many directions still run.
    running: u8,
}

/// A direction, as an index.
const REQUESTS: usize = 0;
const REPLIES: usize = 1;

/// Some bytes and when they came.
type Chunk = (Instant, Vec<u8>);

impl Proxy {
    /// A proxy in front of the server on this port of the loopback interface.
    ///
    /// # Panics
    ///
    /// If the loopback interface cannot be bound.
    pub fn to(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(ProxyShared { upstream, state, changed });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&accepting, &listener));
        Self { port, shared, acceptor: Some(acceptor) }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a Redis server behind it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// How many connections were made through it so far.
    pub fn accepted(&self) -> u64 {
        self.shared.state().accepted
    }

    /// Changes what happens to requests, on all connections from now on.
    pub fn requests(&self, flow: Flow) {
        self.change(|state| state.flows[REQUESTS] = flow);
    }

    /// Changes what happens to replies, on all connections from now on.
    pub fn replies(&self, flow: Flow) {
        self.change(|state| state.flows[REPLIES] = flow);
    }

    /// Changes what happens in both directions, on all connections from now on.
    pub fn both(&self, flow: Flow) {
        self.change(|state| state.flows = [flow; 2]);
    }

    /// Holds everything back on the connections that are open now. New ones are not concerned.
    pub fn freeze(&self) {
        self.change(|state| state.links.iter_mut().for_each(|link| link.frozen = true));
    }

    /// Lets through what was frozen, even if the client has gone meanwhile.
    pub fn thaw(&self) {
        self.change(|state| state.links.iter_mut().for_each(|link| link.frozen = false));
    }

    /// Makes the connections that are open now go silent for ever. New ones are not concerned.
    pub fn silence(&self) {
        self.change(|state| state.links.iter_mut().for_each(|link| link.swallowed = [true; 2]));
    }

    /// Closes all connections now.
    pub fn cut(&self) {
        self.change(|state| state.links.iter().for_each(ProxyLink::close));
    }

    /// Closes the connection that gets the byte after this many more towards clients; zero loses
    /// the next reply as a whole. Once.
    pub fn cut_after(&self, bytes: usize) {
        self.change(|state| state.bytes_left = Some(bytes));
    }

    /// Closes new connections as they come.
    pub fn refuse(&self) {
        self.change(|state| state.refusing = true);
    }

    /// Takes new connections again.
    pub fn admit(&self) {
        self.change(|state| state.refusing = false);
    }

    /// Puts these bytes in front of the next ones to a client. Once.
    pub fn inject(&self, extra: impl Into<Vec<u8>>) {
        self.change(|state| state.extra = Some(extra.into()));
    }

    fn change(&self, change: impl FnOnce(&mut ProxyState)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|state| {
            state.ended = true;
            state.links.iter().for_each(ProxyLink::close);
        });
        // Wakes the acceptor, which then finds that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl ProxyShared {
    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProxyLink {
    fn close(&self) {
        for end in &self.ends {
            // One that is closed already is closed.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl ProxyState {
    fn link(&mut self, number: u64) -> Option<&mut ProxyLink> {
        self.links.iter_mut().find(|link| link.number == number)
    }

    /// One direction has ended; with the second the connection is forgotten.
    fn ended(&mut self, number: u64) {
        if let Some(link) = self.link(number) {
            link.running -= 1;
        }
        self.links.retain(|link| link.running > 0);
    }
}

fn accept(shared: &Arc<ProxyShared>, listener: &TcpListener) {
    for client in listener.incoming() {
        let state = shared.state();
        if state.ended {
            return;
        }
        let closed = state.refusing || state.links.len() >= PROXY_CONNECTIONS_MAX;
        drop(state);
        if let Ok(client) = client
            && !closed
        {
            // Without a server behind it, a connection is closed as it comes.
            let _ = connect(shared, client);
        }
    }
}

fn connect(shared: &Arc<ProxyShared>, client: TcpStream) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", shared.upstream))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ends = [client.try_clone()?, server.try_clone()?];
    let pumps = [(client.try_clone()?, server.try_clone()?), (server, client)];
    let mut state = shared.state();
    state.accepted += 1;
    let number = state.accepted;
    let link = ProxyLink { number, ends, frozen: false, swallowed: [false; 2], running: 2 };
    state.links.push(link);
    drop(state);
    for (direction, (from, to)) in pumps.into_iter().enumerate() {
        let (sender, receiver) = sync_channel(CHUNKS_MAX);
        let shared = Arc::clone(shared);
        thread::spawn(move || read(from, &sender));
        thread::spawn(move || write(&shared, number, direction, to, &receiver));
    }
    Ok(())
}

fn read(mut from: TcpStream, chunks: &SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if chunks.send((Instant::now(), buffer[..n].to_vec())).is_err() {
            return;
        }
    }
}

fn write(
    shared: &ProxyShared,
    number: u64,
    direction: usize,
    mut to: TcpStream,
    chunks: &Receiver<Chunk>,
) {
    for (came, bytes) in chunks {
        let Some(bytes) = fate(shared, number, direction, came, bytes) else { continue };
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side may have closed first.
    let _ = to.shutdown(Shutdown::Write);
    shared.state().ended(number);
}

/// Waits until a chunk may go on, and says what arrives of it; none if nothing does.
fn fate(
    shared: &ProxyShared,
    number: u64,
    direction: usize,
    came: Instant,
    bytes: Vec<u8>,
) -> Option<Vec<u8>> {
    let mut state = shared.state();
    loop {
        let ended = state.ended;
        let flow = state.flows[direction];
        let link = state.link(number)?;
        if ended || link.swallowed[direction] {
            return None;
        }
        let flow = if link.frozen { Flow::Hold } else { flow };
        let left = match flow {
            Flow::Pass => Duration::ZERO,
            Flow::Delay(delay) => delay.saturating_sub(came.elapsed()),
            Flow::Hold => Duration::from_secs(3600),
            Flow::Swallow => {
                link.swallowed[direction] = true;
                return None;
            }
        };
        if left.is_zero() {
            break;
        }
        let waited = shared.changed.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    if direction == REQUESTS { Some(bytes) } else { to_client(&mut state, number, bytes) }
}

/// What a client gets instead of these bytes.
fn to_client(state: &mut ProxyState, number: u64, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    if let Some(mut extra) = state.extra.take() {
        extra.append(&mut bytes);
        bytes = extra;
    }
    let Some(left) = state.bytes_left.take() else { return Some(bytes) };
    if left < bytes.len() {
        if let Some(link) = state.link(number) {
            // What is allowed arrives before the end.
            let _ = (&link.ends[0]).write_all(&bytes[..left]);
            link.close();
        }
        return None;
    }
    state.bytes_left = Some(left - bytes.len());
    Some(bytes)
}
