//! The one waiting loop.
//!
//! Ask once. Granted: done. Busy: wait for one's turn in the store's queue, or pause and ask again
//! where there is none. A fault is not contention: it is retried while the caller has patience,
//! under the same claim, so that a lost reply costs nothing but time. There is one exit for every
//! end, and one clean-up, [`Armed`], for every exit.

mod waiting;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, AttemptId, CAPACITY_MAX, ClaimId, Confirmed, Fault, Key, Moment, NoQuorum,
    ReleaseOptions, Renewal, Target, Ticket,
};
use tracing::Instrument;

use super::Grant;
use super::armed::Armed;
use super::backoff::{fault_pause, random};
use super::renew::{located, release};
use super::request::{AcquireRequest, WaitLimit};
use crate::keeper::{Keeper, LastFault, RELEASE_MAX, needs_runtime};
use crate::observe::Acquisition;
use crate::options::{Settings, WaitMode};
use crate::{Error, LossReason};
use distlock_core::sync::lock;

/// After so many grants that were over before their answer came, the ttl is too short to go on.
const STILLBORN_MAX: u32 = 3;

/// How long a wait that ran out goes on for the release of its place.
const CLEANUP_MAX: Duration = Duration::from_millis(100);

/// A grant with less time left than this is over before anybody can use it.
pub(super) const MIN_LEFT: Duration = Duration::from_millis(1);

/// Acquires, waiting as long as the request allows.
///
/// Dropping the future at any point gives the claim up.
pub(crate) async fn acquire(keeper: &Arc<Keeper>, request: AcquireRequest) -> Result<Grant, Error> {
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
    // Without a runtime nothing is sent.
    needs_runtime()?;
    let started = keeper.start()?;
    let (limit, key) = (request.limit, request.ask.claim.key.clone());
    let settings = Arc::clone(&request.settings);
    let last_fault = LastFault::default();
    let seen = Acquisition::new(keeper, &request.ask, &request.settings, started);
    let mut attempts = AcquireState::new(keeper, request, &seen, started, Arc::clone(&last_fault));
    let result = {
        // In one place from the start: it is large, and every move would copy it.
        let mut running = pin!(attempts.run().instrument(seen.span.clone()));
        let max_wait = match limit {
            WaitLimit::Once | WaitLimit::Forever => None,
            WaitLimit::For(max_wait) => Some(max_wait),
        };
        tokio::select! {
            biased;
            () = settings.until_cancelled() => Err(Error::Cancelled { key }),
            result = &mut running => result,
            () = pass(max_wait) => {
                let waited = keeper.clock.now().since(started).max(max_wait.unwrap_or_default());
                Err(Error::Timeout { key, waited, source: lock(&last_fault).take() })
            }
        }
    };
    let result = match result {
        Ok(granted) => attempts.granted(granted),
        Err(error) => Err(attempts.failed(error).await),
    };
    seen.ended(&result);
    result
}

/// Ends when so much time has passed; without a limit, never.
async fn pass(max_wait: Option<Duration>) {
    match max_wait {
        Some(max_wait) => tokio::time::sleep(max_wait).await,
        None => std::future::pending().await,
    }
}

/// A grant that is good enough to be handed out.
#[derive(Clone, Copy)]
struct UsableGrant {
    fence: u64,
    at: Moment,
    until: Moment,
    renew_at: Moment,
    ticket: Option<Ticket>,
    replicas: u32,
}

/// One acquisition: its claim, and what happened to it so far.
struct AcquireState<'a> {
    keeper: &'a Arc<Keeper>,
    seen: &'a Acquisition<'a>,
    ask: Ask,
    limit: WaitLimit,
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

impl<'a> AcquireState<'a> {
    fn new(
        keeper: &'a Arc<Keeper>,
        request: AcquireRequest,
        seen: &'a Acquisition<'a>,
        started: Moment,
        last_fault: LastFault,
    ) -> Self {
        let AcquireRequest { mut ask, limit, settings, fixed_id, full_ttl, keep_place_after } =
            request;
        // A writer takes a place even if it polls: readers must not overtake it because of how it
        // waits. Its attempts keep the place alive.
        let is_writer = ask.is_exclusive() && ask.capacity == CAPACITY_MAX;
        let queues = (matches!(settings.wait_mode, WaitMode::Queue) || is_writer)
            && keeper.backend.capabilities().queue
            && limit != WaitLimit::Once;
        ask.wait = queues.then_some(settings.wait);
        let armed = Armed::new(keeper, ask.claim.clone(), ask.attempt, ask.ttl);
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

    async fn run(&mut self) -> Result<UsableGrant, Error> {
        loop {
            if let Some(granted) = self.attempt().await?
                && let Some(granted) = self.confirm(granted).await?
            {
                return Ok(granted);
            }
        }
    }

    /// Asks once, and waits if that is the answer. None means: ask again.
    async fn attempt(&mut self) -> Result<Option<UsableGrant>, Error> {
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
                    return Ok(Some(UsableGrant {
                        fence,
                        at,
                        until,
                        renew_at,
                        ticket,
                        replicas: 0,
                    }));
                }
                self.came_to_nothing(Error::Lost { key: self.key(), reason: LossReason::TooSlow })?;
            }
            Ok(Answer::Busy(busy)) => return self.busy(busy, sent_at).await,
            Ok(Answer::Quarantined(pause)) => {
                let why = "the store abstains after it lost its memory";
                self.fault(Fault::transient("acquire", why), Some(pause)).await?;
            }
            Ok(Answer::Dead) => self.came_to_nothing(Error::NotHeld { key: self.key() })?,
            Ok(Answer::Conflict) => return Err(Error::Conflict { key: self.key() }),
            Ok(Answer::Spent) => {
                let why = "the store has used up its fences: they end at 2^53 - 1";
                let fault = Fault::permanent("acquire", why);
                return Err(Error::Backend(self.located(fault)));
            }
            Ok(Answer::Full) => return Err(Error::TooManyWaiters { key: self.key() }),
            Ok(_) => return Err(Error::Unsupported { what: "this answer of the backend" }),
            Err(fault) => self.fault(fault, None).await?,
        }
        Ok(None)
    }

    /// Waits until enough replicas have the grant, if that is asked for. None means: ask again.
    async fn confirm(&mut self, granted: UsableGrant) -> Result<Option<UsableGrant>, Error> {
        let wanted = self.settings.replicas;
        if wanted == 0 {
            return Ok(Some(granted));
        }
        let sent_at = self.keeper.clock.now();
        let renewal = Renewal::hold(self.ask.claim.clone(), self.ask.ttl);
        match self.keeper.backend.extensions().confirm(&renewal, wanted).await {
            Ok(Confirmed::By(replicas)) if replicas >= wanted => {
                let until = self.settings.validity.until(sent_at, self.settings.ttl);
                let renew_at = sent_at.after(self.settings.renew_every);
                let at = self.keeper.clock.now();
                Ok(Some(UsableGrant { at, until, renew_at, replicas, ..granted }))
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
    fn granted(self, granted: UsableGrant) -> Result<Grant, Error> {
        if self.keeper.is_closed() {
            return Err(Error::Closed);
        }
        let grant = Grant {
            claim: self.ask.claim,
            attempt: self.ask.attempt,
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
            acquisition: self.seen.acquisition,
        };
        self.armed.disarm();
        Ok(grant)
    }

    /// Gives up for good. A caller who knows the id can ask again under it, or release it.
    ///
    /// A wait that ran out has given up its place when it returns, unless the store is slow to say
    /// so: the next attempt of another caller must not be refused because of it.
    async fn failed(mut self, error: Error) -> Error {
        let ran_out = matches!(error, Error::Timeout { .. } | Error::RetriesExhausted { .. });
        if ran_out && !self.place_kept {
            self.armed.give_up();
            self.keeper.until_left(&self.armed.leaving(), CLEANUP_MAX).await;
            return error;
        }
        let in_doubt = matches!(error, Error::Backend(_) | Error::NoQuorum { .. });
        if self.place_kept || self.fixed_id && in_doubt {
            self.armed.disarm();
        }
        if self.place_kept {
            self.keeper.stop_waiting(&self.ask.claim);
        }
        error
    }

    /// An answer that is of no use: a grant that is over already, or a claim id that is dead. Tries
    /// again a few times, unless the call is one-shot or the dead id is the caller's.
    fn came_to_nothing(&mut self, error: Error) -> Result<(), Error> {
        self.stillborn += 1;
        let hopeless = self.fixed_id && matches!(error, Error::NotHeld { .. });
        if hopeless || self.limit == WaitLimit::Once || self.stillborn >= STILLBORN_MAX {
            return Err(error);
        }
        self.start_over()
    }

    /// Some nodes of the store granted it and too many did not. Before anybody asks again they are
    /// released: a crowd that has split the votes would never come to an end.
    async fn let_go(&mut self) -> Result<(), Error> {
        if self.limit == WaitLimit::Once {
            return Ok(()); // The clean-up does it.
        }
        if let Some(attempt) = self.ask.attempt {
            let target = Target::Attempt { claim: self.ask.claim.clone(), attempt };
            let released =
                release(&*self.keeper.backend, &target, ReleaseOptions::default(), RELEASE_MAX)
                    .await;
            // Another attempt, so that a release which is still on its way cannot meet the next
            // ask.
            let next = AttemptId::random().map_err(Error::from_fault)?;
            self.ask.attempt = Some(next);
            self.armed.attempt_again(next, released.is_ok());
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

    fn located(&self, fault: Fault) -> Fault {
        located(&*self.keeper.backend, &self.ask.claim.key, fault)
    }

    /// It is unknown what happened. Tries again if that can help and there is time for it.
    async fn fault(&mut self, fault: Fault, pause: Option<Duration>) -> Result<(), Error> {
        let fault = self.located(fault);
        let now = self.keeper.clock.now();
        let since = *self.faulty_since.get_or_insert(now);
        *lock(&self.last_fault) = Some(fault.clone());
        let impatient = match self.limit {
            WaitLimit::Once => true,
            WaitLimit::For(_) => false,
            WaitLimit::Forever => now.since(since) >= self.settings.patience,
        };
        if impatient || !fault.is_transient() {
            return Err(Error::from_fault_at(&self.ask.claim.key, fault));
        }
        self.faults = self.faults.saturating_add(1);
        self.retries = self.retries.saturating_add(1);
        if let WaitMode::Poll(backoff) = &self.settings.wait_mode
            && backoff.next(self.retries, 0.0).is_none()
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
