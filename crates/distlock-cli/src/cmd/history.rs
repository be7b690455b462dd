//! `distlock history`: who held a key, who waited for it, and how it ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{Mode, Printable, Visit, VisitState};

use crate::args::Store;
use crate::cmd::ls;
use crate::exit::Failure;
use crate::{cmd, out, span, view};

/// What `history` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) store: Store,

    /// How many visits to show at most, the last ones first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=240))]
    pub(crate) limit: u16,

    /// Print JSON, one object per visit and line
    #[arg(long)]
    pub(crate) json: bool,

    /// The key whose past to show
    pub(crate) key: String,
}

/// Prints the last visits to a key.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let visits = cmd::block_on(async {
        let locks = distlock::Locks::connect(&args.store.backend)?;
        Ok(locks.history(&args.key, args.limit.into()).await?)
    })?;
    if args.json {
        for visit in &visits {
            out::print(serde_json::json!(visit));
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
const HEAD: [&str; 6] = ["AGO", "OWNER", "WAITED", "HELD", "FENCE", "HOW IT ENDED"];

/// Which of them is of free text and may be cut, and how far.
const OWNER: usize = 1;
const OWNER_MIN: usize = 12;

/// A table of visits, as wide as it likes or as it may be.
fn table(visits: &[Visit], now: Duration, columns: Option<usize>) -> Vec<String> {
    let head = HEAD.map(str::to_owned);
    let rows: Vec<_> =
        std::iter::once(head).chain(visits.iter().map(|visit| row(visit, now))).collect();
    let width_of =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: [usize; 6] = std::array::from_fn(width_of);
    let wide = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
    let excess = wide.saturating_sub(columns.unwrap_or(wide));
    widths[OWNER] = widths[OWNER].saturating_sub(excess).max(widths[OWNER].min(OWNER_MIN));
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

fn row(visit: &Visit, now: Duration) -> [String; 6] {
    let since = |at_ms: u64| now.saturating_sub(Duration::from_millis(at_ms));
    let known = |span: Option<Duration>| span.map_or_else(|| "-".to_owned(), span::show);
    let reason = view::for_what(visit.reason.as_ref());
    // Who still waits or holds has done so until now.
    let waited = match visit.state {
        VisitState::Waiting => Some(since(visit.began_at_ms)),
        _ => visit.waited.filter(|waited| *waited >= Duration::from_millis(1)),
    };
    let held = match visit.state {
        VisitState::Held => visit.granted_at_ms.map(since),
        _ => visit.held,
    };
    [
        span::show_seconds(since(visit.began_at_ms)),
        format!("{}{reason}", Printable(visit.owner.as_str())),
        known(waited),
        known(held),
        visit.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
        ended(visit),
    ]
}

/// How a visit ended, or where it stands.
fn ended(visit: &Visit) -> String {
    let text = match &visit.state {
        VisitState::Waiting => "waits".to_owned(),
        VisitState::Held => "holds it now".to_owned(),
        VisitState::Released => "released".to_owned(),
        VisitState::Lost(why) => format!("LOST: {why}"),
        VisitState::Broken { by, why: Some(why) } => format!("BROKEN by {by}: {why}"),
        VisitState::Broken { by, why: None } => format!("BROKEN by {by}"),
        VisitState::GaveUp(why) => format!("gave up: {why}"),
        VisitState::Vanished => "vanished without a word".to_owned(),
        other => other.name().to_owned(),
    };
    let mut text = view::printable(&text);
    match visit.mode {
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
    use distlock::{Entry, EntryId, Key, Label, Note, VisitId, What};

    use super::*;

    fn label(text: &str) -> Label {
        Label::new("label", text).unwrap()
    }

    fn entry(at_ms: u64, visit: u64, owner: &str, fence: Option<u64>, what: What) -> Entry {
        let note = Note {
            key: Key::new("deploy/prod").unwrap(),
            owner: label(owner),
            reason: (visit == 1).then(|| label("release 1.9")),
            mode: Mode::Exclusive,
            fence,
            visit: Some(VisitId(visit)),
            what,
        };
        Entry { id: EntryId::new(at_ms.to_string()).unwrap(), at_ms, note }
    }

    #[test]
    fn the_table_reads_like_a_story() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let broken = What::Broken { by: label("anna"), why: Some(label("stuck")) };
        let mut visits = Visit::fold(&[
            entry(1_000_000, 1, "deploy@ci-7", Some(7), What::Granted { waited: minute }),
            entry(1_100_000, 2, "bob@laptop", None, What::Queued { ahead: 0 }),
            entry(1_180_000, 1, "deploy@ci-7", Some(7), broken),
            entry(1_181_000, 2, "bob@laptop", Some(8), What::Granted { waited: 81 * second }),
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
