//! Keys as people and machines see them: a table, a page about one, JSON.

use std::time::Duration;

use distlock::{Holder, Label, Mode, Printable, Snapshot, Waiter};
use serde_json::{Value, json};

use crate::report::millis;
use crate::span;

/// A key for machines. Lease ids are no part of it.
pub(crate) fn json(seen: &Snapshot) -> Value {
    json!({
        "key": seen.key.as_str(),
        "held": seen.holders_total > 0,
        "holders": seen.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "holdersTotal": seen.holders_total,
        "waiters": seen.waiters.iter().map(waiter_json).collect::<Vec<_>>(),
        "waitersTotal": seen.waiters_total,
    })
}

fn holder_json(holder: &Holder) -> Value {
    let mut shown = json!({
        "owner": holder.owner.as_str(),
        "reason": holder.reason.as_ref().map(Label::as_str),
        "mode": mode(holder.exclusive),
        "fence": holder.fence,
        "heldMs": millis(holder.held_for),
        "expiresInMs": holder.expires_in.map(millis),
    });
    if let Mode::Permits { weight, capacity } = holder.mode() {
        shown["mode"] = json!("permits");
        shown["permits"] = json!(weight);
        shown["limit"] = json!(capacity);
    }
    shown
}

fn waiter_json(waiter: &Waiter) -> Value {
    json!({
        "owner": waiter.owner.as_str(),
        "reason": waiter.reason.as_ref().map(Label::as_str),
        "mode": mode(waiter.exclusive),
        "waitedMs": millis(waiter.waited),
    })
}

fn mode(exclusive: bool) -> &'static str {
    if exclusive { "exclusive" } else { "shared" }
}

/// A page about one key.
pub(crate) fn page(seen: &Snapshot) -> String {
    let mut page = format!("{}: ", printable(seen.key.as_str()));
    if seen.is_free() {
        return page + "free";
    }
    page.push_str(if seen.holders_total == 0 { "free, with a queue" } else { "held" });
    for holder in &seen.holders {
        let left = holder.expires_in.map_or_else(
            || "never expires".to_owned(),
            |left| format!("lease ends in {} unless renewed", span::show(left)),
        );
        let shared = if holder.exclusive { "" } else { ", shared" };
        page.push_str(&format!(
            "\n  holder  {}{}\n          held {}, {left}, fence {}{shared}",
            printable(holder.owner.as_str()),
            for_what(holder.reason.as_ref()),
            span::show(holder.held_for),
            holder.fence,
        ));
    }
    more(&mut page, seen.holders.len(), seen.holders_total, "holders");
    for (place, waiter) in seen.waiters.iter().enumerate() {
        let shared = if waiter.exclusive { "" } else { ", shared" };
        page.push_str(&format!(
            "\n  {:<6}  {}{}, waited {}{shared}",
            format!("{}.", place + 1),
            printable(waiter.owner.as_str()),
            for_what(waiter.reason.as_ref()),
            span::show(waiter.waited),
        ));
    }
    more(&mut page, seen.waiters.len(), seen.waiters_total, "waiters");
    page
}

/// A reason in parentheses behind an owner.
pub(crate) fn for_what(reason: Option<&Label>) -> String {
    reason.map_or_else(String::new, |reason| format!(" ({})", Printable(reason.as_str())))
}

fn more(page: &mut String, shown: usize, total: u64, what: &str) {
    let rest = total.saturating_sub(u64::try_from(shown).unwrap_or(u64::MAX));
    if rest > 0 {
        page.push_str(&format!("\n          and {rest} more {what}"));
    }
}

/// The columns of the table, in their order.
const LIST_HEAD: [&str; 6] = ["KEY", "HOLDER", "HELD", "LEASE", "QUEUE", "FENCE"];

/// The narrowest that the two wide columns may get.
const NARROW: usize = 12;

/// A table of keys, as wide as it likes or as it may be.
pub(crate) fn table(locks: &[Snapshot], columns: Option<usize>) -> Vec<String> {
    let rows: Vec<_> = locks.iter().map(row).collect();
    let width_of = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([LIST_HEAD[column].len()]).max().unwrap_or_default()
    };
    let mut widths: [usize; 6] = std::array::from_fn(width_of);
    if let Some(columns) = columns {
        // What is missing is taken from the wider of the two columns of free text.
        while widths.iter().sum::<usize>() + 2 * (widths.len() - 1) > columns {
            let wider = if widths[0] >= widths[1] { 0 } else { 1 };
            if widths[wider] <= NARROW {
                break;
            }
            widths[wider] -= 1;
        }
    }
    let head = line(&LIST_HEAD.map(str::to_owned), &widths);
    std::iter::once(head).chain(rows.iter().map(|row| line(row, &widths))).collect()
}

fn row(seen: &Snapshot) -> [String; 6] {
    let first = seen.holders.first();
    let others = seen.holders_total.saturating_sub(1);
    let holder = first.map_or_else(
        || "-".into(),
        |holder| {
            let others = if others > 0 { format!(" +{others}") } else { String::new() };
            let owner = Printable(holder.owner.as_str());
            format!("{owner}{others}{}", for_what(holder.reason.as_ref()))
        },
    );
    let shown = |span: Option<Duration>| span.map_or_else(|| "-".into(), span::show_seconds);
    [
        printable(seen.key.as_str()),
        holder,
        shown(first.map(|holder| holder.held_for)),
        shown(first.and_then(|holder| holder.expires_in)),
        if seen.waiters_total == 0 { "-".into() } else { seen.waiters_total.to_string() },
        first.map_or_else(|| "-".into(), |holder| holder.fence.to_string()),
    ]
}

fn line(cells: &[String; 6], widths: &[usize; 6]) -> String {
    let cells = cells.iter().zip(widths).map(|(cell, &width)| {
        let cut: String = if cell.chars().count() > width {
            cell.chars().take(width - 1).chain(['…']).collect()
        } else {
            cell.clone()
        };
        format!("{cut:<width$}")
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// Keys, owners and reasons are text of other people: what is not seen is escaped.
pub(crate) fn printable(text: &str) -> String {
    Printable(text).to_string()
}

#[cfg(test)]
mod tests {
    use distlock::Key;

    use super::*;

    fn seen(key: &str, owner: &str) -> Snapshot {
        let mut seen = Snapshot::free(Key::new(key).unwrap());
        seen.holders.push(Holder {
            owner: Label::new("owner", owner).unwrap(),
            reason: Some(Label::new("reason", "release 1.9").unwrap()),
            fence: 1_794_808_478_716_123,
            weight: 1,
            capacity: Some(1),
            exclusive: true,
            group: None,
            held_for: Duration::from_secs(192),
            expires_in: Some(Duration::from_millis(24_100)),
        });
        seen.holders_total = 1;
        seen.waiters_total = 3;
        seen
    }

    #[test]
    fn the_table_fits_into_eighty_columns() {
        let long = "x".repeat(200);
        let locks = [seen("deploy/prod", "deploy@ci-7"), seen(&long, &long), seen("a\nb", "me")];
        let table = table(&locks, Some(80));
        assert!(table.iter().all(|line| line.chars().count() <= 80), "{table:#?}");
        assert!(table[0].starts_with("KEY") && table[0].ends_with("FENCE"));
        assert!(table[1].contains("deploy@ci-7 (re"), "{}", table[1]);
        assert!(table[1].ends_with("3m12s  24s    3      1794808478716123"), "{}", table[1]);
    }

    #[test]
    fn a_pipe_gets_everything() {
        let long = "x".repeat(200);
        assert!(table(&[seen(&long, "me")], None)[1].contains(&long));
    }

    #[test]
    fn a_page_names_the_holder_and_the_queue() {
        let page = page(&seen("deploy/prod", "deploy@ci-7"));
        for part in ["deploy@ci-7 (release 1.9)", "held 3m12s", "24s", "fence 17948", "3 more"] {
            assert!(page.contains(part), "{page}");
        }
        assert_eq!(super::page(&Snapshot::free(Key::new("k").unwrap())), "k: free");
    }
}
