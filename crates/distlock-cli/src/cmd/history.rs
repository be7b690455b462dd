//! `distlock history`: who held a key, who waited for it, and how it ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{HoldRecord, HoldRecordState, Mode, Printable};

use crate::args::StoreArgs;
use crate::cmd::ls;
use crate::exit::Failure;
use crate::{cmd, help, out, span, view};

/// Show past holds and waits of a key and how they ended
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::HISTORY)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// How many holds to show at most, the latest first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=240))]
    pub(crate) limit: u16,

    /// Print JSON, one object per hold and line
    #[arg(long)]
    pub(crate) json: bool,

    /// The key whose history to show
    pub(crate) key: String,
}

/// Prints the last visits to a key.
pub(crate) fn run(args: &HistoryArgs) -> Result<u8, Failure> {
    let visits = cmd::block_on(async {
        let locks = distlock::Locks::connect(&args.store.backend)?;
        Ok(locks.history(&args.key, args.limit.into()).await?)
    })?;
    if args.json {
        for acquisition in &visits {
            out::print(serde_json::json!(acquisition));
        }
    } else if visits.is_empty() {
        out::say(format_args!("nothing is known of the past of {:?}", args.key));
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        out::print(table(&visits, now, ls::columns()).join("\n"));
    }
    Ok(0)
}

/// The columns of the table, in their order.
const HISTORY_HEAD: [&str; 6] = ["AGO", "OWNER", "WAITED", "HELD", "FENCE", "HOW IT ENDED"];

/// Which of them is of free text and may be cut, and how far.
const OWNER_COLUMN: usize = 1;
const OWNER_WIDTH_MIN: usize = 12;

/// A table of visits, as wide as it likes or as it may be.
fn table(visits: &[HoldRecord], now: Duration, columns: Option<usize>) -> Vec<String> {
    let head = HISTORY_HEAD.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head)
        .chain(visits.iter().map(|acquisition| row(acquisition, now)))
        .collect();
    let width_of =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: [usize; 6] = std::array::from_fn(width_of);
    let wide = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
    let excess = wide.saturating_sub(columns.unwrap_or(wide));
    widths[OWNER_COLUMN] =
        widths[OWNER_COLUMN].saturating_sub(excess).max(widths[OWNER_COLUMN].min(OWNER_WIDTH_MIN));
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String; 6], widths: &[usize; 6]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, &width)| {
        let cut = cell.chars().count() > width;
        let cell: String = cell.chars().take(width - usize::from(cut)).collect();
        let cell = if cut { cell + "…" } else { cell };
        format!("{cell:<width$}")
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn row(acquisition: &HoldRecord, now: Duration) -> [String; 6] {
    let since = |at_ms: u64| now.saturating_sub(Duration::from_millis(at_ms));
    let known = |span: Option<Duration>| span.map_or_else(|| "-".to_owned(), span::show);
    let reason = view::for_what(acquisition.reason.as_ref());
    // Who still waits or holds has done so until now.
    let waited = match acquisition.state {
        HoldRecordState::Waiting => Some(since(acquisition.began_at_ms)),
        _ => acquisition.waited.filter(|waited| *waited >= Duration::from_millis(1)),
    };
    let held = match acquisition.state {
        HoldRecordState::Held => acquisition.granted_at_ms.map(since),
        _ => acquisition.held,
    };
    [
        span::show_seconds(since(acquisition.began_at_ms)),
        format!("{}{reason}", Printable(acquisition.owner.as_str())),
        known(waited),
        known(held),
        acquisition.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
        ended(acquisition),
    ]
}

/// How a visit ended, or where it stands.
fn ended(acquisition: &HoldRecord) -> String {
    let text = match &acquisition.state {
        HoldRecordState::Waiting => "waits".to_owned(),
        HoldRecordState::Held => "holds it now".to_owned(),
        HoldRecordState::Released => "released".to_owned(),
        HoldRecordState::Lost(why) => format!("LOST: {why}"),
        HoldRecordState::Broken { by, why: Some(why) } => format!("BROKEN by {by}: {why}"),
        HoldRecordState::Broken { by, why: None } => format!("BROKEN by {by}"),
        HoldRecordState::GaveUp(why) => format!("gave up: {why}"),
        HoldRecordState::Vanished => "vanished without a word".to_owned(),
        other => other.name().to_owned(),
    };
    let mut text = view::printable(&text);
    match acquisition.mode {
        Mode::Shared => text.push_str(", shared"),
        Mode::Permits { weight, capacity } => {
            text.push_str(&format!(", {weight} of {capacity}"));
        }
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use distlock::{AcquisitionId, EntryId, JournalEntry, Key, Label, Note, NoteEvent};

    use super::*;

    fn label(text: &str) -> Label {
        Label::new("label", text).unwrap()
    }

    fn entry(
        at_ms: u64,
        acquisition: u64,
        owner: &str,
        fence: Option<u64>,
        what: NoteEvent,
    ) -> JournalEntry {
        let note = Note {
            key: Key::new("deploy/prod").unwrap(),
            owner: label(owner),
            reason: (acquisition == 1).then(|| label("release 1.9")),
            mode: Mode::Exclusive,
            fence,
            acquisition: Some(AcquisitionId(acquisition)),
            what,
        };
        JournalEntry { id: EntryId::new(at_ms.to_string()).unwrap(), at_ms, note }
    }

    #[test]
    fn the_table_reads_like_a_story() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let broken = NoteEvent::Broken { by: label("anna"), why: Some(label("stuck")) };
        let mut visits = HoldRecord::fold(&[
            entry(1_000_000, 1, "deploy@ci-7", Some(7), NoteEvent::Granted { waited: minute }),
            entry(1_100_000, 2, "bob@laptop", None, NoteEvent::Queued { ahead: 0 }),
            entry(1_180_000, 1, "deploy@ci-7", Some(7), broken),
            entry(1_181_000, 2, "bob@laptop", Some(8), NoteEvent::Granted { waited: 81 * second }),
        ]);
        visits.reverse();
        let table = table(&visits, Duration::from_secs(1_241), Some(100));
        assert_eq!(
            table,
            [
                "AGO    OWNER                      WAITED  HELD  FENCE  HOW IT ENDED",
                "2m21s  bob@laptop                 1m21s   1m    8      holds it now",
                "5m1s   deploy@ci-7 (release 1.9)  1m      3m    7      BROKEN by anna: stuck",
            ]
        );
        let narrow = super::table(&visits, Duration::from_secs(1_241), Some(66));
        assert!(narrow.iter().all(|line| line.chars().count() <= 66), "{narrow:#?}");
    }
}
