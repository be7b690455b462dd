//! A primary, a replica and three Sentinels of a test's own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::certificates::{Certificates, ClientCertificates};
use super::cluster::until;
use super::redis::{RedisServer, RedisServerOptions, ServerProgram, free_port, own_folder};

/// The name under which the Sentinels know the primary.
const NAME: &str = "locks";

/// What servers are started with so that the tests need not wait for replicas.
const FAST: &[&str] = &["--repl-diskless-sync-delay", "0"];

/// The certificates of servers with TLS, and whether clients need one.
type SentinelTls<'a> = (&'a Certificates, ClientCertificates);

/// A primary with a replica, watched by three Sentinels that fail over within about two seconds.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The server that is the primary at first.
    pub primary: RedisServer,
    /// The server that is its replica at first.
    pub replica: RedisServer,
    sentinels: Vec<SentinelProcess>,
}

impl RedisSentinel {
    /// Starts them all and waits until the Sentinels know the replica and each other.
    ///
    /// # Panics
    ///
    /// If they do not start.
    pub fn start() -> Self {
        let server = |more: &[&str]| {
            let args = [FAST, more].concat().iter().map(|&arg| arg.to_owned()).collect();
            RedisServer::start_with(RedisServerOptions { args })
        };
        Self::start_of(server, None)
    }

    /// Starts them all with TLS, for clients as well as among themselves.
    ///
    /// # Panics
    ///
    /// If they do not start.
    pub fn start_tls(certificates: &Certificates, clients: ClientCertificates) -> Self {
        let server = |more: &[&str]| {
            let args = [&["--tls-replication", "yes"], FAST, more].concat();
            let start = || RedisServer::try_start_tls(certificates, clients, &args);
            let tries = std::iter::repeat_with(start).take(5);
            tries.flatten().next().expect("redis-server starts with TLS on some ports")
        };
        Self::start_of(server, Some((certificates, clients)))
    }

    fn start_of(server: impl Fn(&[&str]) -> RedisServer, tls: Option<SentinelTls<'_>>) -> Self {
        let primary = server(&[]);
        let port = primary.announced_port().to_string();
        let replica = server(&["--replicaof", &format!("127.0.0.1 {port}")]);
        until("the replica follows", || {
            replica.command(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let start = |_| SentinelProcess::start(primary.announced_port(), tls);
        let sentinels: Vec<_> = (0..3).map(start).collect();
        let started = Self { primary, replica, sentinels };
        for sentinel in &started.sentinels {
            until("the Sentinels know each other", || {
                let info = sentinel.command(&["INFO", "sentinel"]);
                info.contains("slaves=1,sentinels=3")
            });
        }
        started
    }

    /// The URL it answers under.
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The URL of Sentinels with TLS, without options.
    ///
    /// # Panics
    ///
    /// If they were started without.
    pub fn tls_url(&self) -> String {
        let port = |node: &SentinelProcess| node.tls_port.expect("they were started with TLS");
        let hosts = self.sentinels.iter().map(|node| format!("127.0.0.1:{}", port(node)));
        format!("rediss-sentinel://{}/{NAME}", hosts.collect::<Vec<_>>().join(","))
    }

    /// The port of the server that the Sentinels call the primary now.
    pub fn primary_port(&self) -> Option<u16> {
        let reply = self.sentinels[0].command(&["SENTINEL", "get-master-addr-by-name", NAME]);
        reply.lines().nth(4).and_then(|port| port.trim().parse().ok())
    }

    /// Makes the Sentinels name another server as the primary; the present one is not told.
    ///
    /// # Panics
    ///
    /// If they refuse.
    pub fn watch(&self, primary: &RedisServer) {
        let port = primary.port().to_string();
        for sentinel in &self.sentinels {
            for words in [
                &["SENTINEL", "REMOVE", NAME][..],
                &["SENTINEL", "MONITOR", NAME, "127.0.0.1", &port, "2"],
            ] {
                let reply = sentinel.command(words);
                assert!(reply.starts_with("+OK"), "{words:?}: {reply}");
            }
        }
    }

    /// Waits until the replica has become the primary.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn wait_for_failover(&self) {
        let new = self.replica.port();
        until("the replica takes over", || {
            self.primary_port() == Some(new) && self.replica.command(&["ROLE"]).contains("master")
        });
    }
}

/// A redis-server that runs as Sentinel.
#[derive(Debug)]
struct SentinelProcess {
    child: Child,
    port: u16,
    tls_port: Option<u16>,
    folder: PathBuf,
}

impl SentinelProcess {
    fn start(primary: u16, tls: Option<SentinelTls<'_>>) -> Self {
        let (port, folder) = (free_port(), own_folder());
        let tls_port = tls.map(|_| free_port());
        let config = folder.join("sentinel.conf");
        let mut text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 3000\n",
            folder.display()
        );
        if let (Some((certificates, clients)), Some(tls_port)) = (tls, tls_port) {
            text += &format!("tls-port {tls_port}\ntls-replication yes\n");
            for (name, value) in certificates.server_options(clients) {
                text += &format!("{name} {value}\n");
            }
        }
        std::fs::write(&config, text).expect("the folder is writable");
        let program = if tls.is_some() { ServerProgram::Redis } else { ServerProgram::chosen() };
        let child = Command::new(program.path())
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server is there: `make setup` installs it");
        let sentinel = Self { child, port, tls_port, folder };
        until("a Sentinel answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        sentinel
    }

    fn command(&self, words: &[&str]) -> String {
        super::redis::command(self.port, words).unwrap_or_default()
    }
}

impl Drop for SentinelProcess {
    fn drop(&mut self) {
        // One that is gone already is as dead as one can be.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
