//! Renewals of what is held: many holds in a call, each by its main key alone.

use distlock_core::{Fault, Renewal, Standing};
use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use redis::Cmd;

use super::script::RENEW;
use super::{Inner, PushBy, wire};

/// How many holds one script renews. The server does nothing else meanwhile.
const HOLDS_MAX: usize = 17;

type Hold<'a> = (usize, &'a Renewal);
type Told = (usize, Result<Standing, Fault>);

/// True for the renewal of a hold and nothing more.
pub(super) fn is_plain(renewal: &Renewal) -> bool {
    renewal.ticket.is_none() && renewal.weight.is_none() && renewal.fence_floor.is_none()
}

impl Inner {
    /// Renews all of them: first those that hold exclusively, and whoever does not by itself.
    pub(super) fn keep<'a>(&'a self, holds: &[Hold<'a>]) -> impl Stream<Item = Told> + use<'a> {
        // On a cluster each main key lies in a slot of its own.
        let most = if self.push == PushBy::Key { 1 } else { HOLDS_MAX };
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
        match self.fences_of(&holds).await {
            Err(fault) => told.extend(holds.iter().map(|(at, _)| (*at, Err(fault.clone())))),
            Ok(fences) => {
                for (hold, fence) in holds.into_iter().zip(fences) {
                    match fence {
                        Some(fence) => told.push((hold.0, Ok(Standing::Held { fence }))),
                        None => left.push(hold),
                    }
                }
            }
        }
        (told, left)
    }

    async fn fences_of(&self, holds: &[Hold<'_>]) -> Result<Vec<Option<u64>>, Fault> {
        let Some((_, first)) = holds.first() else { return Ok(Vec::new()) };
        let fill = |cmd: &mut Cmd| {
            cmd.arg(holds.len());
            let mut main = String::new();
            for (_, renewal) in holds {
                main.clear();
                self.namespace.write_main(&mut main, &renewal.claim.key);
                cmd.arg(&main);
            }
            for (_, renewal) in holds {
                wire::add_hold(cmd, renewal);
            }
        };
        let value = self.link.eval("renew", &RENEW, &fill).await?;
        self.read(wire::many(first.claim.id, holds.len(), &value))
    }
}
