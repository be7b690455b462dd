//! The journal: a table beside the locks.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_core::rows::{as_column, as_number};
use distlock_core::{
    EntryId, Fault, Invalid, JOURNAL_PAGE_MAX, Journal, JournalEntry, JournalPage, Key, Note,
    Pending, Retention,
};
use tokio_postgres::Row;

use super::Postgres;
use super::faults;
use super::pipeline::{BoundValue, Pipeline, bytes, many_bytes, many_numbers, many_texts, number};
use super::shared::PostgresShared;

/// What a read that fails could not do.
const READ_JOURNAL: &str = "read the journal";

/// What an append that fails could not do.
const WRITE: &str = "write the journal";

/// The columns of an entry after its id and time, by the names of the fields of a note. The second
/// one has bytes: a key may contain what a text of the server cannot.
const ENTRY_COLUMNS: [&str; 11] =
    ["what", "key", "owner", "reason", "mode", "fence", "visit", "us", "ahead", "by", "why"];

const KEY: usize = 1;

impl Journal for Postgres {
    fn append<'a>(
        &'a self,
        notes: &'a [(Note, Duration)],
        retention: Retention,
    ) -> Pending<'a, ()> {
        let notes = notes.to_vec();
        self.call(WRITE, async move |shared| append(&shared, &notes, retention).await)
    }

    fn page<'a>(&'a self, after: Option<&'a EntryId>, limit: usize) -> Pending<'a, JournalPage> {
        let after = after.map(checked).transpose();
        self.call(READ_JOURNAL, async move |shared| {
            let after = after?;
            let limit = as_column(limit.min(JOURNAL_PAGE_MAX) as u64);
            let values = vec![number(as_column(after.unwrap_or(0))), number(limit)];
            let page = include_str!("../sql/journal_page.sql");
            let (entries, first, _) = read(&shared, page, values).await?;
            let missed = after.is_some_and(|after| after + 1 < first);
            Ok(JournalPage { entries, missed })
        })
    }

    fn past<'a>(&'a self, key: &'a Key, limit: usize) -> Pending<'a, Vec<JournalEntry>> {
        let key = key.clone();
        self.call(READ_JOURNAL, async move |shared| {
            let limit = as_column(limit.min(JOURNAL_PAGE_MAX) as u64);
            let values = vec![bytes(key.as_str().as_bytes()), number(limit)];
            let past = include_str!("../sql/journal_past.sql");
            read(&shared, past, values).await.map(|(entries, ..)| entries)
        })
    }

    fn last(&self) -> Pending<'_, Option<EntryId>> {
        self.call(READ_JOURNAL, async move |shared| {
            let values = vec![number(i64::MAX), number(0)];
            let page = include_str!("../sql/journal_page.sql");
            let (_, _, last) = read(&shared, page, values).await?;
            Ok((last > 0).then(|| id(last)))
        })
    }
}

async fn append(
    shared: &PostgresShared,
    notes: &[(Note, Duration)],
    retention: Retention,
) -> Result<(), Fault> {
    let now_ms = millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let at = notes.iter().map(|(_, age)| as_column(now_ms.saturating_sub(millis(*age))));
    let fields: Vec<HashMap<_, _>> =
        notes.iter().map(|(note, _)| note.fields().into_iter().collect()).collect();
    let column =
        |name: &'static str| fields.iter().map(move |all| all.get(name).map(String::as_str));
    let mut values = vec![number(as_column(now_ms)), many_numbers(at)];
    for (nth, name) in ENTRY_COLUMNS.into_iter().enumerate() {
        values.push(if nth == KEY {
            many_bytes(column(name).map(|text| text.map(str::as_bytes)))
        } else {
            many_texts(column(name))
        });
    }
    let kept_from = now_ms.saturating_sub(millis(retention.age));
    let mut lease = shared.others.lease(WRITE).await?;
    let begin = lease.begin();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    pipeline.add(include_str!("../sql/journal_append.sql"), values);
    let kept = vec![number(as_column(retention.entries)), number(as_column(kept_from))];
    pipeline.add(include_str!("../sql/journal_trim.sql"), kept);
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    lease.finish(WRITE, sent).await.map(drop)
}

/// The entries that a statement finds, and the numbers of the first and the last one that are kept.
/// Entries of a later version or another program are left out.
async fn read(
    shared: &PostgresShared,
    sql: &str,
    values: Vec<BoundValue<'_>>,
) -> Result<(Vec<JournalEntry>, u64, u64), Fault> {
    let mut lease = shared.others.lease(READ_JOURNAL).await?;
    let begin = lease.begin_read();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    let found = pipeline.add(sql, values);
    let ends = pipeline.add(include_str!("../sql/journal_ends.sql"), Vec::new());
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    let answers = lease.finish(READ_JOURNAL, sent).await?;
    let end = |column: usize| match answers[ends].first() {
        Some(row) => row.try_get(column).map(as_number),
        None => Ok(0),
    };
    let ends = end(0).and_then(|first| Ok((first, end(1)?)));
    let (first, last) =
        ends.map_err(|error| faults::fault(READ_JOURNAL, &error, &shared.config))?;
    Ok((answers[found].iter().filter_map(entry).collect(), first, last))
}

fn entry(row: &Row) -> Option<JournalEntry> {
    let mut fields = HashMap::new();
    for (nth, name) in ENTRY_COLUMNS.into_iter().enumerate() {
        let text: Option<&str> = if nth == KEY {
            Some(std::str::from_utf8(row.try_get(nth + 2).ok()?).ok()?)
        } else {
            row.try_get(nth + 2).ok()?
        };
        fields.extend(text.map(|text| (name, text)));
    }
    let note = Note::from_fields(|name| fields.get(name).copied())?;
    let number = |column| row.try_get(column).ok().map(as_number);
    Some(JournalEntry { id: id(number(0)?), at_ms: number(1)?, note })
}

fn id(number: u64) -> EntryId {
    EntryId::new(number.to_string()).expect("digits make an id")
}

fn checked(id: &EntryId) -> Result<u64, Fault> {
    let refuse = |_| Invalid::new("entry id", id, "must be one that this journal gave out");
    id.as_str().parse().map_err(refuse).map_err(|why| Fault::permanent(READ_JOURNAL, why))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
