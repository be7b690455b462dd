//! What the scripts are told and what they answer, as values.

mod args;

use std::borrow::Cow;
use std::ops::Deref;
use std::time::Duration;

use distlock_core::{
    Answer, Busy, ClaimId, Fault, Holder, Invalid, Key, Label, Order, Push, QueuePosition,
    ReleaseOutcome, Snapshot, Standing, Waiter,
};
use redis::{RedisWrite, ToRedisArgs, Value};

#[cfg(test)]
pub(super) use self::args::{USUAL_TTL, USUAL_WAIT};
pub(super) use self::args::{
    add_ask, add_holds, add_release, add_renewal, ask_text, longest, millis, released_id, ttl_ms,
};

/// A reader of an array that came back from a script.
pub(super) struct Reader<'a> {
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
    pub(super) fn answer_for(id: &str, value: &'a Value) -> Result<Self, Fault> {
        let mut reader = Self::new(value)?;
        if reader.str()? == id { Ok(reader) } else { Err(garbled(value)) }
    }

    fn value(&mut self) -> Result<&'a Value, Fault> {
        self.rest.next().ok_or_else(|| garbled(&Value::Nil))
    }

    pub(super) fn str(&mut self) -> Result<Cow<'a, str>, Fault> {
        as_str(self.value()?)
    }

    fn number<T: TryFrom<i64> + std::str::FromStr>(&mut self) -> Result<T, Fault> {
        let value = self.value()?;
        let read = match value {
            Value::Int(number) => T::try_from(*number).ok(),
            other => as_str(other)?.parse().ok(),
        };
        read.ok_or_else(|| garbled(value))
    }

    /// Milliseconds, or none for a negative number.
    pub(super) fn span(&mut self) -> Result<Option<Duration>, Fault> {
        Ok(u64::try_from(self.number::<i64>()?).ok().map(Duration::from_millis))
    }

    fn label(&mut self) -> Result<Option<Label>, Fault> {
        Ok(Label::new("label", self.str()?).ok())
    }

    fn owner(&mut self) -> Result<Label, Fault> {
        owner(&self.str()?).map_err(|error| Fault::permanent("read an owner", error))
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
            capacity: Some(self.number()?).filter(|capacity| *capacity > 0),
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

/// An owner as it was written. What is no label was written by others, who may write anything.
pub(super) fn owner(text: &str) -> Result<Label, Invalid> {
    Label::new("owner", text).or_else(|_| Label::new("owner", "unreadable"))
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

/// What was answered is not an answer to the question. Another connection may do better.
pub(super) fn garbled(value: &Value) -> Fault {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Array(_) => "to another question",
        _ => "with a value of another kind",
    };
    Fault::transient("understand the store", format!("it answered {kind}"))
}

/// What acquire.lua answers: a text of lines.
pub(super) fn answer(id: &str, value: &Value) -> Result<Answer, Fault> {
    read_answer(id, &as_str(value)?).ok_or_else(|| garbled(value))
}

fn read_answer(id: &str, text: &str) -> Option<Answer> {
    let text = text.strip_prefix(id)?.strip_prefix('\n')?;
    if let Some(fence) = text.strip_prefix("granted\n") {
        return Some(Answer::Granted { fence: fence.parse().ok()? });
    }
    let mut lines = text.split('\n');
    Some(match lines.next()? {
        "busy" => {
            let ticket = lines.next()?.parse().ok();
            let (ahead, retry_after) = (lines.next()?.parse().ok()?, span(lines.next()?)?);
            let mut holder = lines.peekable();
            let known = holder.peek().is_some();
            let holder = if known { Some(read_holder(&mut holder)?) } else { None };
            Answer::Busy(Busy { ticket, ahead, retry_after, holder })
        }
        "conflict" => Answer::Conflict,
        "full" => Answer::Full,
        "dead" => Answer::Dead,
        "forgot" => Answer::Forgot,
        "spent" => Answer::Spent,
        _ => return None,
    })
}

fn read_holder<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Option<Holder> {
    Some(Holder {
        owner: owner(lines.next()?).ok()?,
        reason: Label::new("reason", lines.next()?).ok(),
        fence: lines.next()?.parse().ok()?,
        weight: lines.next()?.parse().ok()?,
        capacity: None,
        exclusive: lines.next()? == "1",
        group: Label::new("group", lines.next()?).ok(),
        held_for: span(lines.next()?)?.unwrap_or_default(),
        expires_in: span(lines.next()?)?,
    })
}

/// Milliseconds, or none for a negative number.
fn span(text: &str) -> Option<Option<Duration>> {
    let ms: i64 = text.parse().ok()?;
    Some(u64::try_from(ms).ok().map(Duration::from_millis))
}

pub(super) fn standing(id: &str, value: &Value) -> Result<Standing, Fault> {
    let mut reader = Reader::answer_for(id, value)?;
    match &*reader.str()? {
        "held" => Ok(Standing::Held { fence: reader.number()? }),
        "waiting" => {
            let (ticket, ahead) = (reader.number()?, reader.number()?);
            Ok(Standing::Waiting(QueuePosition { ticket, ahead, retry_after: reader.span()? }))
        }
        "gone" => Ok(Standing::Gone),
        _ => Err(garbled(value)),
    }
}

/// What release.lua answers, and what somebody of this client who waited is to be told.
pub(super) fn outcome(id: &str, value: &Value) -> Result<ReleaseOutcome, Fault> {
    if let Value::BulkString(_) = value {
        return if as_str(value)? == id {
            Ok(ReleaseOutcome::WasHeld)
        } else {
            Err(garbled(value))
        };
    }
    match &*Reader::answer_for(id, value)?.str()? {
        "waiting" => Ok(ReleaseOutcome::WasWaiting),
        "gone" => Ok(ReleaseOutcome::Gone),
        _ => Err(garbled(value)),
    }
}

pub(super) fn snapshot(id: &str, key: &Key, value: &Value) -> Result<Snapshot, Fault> {
    let mut reader = Reader::answer_for(id, value)?;
    let order = match &*reader.str()? {
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

/// What renew.lua answers for so many claims, the first of which has this id: the fence of each, or
/// none where it is not the usual case.
pub(super) fn fences(id: ClaimId, claims: usize, value: &Value) -> Result<Vec<Option<u64>>, Fault> {
    let text = as_str(value)?;
    let read = || {
        let mut fences = Vec::with_capacity(claims);
        for word in words_for(id, &text)? {
            let fence: u64 = word.parse().ok()?;
            fences.push((fence > 0).then_some(fence));
        }
        (fences.len() == claims).then_some(fences)
    };
    read().ok_or_else(|| garbled(value))
}

/// What many_names.lua says is answered for so many who let go and so many who ask, the first of
/// whom has this id: the fence of all who were granted, or none for each who is left alone.
pub(super) fn many(
    id: ClaimId,
    (releases, asks): (usize, usize),
    value: &Value,
) -> Result<Vec<Option<u64>>, Fault> {
    let text = as_str(value)?;
    let read = || {
        let mut words = words_for(id, &text)?;
        let counted: usize = words.next()?.parse().ok()?;
        let fence: u64 = words.next()?.parse().ok()?;
        if counted != releases || (fence == 0) != (asks == 0) {
            return None;
        }
        let mut all = vec![Some(fence); releases + asks];
        for word in words {
            let place: usize = word.parse().ok()?;
            *all.get_mut(place.checked_sub(1)?)? = None;
        }
        Some(all)
    };
    read().ok_or_else(|| garbled(value))
}

/// The words of an answer that begins with the claim it is for.
fn words_for(id: ClaimId, text: &str) -> Option<std::str::Split<'_, char>> {
    let mut words = text.split(' ');
    (words.next()? == &*hex(id)).then_some(words)
}

/// A claim id as it is written.
pub(super) struct Hex([u8; 32]);

impl Deref for Hex {
    type Target = str;

    fn deref(&self) -> &str {
        // They are digits: there is nothing else to say.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl ToRedisArgs for Hex {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        out.write_arg(&self.0);
    }
}

pub(super) fn hex(id: ClaimId) -> Hex {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (at, byte) in id.as_bytes().iter().enumerate() {
        text[2 * at] = DIGITS[usize::from(byte >> 4)];
        text[2 * at + 1] = DIGITS[usize::from(byte & 15)];
    }
    Hex(text)
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
    fn an_answer_for_many_tells_of_each() {
        let id = ClaimId::random().unwrap();
        let told = |rest: &str, counts| {
            many(id, counts, &Value::BulkString(format!("{} {rest}", id.reveal()).into()))
        };
        assert_eq!(told("2 7", (2, 1)).unwrap(), [Some(7); 3]);
        assert_eq!(told("2 7 3 1", (2, 1)).unwrap(), [None, Some(7), None]);
        assert_eq!(told("1 0", (1, 0)).unwrap(), [Some(0)]);
        for (rest, counts) in [
            ("1 7", (2, 1)),
            ("2 0", (2, 1)),
            ("2 7", (2, 0)),
            ("2 7 0", (2, 1)),
            ("2 7 4", (2, 1)),
            ("2 7 x", (2, 1)),
            ("2", (2, 1)),
            ("", (2, 1)),
        ] {
            assert!(told(rest, counts).is_err(), "{rest:?}");
        }
        let other = ClaimId::random().unwrap().reveal();
        assert!(many(id, (0, 1), &Value::BulkString(format!("{other} 0 7").into())).is_err());
    }

    #[test]
    fn an_answer_for_renewals_tells_of_each() {
        let id = ClaimId::random().unwrap();
        let told = |rest: &str| {
            fences(id, 2, &Value::BulkString(format!("{} {rest}", id.reveal()).into()))
        };
        assert_eq!(told("7 0").unwrap(), [Some(7), None]);
        for rest in ["7", "7 8 9", "7 x", ""] {
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
        let text = |text: &str| Value::BulkString(text.into());
        let other = Value::Array(vec![text("other"), text("granted"), text("7")]);
        for value in [Value::Nil, Value::Array(vec![]), Value::Int(7), other] {
            assert!(answer("id", &value).is_err() && standing("id", &value).is_err());
            assert!(outcome("id", &value).is_err());
        }
    }
}
