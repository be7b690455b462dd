//! Fenced transactions on SQLite.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use distlock::Locks;
//! use rusqlite::{Connection, TransactionBehavior};
//!
//! let mut database = Connection::open_in_memory()?;
//! distlock_fenced::rusqlite::create_table(&database)?;
//! database.execute_batch("CREATE TABLE account (balance); INSERT INTO account VALUES (100)")?;
//!
//! let guard = Locks::memory().mutex("account/17")?.lock().await?;
//! let (name, fence) = (guard.key().as_str(), guard.fence());
//!
//! // First transaction: raise the fence, then read.
//! let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
//! distlock_fenced::rusqlite::raise(&tx, name, fence)?;
//! let balance: i64 = tx.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
//! tx.commit()?;
//!
//! // Any time later: check the fence, then write. A newer holder makes the check fail.
//! let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
//! distlock_fenced::rusqlite::check(&tx, name, fence)?;
//! tx.execute("UPDATE account SET balance = ?1", [balance + 10])?;
//! tx.commit()?;
//! # Ok(())
//! # }
//! ```

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::FencedError;
#[cfg(doc)]
use crate::Refused;
use crate::register::{FenceStep, valid};
use crate::sql::SQLITE;

/// Creates the table of fences if it is not there.
///
/// # Errors
///
/// What SQLite reports.
pub fn create_table(connection: &Connection) -> Result<(), FencedError<rusqlite::Error>> {
    connection.execute_batch(SQLITE.create_table).map_err(FencedError::Store)
}

/// Raises the fence of a key, as the first statement of a transaction that reads. Until the
/// transaction ends, no other can raise or check it.
///
/// # Errors
///
/// [`Refused::Stale`] if a newer holder was here: roll back, the lock is lost.
pub fn raise(
    tx: &Transaction<'_>,
    name: &str,
    fence: u64,
) -> Result<(), FencedError<rusqlite::Error>> {
    run(tx, SQLITE.raise, name, fence, FenceStep::Raise)
}

/// Checks the fence of a key, as the first statement of a transaction that writes what an earlier
/// one has read.
///
/// # Errors
///
/// [`Refused::Stale`] as for [`raise`], [`Refused::NotRaised`] if this fence has never been raised.
pub fn check(
    tx: &Transaction<'_>,
    name: &str,
    fence: u64,
) -> Result<(), FencedError<rusqlite::Error>> {
    run(tx, SQLITE.check, name, fence, FenceStep::Check)
}

/// Runs a statement that changes one row, and says why if it changed none.
fn run(
    tx: &Transaction<'_>,
    statement: &str,
    name: &str,
    fence: u64,
    step: FenceStep,
) -> Result<(), FencedError<rusqlite::Error>> {
    valid(fence)?;
    let mut prepared = tx.prepare(statement).map_err(FencedError::Store)?;
    let stored = i64::try_from(fence).unwrap_or(i64::MAX);
    if prepared.execute(params![name, stored]).map_err(FencedError::Store)? > 0 {
        return Ok(());
    }
    let newest = tx.query_row(SQLITE.newest, [name], |row| row.get::<_, i64>(0));
    let newest = newest.optional().map_err(FencedError::Store)?.unwrap_or(0);
    Err(step.refusal(fence, u64::try_from(newest).unwrap_or(0)).into())
}
