//! A transaction of the program's own that counts only while a guard holds.

use distlock_core::{Key, rows::as_column};
use tokio_postgres::types::Type;

use super::config::check_schema;

/// Why a transaction must not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StaleHold {
    /// No hold of the key has this fence any more: the lock was lost. Roll back.
    #[error("the hold of {key} with fence {fence} has ended: roll back")]
    Lost {
        /// The key.
        key: Key,
        /// The fence.
        fence: u64,
    },
    /// The schema cannot have this name.
    #[error(transparent)]
    Schema(#[from] distlock_core::Invalid),
    /// The server could not be asked.
    #[error(transparent)]
    Database(#[from] tokio_postgres::Error),
}

/// Makes a transaction depend on a hold: checks that the hold with this fence still runs, and keeps
/// it from ending before the transaction does. A release and the next grant wait for the
/// transaction, so what it writes is there before the next holder can read.
///
/// Call it in the transaction before the first read or write that the lock protects. `schema` is
/// the one of the locks, `distlock` unless the URL names another; it has to be in the same
/// database. Renewals go on meanwhile. Keep the transaction shorter than the lease: if the lease
/// ends first, verbs of other clients for this key fail until the transaction ends.
///
/// ```no_run
/// # type Failure = Box<dyn std::error::Error>;
/// # async fn example(mut client: tokio_postgres::Client) -> Result<(), Failure> {
/// use distlock::{Locks, backends::postgres};
///
/// let locks = Locks::connect("postgres://app@db/app")?;
/// let guard = locks.mutex("stock")?.lock().await?;
/// let transaction = client.transaction().await?;
/// postgres::fenced(&transaction, "distlock", guard.key(), guard.fence()).await?;
/// transaction.execute("UPDATE stock SET left = left - 1", &[]).await?;
/// transaction.commit().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// Another client crate can run the same statement: `SELECT FROM distlock.holders WHERE key = $1
/// AND fence = $2 AND NOT kept AND until_us > distlock.now_us() FOR KEY SHARE`, with the key as
/// bytes. If it finds no row, roll back.
///
/// # Errors
///
/// [`StaleHold`]; the transaction has to be rolled back.
///
/// # Cancel safety
///
/// Dropping the future changes nothing; the transaction may or may not depend on the hold.
pub async fn fenced(
    transaction: &tokio_postgres::Transaction<'_>,
    schema: &str,
    key: &Key,
    fence: u64,
) -> Result<(), StaleHold> {
    let schema = check_schema(schema)?;
    // The transaction is the program's own, and so is its search path.
    let sql = include_str!("../sql/fenced.sql")
        .replace("FROM holders", &format!("FROM {schema}.holders"))
        .replace("now_us()", &format!("{schema}.now_us()"));
    let (name, number) = (key.as_str().as_bytes(), as_column(fence));
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&name, Type::BYTEA), (&number, Type::INT8)];
    match transaction.query_typed(&sql, &values).await?.first() {
        Some(_) => Ok(()),
        None => Err(StaleHold::Lost { key: key.clone(), fence }),
    }
}
