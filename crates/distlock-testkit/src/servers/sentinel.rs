//! A primary, a replica and three Sentinels of a test's own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::cluster::until;
use super::redis::{RedisServer, RedisServerOptions, free_port, own_folder};

/// The name under which the Sentinels know the primary.
const NAME: &str = "locks";

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
        let fast = |more: &[&str]| {
            let all = [&["--repl-diskless-sync-delay", "0"], more].concat();
            let args = all.iter().map(|&arg| arg.to_owned()).collect();
            RedisServer::start_with(RedisServerOptions { args })
        };
        let primary = fast(&[]);
        let port = primary.port().to_string();
        let replica = fast(&["--replicaof", &format!("127.0.0.1 {port}")]);
        until("the replica follows", || {
            replica.command(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let sentinels: Vec<_> = (0..3).map(|_| SentinelProcess::start(primary.port())).collect();
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

    /// The port of the server that the Sentinels call the primary now.
    pub fn primary_port(&self) -> Option<u16> {
        let reply = self.sentinels[0].command(&["SENTINEL", "get-master-addr-by-name", NAME]);
        reply.lines().nth(4).and_then(|port| port.trim().parse().ok())
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
    folder: PathBuf,
}

impl SentinelProcess {
    fn start(primary: u16) -> Self {
        let (port, folder) = (free_port(), own_folder());
        let config = folder.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 3000\n",
            folder.display()
        );
        std::fs::write(&config, text).expect("the folder is writable");
        let child = Command::new("redis-server")
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is on the PATH: `make setup` installs it");
        let sentinel = Self { child, port, folder };
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
