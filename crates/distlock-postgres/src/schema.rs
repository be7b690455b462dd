//! The tables: looked for with the first connection, and made if they are not there.

use distlock_core::{Fault, Invalid};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::config::{PostgresConfig, check_schema};
use super::faults;
use super::pipeline::Pipeline;

/// The version of the tables that this driver works with.
const VERSION: i32 = 1;

/// The tables of the first version.
const TABLES: &str = include_str!("../sql/1_locks.sql");

/// Keeps two clients from making the tables at the same time: "distlock" in hexadecimal digits.
const ADVISORY: i64 = 0x6469_7374_6c6f_636b;

const SCHEMA_ACTION: &str = "set up the schema of locks";

/// The statements that make the tables in a schema, for those who let no program do that. They also
/// say which rights a program needs.
///
/// # Errors
///
/// [`Invalid`] if the schema cannot have this name.
pub fn schema_sql(schema: &str) -> Result<String, Invalid> {
    let schema = check_schema(schema)?;
    let sql = include_str!("../sql/schema.sql").replace("{schema}", &schema);
    Ok(sql.replace("{tables}", TABLES).replace("{version}", &VERSION.to_string()))
}

/// Makes sure that the tables are there and of a version that this driver knows.
pub(super) async fn ensure(client: &Client, config: &PostgresConfig) -> Result<(), Fault> {
    let fault = |error: &Error| faults::fault(SCHEMA_ACTION, error, config);
    match version(client, config).await {
        Ok(found) => check(found, config),
        Err(error) if faults::has_no_tables(&error) => {
            let made = make(client, config).await;
            if made.is_err() {
                // The connection goes back to the pool only if it is in no transaction.
                let _ = client.batch_execute("ROLLBACK").await;
            }
            made.map_err(|error| fault(&error).advise(advice(&error)))
        }
        Err(error) => Err(fault(&error)),
    }
}

fn advice(error: &Error) -> &'static str {
    match error.code().map(SqlState::code) {
        Some("42501") => {
            "run `distlock schema postgres` and give its output to psql, as a role that may create \
             a schema; it also says what to grant"
        }
        Some("25006") => "the server only reads: name the primary, or all servers",
        _ => "see the log of the server",
    }
}

async fn version(client: &Client, config: &PostgresConfig) -> Result<i32, Error> {
    let mut pipeline = Pipeline::default();
    pipeline.control(&config.begin_read);
    let at = pipeline.add("SELECT version FROM meta", Vec::new());
    pipeline.control("COMMIT");
    let found = pipeline.send(client).await;
    if found.is_err() {
        client.batch_execute("ROLLBACK").await?;
    }
    found?[at].first().map_or(Ok(0), |row| row.try_get(0))
}

fn check(found: i32, config: &PostgresConfig) -> Result<(), Fault> {
    if found == VERSION {
        return Ok(());
    }
    let (why, cure) = if found > VERSION {
        ("the tables were made by a newer version of distlock", "update this program")
    } else {
        ("the schema has a table `meta` that distlock did not make", "name another schema")
    };
    Err(Fault::permanent(SCHEMA_ACTION, why).at_store(config.location()).advise(cure))
}

async fn make(client: &Client, config: &PostgresConfig) -> Result<(), Error> {
    let schema = &config.schema;
    // Tables are made once, so that takes as long as it takes. The caller has a deadline.
    client
        .batch_execute("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        .await?;
    client.batch_execute(&format!("SELECT pg_advisory_xact_lock({ADVISORY})")).await?;
    let there = format!("SELECT to_regnamespace('{schema}') IS NOT NULL");
    let there = client.query_typed(&there, &[]).await?;
    let has_schema = there.first().is_some_and(|row| row.get(0));
    // Another client may have been quicker.
    let made = format!("SELECT to_regclass('{schema}.meta') IS NOT NULL");
    let made = client.query_typed(&made, &[]).await?;
    if !made.first().is_some_and(|row| row.get(0)) {
        if !has_schema {
            client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        }
        client.batch_execute(&format!("SET LOCAL search_path = {schema}, pg_temp")).await?;
        client.batch_execute(TABLES).await?;
        let meta =
            format!("INSERT INTO meta (version, name) VALUES ({VERSION}, gen_random_uuid())");
        client.batch_execute(&meta).await?;
    }
    client.batch_execute("COMMIT").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_schema_names_itself() {
        let sql = schema_sql("app_locks").unwrap();
        assert!(sql.contains("CREATE SCHEMA IF NOT EXISTS app_locks;"), "{sql}");
        assert!(sql.trim_end().ends_with("COMMIT;"));
        assert!(schema_sql("a; drop").is_err());
    }
}
