//! A granted claim as its guard, its watchers and the keeper share it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use distlock_core::{AcquisitionId, Claim, Clock, Fault, Mode, Moment, NoteEvent};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use tracing::field::Empty;

use super::hold_schedule::HoldRisk;
use super::hold_state::{HoldEnd, HoldState};
use crate::LossReason;
use crate::engine::Grant;
use crate::observe::{Event, NoteSubject, Observer, word};
use crate::options::Settings;
use distlock_core::sync::lock;

/// A granted claim and what became of it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    pub(crate) fence: u64,
    pub(crate) since: Moment,
    pub(crate) replicas: u32,
    pub(crate) waited: Duration,
    pub(crate) attempts: u32,
    pub(crate) settings: Arc<Settings>,
    /// Some acquire of this claim was never answered and may still arrive.
    pub(crate) doubtful: bool,
    /// Made for the first who asks for it: most never do.
    ended: Mutex<Option<CancellationToken>>,
    /// The token of all the holds that this one is taken together with.
    together: OnceLock<CancellationToken>,
    life: Life,
    /// When it must end, renewed or not.
    ends: Option<Moment>,
    pub(crate) mode: Mode,
    acquisition: Option<AcquisitionId>,
    span: Span,
    clock: Arc<dyn Clock>,
    observer: Arc<Observer>,
}

/// What changes with every renewal, side by side in memory: ten thousand holds are renewed at once.
#[derive(Debug)]
struct Life {
    state: HoldState,
    /// The last renewal failed.
    failing: AtomicBool,
}

impl Hold {
    pub(crate) fn new(
        grant: &Grant,
        settings: Arc<Settings>,
        clock: Arc<dyn Clock>,
        observer: Arc<Observer>,
    ) -> Self {
        let since = grant.at;
        let span = tracing::debug_span!(
            "lock.hold",
            key = %grant.claim.key,
            owner = %settings.owner,
            fence = grant.fence,
            outcome = Empty,
        );
        let ends = settings.max_hold.map(|max_hold| since.after(max_hold));
        Self {
            claim: grant.claim.clone(),
            fence: grant.fence,
            since,
            replicas: grant.replicas,
            waited: grant.waited,
            attempts: grant.attempts,
            settings,
            doubtful: grant.doubtful,
            ended: Mutex::default(),
            together: OnceLock::new(),
            life: Life { state: HoldState::new(grant.until), failing: AtomicBool::new(false) },
            ends,
            mode: grant.mode,
            acquisition: grant.acquisition,
            span,
            clock,
            observer,
        }
    }

    /// Valid until when, or ended how. Compares the clock itself, so that a runtime that is late
    /// with its timers never makes anybody believe in a lease that is over.
    pub(crate) fn state(&self) -> Result<Moment, HoldEnd> {
        self.state_at(self.clock.now())
    }

    fn state_at(&self, now: Moment) -> Result<Moment, HoldEnd> {
        let failing = self.life.failing.load(Ordering::Relaxed);
        let reason = if failing { LossReason::Unreachable } else { LossReason::Expired };
        let (state, just_expired) = self.life.state.check(now, reason);
        if just_expired && let Err(end) = state {
            self.announce(end);
        }
        if state.is_ok() && self.ends.is_some_and(|ends| ends <= now) {
            self.end(HoldEnd::Lost(LossReason::MaxHold));
            return self.life.state.read();
        }
        if state.is_ok() && self.settings.is_cancelled() {
            self.end(HoldEnd::Lost(LossReason::Cancelled));
            return self.life.state.read();
        }
        state
    }

    /// A token that is cancelled when the hold ends, however it ends.
    pub(crate) fn ended(&self) -> CancellationToken {
        // Below the caller's token, whose cancellation ends the hold without any task of ours.
        let new = || self.settings.cancel_on.as_ref().map(CancellationToken::child_token);
        let token = lock(&self.ended).get_or_insert_with(|| new().unwrap_or_default()).clone();
        // An end before this point found no token; an end from now on finds this one.
        if self.valid_until().is_err() {
            token.cancel();
        }
        token
    }

    /// Cancels this token, too, when the hold ends.
    pub(crate) fn cancel_at_end(&self, token: &CancellationToken) {
        let _ = self.together.set(token.clone());
        // As above: an end before this found no token.
        if self.valid_until().is_err() {
            token.cancel();
        }
    }

    /// Remembers how the last renewal went: it is the reason if the lease ends.
    pub(crate) fn set_failing(&self, failing: bool) {
        self.life.failing.store(failing, Ordering::Relaxed);
    }

    /// Why it was lost, as far as is known without a look at the clock.
    pub(crate) fn known_loss(&self) -> Option<LossReason> {
        self.valid_until().err().and_then(HoldEnd::loss)
    }

    /// Valid until when as far as was told, without a look at the clock.
    pub(crate) fn valid_until(&self) -> Result<Moment, HoldEnd> {
        self.life.state.read()
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.state().map_or(Duration::ZERO, |until| until.since(self.clock.now()))
    }

    /// A renewal was confirmed, seen at `now`. False if it came too late to count.
    pub(crate) fn extend(&self, until: Moment, now: Moment) -> bool {
        self.life.state.extend(until, now)
    }

    /// Lets go of the hold at the present moment; true if this call did. A hold whose time has
    /// passed was lost before anybody could release it.
    pub(crate) fn release(&self, now: Moment) -> bool {
        self.state_at(now).is_ok() && self.end(HoldEnd::Released)
    }

    /// Ends the hold; true if this call did.
    pub(crate) fn end(&self, end: HoldEnd) -> bool {
        let ended = self.life.state.end(end);
        if ended {
            self.announce(end);
        }
        ended
    }

    /// How much longer the key must stay taken, if it is released now.
    pub(crate) fn keep_until(&self) -> Moment {
        self.since.after(self.settings.hold_at_least)
    }

    /// The span of a release.
    pub(crate) fn release_span(&self) -> Span {
        let (key, owner, fence) = (&self.claim.key, &self.settings.owner, self.fence);
        tracing::debug_span!("lock.release", %key, %owner, fence, outcome = Empty)
    }

    /// A release found nothing to release.
    pub(crate) fn amend_to_lost(&self, reason: LossReason) {
        self.life.state.amend(reason);
        self.announce_loss(reason);
    }

    /// The guard released it at this moment, as far as it knows while it held.
    pub(crate) fn announce_release(&self, at: Moment) {
        let (key, held) = (&self.claim.key, at.since(self.since));
        self.observer.emit(|| Event::Released { key: key.clone(), fence: self.fence, held });
        self.observer.meter.ended(key, "released", held);
        self.note(|| at, || NoteEvent::Released { held: Some(held) });
    }

    pub(crate) fn announce_loss(&self, reason: LossReason) {
        let (key, fence) = (&self.claim.key, self.fence);
        tracing::warn!(%key, fence, %reason, "lock lost");
        self.observer.lost();
        self.observer.meter.lost(key, reason.word());
        if cfg!(feature = "metrics") {
            self.observer.meter.ended(key, "lost", self.clock.now().since(self.since));
        }
        self.observer.emit(|| Event::Lost { key: key.clone(), fence, reason });
        let held = || Some(self.clock.now().since(self.since));
        self.note(
            || self.clock.now(),
            || NoteEvent::Lost { held: held(), why: word(reason.word()) },
        );
    }

    /// A renewal failed; it will be repeated. Every attempt is reported, and the journal notes the
    /// first: it keeps a bounded number of entries.
    pub(super) fn announce_risk(&self, risk: HoldRisk, fault: Fault) {
        let (key, fence, remaining) = (&self.claim.key, self.fence, self.remaining());
        tracing::warn!(%key, fence, ?remaining, %fault, "renewal failed, will be repeated");
        self.observer.emit(|| Event::AtRisk { key: key.clone(), fence, remaining, fault });
        if risk == HoldRisk::First {
            self.note(|| self.clock.now(), || NoteEvent::AtRisk { remaining });
        }
    }

    fn note(&self, at: impl FnOnce() -> Moment, what: impl FnOnce() -> NoteEvent) {
        let (key, settings, fence) = (&self.claim.key, &*self.settings, Some(self.fence));
        let about =
            NoteSubject { key, settings, mode: self.mode, acquisition: self.acquisition, fence };
        self.observer.note(about, at, what);
    }

    fn announce(&self, end: HoldEnd) {
        let token = lock(&self.ended).clone();
        for token in token.iter().chain(self.together.get()) {
            token.cancel();
        }
        self.observer.meter.held(&self.claim.key, -1.0);
        self.span.record("outcome", if end == HoldEnd::Released { "released" } else { "lost" });
        if let HoldEnd::Lost(reason) = end {
            self.announce_loss(reason);
        }
    }
}
