//! Fenced transactions on PostgreSQL.
//!
//! Statements are sent unnamed, so they also run behind a pool in transaction mode.
//!
//! ```no_run
//! # async fn deposit(
//! #     database: &mut tokio_postgres::Client,
//! #     guard: &distlock::Guard,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let (name, fence) = (guard.key().as_str(), guard.fence());
//!
//! // First transaction: raise the fence, then read.
//! let tx = database.transaction().await?;
//! distlock_fenced::tokio_postgres::raise(&tx, name, fence).await?;
//! let balance: i64 = tx.query_one("SELECT balance FROM account", &[]).await?.get(0);
//! tx.commit().await?;
//!
//! // Any time later: check the fence, then write. A newer holder makes the check fail.
//! let tx = database.transaction().await?;
//! distlock_fenced::tokio_postgres::check(&tx, name, fence).await?;
//! tx.execute("UPDATE account SET balance = $1", &[&(balance + 10)]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Transaction};

use crate::FencedError;
#[cfg(doc)]
use crate::Refused;
use crate::register::{FenceStep, valid};
use crate::sql::POSTGRES;

/// Creates the table of fences if it is not there, in the first schema of the search path.
///
/// ```no_run
/// # async fn set_up(database: &tokio_postgres::Client)
/// # -> Result<(), distlock_fenced::FencedError<tokio_postgres::Error>> {
/// distlock_fenced::tokio_postgres::create_table(database).await
/// # }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, the table may have been created.
///
/// # Errors
///
/// What PostgreSQL reports.
pub async fn create_table(
    client: &impl GenericClient,
) -> Result<(), FencedError<tokio_postgres::Error>> {
    client.batch_execute(POSTGRES.create_table).await.map_err(FencedError::Store)
}

/// Raises the fence of a key, as the first statement of a transaction that reads. Until the
/// transaction ends, another transaction that raises or checks it waits.
///
/// ```no_run
/// # async fn example(tx: &tokio_postgres::Transaction<'_>, guard: &distlock::Guard)
/// # -> Result<(), distlock_fenced::FencedError<tokio_postgres::Error>> {
/// distlock_fenced::tokio_postgres::raise(tx, guard.key().as_str(), guard.fence()).await
/// # }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, roll the transaction back.
///
/// # Errors
///
/// [`Refused::Stale`] if a newer holder was here: roll back, the lock is lost.
pub async fn raise(
    tx: &Transaction<'_>,
    name: &str,
    fence: u64,
) -> Result<(), FencedError<tokio_postgres::Error>> {
    run(tx, POSTGRES.raise, name, fence, FenceStep::Raise).await
}

/// Checks the fence of a key, as the first statement of a transaction that writes what an earlier
/// one has read.
///
/// ```no_run
/// # async fn example(tx: &tokio_postgres::Transaction<'_>, guard: &distlock::Guard)
/// # -> Result<(), distlock_fenced::FencedError<tokio_postgres::Error>> {
/// distlock_fenced::tokio_postgres::check(tx, guard.key().as_str(), guard.fence()).await
/// # }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, roll the transaction back.
///
/// # Errors
///
/// [`Refused::Stale`] as for [`raise`], [`Refused::NotRaised`] if this fence has never been raised.
pub async fn check(
    tx: &Transaction<'_>,
    name: &str,
    fence: u64,
) -> Result<(), FencedError<tokio_postgres::Error>> {
    run(tx, POSTGRES.check, name, fence, FenceStep::Check).await
}

/// Runs a statement that changes one row, and says why if it changed none.
async fn run(
    tx: &Transaction<'_>,
    statement: &str,
    name: &str,
    fence: u64,
    step: FenceStep,
) -> Result<(), FencedError<tokio_postgres::Error>> {
    valid(fence)?;
    let stored = i64::try_from(fence).unwrap_or(i64::MAX);
    let values = [(&name as _, Type::TEXT), (&stored as _, Type::INT8)];
    if tx.execute_typed(statement, &values).await.map_err(FencedError::Store)? > 0 {
        return Ok(());
    }
    let found = tx.query_typed(POSTGRES.newest, &[(&name as _, Type::TEXT)]).await;
    let found = found.map_err(FencedError::Store)?;
    let newest = found.first().map_or(0, |row| row.get::<_, i64>(0));
    Err(step.refusal(fence, u64::try_from(newest).unwrap_or(0)).into())
}
