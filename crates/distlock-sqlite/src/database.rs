//! The connection to the file: opened, checked, and used for one transaction at a time.

use std::cell::Cell;
use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use distlock_core::law::{AddressedPush, Now};
use distlock_core::{ClientId, Fault};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Result, params};

use super::boot::Boot;
use super::cells::as_sql;
use super::config::SqliteConfig;
use super::file::OPEN_FILE;
use super::job::{Access, Job};
use super::session::{StoreMeta, StoreSession};
use super::{faults, file, journal, save};

/// The tables, version by version. A file of an older version gets what it lacks when it is opened.
const MIGRATIONS: [&str; 3] = [
    include_str!("../sql/1_locks.sql"),
    include_str!("../sql/2_journal.sql"),
    include_str!("../sql/3_claims.sql"),
];

/// Says in the header of the file that it is ours: "lock".
const APPLICATION_ID: i32 = 0x6c6f_636b;

/// How large the pages of a new file are. A lock is a row of some hundred bytes, and its page goes
/// into the log whenever it changes; larger pages only make the log larger.
const PAGE_SIZE: i64 = 1024;

/// How many prepared statements are kept.
const STATEMENTS_MAX: usize = 64;

/// After how many pages the log is copied into the file. The program that opens the file while no
/// other program has it open reads the log once, which at this length takes well below a
/// millisecond.
const LOG_PAGES_MAX: c_int = 500;

thread_local! {
    /// How many pages the log had after the last commit of this thread.
    static LOG_PAGES: Cell<c_int> = const { Cell::new(0) };
}

/// The connection to the file.
#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    config: SqliteConfig,
    boot: Boot,
    inode: Option<(u64, u64)>,
}

impl Database {
    /// Opens the file, making it if it is not there.
    ///
    /// The log is synced only when it is copied into the file (`synchronous = NORMAL`), so the last
    /// commits before a loss of power may be lost. Holds and places do not mind: the loss of power
    /// ends the run of the machine and with it all of them. Fences do: they must not go back. Their
    /// ceiling is therefore committed with a sync of its own before any fence gets near it, about
    /// once an hour, and after a restart fences go on from the ceiling.
    pub(super) fn open(
        config: &SqliteConfig,
        boot: Boot,
        deadline: Instant,
    ) -> Result<Self, Fault> {
        file::check(config)?;
        if !config.file.exists() {
            create(config, &boot)?;
        }
        let fault = |error: &Error| faults::fault(OPEN_FILE, &config.file, error);
        let connection = connect(&config.file, deadline).map_err(|error| fault(&error))?;
        let inode = file::inode(&config.file);
        let database = Self { connection, config: config.clone(), boot, inode };
        database.check()?;
        let rebooted = database.note_boot();
        rebooted.map_err(|error| fault(&error))?;
        Ok(database)
    }

    /// True if the path still leads to the file that was opened. If a program has moved or deleted
    /// it, others do not see what is written to it any more.
    pub(super) fn is_in_place(&self) -> bool {
        self.inode == file::inode(&self.config.file)
    }

    /// Which file it is, whatever path leads to it.
    pub(super) fn inode(&self) -> u64 {
        self.inode.map_or(0, |(_, inode)| inode)
    }

    /// Runs jobs in one transaction: all of them, or none.
    pub(super) fn transact(&self, jobs: &mut [Job]) -> Result<Vec<AddressedPush>> {
        let deadline = jobs.iter().map(|job| job.deadline).min().unwrap_or_else(Instant::now);
        self.connection.busy_timeout(until(deadline))?;
        let access = if jobs.iter().any(|job| job.access == Access::Write) {
            Access::Write
        } else {
            Access::Read
        };
        loop {
            let now = match self.attempt(access, jobs)? {
                Attempt::Done(notices) => return Ok(notices),
                Attempt::AboveCeiling(counter, now) => StoreMeta::next_ceiling(counter, now),
            };
            self.raise_ceiling(now)?;
        }
    }

    /// Runs one job, but only if that needs no waiting: for no lock and for no disk. None, and
    /// nothing is done, if it does.
    pub(super) fn transact_at_once(&self, job: &mut Job) -> Result<Option<Vec<AddressedPush>>> {
        self.connection.busy_timeout(Duration::ZERO)?;
        match self.attempt(job.access, std::slice::from_mut(job)) {
            Ok(Attempt::Done(notices)) => Ok(Some(notices)),
            Ok(Attempt::AboveCeiling(..)) => Ok(None),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Compiles what comes after an acquire: the holder is busy meanwhile, and a client that waits
    /// for a release does not wait for this.
    pub(super) fn think_ahead(&self) {
        for sql in [save::DROP_HOLDER].into_iter().chain(journal::APPEND) {
            // What cannot be compiled now is when it is needed.
            let _ = self.connection.prepare_cached(sql);
        }
    }

    /// Copies the log into the file, as far as no reader needs it.
    pub(super) fn shorten_log(&self) {
        // The next call tries again.
        let copied = "PRAGMA wal_checkpoint(PASSIVE)";
        let _ = self.connection.query_row(copied, [], |_| Ok(()));
    }

    fn attempt(&self, access: Access, jobs: &mut [Job]) -> Result<Attempt> {
        let transaction = Transaction::begin(&self.connection, access)?;
        let meta = StoreMeta::read(&self.connection)?.ok_or(Error::QueryReturnedNoRows)?;
        if meta.boot != self.boot.id {
            return Err(other_machine());
        }
        // The time is read inside the transaction: what others committed before is not later.
        let now = self.boot.now();
        let mut session = StoreSession::new(&self.connection, now, meta);
        for job in jobs {
            job.attempt(&mut session)?;
        }
        if access == Access::Write {
            session.tidy()?;
            if !session.close()? {
                return Ok(Attempt::AboveCeiling(session.meta().counter, now));
            }
        }
        transaction.commit()?;
        Ok(Attempt::Done(session.into_notices()))
    }

    /// Commits a ceiling so that it is on the disk when this returns.
    fn raise_ceiling(&self, ceiling: u64) -> Result<()> {
        self.durably(|connection| {
            let sql = "UPDATE store SET ceiling = max(ceiling, ?1)";
            connection.execute(sql, [as_sql(ceiling)]).map(drop)
        })
    }

    /// One transaction that is on the disk when this returns, together with all before it.
    fn durably(&self, work: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        let done = Transaction::begin(&self.connection, Access::Write).and_then(|transaction| {
            work(&self.connection)?;
            transaction.commit()
        });
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        done
    }

    /// Refuses files that are not ours, and brings ours up to date.
    fn check(&self) -> Result<(), Fault> {
        let file = &self.config.file;
        let refuse = |why: &str| {
            let fault = Fault::permanent(OPEN_FILE, why).at_store(self.config.location());
            Err(fault.advise("name another file"))
        };
        let fault = |error: Error| faults::fault(OPEN_FILE, file, &error);
        let pragma = |name: &str| self.connection.pragma_query_value(None, name, |row| row.get(0));
        let version: i64 = pragma("user_version").map_err(fault)?;
        let application: i32 = self
            .connection
            .pragma_query_value(None, "application_id", |r| r.get(0))
            .map_err(fault)?;
        let tables = "SELECT count(*) FROM sqlite_schema";
        let is_empty = || self.connection.query_row(tables, [], |row| row.get::<_, i64>(0));
        match version {
            _ if application != APPLICATION_ID && (version, application) != (0, 0) => {
                refuse("it is a database of another program")
            }
            MIGRATED => Ok(()),
            0 if is_empty().map_err(fault)? > 0 => refuse("it is a database of another program"),
            0..MIGRATED => self.migrate(version).map_err(fault),
            _ => refuse("it was written by a newer version of distlock"),
        }
    }

    /// Adds what the file lacks. The second of two finds it done.
    fn migrate(&self, version: i64) -> Result<()> {
        if version == 0 {
            self.connection.pragma_update(None, "page_size", PAGE_SIZE)?;
            self.connection.pragma_update(None, "journal_mode", "WAL")?;
        }
        self.durably(|connection| {
            let version: i64 =
                connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            for sql in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
                connection.execute_batch(sql)?;
            }
            if version == 0 {
                set_up(connection, &self.boot)?;
            }
            connection.pragma_update(None, "user_version", MIGRATED)
        })
    }

    /// Forgets who held before the machine was started.
    fn note_boot(&self) -> Result<()> {
        let is_known = |meta: Option<StoreMeta>| meta.is_some_and(|meta| meta.boot == self.boot.id);
        if is_known(StoreMeta::read(&self.connection)?) {
            return Ok(());
        }
        self.durably(|connection| {
            let Some(meta) = StoreMeta::read(connection)? else {
                return set_up(connection, &self.boot);
            };
            if meta.boot == self.boot.id {
                return Ok(());
            }
            connection.execute_batch(include_str!("../sql/reboot.sql"))?;
            let ceiling = StoreMeta::next_ceiling(meta.ceiling, self.boot.now());
            let boot = "UPDATE store SET boot = ?1, ceiling = ?2";
            connection.execute(boot, params![self.boot.id, as_sql(ceiling)]).map(drop)
        })
    }
}

const MIGRATED: i64 = MIGRATIONS.len() as i64;

/// How a transaction went.
enum Attempt {
    Done(Vec<AddressedPush>),
    /// It would have given out this number, which is more than may be.
    AboveCeiling(u64, Now),
}

/// Makes the file under another name and then gives it its own: no process ever sees half of it.
fn create(config: &SqliteConfig, boot: &Boot) -> Result<(), Fault> {
    let random = ClientId::random()?.reveal();
    let mut name = config.file.clone().into_os_string();
    name.push(format!(".{}.new", &random[..8]));
    let draft = SqliteConfig { file: name.into(), ..config.clone() };
    let made = file::make(&draft).and_then(|()| {
        let fault = |error: &Error| faults::fault(OPEN_FILE, &config.file, error);
        let connection = connect(&draft.file, Instant::now()).map_err(|error| fault(&error))?;
        let unlogged = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        unlogged.map_err(|error| fault(&error))?;
        let database =
            Database { connection, config: draft.clone(), boot: boot.clone(), inode: None };
        database.migrate(0).map_err(|error| fault(&error))?;
        database.connection.close().map_err(|(_, error)| fault(&error))?;
        file::give_name(&draft.file, config)
    });
    let _ = fs::remove_file(&draft.file);
    made
}

/// What a new store knows of itself.
fn set_up(connection: &Connection, boot: &Boot) -> Result<()> {
    let random = |fault: Fault| Error::ToSqlConversionFailure(Box::new(fault));
    let name = ClientId::random().map_err(random)?.reveal();
    let ceiling = as_sql(StoreMeta::next_ceiling(0, boot.now()));
    let mut statement = connection.prepare(include_str!("../sql/create_store.sql"))?;
    statement.execute(params![name, boot.id, 0, ceiling])?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)
}

fn connect(file: &Path, deadline: Instant) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(until(deadline))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // The last one to close the file need not empty the log: the next one will read it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Replaces SQLite's own way, which copies the log at once and on the thread that commits.
    connection.wal_hook(Some(|_, pages| {
        LOG_PAGES.set(pages);
        Ok(())
    }));
    Ok(connection)
}

fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Two running machines that share a file are not supported; this tells the one that came first.
fn other_machine() -> Error {
    let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_MISUSE);
    let why = "another machine, or another start of this one, uses the file now";
    Error::SqliteFailure(error, Some(why.to_owned()))
}

/// True if the last commit of this thread left a log that should be copied into the file.
pub(super) fn log_is_long() -> bool {
    LOG_PAGES.get() >= LOG_PAGES_MAX
}

/// A transaction that is rolled back unless it is committed.
struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    fn begin(connection: &'a Connection, access: Access) -> Result<Self> {
        let begin = match access {
            Access::Read => include_str!("../sql/begin_read.sql"),
            Access::Write => include_str!("../sql/begin_write.sql"),
        };
        connection.prepare_cached(begin)?.execute([])?;
        Ok(Self(connection))
    }

    fn commit(self) -> Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // What cannot be rolled back now is when the connection is closed.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}
