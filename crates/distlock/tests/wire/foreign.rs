//! A program in another language that locks with the library it has there.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use distlock_testkit::servers::RedisServer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a step may take on a busy machine.
const STEP_MAX: Duration = Duration::from_secs(20);

/// A lock library that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// `redis.lock.Lock` of redis-py.
    RedisPy,
    /// redlock-py.
    RedlockPy,
    /// redlock of npm.
    RedlockNpm,
}

impl Library {
    pub(crate) const ALL: [Self; 3] = [Self::RedisPy, Self::RedlockPy, Self::RedlockNpm];

    /// The program with its arguments before the ports.
    fn command(self) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/foreign");
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/foreign");
        let script = if self == Self::RedlockNpm { "clients.mjs" } else { "clients.py" };
        let (program, argument) = match self {
            Self::RedisPy => (installed.join("py/bin/python"), PathBuf::from("lock")),
            Self::RedlockPy => (installed.join("py/bin/python"), PathBuf::from("redlock")),
            Self::RedlockNpm => (PathBuf::from("node"), installed.join("node")),
        };
        let mut command = Command::new(program);
        command.arg(here.join(script)).arg(argument);
        command
    }
}

/// A running program that locks with one library. It dies with this value.
#[derive(Debug)]
pub(crate) struct Foreign {
    library: Library,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Foreign {
    pub(crate) async fn start(library: Library, servers: &[&RedisServer]) -> Self {
        let mut child = library
            .command()
            .args(servers.iter().map(|server| server.port().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{library:?}: {error}: `make setup` installs it"));
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output).lines();
        let mut foreign = Self { library, input, output, _child: child };
        let ready = foreign.answer().await;
        assert_eq!(ready, Some(true), "{library:?} does not start: `make setup` installs it");
        foreign
    }

    /// Tries once to take a lock. Without a ttl it lasts for ever.
    pub(crate) async fn take(&mut self, name: &str, ttl: impl Into<Option<Duration>>) -> bool {
        let ttl_ms = ttl.into().map(|ttl| ttl.as_millis());
        self.step(&json!(["take", name, ttl_ms, 0])).await
    }

    /// Waits up to ten seconds for a lock. Only redis-py can.
    pub(crate) async fn wait(&mut self, name: &str, ttl: Duration) -> bool {
        assert_eq!(self.library, Library::RedisPy);
        self.step(&json!(["take", name, ttl.as_millis(), 10])).await
    }

    /// Makes the lock that was taken last until then. redlock-py cannot, and says so.
    pub(crate) async fn extend(&mut self, name: &str, to: Duration) -> bool {
        self.step(&json!(["extend", name, to.as_millis()])).await
    }

    /// Releases the lock that was taken. redlock-py does not say whether there was one.
    pub(crate) async fn release(&mut self, name: &str) -> bool {
        self.step(&json!(["release", name])).await
    }

    async fn step(&mut self, step: &Value) -> bool {
        self.input.write_all(format!("{step}\n").as_bytes()).await.unwrap();
        self.answer().await.unwrap_or_else(|| panic!("{:?} died at {step}", self.library))
    }

    async fn answer(&mut self) -> Option<bool> {
        let line = tokio::time::timeout(STEP_MAX, self.output.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{:?} does not answer", self.library));
        line.unwrap().map(|line| line.parse().unwrap())
    }
}
