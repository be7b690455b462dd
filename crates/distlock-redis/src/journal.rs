//! The journal of a namespace: one capped stream.

use std::collections::HashMap;
use std::time::Duration;

use distlock_core::{
    EntryId, Fault, Invalid, JOURNAL_PAGE_MAX, Journal, JournalEntry, JournalPage, Key, Note,
    Pending, Retention,
};
use redis::Cmd;

use super::codec::millis;
use super::library::{LibraryCall, LibraryVerb, Words};
use super::{Redis, RedisClient};

/// What a read that fails could not do.
const READ: &str = "read the journal";

/// How many entries one command reads. The server does nothing else meanwhile.
const READ_MAX: usize = 500;

/// How many different milliseconds of a key's past one call looks at, for the same reason.
const STEPS_MAX: usize = 50;

/// An entry as the client crate reads it: its id, then names and values, which may be no texts if
/// others wrote them.
type Row = (String, Vec<Vec<u8>>);

impl Journal for Redis {
    fn append<'a>(
        &'a self,
        notes: &'a [(Note, Duration)],
        retention: Retention,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            let mut args = Words::default();
            args.push(retention.entries).push(millis(retention.age));
            for (note, age) in notes {
                let fields = note.fields();
                args.push(millis(*age)).push(&note.key).push(2 * fields.len());
                for (name, text) in fields {
                    args.push(name).push(text);
                }
            }
            let call =
                LibraryCall { verb: LibraryVerb::Append, keys: self.inner.journal_keys(), args };
            self.inner.connections.call("write the journal", &call).await.map(|_| ())
        })
    }

    fn page<'a>(&'a self, after: Option<&'a EntryId>, limit: usize) -> Pending<'a, JournalPage> {
        Box::pin(async move {
            let limit = limit.min(JOURNAL_PAGE_MAX);
            let mut page = JournalPage::default();
            let mut from = after.map_or_else(|| Ok("-".to_owned()), checked)?;
            while page.entries.len() < limit {
                // Read from the last one on, itself included: if it is not there, it was dropped.
                let (known, first) = (from != "-", page.entries.is_empty());
                let count = (limit - page.entries.len()).min(READ_MAX) + usize::from(known);
                let rows = self.inner.rows("XRANGE", &from, "+", count).await?;
                let found = rows.len();
                let old = known && rows.first().is_some_and(|(id, _)| *id == from);
                page.missed |= known && first && !old;
                if let Some((id, _)) = rows.last() {
                    from.clone_from(id);
                }
                page.entries.extend(rows.into_iter().skip(usize::from(old)).filter_map(entry));
                if found < count {
                    break;
                }
            }
            page.entries.truncate(limit);
            Ok(page)
        })
    }

    fn past<'a>(&'a self, key: &'a Key, limit: usize) -> Pending<'a, Vec<JournalEntry>> {
        Box::pin(async move {
            let (limit, mut past) = (limit.min(JOURNAL_PAGE_MAX), Vec::new());
            let mut from = String::new();
            // Every call goes further back, so this ends, even if others go on writing.
            while past.len() < limit {
                let (next, rows) = self.inner.history(key, &from).await?;
                past.extend(rows.into_iter().filter_map(entry));
                if next.is_empty() {
                    break;
                }
                from = next;
            }
            past.truncate(limit);
            Ok(past)
        })
    }

    fn last(&self) -> Pending<'_, Option<EntryId>> {
        Box::pin(async move {
            let rows = self.inner.rows("XREVRANGE", "+", "-", 1).await?;
            Ok(rows.into_iter().find_map(|(id, _)| EntryId::new(id).ok()))
        })
    }
}

impl RedisClient {
    fn journal_keys(&self) -> Words {
        let mut keys = Words::default();
        keys.push(self.namespace.journal()).push(self.namespace.journal_index());
        keys
    }

    /// Some entries of a key, newest first, and where to go on.
    async fn history(&self, key: &Key, from: &str) -> Result<(String, Vec<Row>), Fault> {
        let mut args = Words::default();
        args.push(key).push(STEPS_MAX).push(from);
        let call = LibraryCall { verb: LibraryVerb::History, keys: self.journal_keys(), args };
        let answer = self.connections.call(READ, &call).await?;
        redis::from_redis_value(answer).map_err(|error| Fault::permanent(READ, error))
    }

    async fn rows(
        &self,
        verb: &str,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<Row>, Fault> {
        let mut cmd: Cmd = redis::cmd(verb);
        cmd.arg(self.namespace.journal()).arg(from).arg(to).arg("COUNT").arg(count);
        let answer = self.connections.run(READ, &cmd).await?;
        redis::from_redis_value(answer).map_err(|error| Fault::permanent(READ, error))
    }
}

/// An entry of the stream; none if a version that we do not know wrote it, or somebody else.
fn entry((id, words): Row) -> Option<JournalEntry> {
    let words = words.iter().map(|word| str::from_utf8(word).ok()).collect::<Option<Vec<_>>>()?;
    let fields: HashMap<_, _> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let note = Note::from_fields(|name| fields.get(name).copied())?;
    Some(JournalEntry { id: EntryId::new(id).ok()?, at_ms: fields.get("at")?.parse().ok()?, note })
}

/// An id of a stream: milliseconds and a number. Anything else the server might take for the start
/// or the end.
fn checked(id: &EntryId) -> Result<String, Fault> {
    let parts = id.as_str().split_once('-');
    let sound = |part: &str| part.parse::<u64>().is_ok_and(|number| number.to_string() == part);
    if parts.is_some_and(|(ms, number)| sound(ms) && sound(number)) {
        return Ok(id.to_string());
    }
    let why = Invalid::new("entry id", id, "must be one that this journal gave out");
    Err(Fault::permanent(READ, why))
}
