//! The one waiting loop.
//!
//! Ask once. Granted: done. Busy: wait for one's turn in the store's queue, or pause and ask again
//! where there is none. A fault is not contention: it is retried while the caller has patience,
//! under the same claim, so that a lost reply costs nothing but time. There is one exit for every
//! end, and one clean-up, [`Armed`], for every exit.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Busy, ClaimId, Confirmed, Fault, How, Key, Moment, NoQuorum, Renewal, Ticket,
    Waiting as Standing,
};
use tracing::Instrument;

use super::Grant;
use super::armed::Armed;
use super::pacing::{Pacing, fault_pause, random};
use super::renew::release;
use super::request::{Limit, Request};
use crate::keeper::{Keeper, LastFault, RELEASE_MAX, Verdict};
use crate::observe::{Acquisition, Event};
use crate::options::{Settings, Waiting};
use crate::sync::lock;
use crate::{Error, Reason};

/// After so many grants that were over before their answer came, the ttl is too short to go on.
const STILLBORN_MAX: u32 = 3;

/// A pushed grant with less time left than this is extended before it is handed out.
const MIN_USEFUL: Duration = Duration::from_millis(5);

/// A grant with less time left than this is over before anybody can use it.
const MIN_LEFT: Duration = Duration::from_millis(1);

/// Acquires, waiting as long as the request allows.
///
/// Dropping the future at any point gives the claim up.
pub(crate) async fn acquire(keeper: &Arc<Keeper>, request: Request) -> Result<Grant, Error> {
    if keeper.is_closed() {
        return Err(Error::Closed);
    }
    request.ask.check()?;
    if let Some(what) = keeper.backend.capabilities().missing_for(&request.ask) {
        return Err(Error::Unsupported { what });
    }
    if request.settings.replicas > 0 && !keeper.backend.capabilities().durability {
        return Err(Error::Unsupported { what: "durability" });
    }
    // Deadlines and renewals need a runtime; without one nothing is sent.
    let started = keeper.start()?;
    let (limit, key) = (request.limit, request.ask.claim.key.clone());
    let last_fault = LastFault::default();
    let seen = Acquisition::new(keeper, &request.ask, &request.settings, started);
    let mut attempts = Attempts::new(keeper, request, &seen, started, Arc::clone(&last_fault));
    let result = {
        // In one place from the start: it is large, and every move would copy it.
        let mut running = pin!(attempts.run().instrument(seen.span.clone()));
        match limit {
            Limit::Once | Limit::Forever => running.await,
            Limit::For(max_wait) => tokio::select! {
                biased;
                result = &mut running => result,
                () = tokio::time::sleep(max_wait) => {
                    let waited = keeper.clock.now().since(started).max(max_wait);
                    Err(Error::Timeout { key, waited, source: lock(&last_fault).take() })
                }
            },
        }
    };
    let result = match result {
        Ok(granted) => attempts.granted(granted),
        Err(error) => Err(attempts.failed(error)),
    };
    seen.ended(&result);
    result
}

/// A grant that is good enough to be handed out.
#[derive(Clone, Copy)]
struct Granted {
    fence: u64,
    at: Moment,
    until: Moment,
    renew_at: Moment,
    ticket: Option<Ticket>,
    replicas: u32,
}

/// One acquisition: its claim, and what happened to it so far.
struct Attempts<'a> {
    keeper: &'a Arc<Keeper>,
    seen: &'a Acquisition<'a>,
    ask: Ask,
    limit: Limit,
    settings: Arc<Settings>,
    fixed_id: bool,
    full_ttl: bool,
    keep_place_after: Option<Duration>,
    /// The call is over and its place is not.
    place_kept: bool,
    armed: Armed,
    started: Moment,
    last_fault: LastFault,
    attempts: u32,
    retries: u32,
    faults: u32,
    faulty_since: Option<Moment>,
    stillborn: u32,
}

impl<'a> Attempts<'a> {
    fn new(
        keeper: &'a Arc<Keeper>,
        request: Request,
        seen: &'a Acquisition<'a>,
        started: Moment,
        last_fault: LastFault,
    ) -> Self {
        let Request { mut ask, limit, settings, fixed_id, full_ttl, keep_place_after } = request;
        let queues = matches!(settings.waiting, Waiting::Queue)
            && keeper.backend.capabilities().queue
            && limit != Limit::Once;
        ask.wait = queues.then_some(settings.wait);
        let armed = Armed::new(keeper, ask.claim.clone(), ask.ttl, fixed_id);
        Self {
            keeper,
            seen,
            ask,
            limit,
            settings,
            fixed_id,
            full_ttl,
            keep_place_after,
            place_kept: false,
            armed,
            started,
            last_fault,
            attempts: 0,
            retries: 0,
            faults: 0,
            faulty_since: None,
            stillborn: 0,
        }
    }

    async fn run(&mut self) -> Result<Granted, Error> {
        loop {
            if let Some(granted) = self.attempt().await?
                && let Some(granted) = self.confirm(granted).await?
            {
                return Ok(granted);
            }
        }
    }

    /// Asks once, and waits if that is the answer. None means: ask again.
    async fn attempt(&mut self) -> Result<Option<Granted>, Error> {
        self.attempts += 1;
        // The first goes out at once: a lease that counts from a little earlier ends no later.
        let sent_at = if self.attempts == 1 { self.started } else { self.keeper.clock.now() };
        self.armed.ask();
        let answer = tokio::select! {
            biased;
            answer = self.keeper.backend.acquire(&self.ask) => answer,
            () = self.keeper.until_closed() => return Err(Error::Closed),
        };
        self.armed.answered(&answer);
        let answer = match answer {
            Ok(Answer::Outvoted(why)) => self.let_go().await.map(|()| Ok(*why))?,
            _ => answer,
        };
        if !matches!(answer, Err(_) | Ok(Answer::Quarantined(_))) {
            self.faulty_since = None;
        }
        match answer {
            Ok(Answer::Granted { fence }) => {
                let until = self.settings.validity.until(sent_at, self.settings.ttl);
                let renew_at = sent_at.after(self.settings.renew_every);
                let at = self.keeper.clock.now();
                if until > at.after(MIN_LEFT) {
                    let ticket = None;
                    return Ok(Some(Granted { fence, at, until, renew_at, ticket, replicas: 0 }));
                }
                self.came_to_nothing(Error::Lost { key: self.key(), reason: Reason::TooSlow })?;
            }
            Ok(Answer::Busy(busy)) => return self.busy(busy, sent_at).await,
            Ok(Answer::Quarantined(pause)) => {
                let why = "the store abstains after it lost its memory";
                self.fault(Fault::transient("acquire", why), Some(pause)).await?;
            }
            Ok(Answer::Dead) => self.came_to_nothing(Error::NotHeld { key: self.key() })?,
            Ok(Answer::Conflict) => return Err(Error::Conflict { key: self.key() }),
            Ok(Answer::Full) => return Err(Error::TooManyWaiters { key: self.key() }),
            Ok(_) => return Err(Error::Unsupported { what: "this answer of the backend" }),
            Err(fault) => self.fault(fault, None).await?,
        }
        Ok(None)
    }

    /// Waits until enough replicas have the grant, if that is asked for. None means: ask again.
    async fn confirm(&mut self, granted: Granted) -> Result<Option<Granted>, Error> {
        let wanted = self.settings.replicas;
        if wanted == 0 {
            return Ok(Some(granted));
        }
        let sent_at = self.keeper.clock.now();
        let renewal = Renewal::hold(self.ask.claim.clone(), self.ask.ttl);
        match self.keeper.backend.confirm(&renewal, wanted).await {
            Ok(Confirmed::By(replicas)) if replicas >= wanted => {
                let until = self.settings.validity.until(sent_at, self.settings.ttl);
                let renew_at = sent_at.after(self.settings.renew_every);
                let at = self.keeper.clock.now();
                Ok(Some(Granted { at, until, renew_at, replicas, ..granted }))
            }
            Ok(Confirmed::By(confirmed)) => {
                Err(Error::NotReplicated { key: self.key(), confirmed, wanted })
            }
            Ok(_) => {
                self.start_over()?;
                Ok(None)
            }
            Err(fault) => {
                self.fault(fault, None).await?;
                Ok(None)
            }
        }
    }

    /// The claim holds: it leaves with the grant.
    fn granted(self, granted: Granted) -> Result<Grant, Error> {
        if self.keeper.is_closed() {
            return Err(Error::Closed);
        }
        let grant = Grant {
            claim: self.ask.claim,
            fence: granted.fence,
            at: granted.at,
            until: granted.until,
            renew_at: granted.renew_at,
            ticket: granted.ticket,
            replicas: granted.replicas,
            waited: granted.at.since(self.started),
            attempts: self.attempts,
            doubtful: self.armed.is_doubtful(),
            mode: self.seen.mode,
            visit: self.seen.visit,
        };
        self.armed.disarm();
        Ok(grant)
    }

    /// Gives up for good. A caller who knows the id can ask again under it, or release it.
    fn failed(self, error: Error) -> Error {
        let in_doubt = matches!(error, Error::Backend(_) | Error::NoQuorum { .. });
        if self.place_kept || self.fixed_id && in_doubt {
            self.armed.disarm();
        }
        if self.place_kept {
            self.keeper.stop_waiting(&self.ask.claim);
        }
        error
    }

    /// A grant to a waiter is good for what was left of its place. It is extended to the full ttl
    /// a little later, so that holds shorter than that never pay for it.
    fn soon_after_a_push(&self, at: Moment, until: Moment) -> Moment {
        at.after((self.settings.wait.place / 4).min(until.since(at) / 2))
    }

    /// An answer that is of no use: a grant that is over already, or a claim id that is dead. Tries
    /// again a few times, unless the call is one-shot or the dead id is the caller's.
    fn came_to_nothing(&mut self, error: Error) -> Result<(), Error> {
        self.stillborn += 1;
        let hopeless = self.fixed_id && matches!(error, Error::NotHeld { .. });
        if hopeless || self.limit == Limit::Once || self.stillborn >= STILLBORN_MAX {
            return Err(error);
        }
        self.start_over()
    }

    /// Some nodes of the store granted it and too many did not. Before anybody asks again they are
    /// let go: a crowd that has split the votes would never come to an end.
    async fn let_go(&mut self) -> Result<(), Error> {
        if self.limit == Limit::Once {
            return Ok(()); // The clean-up does it.
        }
        if self.fixed_id && self.keeper.is_only_call(&self.ask.claim) {
            // Whatever is left is released again at the end.
            let (backend, claim) = (&*self.keeper.backend, self.ask.claim.clone());
            let _ = release(backend, claim, How::default(), RELEASE_MAX).await;
        }
        self.start_over()
    }

    /// Goes on with a new claim, at the end of the queue if there is one.
    fn start_over(&mut self) -> Result<(), Error> {
        // An id of the caller's is not given up between two attempts: the release would overtake
        // the second. Asking again under it refreshes whatever is there.
        if !self.fixed_id {
            self.ask.claim.id = ClaimId::random().map_err(Error::from_fault)?;
            self.armed.replace(self.ask.claim.clone());
        }
        Ok(())
    }

    /// Held by others. Waits for a turn in the queue and says what came of it; without a queue,
    /// pauses.
    async fn busy(&mut self, busy: Busy, sent_at: Moment) -> Result<Option<Granted>, Error> {
        if self.limit == Limit::Once {
            let Busy { retry_after, holder, ahead, .. } = busy;
            let holder = holder.map(Box::new);
            return Err(Error::Held { key: self.key(), retry_after, holder, ahead });
        }
        self.seen.queued(busy.ticket, busy.ahead);
        let Some(ticket) = busy.ticket else {
            self.pause(busy.retry_after).await?;
            return Ok(None);
        };
        let Busy { ahead, retry_after, .. } = busy;
        self.wait_for_turn(Standing { ticket, ahead, retry_after }, sent_at).await
    }

    async fn wait_for_turn(
        &mut self,
        standing: Standing,
        sent_at: Moment,
    ) -> Result<Option<Granted>, Error> {
        // A call with a deadline rides out any silence until then.
        let patience = match self.limit {
            Limit::Forever => self.settings.patience,
            Limit::Once | Limit::For(_) => Duration::MAX,
        };
        let (claim, last_fault) = (self.ask.claim.clone(), Arc::clone(&self.last_fault));
        let verdict =
            self.keeper.wait(claim, standing, sent_at, &self.settings, last_fault, patience)?;
        let verdict = tokio::select! {
            biased;
            verdict = verdict => verdict.unwrap_or(Verdict::Closed),
            () = self.place_is_enough() => {
                self.place_kept = true;
                let waited = self.keeper.clock.now().since(self.started);
                return Err(Error::Timeout { key: self.key(), waited, source: None });
            }
        };
        self.seen.heard(&verdict);
        let at = self.keeper.clock.now();
        match verdict {
            // With little time left, or if nobody is going to renew it, asking again under the same
            // claim extends the grant to the full ttl.
            Verdict::Granted { until, .. } if self.full_ttl || until <= at.after(MIN_USEFUL) => {
                Ok(None)
            }
            Verdict::Granted { fence, until, .. } => {
                let (renew_at, ticket) = (self.soon_after_a_push(at, until), Some(standing.ticket));
                Ok(Some(Granted { fence, at, until, renew_at, ticket, replicas: 0 }))
            }
            Verdict::Gone => {
                let key = self.key();
                tracing::warn!(%key, "place in the queue lost, queueing again");
                self.keeper.observer.place_lost();
                self.keeper.observer.emit(|| Event::PlaceLost { key });
                self.start_over()?;
                Ok(None)
            }
            Verdict::Failed(fault) => Err(Error::from_fault(fault)),
            Verdict::Closed => Err(Error::Closed),
        }
    }

    /// Ends when a call that keeps its place has waited long enough.
    async fn place_is_enough(&self) {
        match self.keep_place_after {
            Some(max_wait) => {
                let waited = self.keeper.clock.now().since(self.started);
                tokio::time::sleep(max_wait.saturating_sub(waited)).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Pauses before the next attempt, no longer than until the holder's lease can end.
    async fn pause(&mut self, retry_after: Option<Duration>) -> Result<(), Error> {
        self.retries += 1;
        let random = random(self.ask.claim.id, self.retries);
        let pause = match &self.settings.waiting {
            Waiting::Poll(pacing) => pacing.next(self.retries, random),
            Waiting::Queue => Pacing::default().next(self.retries, random),
        };
        let Some(pause) = pause else {
            return Err(Error::RetriesExhausted { key: self.key(), attempts: self.attempts });
        };
        let lease_ends = retry_after.unwrap_or(Duration::MAX).max(Duration::from_millis(1));
        self.sleep(pause.min(lease_ends)).await
    }

    /// Nobody can tell what happened. Tries again if that can help and there is time for it.
    async fn fault(&mut self, fault: Fault, pause: Option<Duration>) -> Result<(), Error> {
        let now = self.keeper.clock.now();
        let since = *self.faulty_since.get_or_insert(now);
        *lock(&self.last_fault) = Some(fault.clone());
        let impatient = match self.limit {
            Limit::Once => true,
            Limit::For(_) => false,
            Limit::Forever => now.since(since) >= self.settings.patience,
        };
        if impatient || !fault.is_transient() {
            return Err(Error::from_fault_at(&self.ask.claim.key, fault));
        }
        self.faults = self.faults.saturating_add(1);
        self.retries = self.retries.saturating_add(1);
        if let Waiting::Poll(pacing) = &self.settings.waiting
            && pacing.next(self.retries, 0.0).is_none()
        {
            return Err(Error::from_fault_at(&self.ask.claim.key, fault));
        }
        if NoQuorum::of(&fault).is_some() {
            self.let_go().await?;
        }
        let random = random(self.ask.claim.id, self.faults);
        self.sleep(pause.unwrap_or(fault_pause(self.faults, random))).await
    }

    /// Sleeps unless the locks are closed meanwhile.
    async fn sleep(&self, pause: Duration) -> Result<(), Error> {
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.keeper.until_closed() => Err(Error::Closed),
        }
    }

    fn key(&self) -> Key {
        self.ask.claim.key.clone()
    }
}
