//! A redis-server of a test's own.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::certificates::{Certificates, ClientCertificates};
use crate::Rng;

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(20);

/// How many ports are tried.
const STARTS_MAX: usize = 5;

/// The argument before the port for TLS.
const TLS_PORT: &str = "--tls-port";

const PASS: &str = include_str!("lua/pass.lua");

/// What a server is started with beside the port.
#[derive(Clone, Debug, Default)]
pub struct RedisServerOptions {
    /// Further arguments, such as `--appendonly yes`.
    pub args: Vec<String>,
}

/// Which server the tests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerProgram {
    Redis,
    Valkey,
}

impl ServerProgram {
    /// Redis, or what the environment variable `DISTLOCK_TEST_SERVER` names: `make test` runs the
    /// tests of the Redis driver a second time on Valkey.
    pub(super) fn chosen() -> Self {
        match std::env::var("DISTLOCK_TEST_SERVER").as_deref() {
            Err(_) | Ok("redis") => Self::Redis,
            Ok("valkey") => Self::Valkey,
            Ok(other) => panic!("DISTLOCK_TEST_SERVER is redis or valkey, not {other:?}"),
        }
    }

    /// The program: that of `make setup` if there is one, else that on the PATH.
    pub(super) fn path(self) -> PathBuf {
        match self {
            Self::Redis => PathBuf::from("redis-server"),
            Self::Valkey => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
                let installed = root.join("target/valkey/bin/valkey-server");
                if installed.exists() { installed } else { PathBuf::from("valkey-server") }
            }
        }
    }
}

/// A redis-server, or a valkey-server, on a free port of the loopback interface, without
/// persistence unless asked for. It dies with this value, and its folder with it.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<Child>,
    program: ServerProgram,
    port: u16,
    folder: PathBuf,
    args: Vec<String>,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If there is no redis-server on the PATH, or it does not start.
    pub fn start() -> Self {
        Self::start_with(RedisServerOptions::default())
    }

    /// Starts a server with further arguments.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_with(options: RedisServerOptions) -> Self {
        let RedisServerOptions { args } = options;
        let tries = std::iter::repeat_with(|| Self::try_start(args.clone()));
        tries.take(STARTS_MAX).flatten().next().expect("redis-server starts on some port")
    }

    /// Starts a valkey-server, whatever the other tests run on.
    ///
    /// # Panics
    ///
    /// If there is none, or it does not start.
    pub fn valkey() -> Self {
        let tries = std::iter::repeat_with(|| Self::try_run(ServerProgram::Valkey, Vec::new()));
        tries.take(STARTS_MAX).flatten().next().expect("valkey-server starts on some port")
    }

    /// Starts a redis-server that takes TLS connections on a second port, whatever the other tests
    /// run on: not every build of Valkey has TLS.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_tls(certificates: &Certificates, clients: ClientCertificates) -> Self {
        let start = || Self::try_start_tls(certificates, clients, &[]);
        let tries = std::iter::repeat_with(start).take(STARTS_MAX);
        tries.flatten().next().expect("redis-server starts with TLS on some ports")
    }

    pub(super) fn try_start_tls(
        certificates: &Certificates,
        clients: ClientCertificates,
        more: &[&str],
    ) -> Option<Self> {
        let options = certificates.server_options(clients);
        let options = options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
        let port = [TLS_PORT.to_owned(), free_port().to_string()].into_iter();
        let more = more.iter().map(|&arg| arg.to_owned());
        Self::try_run(ServerProgram::Redis, port.chain(options).chain(more).collect())
    }

    /// Starts a server; none if it ended at once, as it does if another process took its port.
    pub(super) fn try_start(args: Vec<String>) -> Option<Self> {
        Self::try_run(ServerProgram::chosen(), args)
    }

    fn try_run(program: ServerProgram, args: Vec<String>) -> Option<Self> {
        let (port, folder) = (free_port(), own_folder());
        let mut server = Self { child: None, program, port, folder, args };
        server.run().then_some(server)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port on which it takes TLS connections.
    ///
    /// # Panics
    ///
    /// If it was started without.
    pub fn tls_port(&self) -> u16 {
        self.find_tls_port().expect("it was started with TLS")
    }

    fn find_tls_port(&self) -> Option<u16> {
        let mut after = self.args.iter().skip_while(|arg| *arg != TLS_PORT);
        after.nth(1)?.parse().ok()
    }

    /// The port that other servers know it by.
    pub(super) fn announced_port(&self) -> u16 {
        self.find_tls_port().unwrap_or(self.port)
    }

    /// The URL it answers under.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A server that is gone already is as dead as one can be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same port and folder.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.run(), "redis-server does not start again");
    }

    /// Stops it in its tracks: it keeps its connections and answers nothing.
    ///
    /// # Panics
    ///
    /// If the process cannot be signalled.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    ///
    /// # Panics
    ///
    /// If the process cannot be signalled.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends one command over a connection of its own and returns the raw reply.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached.
    pub fn command(&self, words: &[&str]) -> String {
        command(self.port, words).expect("the server answers")
    }

    /// Lets time pass for all locks on this server, by making everything on it older.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached.
    pub fn pass(&self, while_: Duration) {
        let reply = self.command(&["EVAL", PASS, "0", &while_.as_millis().to_string()]);
        assert!(reply.contains("OK"), "time does not pass: {reply}");
    }

    /// Takes the right to use functions from all users without a name: their clients go by scripts.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn deny_functions(&self) {
        let reply = self.command(&["ACL", "SETUSER", "default", "-fcall", "-function"]);
        assert!(reply.contains("OK"), "functions are not denied: {reply}");
    }

    /// Runs the server and waits until it answers. False if it ended instead.
    fn run(&mut self) -> bool {
        let child = Command::new(self.program.path())
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"])
            .arg("--dir")
            .arg(&self.folder)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{:?}: {error}: `make setup` installs it", self.program)
            });
        let child = self.child.insert(child);
        let started = Instant::now();
        // The server of another test may answer on the port while ours gives up: only ours will do.
        let ours = format!("process_id:{}\r\n", child.id());
        while !command(self.port, &["INFO", "server"]).is_ok_and(|reply| reply.contains(&ours)) {
            assert!(started.elapsed() < START_MAX, "{:?} does not start", self.program);
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let done = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(done.expect("kill is on the PATH").success(), "could not signal {pid}");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // What cannot be removed lies in the system's folder for temporary things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A free port. It lies below those that the system gives to outgoing
/// connections, and each process looks elsewhere first, so that hardly anybody else takes it.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let process = u64::from(std::process::id()) << 32;
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < 10_000, "no port is free");
        let spread = Rng::new(process | u64::from(tried)).below(20_000);
        let port = 11_000 + u16::try_from(spread).expect("below 20,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Sends one command over a connection of its own and returns the raw reply.
pub(crate) fn command(port: u16, words: &[&str]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "*{}\r\n", words.len())?;
    for word in words {
        write!(stream, "${}\r\n{word}\r\n", word.len())?;
    }
    let (mut reader, mut reply) = (BufReader::new(stream), String::new());
    read_reply(&mut reader, &mut reply)?;
    Ok(reply)
}

/// Reads one reply as it is: a line, and what the line announces.
fn read_reply(from: &mut impl BufRead, into: &mut String) -> std::io::Result<()> {
    let start = into.len();
    if from.read_line(into)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let line = into[start..].trim_end();
    let count: i64 = line.get(1..).and_then(|count| count.parse().ok()).unwrap_or(-1);
    let Ok(count) = usize::try_from(count) else { return Ok(()) };
    match line.as_bytes().first() {
        Some(b'$') => {
            let mut text = vec![0; count + 2];
            from.read_exact(&mut text)?;
            into.push_str(&String::from_utf8_lossy(&text));
            Ok(())
        }
        Some(b'*') => (0..count).try_for_each(|_| read_reply(from, into)),
        _ => Ok(()),
    }
}

/// A folder that no other server of any test uses.
pub(crate) fn own_folder() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("distlock-test-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("the folder for temporary things is writable");
    folder
}
