//! Heartbeats: one look at the server for all that a client has in the queue of a key.
//!
//! Places live as long as their client is heard of at their key, so what a heartbeat has to find
//! out is whether the places are still those that the client believes in. The server keeps digests
//! of them, next to the queue and changed in the same step; a client that comes up with the same
//! digests believes in the same places. Only where they differ is each looked at.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use distlock_core::{ClaimId, Fault, Key, QueuePosition, Renewal, Standing, Ticket};
use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered};
use redis::Value;

use super::codec::{Hex, millis};
use super::faults::fault;
use super::library::{LibraryCall, LibraryVerb, Words};
use super::renew::IndexedStanding;
use super::{RedisClient, codec};

/// So few are each looked at, and told how many are ahead. See heartbeat.lua.
const COUNTED_MAX: usize = 16;

/// How many claims, or groups of claims, one call looks at. The server does nothing else meanwhile.
const LOOKED_AT_MAX: usize = 200;

/// How many calls go out in one message.
const MESSAGE_CALLS_MAX: usize = 64;

type Beat<'a> = (usize, &'a Renewal);

/// What one call looks at: claims of one key that wait, each by itself, or by their digests.
enum Look<'a> {
    Each(Vec<Beat<'a>>),
    Digests(Vec<(u64, Vec<Beat<'a>>)>),
}

impl<'a> Look<'a> {
    fn beats(&self) -> impl Iterator<Item = &Beat<'a>> {
        let (each, groups) = match self {
            Self::Each(beats) => (&beats[..], &[][..]),
            Self::Digests(groups) => (&[][..], &groups[..]),
        };
        each.iter().chain(groups.iter().flat_map(|(_, beats)| beats))
    }

    fn fail(&self, fault: &Fault) -> Vec<IndexedStanding> {
        self.beats().map(|(at, _)| (*at, Err(fault.clone()))).collect()
    }
}

/// What came of some looks.
#[derive(Default)]
struct HeartbeatRound<'a> {
    told: Vec<IndexedStanding>,
    /// Claims whose digest differs.
    differ: Vec<Beat<'a>>,
    /// Claims that do not wait under this client.
    absent: Vec<Beat<'a>>,
}

/// True for a heartbeat and nothing more.
pub(super) fn is_heartbeat(renewal: &Renewal) -> bool {
    renewal.ticket.is_some() && renewal.weight.is_none() && renewal.fence_floor.is_none()
}

impl RedisClient {
    /// One heartbeat for each key that this client waits for. Those of many keys of one server
    /// leave in one message; on a cluster every key has a slot of its own.
    pub(super) fn heartbeat<'a>(
        &'a self,
        beats: Vec<Beat<'a>>,
    ) -> impl Stream<Item = IndexedStanding> + 'a {
        let mut looks = looks(beats);
        let most = if self.namespace.is_on_cluster() { 1 } else { MESSAGE_CALLS_MAX };
        let messages = FuturesUnordered::new();
        while !looks.is_empty() {
            let rest = looks.split_off(looks.len().min(most));
            messages.push(self.look(std::mem::replace(&mut looks, rest)));
        }
        messages.flat_map_unordered(None, stream::iter)
    }

    /// Looks by digests first, then at each claim whose digest differs; a claim that does not wait
    /// is renewed by itself.
    async fn look(&self, looks: Vec<Look<'_>>) -> Vec<IndexedStanding> {
        let mut seen = self.send_looks(looks).await;
        if !seen.differ.is_empty() {
            let again = self.send_looks(each_of(seen.differ)).await;
            seen.told.extend(again.told);
            seen.absent.extend(again.absent);
        }
        let alone = seen.absent.iter().map(async |(at, beat)| (*at, self.renew_one(beat).await));
        seen.told.extend(join_all(alone).await);
        seen.told
    }

    async fn send_looks<'a>(&self, looks: Vec<Look<'a>>) -> HeartbeatRound<'a> {
        let mut seen = HeartbeatRound::default();
        let calls: Vec<_> = looks.iter().map(|look| self.call_of(look)).collect();
        let answers = match self.listen_and_call(&looks, &calls).await {
            Ok(answers) => answers,
            Err(fault) => {
                seen.told = looks.iter().flat_map(|look| look.fail(&fault)).collect();
                return seen;
            }
        };
        for (look, answer) in looks.into_iter().zip(answers) {
            let value = answer.map_err(|error| fault("renew", error));
            if let Err(fault) = value.and_then(|value| self.read(seen.add(&look, &value))) {
                seen.told.extend(look.fail(&fault));
            }
        }
        seen
    }

    async fn listen_and_call(
        &self,
        looks: &[Look<'_>],
        calls: &[LibraryCall],
    ) -> Result<Vec<Result<Value, redis::RedisError>>, Fault> {
        for (_, beat) in looks.iter().filter_map(|look| look.beats().next()) {
            self.listen_to(&beat.claim.key).await?;
        }
        self.connections.call_each("renew", calls).await
    }

    fn call_of(&self, look: &Look<'_>) -> LibraryCall {
        let (mut keys, mut args) = (Words::default(), Words::default());
        let span = look.beats().map(|(_, beat)| beat.span).max().unwrap_or_default();
        if let Some((_, first)) = look.beats().next() {
            keys = self.namespace.keys(&first.claim.key);
            args.push(Hex(first.claim.id));
        }
        args.push(&self.client).push(millis(span));
        let verb = match look {
            Look::Each(beats) => {
                args.extend(beats.iter().map(|(_, beat)| Hex(beat.claim.id)));
                LibraryVerb::Heartbeat
            }
            Look::Digests(groups) => {
                for (second, beats) in groups {
                    let sum: i128 =
                        beats.iter().map(|(_, beat)| i128::from(place_hash(beat))).sum();
                    args.push(second).push(beats.len()).push(sum);
                }
                LibraryVerb::Digest
            }
        };
        LibraryCall { verb, keys, args }
    }
}

/// What to look at: few claims of a key each by itself, many by their digests.
fn looks(beats: Vec<Beat<'_>>) -> Vec<Look<'_>> {
    let mut by_key: HashMap<&Key, Vec<_>> = HashMap::new();
    for beat in beats {
        by_key.entry(&beat.1.claim.key).or_default().push(beat);
    }
    let mut looks = Vec::with_capacity(by_key.len());
    for beats in by_key.into_values() {
        if beats.len() <= COUNTED_MAX {
            looks.push(Look::Each(beats));
            continue;
        }
        let mut groups: BTreeMap<u64, Vec<Beat<'_>>> = BTreeMap::new();
        for beat in beats {
            groups.entry(second(beat.1)).or_default().push(beat);
        }
        let groups: Vec<_> = groups.into_iter().collect();
        looks.extend(groups.chunks(LOOKED_AT_MAX).map(|chunk| Look::Digests(chunk.to_vec())));
    }
    looks
}

/// Looks at each of these claims.
fn each_of(mut beats: Vec<Beat<'_>>) -> Vec<Look<'_>> {
    beats.sort_by_key(|(_, beat)| &beat.claim.key);
    let by_key = beats.chunk_by(|(_, one), (_, other)| one.claim.key == other.claim.key);
    let chunks = by_key.flat_map(|beats| beats.chunks(LOOKED_AT_MAX));
    chunks.map(|chunk| Look::Each(chunk.to_vec())).collect()
}

impl<'a> HeartbeatRound<'a> {
    /// Adds what an answer tells.
    fn add(&mut self, look: &Look<'a>, value: &Value) -> Result<(), Fault> {
        let id =
            look.beats().next().map_or(ClaimId::from_bytes([0; 16]), |(_, beat)| beat.claim.id);
        let seen = codec::read(Hex(id), value, |lines| {
            let mut seen = Self::default();
            let (retry_after, head) = (lines.span()?, lines.text()?);
            match look {
                Look::Each(beats) => {
                    for (at, beat) in beats {
                        let (ticket, ahead) = (lines.text()?, lines.text()?);
                        let ahead = ahead.parse().unwrap_or(u64::from(ticket != head));
                        match ticket.parse() {
                            Ok(ticket) => seen.waits(*at, ticket, ahead, retry_after),
                            Err(_) => seen.absent.push((*at, *beat)),
                        }
                    }
                }
                Look::Digests(groups) => {
                    let (head, same) = (head.parse().ok(), lines.text()?);
                    if same.len() != groups.len() {
                        return None;
                    }
                    for ((_, beats), same) in groups.iter().zip(same.bytes()) {
                        if same != b'1' {
                            seen.differ.extend(beats);
                            continue;
                        }
                        for (at, beat) in beats {
                            let ticket = beat.ticket.unwrap_or_default();
                            // Not counted: all that matters is whether anybody is ahead.
                            seen.waits(*at, ticket, u64::from(head != Some(ticket)), retry_after);
                        }
                    }
                }
            }
            Some(seen)
        })?;
        self.told.extend(seen.told);
        self.differ.extend(seen.differ);
        self.absent.extend(seen.absent);
        Ok(())
    }

    fn waits(&mut self, at: usize, ticket: Ticket, ahead: u64, retry_after: Option<Duration>) {
        self.told.push((at, Ok(Standing::Waiting(QueuePosition { ticket, ahead, retry_after }))));
    }
}

/// The second in which a place was taken, as far as its ticket tells. The same as in codec.lua.
fn second(beat: &Renewal) -> u64 {
    beat.ticket.unwrap_or_default() / 1_000_000
}

/// What a place adds to its digest. The same as `place_hash` in codec.lua.
fn place_hash(beat: &Renewal) -> i64 {
    const DIGITS_13: u128 = (1 << 52) - 1;
    let random = u128::from_be_bytes(*beat.claim.id.as_bytes()) & DIGITS_13;
    let ticket = beat.ticket.unwrap_or_default() % 1_000_000_000_000;
    i64::try_from(random).unwrap_or(0) - (1 << 51) + i64::try_from(ticket).unwrap_or(0)
}
