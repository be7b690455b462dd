//! Calls that one statement may serve: taking a key that is free, and giving it back.
//!
//! The statements decide the case in which the law has nothing to weigh, by the row of the key
//! alone. Where it is not that case they change nothing, and the law decides.

use distlock_core::law::HeldClaim;
use distlock_core::rows::{HolderRow, as_column, as_number};
use distlock_core::{Answer, Ask, ClientId, Key, Moment, ReleaseOutcome, Target};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::load::fence_max;
use super::pipeline::{BoundValue, Pipeline, bytes, number, text};
use super::pool::ConnectionLease;
use super::verb::{Verb, VerbReply};

/// What became of simple calls.
#[derive(Default)]
pub(super) struct SimpleReplies {
    /// None for those that the law has to decide.
    pub(super) replies: Vec<Option<VerbReply>>,
    /// The clock of the server, if one of them says.
    pub(super) clock_us: Option<u64>,
}

/// Serves simple calls of several keys in one pipeline.
pub(super) async fn run(
    lease: &mut ConnectionLease<'_>,
    verbs: &[(&Key, &Verb)],
    client: ClientId,
    seen: u64,
) -> Result<SimpleReplies, tokio_postgres::Error> {
    let (begin, hurry) = (lease.begin(), lease.hurry());
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    if verbs.len() > 1 {
        pipeline.control(&hurry);
    }
    let asked: Vec<_> =
        verbs.iter().map(|(_, verb)| add(&mut pipeline, verb, client, seen)).collect();
    pipeline.control("COMMIT");
    let answers = lease.send(pipeline).await?;
    let read = |(at, (_, verb)): (Option<usize>, &(&Key, &Verb))| {
        let row = at.and_then(|at| answers.get(at)).and_then(|rows| rows.first());
        row.and_then(|row| reply(verb, row))
    };
    let clocks = answers.iter().flatten().filter_map(|row| row.try_get::<_, i64>(1).ok());
    let clock_us = clocks.max().map(as_number);
    Ok(SimpleReplies { replies: asked.into_iter().zip(verbs).map(read).collect(), clock_us })
}

/// Adds the statements of a call; returns the index of the row that answers it.
fn add<'a>(
    pipeline: &mut Pipeline<'a>,
    verb: &'a Verb,
    client: ClientId,
    seen: u64,
) -> Option<usize> {
    match verb {
        Verb::Acquire(ask) => {
            Some(pipeline.add(include_str!("../sql/take_free.sql"), take(ask, client, seen)))
        }
        Verb::Release(Target::Claim(claim), _) => {
            let about = || {
                vec![bytes(claim.key.as_str().as_bytes()), bytes(claim.id.as_bytes().as_slice())]
            };
            pipeline.add(include_str!("../sql/give_back_key.sql"), about());
            Some(pipeline.add(include_str!("../sql/give_back_hold.sql"), about()))
        }
        _ => None,
    }
}

fn take(ask: &Ask, client: ClientId, seen: u64) -> Vec<BoundValue<'_>> {
    let owned = |bytes: &[u8]| -> BoundValue<'static> { (Box::new(bytes.to_vec()), Type::BYTEA) };
    // The server fills in the fence and the times.
    let row = HeldClaim {
        client,
        owner: ask.owner.clone(),
        reason: None,
        weight: ask.weight,
        capacity: ask.capacity,
        order: ask.order,
        group: None,
        reentry: None,
        fence: 0,
        since: Moment::ORIGIN,
        until: Moment::ORIGIN,
        kept: false,
        attempts: distlock_core::law::Attempts::of(ask.attempt),
    };
    let row = HolderRow::of(&ask.claim.id, &row);
    let attempts = row.attempts.as_deref().map(<[u8]>::to_vec);
    vec![
        bytes(ask.claim.key.as_str().as_bytes()),
        bytes(ask.claim.id.as_bytes().as_slice()),
        (Box::new(row.queueing.to_owned()), Type::TEXT),
        owned(client.as_bytes()),
        text(ask.owner.as_str()),
        text(ask.reason.as_ref().map(distlock_core::Label::as_str)),
        number(i64::from(ask.weight)),
        number(i64::from(ask.capacity)),
        text(ask.group.as_ref().map(distlock_core::Label::as_str)),
        bytes(ask.reentry.as_ref().map(|id| id.as_bytes().as_slice())),
        (Box::new(attempts), Type::BYTEA),
        number(i64::try_from(ask.ttl.as_micros()).unwrap_or(i64::MAX)),
        number(ask.fence_floor.map(as_column)),
        number(as_column(seen)),
        number(fence_max()),
    ]
}

fn reply(verb: &Verb, row: &Row) -> Option<VerbReply> {
    match verb {
        Verb::Acquire(_) => {
            let fence = u64::try_from(row.try_get::<_, i64>(0).ok()?).ok()?;
            Some(VerbReply::Answer(Answer::Granted { fence }))
        }
        _ => {
            let ran: bool = row.try_get(0).ok()?;
            Some(VerbReply::Outcome(if ran {
                ReleaseOutcome::WasHeld
            } else {
                ReleaseOutcome::Gone
            }))
        }
    }
}
