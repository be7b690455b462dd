//! Noticing what has ended where no client asks any more, and forgetting keys that are free.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distlock_core::sync::lock;
use distlock_core::{Fault, Key};
use tokio::time::timeout;

use super::pipeline::{Pipeline, bytes, number};
use super::shared::PostgresShared;
use super::verb::Verb;

/// After how many transactions a page of keys is looked at.
const EVERY: u64 = 256;

/// How many keys a page has.
const TIDY_PAGE: i64 = 1_000;

/// How many keys are settled at once.
const SETTLED_MAX: i64 = 16;

/// How long the fence counter of a key outlives its last use, in microseconds.
const COUNTER_LIFE_US: i64 = 60 * 60 * 1_000_000;

/// Whose turn it is, and where the next page begins.
#[derive(Debug, Default)]
pub(super) struct TidyTurn {
    transactions: AtomicU64,
    after: Mutex<Vec<u8>>,
}

/// Counts a transaction, and looks at a page of keys after some of them.
pub(super) fn take_turn(shared: &Arc<PostgresShared>) {
    if shared.tidy.transactions.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1 {
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let within = shared.config.response_timeout;
            // What is not done now is done with a later turn.
            match timeout(within, look(&shared)).await {
                Ok(Ok(ended)) => {
                    for key in ended {
                        let _ = shared.submit(Verb::Settle(key)).await;
                    }
                }
                Ok(Err(fault)) => tracing::debug!(%fault, "ended locks are left for a later turn"),
                Err(_) => {}
            }
        });
    }
}

/// Looks at a page of keys; returns those where something has ended.
async fn look(shared: &PostgresShared) -> Result<Vec<Key>, Fault> {
    const ACTION: &str = "tidy up";
    let after = lock(&shared.tidy.after).clone();
    let mut lease = shared.others.lease(ACTION).await?;
    let begin = lease.begin();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    let page = vec![bytes(&after[..]), number(TIDY_PAGE), number(COUNTER_LIFE_US)];
    let page = pipeline.add(include_str!("../sql/tidy_keys.sql"), page);
    pipeline.add(include_str!("../sql/tidy_tombstones.sql"), Vec::new());
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    let answers = lease.finish(ACTION, sent).await?;
    let last = answers[page].first().and_then(|row| row.try_get::<_, Option<&[u8]>>(0).ok()?);
    let Some(last) = last else {
        lock(&shared.tidy.after).clear();
        return Ok(Vec::new());
    };
    last.clone_into(&mut lock(&shared.tidy.after));
    let mut lease = shared.others.lease(ACTION).await?;
    let begin = lease.begin_read();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    let values = vec![bytes(&after[..]), bytes(last), number(SETTLED_MAX)];
    let ended = pipeline.add(include_str!("../sql/ended.sql"), values);
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    let answers = lease.finish(ACTION, sent).await?;
    let name = |row: &tokio_postgres::Row| String::from_utf8(row.try_get(0).ok()?).ok();
    let keys = answers[ended].iter().filter_map(name);
    Ok(keys.filter_map(|name| Key::new(name).ok()).collect())
}
