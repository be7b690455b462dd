//! Stores with a bug in them: a simulation that cannot fail is worthless.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::backends::Memory;
use distlock_core::{
    AcquireMany, Answer, Ask, Backend, ClaimId, Extensions, Fault, ManyAnswer, Pending, Push,
    QueuePosition, ReleaseOptions, Renewal, Standing, Streaming, Target, Ticket,
};
use futures_util::{StreamExt, stream};
use tokio::sync::broadcast;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// No bug either: old pushes come again with their old tickets, and must be ignored.
    PushesThePast,
    /// A claim that is gone is answered `Held`.
    RenewsTheGone,
    /// Now and then a busy key is granted all the same.
    GrantsTwice,
    /// Who waits is told by push that it holds.
    PushesTooEarly,
    /// Several grants have one fence.
    RepeatsFences,
    /// A renewed lease ends long before it should.
    ShortensLeases,
    /// Who waits is never told that it holds.
    TellsNobody,
    /// The clock of the store runs much faster than `drift` allows.
    RunsFast,
    /// The clock of the store stands still, so no lease ever ends.
    StandsStill,
    /// The store is good; clients do not care whether they have lost their locks.
    ClientsIgnoreLoss,
}

impl Bug {
    /// How fast the clock of the store runs.
    pub(crate) fn rate(self) -> f64 {
        match self {
            Self::RunsFast => 1.5,
            Self::StandsStill => 0.0,
            _ => 1.01,
        }
    }
}

/// A client of a store with a bug.
#[derive(Debug)]
pub(crate) struct Planted {
    inner: Memory,
    bug: Bug,
    known: Arc<Mutex<Known>>,
    extra: broadcast::Sender<Push>,
}

/// What the bugs need to remember.
#[derive(Debug, Default)]
struct Known {
    calls: u64,
    largest: u64,
    asked: HashMap<ClaimId, Ask>,
    places: HashMap<ClaimId, Ticket>,
    pushed: Vec<Push>,
}

impl Planted {
    pub(crate) fn new(inner: Memory, bug: Bug) -> Self {
        Self { inner, bug, known: Arc::default(), extra: broadcast::Sender::new(64) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, Fault> {
        let answer = self.inner.acquire(ask).await?;
        let mut known = self.known();
        known.calls += 1;
        known.asked.insert(ask.claim.id, ask.clone());
        match (self.bug, answer) {
            (Bug::GrantsTwice, Answer::Busy(busy)) if known.calls.is_multiple_of(8) => {
                let fence = busy.holder.as_ref().map_or(0, |holder| holder.fence) + 1;
                Ok(Answer::Granted { fence })
            }
            (Bug::RepeatsFences, Answer::Granted { fence }) => {
                Ok(Answer::Granted { fence: fence & !7 })
            }
            (_, answer) => {
                if let Answer::Granted { fence } = answer {
                    known.largest = known.largest.max(fence);
                }
                if let Answer::Busy(busy) = &answer
                    && let Some(ticket) = busy.ticket
                {
                    known.places.insert(ask.claim.id, ticket);
                    known.largest = known.largest.max(ticket);
                    self.hint(&mut known, ask.claim.id, ticket);
                }
                Ok(answer)
            }
        }
    }

    /// Says to one who waits what is not so.
    fn hint(&self, known: &mut Known, id: ClaimId, ticket: Ticket) {
        known.calls += 1;
        let fence = known.largest + 1;
        if self.bug == Bug::PushesTooEarly && known.calls.is_multiple_of(4) {
            let _ = self.extra.send(Push::Granted { id, ticket, fence });
        }
        if self.bug == Bug::PushesThePast {
            for push in &known.pushed {
                let _ = self.extra.send(*push);
            }
            let _ = self.extra.send(Push::Granted { id, ticket: ticket - 1, fence });
            known.pushed.clear();
        }
    }

    async fn stand(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        let id = renewal.claim.id;
        let batch = [renewal.clone()];
        let (_, standing) = self.inner.renew(&batch).next().await.expect("one answer");
        let asked = self.known().asked.get(&id).cloned();
        match (self.bug, standing?, asked) {
            (Bug::RenewsTheGone, Standing::Gone, _) => {
                Ok(Standing::Held { fence: self.known().largest + 1 })
            }
            (Bug::ShortensLeases, standing @ Standing::Held { .. }, Some(ask)) => {
                let target = Target::Claim(renewal.claim.clone());
                self.inner.release(&target, ReleaseOptions::default()).await?;
                let short = Duration::from_millis(20);
                self.inner.acquire(&Ask { ttl: short, wait: None, ..ask }).await?;
                Ok(standing)
            }
            (Bug::TellsNobody, Standing::Held { .. }, _) if renewal.ticket.is_some() => {
                let ticket = self.known().places.get(&id).copied().unwrap_or_default();
                Ok(Standing::Waiting(QueuePosition { ticket, ahead: 0, retry_after: None }))
            }
            (Bug::RepeatsFences, Standing::Held { fence }, _) => {
                Ok(Standing::Held { fence: fence & !7 })
            }
            (_, standing, _) => {
                if let Standing::Waiting(waiting) = &standing {
                    self.hint(&mut self.known(), id, waiting.ticket);
                }
                Ok(standing)
            }
        }
    }
}

impl Backend for Planted {
    distlock_testkit::forward_backend!(inner: capabilities, release, inspect, list, probe);

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(self.ask(ask))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let answers = stream::iter(batch).enumerate();
        let stand = move |(index, renewal)| async move { (index, self.stand(renewal).await) };
        Box::pin(answers.then(stand))
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let extra = stream::unfold(self.extra.subscribe(), |mut extra| async move {
            Some((extra.recv().await.ok()?, extra))
        });
        let (bug, known) = (self.bug, Arc::clone(&self.known));
        let pushes = self.inner.pushes().filter_map(move |push| {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.pushed.push(push);
            let passes = bug != Bug::TellsNobody;
            let push = match push {
                Push::Granted { id, ticket, fence } if bug == Bug::RepeatsFences => {
                    Push::Granted { id, ticket, fence: fence & !7 }
                }
                push => push,
            };
            async move { passes.then_some(push) }
        });
        Box::pin(stream::select(pushes, extra))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { many: Some(self), ..self.inner.extensions() }
    }
}

impl AcquireMany for Planted {
    fn acquire_all<'a>(&'a self, asks: &'a [Ask]) -> Pending<'a, ManyAnswer> {
        Box::pin(async move {
            let many = self.inner.extensions().many.expect("memory takes many keys at once");
            let answer = many.acquire_all(asks).await?;
            let mut known = self.known();
            known.calls += 1;
            for ask in asks {
                known.asked.insert(ask.claim.id, ask.clone());
            }
            Ok(match (self.bug, answer) {
                (Bug::GrantsTwice, ManyAnswer::Refused { .. }) if known.calls.is_multiple_of(8) => {
                    ManyAnswer::Granted { fences: vec![known.largest + 1; asks.len()] }
                }
                (Bug::RepeatsFences, ManyAnswer::Granted { fences }) => {
                    // Fences count microseconds, and these grants are further apart.
                    let fences = fences.into_iter().map(|fence| fence & !0xf_ffff).collect();
                    ManyAnswer::Granted { fences }
                }
                (_, answer) => {
                    if let ManyAnswer::Granted { fences } = &answer {
                        let largest = fences.iter().copied().max().unwrap_or_default();
                        known.largest = known.largest.max(largest);
                    }
                    answer
                }
            })
        })
    }
}
