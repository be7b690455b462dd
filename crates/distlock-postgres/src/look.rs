//! Looking at keys without changing anything: at all tables as of one moment.

use std::collections::BTreeMap;

use distlock_core::law::Record;
use distlock_core::rows::as_number;
use distlock_core::{Cursor, Fault, Key, Moment, Page, SNAPSHOT_MAX, Snapshot};
use tokio_postgres::Row;

use super::cells::{self, RowError};
use super::faults;
use super::load::LoadedRecord;
use super::pipeline::{Pipeline, bytes, many_bytes, number};
use super::shared::PostgresShared;

/// The columns of the keys in the statements that read several.
const HOLDER_KEY: usize = 14;
const WAITER_KEY: usize = 17;

/// Looks at one key.
pub(super) async fn inspect(shared: &PostgresShared, key: &Key) -> Result<Snapshot, Fault> {
    let mut seen = snapshots(shared, "inspect", std::slice::from_ref(key)).await?;
    let seen = seen.pop().unwrap_or_else(|| Ok(Snapshot::free(key.clone())));
    seen.map_err(|why| {
        let fault = Fault::permanent("inspect", why).at_store(shared.config.location());
        fault.at_key(key).advise("another program wrote a row of this key: delete it")
    })
}

/// The keys after one that begin with a prefix and are held or waited for.
pub(super) async fn list(
    shared: &PostgresShared,
    prefix: &str,
    after: Option<&Cursor>,
) -> Result<Page, Fault> {
    let mut page = Page::default();
    // The next key after one is that one with the smallest of all characters behind it.
    let mut from = after.map_or_else(|| prefix.to_owned(), |Cursor(after)| format!("{after}\0"));
    loop {
        let found = keys_from(shared, &from).await?;
        let is_last = found.len() <= SNAPSHOT_MAX;
        let names = found.into_iter().map(|name| String::from_utf8(name).unwrap_or_default());
        let names: Vec<String> = names.collect();
        if let Some(last) = names.last() {
            from = format!("{last}\0");
        }
        let ours = names.iter().take_while(|name| name.starts_with(prefix));
        let keys: Vec<Key> = ours.filter_map(|name| Key::new(name.as_str()).ok()).collect();
        let is_over = is_last || names.iter().any(|name| !name.starts_with(prefix));
        for (key, seen) in keys.iter().zip(snapshots(shared, "list", &keys).await?) {
            let seen = match seen {
                // A row that another program wrote is the fault of its key alone.
                Err(error) => {
                    tracing::warn!(%key, %error, "a key is left out of the list");
                    continue;
                }
                Ok(seen) => seen,
            };
            if seen.is_free() {
                continue;
            }
            if page.locks.len() == SNAPSHOT_MAX {
                page.next = page.locks.last().map(|lock| Cursor(lock.key.to_string()));
                return Ok(page);
            }
            page.locks.push(seen);
        }
        if is_over {
            return Ok(page);
        }
    }
}

async fn keys_from(shared: &PostgresShared, from: &str) -> Result<Vec<Vec<u8>>, Fault> {
    let most = i64::try_from(SNAPSHOT_MAX + 1).unwrap_or(i64::MAX);
    let mut lease = shared.others.lease("list").await?;
    let begin = lease.begin_read();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    let values = vec![bytes(from.as_bytes()), number(most)];
    let at = pipeline.add(include_str!("../sql/keys_from.sql"), values);
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    let answers = lease.finish("list", sent).await?;
    let keys = answers[at].iter().map(|row| row.try_get(0));
    let keys = keys.collect::<Result<_, _>>();
    keys.map_err(|error| faults::fault("list", &error, &shared.config))
}

/// What of several keys can be seen, or why it cannot.
async fn snapshots(
    shared: &PostgresShared,
    action: &'static str,
    keys: &[Key],
) -> Result<Vec<Result<Snapshot, RowError>>, Fault> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let names = || many_bytes(keys.iter().map(|key| key.as_str().as_bytes()));
    let mut lease = shared.others.lease(action).await?;
    let begin = lease.begin_read();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    let holders = pipeline.add(include_str!("../sql/holders_of.sql"), vec![names()]);
    let waiters = pipeline.add(include_str!("../sql/waiters_of.sql"), vec![names()]);
    let now = pipeline.add(include_str!("../sql/now.sql"), Vec::new());
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    let answers = lease.finish(action, sent).await?;
    let now = answers[now].first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
    let now = Moment::from_micros(as_number(now));
    let holders = by_key(&answers[holders], HOLDER_KEY);
    let waiters = by_key(&answers[waiters], WAITER_KEY);
    let seen = keys.iter().map(|key| {
        let name = key.as_str().as_bytes();
        let none = Vec::new();
        let (holders, waiters) = (holders.get(name), waiters.get(name));
        snapshot(key, holders.unwrap_or(&none), waiters.unwrap_or(&none), now)
    });
    Ok(seen.collect())
}

fn by_key(rows: &[Row], column: usize) -> BTreeMap<&[u8], Vec<&Row>> {
    let mut found: BTreeMap<&[u8], Vec<&Row>> = BTreeMap::new();
    for row in rows {
        if let Ok(key) = row.try_get::<_, &[u8]>(column) {
            found.entry(key).or_default().push(row);
        }
    }
    found
}

fn snapshot(
    key: &Key,
    holders: &[&Row],
    waiters: &[&Row],
    now: Moment,
) -> Result<Snapshot, RowError> {
    let mut loaded = LoadedRecord::empty();
    for row in holders {
        let (claim, held) = cells::holder(row)?.read()?;
        loaded.parts.holders.insert(claim, held);
    }
    loaded.add_waiters(key, waiters.iter().copied())?;
    Ok(Record::from_parts(loaded.parts).inspect(key, now))
}
