//! Renewals of what is held: many holds in a call, each by its main key alone.

use distlock_core::{Fault, Renewal, Standing};
use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use redis::{Cmd, Value};

use super::faults::fault;
use super::script::RENEW;
use super::{Inner, PushBy, wire};

/// How many holds one script renews. The server does nothing else meanwhile.
const HOLDS_MAX: usize = 16;

/// How many holds go out in one message, as so many scripts as it takes: the server turns to others
/// between them, and fewer messages wake each side less often.
const MESSAGE_MAX: usize = 64 * HOLDS_MAX;

type Hold<'a> = (usize, &'a Renewal);
type Told = (usize, Result<Standing, Fault>);

/// True for the renewal of a hold and nothing more.
pub(super) fn is_plain(renewal: &Renewal) -> bool {
    renewal.ticket.is_none() && renewal.weight.is_none() && renewal.fence_floor.is_none()
}

impl Inner {
    /// Renews all of them: first those that hold exclusively, and whoever does not by itself.
    pub(super) fn keep<'a>(
        &'a self,
        mut holds: Vec<Hold<'a>>,
    ) -> impl Stream<Item = Told> + use<'a> {
        // On a cluster each main key lies in a slot of its own.
        let most = if self.push == PushBy::Key { 1 } else { MESSAGE_MAX };
        // What one script renews gets the same span.
        holds.sort_by_key(|(_, renewal)| renewal.span);
        let calls = holds.chunks(most).map(|chunk| self.renew_holds(chunk.to_vec()));
        let under_way = (calls.collect::<FuturesUnordered<_>>(), FuturesUnordered::new());
        let ask = move |(index, one)| async move { (index, self.stand(one).await) };
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
    async fn renew_holds<'a>(&self, holds: Vec<Hold<'a>>) -> (Vec<Told>, Vec<Hold<'a>>) {
        let (mut told, mut left) = (Vec::with_capacity(holds.len()), Vec::new());
        let alike = holds.chunk_by(|(_, a), (_, b)| a.span == b.span);
        let parts: Vec<_> = alike.flat_map(|alike| alike.chunks(HOLDS_MAX)).collect();
        let answers = self.renew_parts(&parts).await;
        for (part, answer) in parts.into_iter().zip(answers) {
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

    /// The answer to each part.
    async fn renew_parts(&self, parts: &[&[Hold<'_>]]) -> Vec<Result<Value, Fault>> {
        let fill = |part: &&[Hold<'_>], cmd: &mut Cmd| self.add_part(part, cmd);
        if let [part] = parts {
            return vec![self.link.eval("renew", &RENEW, &|cmd| fill(part, cmd)).await];
        }
        match self.link.eval_each("renew", &RENEW, parts, &fill).await {
            Ok(answers) => answers.into_iter().map(|a| a.map_err(|e| fault("renew", e))).collect(),
            Err(fault) => vec![Err(fault); parts.len()],
        }
    }

    fn add_part(&self, part: &[Hold<'_>], cmd: &mut Cmd) {
        let Some((_, first)) = part.first() else { return };
        cmd.arg(part.len());
        let keys = part.iter().map(|(_, renewal)| &renewal.claim.key);
        self.namespace.for_each_main(keys, |main| {
            cmd.arg(main);
        });
        wire::add_holds(cmd, first.span, part.iter().map(|(_, renewal)| renewal.claim.id));
    }

    fn fences_of(&self, part: &[Hold<'_>], value: &Value) -> Result<Vec<Option<u64>>, Fault> {
        let Some((_, first)) = part.first() else { return Ok(Vec::new()) };
        self.read(wire::fences(first.claim.id, part.len(), value))
    }
}
