//! Texts for databases: a table of fences, with one row for each key of a lock.
//!
//! The table protects any number of rows of any number of tables. Every transaction of a holder
//! begins with one of two statements, and goes on only if that statement changed one row:
//!
//! - [`raise`](Statements::raise) if the transaction reads,
//! - [`check`](Statements::check) if it writes what an earlier transaction has read.
//!
//! A transaction that reads and writes needs `raise` alone. Both statements lock the row of the
//! key until the transaction ends, so the raise of a newer holder waits for a write in progress and
//! its reads see that write. At `REPEATABLE READ` and above, PostgreSQL reports that as a
//! serialization failure (40001): run the transaction again.
//!
//! The parameters are the name of the lock's key and the fence, in the form of each database.
//! [`rusqlite`](crate::rusqlite) and [`tokio_postgres`](crate::tokio_postgres) run these texts; for
//! other clients:
//!
//! ```
//! use distlock_fenced::sql;
//!
//! assert!(sql::MYSQL.prepare.is_some());
//! println!("{}", sql::POSTGRES.raise);
//! ```
//!
//! Never delete a row while a holder of that key can be paused: its fence would be forgotten.
#![cfg_attr(
    not(all(feature = "rusqlite", feature = "tokio-postgres")),
    allow(rustdoc::broken_intra_doc_links)
)]

/// The statements for one database. The table is `distlock_fences`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Statements {
    /// Creates the table if it is not there.
    pub create_table: &'static str,
    /// Runs before `raise` and may change any number of rows. Takes the name alone.
    pub prepare: Option<&'static str>,
    /// Raises the fence before a read. Changes one row, or none if the fence is stale.
    pub raise: &'static str,
    /// Checks the fence before a write. Changes one row, or none if the fence is stale or has not
    /// been raised.
    pub check: &'static str,
    /// Reads the largest fence so far, for messages. Takes the name alone.
    pub newest: &'static str,
}

/// PostgreSQL: parameters are `$1` for the name (`text`) and `$2` for the fence (`bigint`).
pub const POSTGRES: Statements = Statements {
    create_table: include_str!("sql/postgres/create_table.sql"),
    prepare: None,
    raise: include_str!("sql/postgres/raise.sql"),
    check: include_str!("sql/postgres/check.sql"),
    newest: "SELECT fence FROM distlock_fences WHERE name = $1",
};

/// SQLite: parameters are `?1` for the name and `?2` for the fence.
pub const SQLITE: Statements = Statements {
    create_table: include_str!("sql/sqlite/create_table.sql"),
    prepare: None,
    raise: include_str!("sql/sqlite/raise.sql"),
    check: include_str!("sql/sqlite/check.sql"),
    newest: "SELECT fence FROM distlock_fences WHERE name = ?1",
};

/// MySQL and MariaDB with InnoDB. Parameters go by position: `raise` takes fence, name, fence;
/// `check` takes name, fence.
///
/// A row that is set to the values it has counts as unchanged or not, depending on a flag of the
/// connection (`CLIENT_FOUND_ROWS`). The column `uses` changes in every statement, so that the
/// count is the same either way.
pub const MYSQL: Statements = Statements {
    create_table: include_str!("sql/mysql/create_table.sql"),
    prepare: Some(include_str!("sql/mysql/prepare.sql")),
    raise: include_str!("sql/mysql/raise.sql"),
    check: include_str!("sql/mysql/check.sql"),
    newest: "SELECT fence FROM distlock_fences WHERE name = ?",
};
