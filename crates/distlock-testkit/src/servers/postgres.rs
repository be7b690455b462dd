//! A PostgreSQL server of a test's own, and its streaming standby.
//!
//! Long because a primary, its standby, its clock and its certificates are one process to start.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::account::Account;
use super::certificates::{Certificates, ClientCertificates};
use super::folder::TempFolder;
use super::redis::free_port;

/// How long a server may take to start.
const POSTGRES_START_MAX: Duration = Duration::from_secs(60);

/// How many ports are tried.
const POSTGRES_STARTS_MAX: usize = 5;

/// What every server is told: a disk that is not waited for, and nothing that runs beside the test.
const SETTINGS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=32MB",
    "max_connections=200",
    "max_wal_senders=10",
    "hot_standby_feedback=on",
    "wal_receiver_status_interval=1s",
];

const PASS_SQL: &str = include_str!("sql/pass.sql");

const STOP_CLOCK: &str = include_str!("sql/stop_clock.sql");

/// A server on a free port of the loopback interface and on a Unix socket. It dies with this value,
/// and its folder with it. Everyone on this machine may log in as `postgres`.
#[derive(Debug)]
pub struct PostgresServer {
    account: Account,
    folder: TempFolder,
    port: u16,
    settings: Vec<String>,
    process: Option<Child>,
}

impl PostgresServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further settings, each as `name=value`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_with(settings: &[&str]) -> Self {
        let account = Account::unprivileged();
        let folder = own_folder(account);
        copy_cluster(account, &folder.path().join("data"));
        Self::run_in(account, folder, settings.iter().map(|&text| text.to_owned()).collect())
    }

    /// Starts a server that takes TLS connections over TCP only, with the certificate `server.pem`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_tls(certificates: &Certificates, clients: ClientCertificates) -> Self {
        let account = Account::unprivileged();
        let folder = own_folder(account);
        let data = folder.path().join("data");
        copy_cluster(account, &data);
        for name in ["ca.pem", "server.pem", "server.key"] {
            let to = data.join(name);
            fs::copy(certificates.path(name), &to).expect("certificates can be copied");
            Command::new("chmod").arg("600").arg(&to).status().expect("chmod is on the PATH");
            account.own(&to).expect("the account can own the certificates");
        }
        let demand = match clients {
            ClientCertificates::Required => "clientcert=verify-ca",
            ClientCertificates::Ignored => "",
        };
        let access = format!("local all all trust\nhostssl all all 127.0.0.1/32 trust {demand}\n");
        fs::write(data.join("pg_hba.conf"), access).expect("the access file is writable");
        let files = "ssl=on ssl_cert_file=server.pem ssl_key_file=server.key ssl_ca_file=ca.pem";
        Self::run_in(account, folder, files.split(' ').map(str::to_owned).collect())
    }

    /// Starts a streaming standby of this server and waits until it has everything.
    ///
    /// # Panics
    ///
    /// If the copy cannot be made, or the standby does not start.
    pub fn standby(&self) -> Self {
        let folder = own_folder(self.account);
        let data = folder.path().join("data");
        let copied = self
            .account
            .command(program("pg_basebackup"))
            .args(["-h", "127.0.0.1", "-U", "postgres", "-c", "fast", "-R", "-N", "-p"])
            .arg(self.port.to_string())
            .arg("-D")
            .arg(&data)
            .output()
            .expect("pg_basebackup is installed");
        let told = String::from_utf8_lossy(&copied.stderr);
        assert!(copied.status.success(), "the primary cannot be copied: {told}");
        let standby = Self::run_in(self.account, folder, self.settings.clone());
        self.await_standbys(1);
        standby
    }

    /// Waits until at least so many standbys have all that this server has written.
    ///
    /// # Panics
    ///
    /// If they do not within the time that a server may take to start.
    pub fn await_standbys(&self, count: usize) {
        let caught_up = "SELECT count(*) FROM pg_stat_replication \
                         WHERE flush_lsn >= pg_current_wal_insert_lsn()";
        let started = Instant::now();
        while self.sql(caught_up).parse::<usize>().is_ok_and(|found| found < count) {
            assert!(started.elapsed() < POSTGRES_START_MAX, "the standby does not follow");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes a standby a primary and waits until it takes writes.
    ///
    /// # Panics
    ///
    /// If it does not become one.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), "t", "the standby stays one");
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of its data.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The URL it answers under.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL for another of its users.
    pub fn url_of(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs SQL as the superuser and returns the rows as text.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached, or refuses.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
    }

    /// The same; what the server says if it refuses.
    ///
    /// # Errors
    ///
    /// The message of `psql`.
    ///
    /// # Panics
    ///
    /// If `psql` is not installed.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        self.psql(&["-c", sql], "")
    }

    /// Lets time pass for the locks in the schema `distlock`.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached.
    pub fn pass(&self, while_: Duration) {
        self.pass_in("distlock", while_);
    }

    /// The same in another schema.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached.
    pub fn pass_in(&self, schema: &str, while_: Duration) {
        let us = format!("us={}", while_.as_micros());
        let path = format!("SET search_path = {schema};\n{PASS_SQL}");
        let passed = self.psql(&["-q", "-v", &us, "-f", "-"], &path);
        passed.unwrap_or_else(|why| panic!("time does not pass: {why}"));
    }

    /// Stops the clock of the locks in the schema `distlock`, whose tables have to be there. It
    /// then stands until it is [moved](Self::move_clock), so it does not matter how long a call
    /// takes.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached.
    pub fn stop_clock(&self) {
        let stopped = self.psql(&["-q", "-f", "-"], STOP_CLOCK);
        stopped.unwrap_or_else(|why| panic!("the clock goes on: {why}"));
    }

    /// Moves the clock that was stopped: on, or back by a negative number of seconds.
    ///
    /// # Panics
    ///
    /// If the clock was not stopped.
    pub fn move_clock(&self, seconds: f64) {
        self.sql(&format!("UPDATE distlock.test_clock SET us = us + ({seconds} * 1e6)::bigint"));
    }

    fn psql(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut psql = Command::new("psql")
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres"])
            .args(["-d", "postgres", "-h"])
            .arg(self.folder.path())
            .args(["-p", &self.port.to_string()])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("psql: {error}: `make setup` installs it"));
        if let Some(mut to) = psql.stdin.take() {
            // One that refuses the connection reads nothing.
            let _ = to.write_all(input.as_bytes());
        }
        let done = psql.wait_with_output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    /// Kills all of it without warning.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let children = children(process.id());
        // The parent first: it would start the others again.
        let _ = process.kill();
        let _ = process.wait();
        children.iter().for_each(|child| signal("KILL", *child));
    }

    /// Ends it in an orderly way: connections are closed, and everything is written.
    ///
    /// # Panics
    ///
    /// If the process cannot be waited for.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        signal("INT", process.id());
        process.wait().expect("the server ends");
    }

    /// Starts it again on the same port and folder.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.run(), "postgres does not start again: {}", self.log());
    }

    /// Stops it in its tracks: it keeps its connections and answers nothing.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self) {
        self.signal_all("STOP");
    }

    /// Lets it go on.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn resume(&self) {
        self.signal_all("CONT");
    }

    fn signal_all(&self, name: &str) {
        let parent = self.process.as_ref().expect("it runs").id();
        signal(name, parent);
        children(parent).into_iter().for_each(|child| signal(name, child));
    }

    /// What the server has written into its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn run_in(account: Account, folder: TempFolder, settings: Vec<String>) -> Self {
        let mut server = Self { account, folder, port: 0, settings, process: None };
        for _ in 0..POSTGRES_STARTS_MAX {
            server.port = free_port();
            if server.run() {
                return server;
            }
        }
        panic!("postgres starts on no port: {}", server.log());
    }

    /// Runs the server and waits until it answers. False if it ended instead.
    fn run(&mut self) -> bool {
        let log = fs::File::create(self.folder.path().join("log")).expect("the folder is writable");
        let data = self.data_folder();
        // Left by a server that was killed; another process may have its number by now.
        let _ = fs::remove_file(data.join("postmaster.pid"));
        let socket = format!("unix_socket_directories={}", self.folder.path().display());
        let mut command = self.account.command(program("postgres"));
        command.arg("-D").arg(&data).args(["-p", &self.port.to_string(), "-c", &socket]);
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command
            .spawn()
            .unwrap_or_else(|error| panic!("postgres: {error}: `make setup` installs it"));
        self.process = Some(process);
        let started = Instant::now();
        while self.try_sql("SELECT 1").is_err() {
            assert!(
                started.elapsed() < POSTGRES_START_MAX,
                "postgres does not start: {}",
                self.log()
            );
            let ended = self.process.as_mut().map(Child::try_wait);
            if !matches!(ended, Some(Ok(None))) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes that a server has started.
fn children(parent: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let numbers = children.unwrap_or_default();
    numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Sends a signal. A process that has gone is none to signal.
fn signal(name: &str, process: u32) {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{name}"), &process.to_string()]).stderr(Stdio::null());
    let _ = kill.status();
}

/// A program of the installed version: Debian keeps them outside the PATH.
pub(super) fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|entry| entry.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

/// A folder that belongs to the account.
pub(super) fn own_folder(account: Account) -> TempFolder {
    let folder = TempFolder::new();
    account.own(folder.path()).expect("the account can own a folder");
    folder
}

/// Copies a database cluster that was made once: making one takes a second.
fn copy_cluster(account: Account, to: &Path) {
    let template = template(account);
    let copied = Command::new("cp").arg("-a").arg(&template).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "the cluster cannot be copied");
}

/// The cluster that all others are copies of, made if it is not there.
fn template(account: Account) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let template = target.join("postgres-cluster");
    if template.exists() {
        return template;
    }
    // Made elsewhere and moved: no process sees half of it.
    let folder = own_folder(account);
    let made = folder.path().join("data");
    let done = account
        .command(program("initdb"))
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(&made)
        .output()
        .unwrap_or_else(|error| panic!("initdb: {error}: `make setup` installs it"));
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "initdb fails: {told}");
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let aside = target.join(format!("postgres-cluster-{}-{number}", std::process::id()));
    fs::create_dir_all(&target).expect("the target folder is writable");
    let copied = Command::new("cp").arg("-a").arg(&made).arg(&aside).status();
    assert!(copied.is_ok_and(|status| status.success()), "the cluster cannot be copied");
    if fs::rename(&aside, &template).is_err() {
        // Another process was quicker.
        let _ = fs::remove_dir_all(&aside);
    }
    template
}
