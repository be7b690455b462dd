//! `distlock watch --events`: what happens to the locks, line by line, as it happens.

use std::time::Duration;

use distlock::{
    EntryId, Error, FeedItem, JournalEntry, Locks, Mode, NoteEvent, Printable, StartAt,
};
use futures_util::StreamExt;

use crate::cmd::watch::WatchArgs;
use crate::exit::Failure;
use crate::signals::Signals;
use crate::{cmd, out, span, view};

/// Prints events until it is interrupted.
pub(crate) fn run(args: &WatchArgs) -> Result<u8, Failure> {
    let since = match args.after.as_deref() {
        None => StartAt::Now,
        Some("start") => StartAt::Start,
        Some(id) => StartAt::After(EntryId::new(id).map_err(Error::from)?),
    };
    cmd::block_on(async {
        let mut signals = Signals::listen()?;
        let mut feed = Locks::connect(&args.store.backend)?.feed(since)?;
        let mut reachable = true;
        loop {
            let news = tokio::select! {
                biased;
                _ = signals.stop() => return Ok(0),
                news = feed.next() => news,
            };
            match news {
                Some(FeedItem::Entry(entry)) => {
                    reachable = true;
                    if entry.note.key.as_str().starts_with(&args.prefix) {
                        out::print(if args.json { json(&entry) } else { line(&entry) });
                    }
                }
                Some(FeedItem::Missed) => out::say("some events are missing here"),
                Some(FeedItem::Unreachable(fault)) if fault.is_transient() => {
                    if std::mem::replace(&mut reachable, false) {
                        let failure = Failure::from(Error::Backend(fault));
                        out::complain(failure.message().unwrap_or_default());
                    }
                }
                Some(FeedItem::Unreachable(fault)) => return Err(Error::Backend(fault).into()),
                Some(_) => {}
                None => return Ok(0),
            }
        }
    })
}

fn json(entry: &JournalEntry) -> String {
    serde_json::json!(entry).to_string()
}

/// An event on one line: when, which key, what, who, and what belongs to that.
fn line(entry: &JournalEntry) -> String {
    let note = &entry.note;
    let reason = view::for_what(note.reason.as_ref());
    let mut more = match &note.what {
        NoteEvent::Queued { ahead: 0 } => "next in line".to_owned(),
        NoteEvent::Queued { ahead } => format!("{ahead} ahead"),
        NoteEvent::GaveUp { waited, why } => format!("waited {}, {why}", span::show(*waited)),
        NoteEvent::Granted { waited } if *waited < Duration::from_millis(1) => String::new(),
        NoteEvent::Granted { waited } => format!("waited {}", span::show(*waited)),
        NoteEvent::AtRisk { remaining } => format!("{} of the lease left", span::show(*remaining)),
        NoteEvent::Released { held } => held_for(*held),
        NoteEvent::Lost { held: None, why } => why.to_string(),
        NoteEvent::Lost { held, why } => format!("{}, {why}", held_for(*held)),
        NoteEvent::Broken { by, why: Some(why) } => format!("by {by}: {why}"),
        NoteEvent::Broken { by, why: None } => format!("by {by}"),
        NoteEvent::Action { by, what } => format!("{what} by {by}"),
        _ => String::new(),
    };
    if note.mode != Mode::Exclusive {
        more = format!("{} {more}", note.mode);
    }
    let fence = note.fence.map_or_else(String::new, |fence| format!("  fence {fence}"));
    let (key, what) = (view::printable(note.key.as_str()), note.what.name());
    let owner = Printable(note.owner.as_str());
    let line = format!("{}  {key}  {what:<8}  {owner}{reason}", clock(entry.at_ms));
    let more = if more.is_empty() { more } else { format!("  {}", Printable(&more)) };
    format!("{line}{more}{fence}")
}

fn held_for(held: Option<Duration>) -> String {
    held.map_or_else(String::new, |held| format!("held {}", span::show(held)))
}

/// The time of day in UTC.
fn clock(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}Z", seconds % 60)
}

#[cfg(test)]
mod tests {
    use distlock::{Key, Label, Note};

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let label = |text| Label::new("label", text).unwrap();
        let note = Note {
            key: Key::new("deploy\n/prod").unwrap(),
            owner: label("ci-7"),
            reason: Some(label("release 1.9")),
            mode: Mode::Exclusive,
            fence: Some(7),
            acquisition: None,
            what: NoteEvent::Lost { held: Some(Duration::from_secs(92)), why: label("expired") },
        };
        let entry = JournalEntry { id: EntryId::new("1").unwrap(), at_ms: 1_794_808_478_716, note };
        let expected = "05:54:38Z  deploy\\n/prod  lost      ci-7 (release 1.9)  held 1m32s, \
                        expired  fence 7";
        assert_eq!(line(&entry), expected);
    }
}
