//! The words of the waiting line: for a terminal, and for a log.

use super::wait_view::WaitView;
use crate::span;
use crate::view::{for_what, printable};

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// A part of the line, with its colour. The less important parts go first when it is too long.
struct Part {
    text: String,
    style: &'static str,
    /// Smaller stays longer.
    rank: u8,
}

fn part(text: impl Into<String>, style: &'static str, rank: u8) -> Part {
    Part { text: text.into(), style, rank }
}

/// The line for a terminal of so many columns.
pub(super) fn redrawn(look: &WaitView, frame: usize, columns: usize, colours: bool) -> String {
    let mut parts =
        vec![part(SPINNER[frame % SPINNER.len()], YELLOW, 0), part(printable(&look.key), BOLD, 1)];
    match (&look.seen, look.holder()) {
        (Err(error), _) => parts.push(part(printable(error), YELLOW, 3)),
        (Ok(_), None) => parts.push(part("is free: the next waiter is about to hold it", "", 3)),
        (Ok(_), Some(holder)) => {
            parts.push(part(format!("held {}", span::show(holder.held_for)), "", 3));
            parts.push(part(format!("by {}", printable(holder.owner.as_str())), "", 3));
            if let Some(reason) = &holder.reason {
                parts.push(part(format!("({})", printable(reason.as_str())), DIM, 6));
            }
        }
    }
    if let Some((place, all)) = look.position() {
        parts.push(part(format!(" you are {} of {all}", ordinal(place)), "", 4));
    }
    if let Some(left) = look.left.filter(|left| left.as_secs() > 0) {
        parts.push(part(format!(" about {} left", span::show(left)), "", 5));
    } else if let Some(left) = look.holder().and_then(|holder| holder.expires_in) {
        parts.push(part(format!(" lease {}", span::show(left)), DIM, 7));
    }
    let waited = match look.max_wait.filter(|max_wait| !max_wait.is_zero()) {
        Some(max_wait) => format!(" [{}/{}]", span::clock(look.waited), span::clock(max_wait)),
        None => format!(" [{}]", span::clock(look.waited)),
    };
    parts.push(part(waited, DIM, 2));
    fit(parts, columns, colours)
}

/// Drops and shortens parts until they fit: a line that wraps cannot be redrawn.
fn fit(mut parts: Vec<Part>, columns: usize, colours: bool) -> String {
    // The last column stays free, since some terminals wrap when it is written.
    let room = columns.saturating_sub(1);
    let width = |parts: &[Part]| {
        parts.iter().map(|part| part.text.chars().count() + 1).sum::<usize>().saturating_sub(1)
    };
    while width(&parts) > room {
        let Some(rank) = parts.iter().map(|part| part.rank).max().filter(|rank| *rank > 3) else {
            break;
        };
        parts.retain(|part| part.rank != rank);
    }
    let mut line = String::new();
    let mut left = room;
    for part in parts {
        let text: String = part.text.chars().take(left).collect();
        left = left.saturating_sub(text.chars().count() + 1);
        if text.is_empty() {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        if colours && !part.style.is_empty() {
            line.push_str(&format!("{}{text}{RESET}", part.style));
        } else {
            line.push_str(&text);
        }
    }
    line
}

/// The line for a log.
pub(super) fn plain(look: &WaitView) -> String {
    let mut line = format!("waiting for {}: ", printable(&look.key));
    match (&look.seen, look.holder()) {
        (Err(error), _) => line.push_str(&printable(error)),
        (Ok(_), None) => line.push_str("free"),
        (Ok(_), Some(holder)) => {
            let (owner, held) = (printable(holder.owner.as_str()), span::show(holder.held_for));
            line.push_str(&format!("held {held} by {owner}"));
            line.push_str(&for_what(holder.reason.as_ref()));
        }
    }
    if let Some((place, all)) = look.position() {
        line.push_str(&format!("; position {place} of {all}"));
    }
    line.push_str(&format!("; waited {}", span::show_seconds(look.waited)));
    if let Some(max_wait) = look.max_wait.filter(|max_wait| !max_wait.is_zero()) {
        line.push_str(&format!(" of {}", span::show(max_wait)));
    }
    line
}

/// `1st`, `2nd`, `3rd`, `4th`.
fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distlock::{Holder, Key, Label, Snapshot};

    use super::*;

    fn look() -> WaitView {
        let key = Key::new("deploy/prod").unwrap();
        let holder = Holder {
            owner: Label::new("owner", "deploy@ci-7").unwrap(),
            reason: Some(Label::new("reason", "release 1.9").unwrap()),
            fence: 7,
            weight: 1,
            capacity: Some(1),
            exclusive: true,
            group: None,
            held_for: Duration::from_secs(192),
            expires_in: Some(Duration::from_secs(24)),
        };
        let mut snapshot = Snapshot::free(key);
        snapshot.holders = vec![holder];
        snapshot.holders_total = 1;
        snapshot.waiters_total = 4;
        WaitView {
            key: "deploy/prod".into(),
            seen: Ok(snapshot),
            ahead: Some(1),
            left: None,
            waited: Duration::from_secs(37),
            max_wait: Some(Duration::from_secs(300)),
        }
    }

    #[test]
    fn a_terminal_sees_holder_reason_position_and_times() {
        assert_eq!(
            redrawn(&look(), 2, 120, false),
            "⠹ deploy/prod held 3m12s by deploy@ci-7 (release 1.9)  you are 2nd of 4  lease 24s  \
             [0:37/5:00]"
        );
    }

    #[test]
    fn a_guess_stands_where_the_lease_would() {
        let look = WaitView { left: Some(Duration::from_secs(100)), ..look() };
        assert_eq!(
            redrawn(&look, 2, 120, false),
            "⠹ deploy/prod held 3m12s by deploy@ci-7 (release 1.9)  you are 2nd of 4  about 1m40s \
             left  [0:37/5:00]"
        );
        let late = look.after(Duration::from_secs(101));
        assert!(!redrawn(&late, 2, 120, false).contains("about"), "a guess that was wrong goes");
    }

    #[test]
    fn what_matters_least_goes_first_where_there_is_little_room() {
        assert_eq!(
            redrawn(&look(), 0, 80, false),
            "⠋ deploy/prod held 3m12s by deploy@ci-7  you are 2nd of 4  [0:37/5:00]"
        );
        assert_eq!(
            redrawn(&look(), 0, 60, false),
            "⠋ deploy/prod held 3m12s by deploy@ci-7  [0:37/5:00]"
        );
        for columns in 1..120 {
            assert!(redrawn(&look(), 0, columns, false).chars().count() < columns.max(2));
        }
    }

    #[test]
    fn colours_add_no_letters() {
        let coloured = redrawn(&look(), 2, 120, true);
        let mut bare = coloured.clone();
        for code in [DIM, BOLD, YELLOW, RESET] {
            bare = bare.replace(code, "");
        }
        assert!(coloured.len() > bare.len());
        assert_eq!(bare, redrawn(&look(), 2, 120, false));
    }

    #[test]
    fn a_log_sees_whole_sentences() {
        let mut look = look();
        assert_eq!(
            plain(&look),
            "waiting for deploy/prod: held 3m12s by deploy@ci-7 (release 1.9); position 2 of 4; \
             waited 37s of 5m"
        );
        look.max_wait = Some(Duration::ZERO);
        assert!(plain(&look).ends_with("; waited 37s"), "{}", plain(&look));
        assert!(redrawn(&look, 0, 200, false).ends_with("[0:37]"));
        look.max_wait = None;
        look.seen = Err("acquire: refused".into());
        look.ahead = None;
        assert_eq!(plain(&look), "waiting for deploy/prod: acquire: refused; waited 37s");
    }

    #[test]
    fn hostile_keys_draw_nothing() {
        let mut look = look();
        look.key = "a\x1b[2Jb\nc".into();
        let line = redrawn(&look, 0, 100, false) + &plain(&look);
        assert!(!line.contains(['\x1b', '\n']), "{line:?}");
    }

    #[test]
    fn positions_are_spoken() {
        let spoken: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 102, 113].map(ordinal).into();
        let expected =
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "113th"];
        assert_eq!(spoken, expected);
    }
}
