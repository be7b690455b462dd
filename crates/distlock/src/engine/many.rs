//! Several keys in one call, where the store can.

use std::sync::Arc;

use distlock_core::{AcquireMany, Answer, Ask, FaultKind, ManyAnswer, Moment};

use super::Grant;
use super::acquire::MIN_LEFT;
use super::armed::Armed;
use super::renew::located;
use super::request::{AcquireRequest, WaitLimit};
use crate::Error;
use crate::keeper::{Keeper, needs_runtime};
use crate::observe::Acquisition;

/// What one call for several keys came to.
#[derive(Debug)]
pub(crate) enum Many {
    /// All of them, in the sequence of the requests.
    Granted(Vec<Grant>),
    /// Nothing was taken. The request of this index was refused first.
    Blocked(usize),
    /// The store cannot take several keys at once, or did not answer: one by one, then.
    OneByOne,
}

/// Tries once to acquire all, in one call. Requests are one-shot here, whatever their limit says:
/// it only decides whether a refusal is an error.
///
/// Dropping the future at any point gives all claims up.
pub(crate) async fn acquire_many(
    keeper: &Arc<Keeper>,
    requests: &[AcquireRequest],
) -> Result<Many, Error> {
    if keeper.is_closed() {
        return Err(Error::Closed);
    }
    let Some(many) = keeper.backend.extensions().many else { return Ok(Many::OneByOne) };
    if requests.iter().any(|request| request.settings.replicas > 0) {
        // Each grant has to be confirmed by replicas.
        return Ok(Many::OneByOne);
    }
    for request in requests {
        request.ask.check()?;
        if let Some(what) = keeper.backend.capabilities().missing_for(&request.ask) {
            return Err(Error::Unsupported { what });
        }
    }
    needs_runtime()?;
    Call { keeper, requests, sent_at: keeper.start()? }.send(many).await
}

/// One call for several keys.
struct Call<'a> {
    keeper: &'a Arc<Keeper>,
    requests: &'a [AcquireRequest],
    sent_at: Moment,
}

impl Call<'_> {
    async fn send(&self, many: &dyn AcquireMany) -> Result<Many, Error> {
        let asks: Vec<Ask> = self.requests.iter().map(|request| request.ask.clone()).collect();
        let arm = |ask: &Ask| {
            let mut armed = Armed::new(self.keeper, ask.claim.clone(), ask.attempt, ask.ttl);
            armed.ask();
            armed
        };
        let mut armed: Vec<_> = asks.iter().map(arm).collect();
        let answer = tokio::select! {
            biased;
            answer = many.acquire_all(&asks) => answer,
            () = self.keeper.until_closed() => return Err(Error::Closed),
        };
        match answer {
            Ok(ManyAnswer::Granted { fences }) if fences.len() == asks.len() => {
                self.granted(armed, &fences)
            }
            Ok(ManyAnswer::Granted { .. }) => {
                Err(Error::Unsupported { what: "this answer of the backend" })
            }
            Ok(ManyAnswer::Refused { at, answer }) => {
                // Nothing was taken.
                armed.iter_mut().for_each(|armed| armed.answered(&Ok(answer.clone())));
                self.refused(at, answer)
            }
            Err(fault) => {
                let fault = Err(fault);
                armed.iter_mut().for_each(|armed| armed.answered(&fault));
                match fault {
                    Err(fault) if self.is_one_shot() && fault.kind() != FaultKind::Unsupported => {
                        let key = &asks[0].claim.key;
                        let fault = located(&*self.keeper.backend, key, fault);
                        Err(Error::from_fault_at(key, fault))
                    }
                    // The waiting loop knows how to ride out a fault.
                    _ => Ok(Many::OneByOne),
                }
            }
        }
    }

    fn granted(&self, armed: Vec<Armed>, fences: &[u64]) -> Result<Many, Error> {
        let at = self.keeper.clock.now();
        let until = |request: &AcquireRequest| {
            request.settings.validity.until(self.sent_at, request.settings.ttl)
        };
        if self.keeper.is_closed() {
            return Err(Error::Closed);
        }
        if self.requests.iter().any(|request| until(request) <= at.after(MIN_LEFT)) {
            // Dropping what is armed gives the claims up.
            return Ok(Many::OneByOne);
        }
        let grants =
            self.requests.iter().zip(armed).zip(fences).map(|((request, armed), fence)| {
                let settings = &request.settings;
                let seen = Acquisition::new(self.keeper, &request.ask, settings, self.sent_at);
                let grant = Grant {
                    claim: request.ask.claim.clone(),
                    attempt: request.ask.attempt,
                    fence: *fence,
                    at,
                    until: until(request),
                    renew_at: self.sent_at.after(settings.renew_every),
                    ticket: None,
                    replicas: 0,
                    waited: at.since(self.sent_at),
                    attempts: 1,
                    doubtful: false,
                    mode: seen.mode,
                    acquisition: seen.acquisition,
                };
                armed.disarm();
                let granted = Ok(grant);
                seen.ended(&granted);
                granted
            });
        Ok(Many::Granted(grants.collect::<Result<_, Error>>()?))
    }

    fn refused(&self, at: usize, answer: Answer) -> Result<Many, Error> {
        let Some(request) = self.requests.get(at).filter(|_| self.is_one_shot()) else {
            return Ok(Many::Blocked(at.min(self.requests.len().saturating_sub(1))));
        };
        let key = request.ask.claim.key.clone();
        let seen = Acquisition::new(self.keeper, &request.ask, &request.settings, self.sent_at);
        let error = match answer {
            Answer::Busy(busy) => {
                let holder = busy.holder.map(Box::new);
                Error::Held { key, retry_after: busy.retry_after, holder, ahead: busy.ahead }
            }
            Answer::Conflict => Error::Conflict { key },
            // The usual path says what it is.
            _ => return Ok(Many::OneByOne),
        };
        let refused = Err(error);
        seen.ended(&refused);
        refused.map(|_| Many::OneByOne)
    }

    fn is_one_shot(&self) -> bool {
        self.requests.iter().any(|request| request.limit == WaitLimit::Once)
    }
}
