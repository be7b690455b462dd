//! A pgbouncer of a test's own, in front of a PostgreSQL server.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::account::Account;
use super::folder::TempFolder;
use super::postgres::{PostgresServer, own_folder};
use super::redis::free_port;

/// How long it may take to start.
const PGBOUNCER_START_MAX: Duration = Duration::from_secs(20);

/// A pooler in transaction mode on a free port of the loopback interface. It dies with this value.
#[derive(Debug)]
pub struct PgBouncer {
    account: Account,
    folder: TempFolder,
    port: u16,
    process: Option<Child>,
}

impl PgBouncer {
    /// Starts a pooler in front of a server and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// If pgbouncer is not installed, or does not start.
    pub fn start(server: &PostgresServer) -> Self {
        let account = Account::unprivileged();
        let (folder, port) = (own_folder(account), free_port());
        let config = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             max_client_conn = 500\n\
             default_pool_size = 10\n",
            server.port(),
        );
        fs::write(folder.path().join("pgbouncer.ini"), config).expect("the folder is writable");
        let mut pooler = Self { account, folder, port, process: None };
        pooler.run();
        pooler
    }

    /// The URL it answers under.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Ends it at once and starts it again: all connections through it break.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn run(&mut self) {
        let process = self
            .account
            .command("/usr/sbin/pgbouncer")
            .arg(self.folder.path().join("pgbouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("pgbouncer: {error}: `make setup` installs it"));
        self.process = Some(process);
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(started.elapsed() < PGBOUNCER_START_MAX, "pgbouncer does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.kill();
    }
}
