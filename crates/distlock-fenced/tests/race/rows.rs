//! Rows of SQLite and of PostgreSQL.

use std::path::{Path, PathBuf};

use distlock_fenced::rusqlite::{check, create_table, raise};
use distlock_fenced::{FencedError, tokio_postgres as server_rows};
use distlock_testkit::servers::{PostgresServer, TempFolder};
use rusqlite::{Connection, TransactionBehavior};
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;

use crate::play::{Balance, play};

/// A balance in a file. Every step has a connection of its own, as steps of other programs do.
struct SqliteBalance {
    file: PathBuf,
    checked: Checked,
}

/// Where the fence is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Checked {
    AtTheRead,
    AtTheWriteAlone,
}

const KEY: &str = "account/17";

impl SqliteBalance {
    fn new(folder: &Path, checked: Checked) -> Self {
        let row = Self { file: folder.join("accounts.sqlite"), checked };
        let database = row.open();
        database.pragma_update(None, "journal_mode", "wal").unwrap();
        create_table(&database).unwrap();
        let rows = "CREATE TABLE IF NOT EXISTS account (balance INTEGER);
                    DELETE FROM account; INSERT INTO account VALUES (0)";
        database.execute_batch(rows).unwrap();
        row
    }

    fn open(&self) -> Connection {
        let database = Connection::open(&self.file).unwrap();
        database.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        database.pragma_update(None, "synchronous", "off").unwrap();
        database
    }

    fn read_now(&self, fence: u64) -> Option<i64> {
        let mut database = self.open();
        let tx = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        if self.checked == Checked::AtTheRead {
            raise(&tx, KEY, fence).ok()?;
        }
        let balance = tx.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap();
        tx.commit().unwrap();
        Some(balance)
    }

    fn write_now(&self, fence: u64, balance: i64) -> bool {
        let mut database = self.open();
        let tx = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let allowed = match self.checked {
            Checked::AtTheRead => check(&tx, KEY, fence),
            Checked::AtTheWriteAlone => raise(&tx, KEY, fence),
        };
        if allowed.is_err() {
            return false;
        }
        tx.execute("UPDATE account SET balance = ?1", [balance]).unwrap();
        tx.commit().unwrap();
        true
    }
}

impl Balance for SqliteBalance {
    type Seen = ();

    async fn read(&self, fence: u64) -> Option<(i64, ())> {
        tokio::task::block_in_place(|| self.read_now(fence)).map(|balance| (balance, ()))
    }

    async fn write(&self, fence: u64, (): (), balance: i64) -> bool {
        tokio::task::block_in_place(|| self.write_now(fence, balance))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_sqlite_loses_no_update() {
    let folder = TempFolder::new();
    let rows = [(); 2].map(|()| SqliteBalance::new(folder.path(), Checked::AtTheRead));
    play(&rows[0], &rows[1]).await.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_is_checked_at_the_write_alone_loses_updates() {
    let folder = TempFolder::new();
    let rows = [(); 2].map(|()| SqliteBalance::new(folder.path(), Checked::AtTheWriteAlone));
    play(&rows[0], &rows[1]).await.assert_something_lost();
}

/// A balance in a table of a server.
struct PostgresBalance {
    client: tokio::sync::Mutex<tokio_postgres::Client>,
    isolation: IsolationLevel,
}

impl PostgresBalance {
    async fn on(server: &PostgresServer, isolation: IsolationLevel) -> Self {
        let connected = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        Self { client: tokio::sync::Mutex::new(client), isolation }
    }

    /// Runs a transaction again for as long as the server reports that it met another one.
    async fn read_once(&self, fence: u64) -> Result<Option<i64>, tokio_postgres::Error> {
        let mut client = self.client.lock().await;
        let tx = client.build_transaction().isolation_level(self.isolation).start().await?;
        match server_rows::raise(&tx, KEY, fence).await {
            Ok(()) => (),
            Err(FencedError::Refused(_)) => return Ok(None),
            Err(FencedError::Store(error)) => return Err(error),
        }
        let balance = tx.query_one("SELECT balance FROM account", &[]).await?.get(0);
        tx.commit().await?;
        Ok(Some(balance))
    }

    async fn write_once(&self, fence: u64, balance: i64) -> Result<bool, tokio_postgres::Error> {
        let mut client = self.client.lock().await;
        let tx = client.build_transaction().isolation_level(self.isolation).start().await?;
        match server_rows::check(&tx, KEY, fence).await {
            Ok(()) => (),
            Err(FencedError::Refused(_)) => return Ok(false),
            Err(FencedError::Store(error)) => return Err(error),
        }
        tx.execute("UPDATE account SET balance = $1", &[&balance]).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Whether a transaction met another one and can run again.
fn met_another(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

impl Balance for PostgresBalance {
    type Seen = ();

    async fn read(&self, fence: u64) -> Option<(i64, ())> {
        loop {
            match self.read_once(fence).await {
                Err(error) if met_another(&error) => (),
                read => return read.unwrap().map(|balance| (balance, ())),
            }
        }
    }

    async fn write(&self, fence: u64, (): (), balance: i64) -> bool {
        loop {
            match self.write_once(fence, balance).await {
                Err(error) if met_another(&error) => (),
                written => return written.unwrap(),
            }
        }
    }
}

async fn play_on_postgres(isolation: IsolationLevel) {
    let server = PostgresServer::start();
    let rows = [
        PostgresBalance::on(&server, isolation).await,
        PostgresBalance::on(&server, isolation).await,
    ];
    let client = rows[0].client.lock().await;
    server_rows::create_table(&*client).await.unwrap();
    server_rows::create_table(&*client).await.unwrap();
    let table = "CREATE TABLE account (balance bigint); INSERT INTO account VALUES (0)";
    client.batch_execute(table).await.unwrap();
    drop(client);
    play(&rows[0], &rows[1]).await.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_postgres_loses_no_update() {
    play_on_postgres(IsolationLevel::ReadCommitted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_postgres_loses_no_update_at_repeatable_read() {
    play_on_postgres(IsolationLevel::RepeatableRead).await;
}
