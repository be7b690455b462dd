//! What the scripts are told and what they answer, as values.

use std::time::Duration;

use distlock_core::{
    Answer, Ask, Busy, ClaimId, Fault, Holder, How, Key, Label, Order, Outcome, Push, Renewal,
    Snapshot, Standing, Target, Waiter, Waiting,
};
use redis::Value;

/// The claim id of a break, which goes by fence.
const NOBODY: &str = "00000000000000000000000000000000";

fn text(value: &impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn optional<T: ToString>(value: Option<&T>) -> Vec<u8> {
    value.map(text).unwrap_or_default()
}

/// Whole milliseconds, rounded up: what was asked for is what is given, at least.
fn millis(span: Duration) -> Vec<u8> {
    text(&span.as_micros().div_ceil(1000))
}

fn order_code(order: Order) -> &'static str {
    match order {
        Order::PreferWriters => "1",
        Order::PreferReaders => "2",
        _ => "0",
    }
}

/// `ARGV` of acquire.lua from 6 on, and the claim id.
pub(super) fn ask_args(ask: &Ask) -> (String, Vec<Vec<u8>>) {
    let args = vec![
        text(&ask.owner),
        optional(ask.reason.as_ref()),
        text(&ask.weight),
        text(&ask.capacity),
        text(&order_code(ask.order)),
        optional(ask.group.as_ref()),
        optional(ask.reentry.map(|id| id.reveal()).as_ref()),
        millis(ask.ttl),
        optional(ask.fence_floor.as_ref()),
        ask.wait.map(|wait| millis(wait.place)).unwrap_or_default(),
        optional(ask.wait.map(|wait| wait.waiters_max).as_ref()),
    ];
    (ask.claim.id.reveal(), args)
}

/// `ARGV` of stand.lua from 6 on, and the claim id.
pub(super) fn renewal_args(renewal: &Renewal) -> (String, Vec<Vec<u8>>) {
    let args = vec![
        millis(renewal.span),
        optional(renewal.weight.as_ref()),
        optional(renewal.fence_floor.as_ref()),
    ];
    (renewal.claim.id.reveal(), args)
}

/// `ARGV` of beat.lua from 6 on, and the first claim id. The claims are of one key.
pub(super) fn beat_args(beats: &[(usize, &Renewal)]) -> (String, Vec<Vec<u8>>) {
    let span = beats.iter().map(|(_, renewal)| renewal.span).max().unwrap_or_default();
    let ids = beats.iter().map(|(_, renewal)| renewal.claim.id.reveal());
    let first = ids.clone().next().unwrap_or_default();
    (first, std::iter::once(millis(span)).chain(ids.map(String::into_bytes)).collect())
}

/// `ARGV` of renew.lua for one key.
pub(super) fn hold_args(renewal: &Renewal) -> [Vec<u8>; 2] {
    [text(&renewal.claim.id.reveal()), millis(renewal.span)]
}

/// `ARGV` of release.lua from 6 on, and the claim id.
pub(super) fn release_args(target: &Target, how: How) -> (String, Vec<Vec<u8>>) {
    let (id, fence) = match target {
        Target::Claim(claim) => (claim.id.reveal(), None),
        Target::Fence { fence, .. } => (NOBODY.to_owned(), Some(*fence)),
        _ => (NOBODY.to_owned(), None),
    };
    (id, vec![optional(fence.as_ref()), millis(how.keep), millis(how.bury)])
}

/// A reader of an array that came back from a script.
struct Reader<'a> {
    rest: std::slice::Iter<'a, Value>,
}

impl<'a> Reader<'a> {
    fn new(value: &'a Value) -> Result<Self, Fault> {
        match value {
            Value::Array(values) => Ok(Self { rest: values.iter() }),
            other => Err(garbled(other)),
        }
    }

    /// An answer that begins with the claim it is for. One for another claim means that the replies
    /// on this connection are out of step with the questions.
    fn answer_for(id: &str, value: &'a Value) -> Result<Self, Fault> {
        let mut reader = Self::new(value)?;
        if reader.text()? == id { Ok(reader) } else { Err(garbled(value)) }
    }

    fn value(&mut self) -> Result<&'a Value, Fault> {
        self.rest.next().ok_or_else(|| garbled(&Value::Nil))
    }

    fn text(&mut self) -> Result<String, Fault> {
        as_text(self.value()?)
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, Fault> {
        let value = self.value()?;
        as_text(value)?.parse().map_err(|_| garbled(value))
    }

    /// Milliseconds, or none for a negative number.
    fn span(&mut self) -> Result<Option<Duration>, Fault> {
        Ok(u64::try_from(self.number::<i64>()?).ok().map(Duration::from_millis))
    }

    fn label(&mut self) -> Result<Option<Label>, Fault> {
        let text = self.text()?;
        Ok(Label::new("label", text).ok())
    }

    fn owner(&mut self) -> Result<Label, Fault> {
        Label::new("owner", self.text()?).map_err(|error| Fault::permanent("read an owner", error))
    }

    fn flag(&mut self) -> Result<bool, Fault> {
        Ok(self.number::<u8>()? == 1)
    }

    fn holder(&mut self) -> Result<Holder, Fault> {
        Ok(Holder {
            owner: self.owner()?,
            reason: self.label()?,
            fence: self.number()?,
            weight: self.number()?,
            exclusive: self.flag()?,
            group: self.label()?,
            held_for: self.span()?.unwrap_or_default(),
            expires_in: self.span()?,
        })
    }

    fn waiter(&mut self) -> Result<Waiter, Fault> {
        Ok(Waiter {
            owner: self.owner()?,
            reason: self.label()?,
            weight: self.number()?,
            exclusive: self.flag()?,
            group: self.label()?,
            waited: self.span()?.unwrap_or_default(),
        })
    }
}

pub(super) fn as_text(value: &Value) -> Result<String, Fault> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).map_err(|_| garbled(value)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.clone()),
        Value::Int(number) => Ok(number.to_string()),
        other => Err(garbled(other)),
    }
}

/// What was answered is not an answer to the question. Another connection may do better.
fn garbled(value: &Value) -> Fault {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Array(_) => "to another question",
        _ => "with a value of another kind",
    };
    Fault::transient("understand the store", format!("it answered {kind}"))
}

pub(super) fn answer(id: &str, value: &Value) -> Result<Answer, Fault> {
    let mut reader = Reader::answer_for(id, value)?;
    match reader.text()?.as_str() {
        "granted" => Ok(Answer::Granted { fence: reader.number()? }),
        "busy" => {
            let ticket = reader.text()?.parse().ok();
            let (ahead, retry_after) = (reader.number()?, reader.span()?);
            let known = !reader.rest.as_slice().is_empty();
            let holder = if known { Some(reader.holder()?) } else { None };
            Ok(Answer::Busy(Busy { ticket, ahead, retry_after, holder }))
        }
        "conflict" => Ok(Answer::Conflict),
        "full" => Ok(Answer::Full),
        "dead" => Ok(Answer::Dead),
        _ => Err(garbled(value)),
    }
}

pub(super) fn standing(id: &str, value: &Value) -> Result<Standing, Fault> {
    let mut reader = Reader::answer_for(id, value)?;
    match reader.text()?.as_str() {
        "held" => Ok(Standing::Held { fence: reader.number()? }),
        "waiting" => {
            let (ticket, ahead) = (reader.number()?, reader.number()?);
            Ok(Standing::Waiting(Waiting { ticket, ahead, retry_after: reader.span()? }))
        }
        "gone" => Ok(Standing::Gone),
        _ => Err(garbled(value)),
    }
}

/// Where beat.lua says that so many claims stand: none where this client does not wait.
pub(super) fn beats(id: &str, claims: usize, value: &Value) -> Result<Vec<Option<Waiting>>, Fault> {
    let mut reader = Reader::answer_for(id, value)?;
    let (retry_after, head) = (reader.span()?, reader.text()?);
    let mut stand = || {
        let (ticket, ahead) = (reader.text()?, reader.text()?);
        // Not counted: all that matters is whether anybody is ahead.
        let ahead = ahead.parse().unwrap_or(u64::from(ticket != head));
        Ok(ticket.parse().ok().map(|ticket| Waiting { ticket, ahead, retry_after }))
    };
    (0..claims).map(|_| stand()).collect()
}

/// The fences that renew.lua answers for these claims: none where one does not hold exclusively.
pub(super) fn fences<'a>(
    claims: impl IntoIterator<Item = &'a Renewal>,
    value: &Value,
) -> Result<Vec<Option<u64>>, Fault> {
    let mut reader = Reader::new(value)?;
    let read = |renewal: &Renewal| {
        if reader.text()? != renewal.claim.id.reveal() {
            return Err(garbled(value));
        }
        Ok(reader.text()?.parse().ok())
    };
    claims.into_iter().map(read).collect()
}

pub(super) fn outcome(id: &str, value: &Value) -> Result<Outcome, Fault> {
    match Reader::answer_for(id, value)?.text()?.as_str() {
        "held" => Ok(Outcome::WasHeld),
        "waiting" => Ok(Outcome::WasWaiting),
        "gone" => Ok(Outcome::Gone),
        _ => Err(garbled(value)),
    }
}

pub(super) fn snapshot(id: &str, key: &Key, value: &Value) -> Result<Snapshot, Fault> {
    let mut reader = Reader::answer_for(id, value)?;
    let order = match reader.text()?.as_str() {
        "0" => Some(Order::Fifo),
        "1" => Some(Order::PreferWriters),
        "2" => Some(Order::PreferReaders),
        _ => None,
    };
    let (holders_total, waiters_total) = (reader.number()?, reader.number()?);
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for value in Reader::new(reader.value()?)?.rest {
        holders.push(Reader::new(value)?.holder()?);
    }
    for value in Reader::new(reader.value()?)?.rest {
        waiters.push(Reader::new(value)?.waiter()?);
    }
    Ok(Snapshot { key: key.clone(), order, holders, holders_total, waiters, waiters_total })
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
        assert_eq!(millis(Duration::from_micros(1)), b"1");
        assert_eq!(millis(Duration::from_micros(1_000)), b"1");
        assert_eq!(millis(Duration::ZERO), b"0");
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
        let text = |text: &str| Value::BulkString(text.into());
        let other = Value::Array(vec![text("other"), text("granted"), text("7")]);
        for value in [Value::Nil, Value::Array(vec![]), Value::Int(7), other] {
            assert!(answer("id", &value).is_err() && standing("id", &value).is_err());
            assert!(outcome("id", &value).is_err());
        }
    }
}
