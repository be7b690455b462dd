//! The journal: a table in the same file.

use std::collections::HashMap;
use std::time::Duration;

use distlock_core::{
    EntryId, Fault, Invalid, JOURNAL_PAGE_MAX, Journal, JournalEntry, JournalPage, Key, Note,
    Pending, Retention,
};
use rusqlite::{Params, Result, Row, params_from_iter};

use super::Sqlite;
use super::cells::{as_sql, number};
use super::faults::is_foreign;
use super::job::Access;
use super::session::StoreSession;

/// What a read that fails could not do.
const READ_ENTRIES: &str = "read the journal";

/// What an append that fails could not do.
const WRITE_ENTRIES: &str = "write the journal";

/// So many notes are written about as quickly as a lock is taken.
const FEW: usize = 4;

/// The statements of an append: the entry, and what is no longer kept.
pub(super) const APPEND: [&str; 3] = [
    include_str!("../sql/journal_append.sql"),
    include_str!("../sql/journal_trim_many.sql"),
    include_str!("../sql/journal_trim_old.sql"),
];

/// The columns of an entry after its id and time, by the names of the fields of a note.
const FIELDS: [&str; 11] =
    ["what", "key", "owner", "reason", "mode", "fence", "visit", "us", "ahead", "by", "why"];

impl Journal for Sqlite {
    fn append<'a>(
        &'a self,
        notes: &'a [(Note, Duration)],
        retention: Retention,
    ) -> Pending<'a, ()> {
        let (few, notes) = (notes.len() <= FEW, notes.to_vec());
        let work = move |session: &mut StoreSession<'_>| session.append(&notes, retention);
        if few {
            return Box::pin(self.store.run_short(WRITE_ENTRIES, work));
        }
        Box::pin(self.store.run(WRITE_ENTRIES, Access::Write, work))
    }

    fn page<'a>(&'a self, after: Option<&'a EntryId>, limit: usize) -> Pending<'a, JournalPage> {
        Box::pin(async move {
            let after = after.map(checked).transpose()?;
            self.store
                .run(READ_ENTRIES, Access::Read, move |session| {
                    let limit = as_sql(limit.min(JOURNAL_PAGE_MAX) as u64);
                    let from = as_sql(after.unwrap_or(0));
                    let page = include_str!("../sql/journal_page.sql");
                    let entries = session.entries(page, (from, limit))?;
                    let first = session.number(include_str!("../sql/journal_first.sql"))?;
                    let missed = after.is_some_and(|after| after + 1 < first);
                    Ok(JournalPage { entries, missed })
                })
                .await
        })
    }

    fn past<'a>(&'a self, key: &'a Key, limit: usize) -> Pending<'a, Vec<JournalEntry>> {
        let key = key.clone();
        Box::pin(self.store.run(READ_ENTRIES, Access::Read, move |session| {
            let limit = as_sql(limit.min(JOURNAL_PAGE_MAX) as u64);
            session.entries(include_str!("../sql/journal_past.sql"), (key.as_str(), limit))
        }))
    }

    fn last(&self) -> Pending<'_, Option<EntryId>> {
        Box::pin(self.store.run(READ_ENTRIES, Access::Read, |session| {
            let newest = session.number("SELECT coalesce(max(id), 0) FROM journal")?;
            Ok((newest > 0).then(|| id(newest)))
        }))
    }
}

impl StoreSession<'_> {
    fn append(&self, notes: &[(Note, Duration)], retention: Retention) -> Result<()> {
        let now_ms = self.now().seed / 1000;
        let [insert, many, old] = APPEND;
        let mut insert = self.connection().prepare_cached(insert)?;
        for (note, age) in notes {
            let fields: HashMap<_, _> = note.fields().into_iter().collect();
            let times = [now_ms, now_ms.saturating_sub(millis(*age))];
            let times = times.map(|time| Some(time.to_string())).into_iter();
            let values = FIELDS.iter().map(|name| fields.get(name).cloned());
            insert.execute(params_from_iter(times.chain(values)))?;
        }
        self.connection().prepare_cached(many)?.execute([as_sql(retention.entries)])?;
        let kept_from = now_ms.saturating_sub(millis(retention.age));
        self.connection().prepare_cached(old)?.execute([as_sql(kept_from)])?;
        Ok(())
    }

    /// The entries that a statement finds; those of a later version or another program are left
    /// out.
    fn entries(&self, sql: &str, values: impl Params) -> Result<Vec<JournalEntry>> {
        let mut statement = self.connection().prepare_cached(sql)?;
        let rows = statement.query_map(values, |row| match entry(row) {
            Err(error) if is_foreign(&error) => Ok(None),
            read => read,
        })?;
        Ok(rows.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    fn number(&self, sql: &str) -> Result<u64> {
        self.connection().prepare_cached(sql)?.query_row([], |row| number(row, 0))
    }
}

fn entry(row: &Row<'_>) -> Result<Option<JournalEntry>> {
    let mut fields = HashMap::new();
    for (at, name) in FIELDS.iter().enumerate() {
        if let Some(text) = row.get_ref(at + 2)?.as_str_or_null()? {
            fields.insert(*name, text);
        }
    }
    let Some(note) = Note::from_fields(|name| fields.get(name).copied()) else { return Ok(None) };
    Ok(Some(JournalEntry { id: id(number(row, 0)?), at_ms: number(row, 1)?, note }))
}

fn id(number: u64) -> EntryId {
    EntryId::new(number.to_string()).expect("digits make an id")
}

fn checked(id: &EntryId) -> Result<u64, Fault> {
    let refuse = |_| Invalid::new("entry id", id, "must be one that this journal gave out");
    id.as_str().parse().map_err(refuse).map_err(|why| Fault::permanent(READ_ENTRIES, why))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
