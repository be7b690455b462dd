//! Telling the clients of other processes: a socket each, in a folder beside the file.
//!
//! A message that is lost costs its receiver one heartbeat and nothing else. So no client waits for
//! anybody here: what cannot be sent at once is not sent.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_core::law::AddressedPush;
use distlock_core::{ClaimId, ClientId, Push};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, statat, unlinkat};
use rustix::process::geteuid;
use tokio::sync::broadcast;

/// The longest address of a socket that every Unix takes.
const ADDRESS_MAX: usize = 100;

/// How many pushes go into one message.
const PUSHES_PER_MESSAGE_MAX: usize = 500;

/// The size of one push in a message: kind, claim, ticket, fence.
const PUSH_LEN: usize = 1 + 16 + 8 + 8;

/// How old the socket of a dead client is before it is removed. One that was just made may not be
/// listened to yet.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// How many sockets one client looks at when it comes.
const SWEPT_MAX: usize = 100;

/// The folder of sockets beside a file of locks.
#[derive(Debug)]
pub(super) struct Sockets {
    path: PathBuf,
    /// Open, so that what is looked at and removed is in the folder that was checked, and so that
    /// sockets in it have short names however long its own is.
    folder: Arc<File>,
    outgoing: UnixDatagram,
}

impl Sockets {
    /// The folder that belongs to a file; made if it is not there. One that is a link, belongs to
    /// another user or can be entered by others is refused: what is in it is not ours to remove.
    pub(super) fn beside(file: &Path) -> io::Result<Self> {
        let mut path = file.as_os_str().to_owned();
        path.push("-sockets");
        let path = PathBuf::from(path);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        check_private(&folder)?;
        let outgoing = UnixDatagram::unbound()?;
        outgoing.set_nonblocking(true)?;
        Ok(Self { path, folder: Arc::new(folder), outgoing })
    }

    /// Tells each client what concerns it.
    pub(super) fn tell(&self, notices: &[AddressedPush]) {
        let mut clients: Vec<_> = notices.iter().map(|notice| notice.to).collect();
        clients.sort_unstable();
        clients.dedup();
        for client in clients {
            let pushes = notices.iter().filter(|notice| notice.to == client);
            let encoded: Vec<_> = pushes.filter_map(|notice| encode(notice.push)).collect();
            let address = self.address(&client.reveal());
            for message in encoded.chunks(PUSHES_PER_MESSAGE_MAX) {
                // A client that does not listen learns of it with its next heartbeat.
                let _ = self.outgoing.send_to(&message.concat(), &address);
            }
        }
    }

    /// Opens the socket of a client. What comes in from now on is kept there until a stream reads
    /// it.
    pub(super) fn listen(&self, client: ClientId) -> io::Result<WakeSocket> {
        self.sweep();
        let name = client.reveal();
        Ok(WakeSocket {
            socket: UnixDatagram::bind(self.address(&name))?,
            folder: Arc::clone(&self.folder),
            name,
            ended: Arc::default(),
            is_heard: false,
            process: std::process::id(),
        })
    }

    /// Removes the sockets of clients that died, and nothing but sockets.
    fn sweep(&self) {
        let Ok(entries) = Dir::read_from(&*self.folder) else { return };
        for entry in entries.flatten().take(SWEPT_MAX) {
            let name = entry.file_name();
            if self.is_old_socket(name) && is_dead(&self.address(&name.to_string_lossy())) {
                let _ = unlinkat(&*self.folder, name, AtFlags::empty());
            }
        }
    }

    /// True for a socket of this user's that was made a while ago; a link to one is none.
    fn is_old_socket(&self, name: &CStr) -> bool {
        let Ok(about) = statat(&*self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return false;
        };
        let made = Duration::from_secs(about.st_mtime.try_into().unwrap_or_default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        FileType::from_raw_mode(about.st_mode) == FileType::Socket
            && about.st_uid == geteuid().as_raw()
            && now.saturating_sub(made) > STALE_AFTER
    }

    /// Where a socket is, in as few bytes as an address may have.
    fn address(&self, name: &str) -> PathBuf {
        let plain = self.path.join(name);
        if plain.as_os_str().len() <= ADDRESS_MAX {
            return plain;
        }
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()))
    }
}

/// Refuses a folder that is not this user's alone.
fn check_private(folder: &File) -> io::Result<()> {
    let about = folder.metadata()?;
    if about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the folder is open to other users"))
}

/// True if no process listens there.
fn is_dead(address: &Path) -> bool {
    let connected = UnixDatagram::unbound().and_then(|probe| probe.connect(address));
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A socket that is listened to. Dropping it ends that and takes no time.
#[derive(Debug)]
pub(super) struct WakeSocket {
    folder: Arc<File>,
    name: String,
    socket: UnixDatagram,
    ended: Arc<AtomicBool>,
    /// A stream reads it already.
    is_heard: bool,
    /// A fork of this process has a copy of this value, but the socket is not its own.
    process: u32,
}

impl WakeSocket {
    /// Passes on what comes in, and has come in before, until the bell is dropped.
    pub(super) fn hear(&mut self, pushes: &broadcast::Sender<Push>) -> io::Result<()> {
        if self.is_heard {
            return Ok(());
        }
        let (socket, ended) = (self.socket.try_clone()?, Arc::clone(&self.ended));
        let (wake, pushes) = (thread::Builder::new().name("distlock-wake".into()), pushes.clone());
        wake.spawn(move || pass_on(&socket, &ended, &pushes))?;
        self.is_heard = true;
        Ok(())
    }
}

impl Drop for WakeSocket {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it has ended.
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = unlinkat(&*self.folder, self.name.as_str(), AtFlags::empty());
    }
}

fn pass_on(socket: &UnixDatagram, ended: &AtomicBool, pushes: &broadcast::Sender<Push>) {
    let mut buffer = vec![0; PUSHES_PER_MESSAGE_MAX * PUSH_LEN];
    while let Ok(len) = socket.recv(&mut buffer) {
        if ended.load(Ordering::SeqCst) {
            return;
        }
        for push in buffer[..len].chunks_exact(PUSH_LEN).filter_map(decode) {
            // A push without a listener is no error: the heartbeat tells.
            let _ = pushes.send(push);
        }
    }
}

fn encode(push: Push) -> Option<[u8; PUSH_LEN]> {
    let (kind, id, ticket, fence) = match push {
        Push::Granted { id, ticket, fence } => (b'g', id, ticket, fence),
        Push::Broken { id } => (b'b', id, 0, 0),
        _ => return None,
    };
    let mut bytes = [kind; PUSH_LEN];
    bytes[1..17].copy_from_slice(id.as_bytes());
    bytes[17..25].copy_from_slice(&ticket.to_be_bytes());
    bytes[25..].copy_from_slice(&fence.to_be_bytes());
    Some(bytes)
}

fn decode(bytes: &[u8]) -> Option<Push> {
    let (kind, rest) = bytes.split_first()?;
    let id = ClaimId::from_bytes(rest.get(..16)?.try_into().ok()?);
    let number = |at: usize| {
        let bytes = rest.get(at..at + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    };
    match kind {
        b'g' => Some(Push::Granted { id, ticket: number(16)?, fence: number(24)? }),
        b'b' => Some(Push::Broken { id }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_dropped_bell_ends_its_listener_and_removes_its_socket() {
        let name = format!("distlock-bell-{}", std::process::id());
        let folder = std::env::temp_dir().join(name).join("x".repeat(120));
        fs::create_dir_all(&folder).unwrap();
        let sockets = Sockets::beside(&folder.join("locks.db")).unwrap();
        let (pushes, mut heard) = broadcast::channel(8);
        let client = ClientId::random().unwrap();
        let mut bell = sockets.listen(client).unwrap();
        let id = ClaimId::random().unwrap();
        // What comes before a stream reads is read, too.
        sockets.tell(&[AddressedPush { to: client, push: Push::Broken { id } }]);
        bell.hear(&pushes).unwrap();
        drop(pushes);
        assert_eq!(heard.blocking_recv(), Ok(Push::Broken { id }));
        drop(bell);
        // The listener owned the only sender.
        assert_eq!(heard.blocking_recv(), Err(broadcast::error::RecvError::Closed));
        assert_eq!(fs::read_dir(&sockets.path).unwrap().count(), 0);
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_push_arrives_as_it_was_sent() {
        let id = ClaimId::random().unwrap();
        for push in [Push::Granted { id, ticket: 7, fence: u64::MAX >> 11 }, Push::Broken { id }] {
            assert_eq!(decode(&encode(push).unwrap()), Some(push));
        }
        assert_eq!(encode(Push::Interrupted), None);
        assert_eq!(decode(&[b'x'; PUSH_LEN]), None);
        assert_eq!(decode(b"g"), None);
    }
}
