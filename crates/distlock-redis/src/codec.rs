//! What the library is told and what it answers, as values.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, AttemptId, Busy, Claim, ClaimId, Fault, Holder, Invalid, Key, Label, Order, Push,
    QueuePosition, ReleaseOptions, ReleaseOutcome, Snapshot, Standing, Target, Waiter,
};
use redis::Value;

use super::library::Words;

/// Whole milliseconds, rounded up: what was asked for is what is given, at least.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// A claim id as it is written.
pub(super) struct Hex(pub(super) ClaimId);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (at, byte) in self.0.as_bytes().iter().enumerate() {
            text[2 * at] = DIGITS[usize::from(byte >> 4)];
            text[2 * at + 1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

/// What may be missing: an empty text means none.
pub(super) struct Maybe<T>(pub(super) Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |value| value.fmt(f))
    }
}

fn order_code(order: Order) -> &'static str {
    match order {
        Order::PreferWriters => "1",
        Order::PreferReaders => "2",
        _ => "0",
    }
}

/// The arguments of `acquire`, with the largest fence that was seen where keys have counters of
/// their own. The main key of a witness is written by `main`.
pub(super) fn acquire_args(
    ask: &Ask,
    client: &str,
    seen: Option<u64>,
    main: impl Fn(&Key) -> String,
) -> Words {
    let mut args = Words::default();
    let reentry = ask.reentry.map(|id| id.reveal());
    args.push(Hex(ask.claim.id)).push(format_args!(
        "{}\n{}\n{}\n{client}\n{}\n{}\n{}",
        ask.owner,
        Maybe(ask.reason.as_ref()),
        order_code(ask.order),
        Maybe(ask.group.as_ref()),
        Maybe(reentry),
        ask.capacity,
    ));
    args.push(millis(ask.ttl));
    let wait = ask.wait.map(|wait| format!("{} {}", millis(wait.place), wait.waiters_max));
    args.push(Maybe(wait)).push(Maybe((!ask.is_exclusive()).then_some(ask.weight)));
    args.push(Maybe(ask.fence_floor));
    args.push(Maybe(ask.attempt.map(|attempt| attempt_words(attempt, &ask.claim))));
    let witness = ask.witness.as_ref();
    args.push(Maybe(witness.map(|claim| format!("{} {}", main(&claim.key), Hex(claim.id)))));
    args.push(Maybe(seen)).trim();
    args
}

/// An attempt and its tombstone.
fn attempt_words(attempt: AttemptId, claim: &Claim) -> String {
    format!("{} {}", attempt.reveal(), Hex(attempt.tombstone(&claim.id)))
}

/// The claim id that a release goes by. A break goes by the fence.
pub(super) fn released_id(target: &Target) -> Hex {
    match target {
        Target::Claim(claim) | Target::Attempt { claim, .. } => Hex(claim.id),
        _ => Hex(ClaimId::from_bytes([0; 16])),
    }
}

/// The arguments of `release`.
pub(super) fn release_args(target: &Target, how: ReleaseOptions) -> Words {
    let mut args = Words::default();
    args.push(released_id(target));
    if how == ReleaseOptions::default() && matches!(target, Target::Claim(_)) {
        return args;
    }
    args.push(format_args!("{} {}", millis(how.keep), millis(how.bury)));
    match target {
        Target::Fence { fence, .. } => {
            args.push(fence);
        }
        Target::Attempt { claim, attempt } => {
            args.push("").push(attempt_words(*attempt, claim));
        }
        _ => {}
    }
    args
}

/// What was answered is not an answer to the question. Another connection may do better.
pub(super) fn garbled(value: &Value) -> Fault {
    let kind = match value {
        Value::Nil => "nothing",
        Value::BulkString(_) | Value::Array(_) => "to another question",
        _ => "with a value of another kind",
    };
    Fault::transient("understand the store", format!("it answered {kind}"))
}

pub(super) fn as_str(value: &Value) -> Result<Cow<'_, str>, Fault> {
    match value {
        // What others wrote may be no text: then it is shown as far as it is one.
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(Cow::Borrowed(text)),
        Value::Int(number) => Ok(Cow::Owned(number.to_string())),
        other => Err(garbled(other)),
    }
}

/// The lines of an answer.
pub(super) struct Lines<'a>(std::iter::Peekable<std::str::Split<'a, char>>);

impl<'a> Lines<'a> {
    pub(super) fn text(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.text()?.parse().ok()
    }

    /// Milliseconds, or none for a negative number.
    pub(super) fn span(&mut self) -> Option<Option<Duration>> {
        let ms: i64 = self.number()?;
        Some(u64::try_from(ms).ok().map(Duration::from_millis))
    }

    fn label(&mut self) -> Option<Option<Label>> {
        Some(Label::new("label", self.text()?).ok())
    }

    /// An owner as it was written. What is no label was written by others, who may write anything.
    fn owner(&mut self) -> Option<Label> {
        let unreadable = |_: Invalid| Label::new("owner", "unreadable");
        Label::new("owner", self.text()?).or_else(unreadable).ok()
    }

    fn holder(&mut self) -> Option<Holder> {
        Some(Holder {
            owner: self.owner()?,
            reason: self.label()?,
            fence: self.number()?,
            weight: self.number()?,
            exclusive: self.text()? == "1",
            group: self.label()?,
            held_for: self.span()?.unwrap_or_default(),
            expires_in: self.span()?,
            capacity: Some(self.number()?).filter(|capacity| *capacity > 0),
        })
    }

    fn waiter(&mut self) -> Option<Waiter> {
        Some(Waiter {
            owner: self.owner()?,
            reason: self.label()?,
            weight: self.number()?,
            exclusive: self.text()? == "1",
            group: self.label()?,
            waited: self.span()?.unwrap_or_default(),
        })
    }
}

/// Reads an answer, which begins with the claim it is for. One for another claim means that the
/// replies on this connection are out of step with the questions.
pub(super) fn read<T>(
    id: impl fmt::Display,
    value: &Value,
    parse: impl FnOnce(&mut Lines<'_>) -> Option<T>,
) -> Result<T, Fault> {
    let text = as_str(value)?;
    let mut lines = Lines(text.split('\n').peekable());
    let is_mine = lines.text().is_some_and(|first| first == id.to_string());
    is_mine.then(|| parse(&mut lines)).flatten().ok_or_else(|| garbled(value))
}

pub(super) fn answer(id: ClaimId, value: &Value) -> Result<Answer, Fault> {
    read(Hex(id), value, |lines| {
        Some(match lines.text()? {
            "granted" => Answer::Granted { fence: lines.number()? },
            "busy" => {
                let (ticket, ahead) = (lines.text()?.parse().ok(), lines.number()?);
                let retry_after = lines.span()?;
                let known = lines.0.peek().is_some();
                let holder = if known { Some(lines.holder()?) } else { None };
                Answer::Busy(Busy { ticket, ahead, retry_after, holder })
            }
            "conflict" => Answer::Conflict,
            "full" => Answer::Full,
            "dead" => Answer::Dead,
            "forgot" => Answer::Forgot,
            "spent" => Answer::Spent,
            _ => return None,
        })
    })
}

pub(super) fn standing(id: ClaimId, value: &Value) -> Result<Standing, Fault> {
    read(Hex(id), value, |lines| {
        Some(match lines.text()? {
            "held" => Standing::Held { fence: lines.number()? },
            "waiting" => {
                let (ticket, ahead) = (lines.number()?, lines.number()?);
                Standing::Waiting(QueuePosition { ticket, ahead, retry_after: lines.span()? })
            }
            "gone" => Standing::Gone,
            _ => return None,
        })
    })
}

pub(super) fn outcome(id: &Hex, value: &Value) -> Result<ReleaseOutcome, Fault> {
    read(id, value, |lines| {
        Some(match lines.text()? {
            "held" => ReleaseOutcome::WasHeld,
            "waiting" => ReleaseOutcome::WasWaiting,
            "gone" => ReleaseOutcome::Gone,
            _ => return None,
        })
    })
}

pub(super) fn snapshot(tag: &str, key: &Key, value: &Value) -> Result<Snapshot, Fault> {
    read(tag, value, |lines| {
        let order = match lines.text()? {
            "0" => Some(Order::Fifo),
            "1" => Some(Order::PreferWriters),
            "2" => Some(Order::PreferReaders),
            _ => None,
        };
        let (holders_total, waiters_total) = (lines.number()?, lines.number()?);
        let shown: usize = lines.number()?;
        let holders = (0..shown).map(|_| lines.holder()).collect::<Option<_>>()?;
        let mut waiters = Vec::new();
        while lines.0.peek().is_some() {
            waiters.push(lines.waiter()?);
        }
        Some(Snapshot { key: key.clone(), order, holders, holders_total, waiters, waiters_total })
    })
}

/// What `renew` answers for so many claims, the first of which has this id: the fence of each, or
/// none where it does not hold exclusively.
pub(super) fn fences(id: ClaimId, claims: usize, value: &Value) -> Result<Vec<Option<u64>>, Fault> {
    read(Hex(id), value, |lines| {
        let fence = |line: &str| line.parse().ok().map(|fence| Some(fence).filter(|f| *f > 0));
        let fences: Vec<_> =
            std::iter::from_fn(|| lines.text()).map(fence).collect::<Option<_>>()?;
        (fences.len() == claims).then_some(fences)
    })
}

/// A message on a client's channel.
pub(super) fn push(message: &str) -> Option<Push> {
    let mut words = message.split(' ');
    match (words.next()?, words.next()?.parse::<ClaimId>().ok()?) {
        ("granted", id) => {
            let (ticket, fence) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Push::Granted { id, ticket, fence })
        }
        ("broken", id) => Some(Push::Broken { id }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_micros(1_000)), 1);
        assert_eq!(millis(Duration::ZERO), 0);
    }

    #[test]
    fn an_answer_for_renewals_tells_of_each() {
        let id = ClaimId::random().unwrap();
        let told = |rest: &str| {
            fences(id, 2, &Value::BulkString(format!("{}\n{rest}", id.reveal()).into()))
        };
        assert_eq!(told("7\n0").unwrap(), [Some(7), None]);
        for rest in ["7", "7\n8\n9", "7\nx", ""] {
            assert!(told(rest).is_err(), "{rest:?}");
        }
    }

    #[test]
    fn a_message_that_makes_no_sense_is_no_push() {
        let id = "0123456789abcdef0123456789abcdef";
        let ours = push(&format!("granted {id} 7 8"));
        assert!(matches!(ours, Some(Push::Granted { ticket: 7, fence: 8, .. })));
        let bad = ["", "granted", "granted x 7 8", &format!("granted {id} 7"), &format!("x {id}")];
        assert!(bad.iter().all(|message| push(message).is_none()));
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_a_fault() {
        let (id, other) = (ClaimId::from_bytes([1; 16]), ClaimId::from_bytes([2; 16]));
        let text = |text: String| Value::BulkString(text.into());
        for value in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Int(7),
            text(format!("{}\ngranted\n7", other.reveal())),
            text(format!("{}\ngranted", id.reveal())),
            text(id.reveal()),
        ] {
            assert!(answer(id, &value).is_err() && standing(id, &value).is_err(), "{value:?}");
            assert!(outcome(&Hex(id), &value).is_err(), "{value:?}");
        }
    }
}
