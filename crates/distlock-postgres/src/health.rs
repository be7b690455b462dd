//! Looking at the server itself.

use distlock_core::rows::as_number;
use distlock_core::{Fault, Health};
use tokio_postgres::Row;

use super::pipeline::Pipeline;
use super::shared::PostgresShared;

const PROBE_ACTION: &str = "probe";

/// What an operator may want to know of the server.
pub(super) async fn probe(shared: &PostgresShared) -> Result<Health, Fault> {
    let mut lease = shared.others.lease(PROBE_ACTION).await?;
    let begin = lease.begin_read();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    let name = pipeline.add("SELECT name FROM meta", Vec::new());
    let about = pipeline.add(include_str!("../sql/health.sql"), Vec::new());
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    let answers = lease.finish(PROBE_ACTION, sent).await?;
    let text = |at: usize, column: usize| -> String {
        let row = answers[at].first();
        row.and_then(|row| row.try_get(column).ok()).unwrap_or_default()
    };
    let name = format!("postgres:{}", text(name, 0));
    let mut health = Health::new(name.clone(), name);
    health.persistent = text(about, 5) == "on";
    if let Some(row) = answers[about].first() {
        health.clock_us = row.try_get(0).ok().map(as_number);
        health.replica = row.try_get(2).unwrap_or(false);
        let replicas: i64 = row.try_get(7).unwrap_or(0);
        health.facts = vec![
            ("version", text(about, 1)),
            ("schema", shared.config.schema.clone()),
            ("replicas", replicas.to_string()),
            ("synchronous_commit", text(about, 3)),
        ];
        health.warnings = warnings(row);
    }
    if shared.config.listen.is_some() && !shared.listener.can_listen() {
        let warning = "grants are not pushed, so waiters look once per heartbeat: a pooler is in \
                       between; name the server itself with listen=postgres://HOST";
        health.warnings.push(warning.to_owned());
    }
    Ok(health)
}

fn warnings(row: &Row) -> Vec<String> {
    let text = |column: usize| row.try_get::<_, String>(column).unwrap_or_default();
    let mut warnings = Vec::new();
    if text(3) == "off" {
        let warning = "synchronous_commit is off: a crash of the server forgets its last grants; \
                       set it to on for the role of the locks";
        warnings.push(warning.to_owned());
    }
    if text(5) != "on" {
        let warning = "fsync is off: a loss of power can damage the database; set it to on";
        warnings.push(warning.to_owned());
    }
    if text(6) != "on" {
        let warning = "autovacuum is off: the tables of locks grow with every lock; set it to on";
        warnings.push(warning.to_owned());
    }
    warnings
}
