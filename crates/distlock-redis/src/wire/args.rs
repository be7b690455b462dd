//! What the scripts are told, as arguments of a call.

use std::time::Duration;

use distlock_core::{
    Ask, AttemptId, Claim, ClaimId, Label, Order, ReleaseOptions, Renewal, Target, Wait,
};
use redis::Cmd;

use super::{Hex, hex};

/// The claim id of a break, which goes by fence.
const NOBODY: Hex = Hex([b'0'; 32]);

/// The ttl that most ask for.
pub(crate) const USUAL_TTL: Duration = Duration::from_secs(30);

/// How most wait.
pub(crate) const USUAL_WAIT: Wait = Wait { place: Duration::from_secs(4), waiters_max: 1_000_000 };

/// Whole milliseconds, rounded up: what was asked for is what is given, at least.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// An empty text means none.
fn add_optional(cmd: &mut Cmd, value: Option<u64>) {
    match value {
        Some(value) => cmd.arg(value),
        None => cmd.arg(""),
    };
}

fn order_code(order: Order) -> &'static str {
    match order {
        Order::PreferWriters => "1",
        Order::PreferReaders => "2",
        _ => "0",
    }
}

/// The ask as it is written into the main key: a line for each thing that does not depend on when
/// it is granted.
pub(crate) fn ask_text(ask: &Ask, client: &str) -> String {
    let mut text = String::with_capacity(96);
    let reentry = ask.reentry.map(|id| id.reveal());
    let label = |label: &'_ Option<Label>| label.as_ref().map(Label::to_string).unwrap_or_default();
    for line in [
        ask.owner.as_str(),
        &label(&ask.reason),
        order_code(ask.order),
        client,
        &label(&ask.group),
        reentry.as_deref().unwrap_or_default(),
    ] {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(&ask.capacity.to_string());
    text
}

/// The ttl of an ask as the scripts take it.
pub(crate) fn ttl_ms(ask: &Ask) -> u64 {
    millis(ask.ttl)
}

/// How long what an ask leaves behind may live.
pub(crate) fn longest(ask: &Ask) -> Duration {
    ask.ttl.max(ask.wait.map_or(Duration::ZERO, |wait| wait.place))
}

/// How a claim waits, as the scripts take it.
pub(crate) fn wait_text(wait: Wait) -> String {
    format!("{} {}", millis(wait.place), wait.waiters_max)
}

/// Adds `ARGV` of acquire_free.lua from 2 on. What is usual need not be said, unless something
/// behind it is not. The caller is given if that is not the usual one; a witness is its main key
/// and its claim.
pub(crate) fn add_ask(
    cmd: &mut Cmd,
    ask: &Ask,
    client: &str,
    caller: Option<&str>,
    witness: Option<(String, ClaimId)>,
) {
    let usual = ask.is_exclusive() && ask.attempt.is_none();
    let weight = (!usual).then_some(u64::from(ask.weight));
    let rest = caller.is_some() || weight.is_some() || ask.fence_floor.is_some();
    let rest = rest || witness.is_some();
    let wait = rest || ask.wait != Some(USUAL_WAIT);
    let ttl = wait || ask.ttl != USUAL_TTL;
    cmd.arg(ask_text(ask, client));
    if ttl {
        cmd.arg(ttl_ms(ask));
    }
    if wait {
        cmd.arg(ask.wait.map(wait_text).unwrap_or_default());
    }
    if rest {
        cmd.arg(caller.unwrap_or_default());
        add_optional(cmd, weight);
        add_optional(cmd, ask.fence_floor);
    }
    match (witness, ask.attempt) {
        (Some((main, id)), _) => {
            cmd.arg(main).arg(hex(id));
        }
        (None, Some(_)) => {
            cmd.arg("").arg("");
        }
        (None, None) => {}
    }
    if let Some(attempt) = ask.attempt {
        add_attempt(cmd, attempt, &ask.claim);
    }
}

/// An attempt and its tombstone, as the scripts take them.
fn add_attempt(cmd: &mut Cmd, attempt: AttemptId, claim: &Claim) {
    let tombstone = hex(attempt.tombstone(&claim.id));
    cmd.arg(format!("{} {}", attempt.reveal(), &*tombstone));
}

/// Adds `ARGV` of stand.lua from 3 on.
pub(crate) fn add_renewal(cmd: &mut Cmd, renewal: &Renewal) {
    cmd.arg(millis(renewal.span));
    add_optional(cmd, renewal.weight.map(u64::from));
    add_optional(cmd, renewal.fence_floor);
}

/// Adds `ARGV` of renew.lua for claims that ask for the same span.
pub(crate) fn add_holds(cmd: &mut Cmd, span: Duration, ids: impl Iterator<Item = ClaimId>) {
    cmd.arg(millis(span));
    for id in ids {
        cmd.arg(hex(id));
    }
}

/// The claim id that a release goes by.
pub(crate) fn released_id(target: &Target) -> Hex {
    match target {
        Target::Claim(claim) | Target::Attempt { claim, .. } => hex(claim.id),
        _ => NOBODY,
    }
}

/// Adds `ARGV` of release_free.lua from 3 on, which is nothing in the usual case.
pub(crate) fn add_release(cmd: &mut Cmd, target: &Target, how: ReleaseOptions) {
    let (keep, bury) = (millis(how.keep), millis(how.bury));
    match target {
        Target::Fence { fence, .. } => {
            cmd.arg(format!("{fence} {keep} {bury}"));
        }
        Target::Attempt { claim, attempt } => {
            cmd.arg(format!("- {keep} {bury}"));
            add_attempt(cmd, *attempt, claim);
        }
        _ if how == ReleaseOptions::default() => {}
        _ => {
            cmd.arg(format!("- {keep} {bury}"));
        }
    }
}
