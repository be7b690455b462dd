//! Renewals: of what is held: many holds in a call, each by its main key alone.

use distlock_core::{Fault, Renewal, Standing};
use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use redis::Value;

use super::codec::{Hex, Maybe, millis};
use super::faults::fault;
use super::library::{LibraryCall, LibraryVerb, Words};
use super::{RedisClient, codec};

/// How many holds one call renews. The server does nothing else meanwhile.
const HOLDS_PER_CALL_MAX: usize = 16;

/// How many holds go out in one message, as so many calls as it takes: the server turns to others
/// between them, and fewer messages wake each side less often.
const MESSAGE_MAX: usize = 64 * HOLDS_PER_CALL_MAX;

type HoldRenewal<'a> = (usize, &'a Renewal);
pub(super) type IndexedStanding = (usize, Result<Standing, Fault>);

/// True for the renewal of a hold and nothing more.
pub(super) fn is_hold(renewal: &Renewal) -> bool {
    renewal.ticket.is_none() && renewal.weight.is_none() && renewal.fence_floor.is_none()
}

impl RedisClient {
    /// Renews all of them: first those that hold exclusively, then each other one by itself.
    pub(super) fn renew_all<'a>(
        &'a self,
        mut holds: Vec<HoldRenewal<'a>>,
    ) -> impl Stream<Item = IndexedStanding> + use<'a> {
        // On a cluster each main key lies in a slot of its own.
        let most = if self.namespace.is_on_cluster() { 1 } else { MESSAGE_MAX };
        // What one call renews gets the same span.
        holds.sort_by_key(|(_, renewal)| renewal.span);
        let calls = holds.chunks(most).map(|chunk| self.renew_holds(chunk.to_vec()));
        let under_way = (calls.collect::<FuturesUnordered<_>>(), FuturesUnordered::new());
        let ask = move |(index, one)| async move { (index, self.renew_one(one).await) };
        // Answers come by the call, and go on one by one without another look at the rest.
        let told = stream::unfold(under_way, move |(mut calls, mut asks)| async move {
            loop {
                tokio::select! {
                    Some((told, left)) = calls.next() => {
                        asks.extend(left.into_iter().map(ask));
                        if !told.is_empty() {
                            return Some((told, (calls, asks)));
                        }
                    }
                    Some(one) = asks.next() => return Some((vec![one], (calls, asks))),
                    else => return None,
                }
            }
        });
        told.flat_map(stream::iter)
    }

    /// Renews exclusive holds; those that are none are left.
    async fn renew_holds<'a>(
        &self,
        holds: Vec<HoldRenewal<'a>>,
    ) -> (Vec<IndexedStanding>, Vec<HoldRenewal<'a>>) {
        let (mut told, mut left) = (Vec::with_capacity(holds.len()), Vec::new());
        let alike = holds.chunk_by(|(_, a), (_, b)| a.span == b.span);
        let parts: Vec<_> = alike.flat_map(|alike| alike.chunks(HOLDS_PER_CALL_MAX)).collect();
        let calls: Vec<_> = parts.iter().map(|part| self.call_for(part)).collect();
        let answers = match self.connections.call_each("renew", &calls).await {
            Ok(answers) => answers,
            Err(fault) => {
                return (holds.iter().map(|(at, _)| (*at, Err(fault.clone()))).collect(), left);
            }
        };
        for (part, answer) in parts.into_iter().zip(answers) {
            let answer = answer.map_err(|error| fault("renew", error));
            match answer.and_then(|value| self.fences_of(part, &value)) {
                Err(fault) => told.extend(part.iter().map(|(at, _)| (*at, Err(fault.clone())))),
                Ok(fences) => {
                    for (hold, fence) in part.iter().zip(fences) {
                        match fence {
                            Some(fence) => told.push((hold.0, Ok(Standing::Held { fence }))),
                            None => left.push(*hold),
                        }
                    }
                }
            }
        }
        (told, left)
    }

    fn call_for(&self, part: &[HoldRenewal<'_>]) -> LibraryCall {
        let (mut keys, mut args) = (Words::default(), Words::default());
        args.push(millis(part.first().map(|(_, first)| first.span).unwrap_or_default()));
        for (_, renewal) in part {
            self.namespace.push_main(&mut keys, &renewal.claim.key);
            args.push(Hex(renewal.claim.id));
        }
        LibraryCall { verb: LibraryVerb::Renew, keys, args }
    }

    fn fences_of(
        &self,
        part: &[HoldRenewal<'_>],
        value: &Value,
    ) -> Result<Vec<Option<u64>>, Fault> {
        let Some((_, first)) = part.first() else { return Ok(Vec::new()) };
        self.read(codec::fences(first.claim.id, part.len(), value))
    }

    /// Renews one claim, whether it holds or waits.
    pub(super) async fn renew_one(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        let standing = self.renew_once(renewal).await?;
        let waits = matches!(standing, Standing::Waiting(_));
        // A push that came before the client listened to the channel of the key is asked for.
        if waits && self.listen_to(&renewal.claim.key).await? {
            return self.renew_once(renewal).await;
        }
        Ok(standing)
    }

    async fn renew_once(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        let mut args = Words::default();
        args.push(Hex(renewal.claim.id)).push(&self.client).push(millis(renewal.span));
        args.push(Maybe(renewal.weight)).push(Maybe(renewal.fence_floor)).trim();
        let keys = self.namespace.keys(&renewal.claim.key);
        let call = LibraryCall { verb: LibraryVerb::RenewOne, keys, args };
        let value = self.connections.call("renew", &call).await?;
        let standing = self.read(codec::standing(renewal.claim.id, &value))?;
        self.connections.seen.note_standing(&standing);
        Ok(standing)
    }
}
