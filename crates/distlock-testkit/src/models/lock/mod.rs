//! One lock at one store: leases, renewals, the queue, pushes, and a network that loses, delays and
//! repeats. Without waiting clients it is the model of the lease, with them that of the hand-over.

mod client;
mod net;
mod state;

use super::book::{Flaw, Ticks, Who};
use super::check::World;
use client::{LockClient, LockPhase};
use net::LockStep;
pub(super) use net::name;
pub(super) use state::LockWorld;

/// A mistake that a client could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockMistake {
    /// A lease counts from when its answer came.
    CountFromReply,
    /// A pushed grant counts as if it lasted the full ttl.
    FullTtlOnPush,
    /// A push is believed whatever its ticket.
    AnyTicket,
    /// A pushed grant counts from when the push came.
    CountFromPush,
    /// A pushed grant counts from the last heartbeat sent, answered or not.
    CountFromLastSend,
    /// A release never buries.
    NoBurial,
    /// An answer is taken for that to whatever was asked last.
    AnyAnswer,
    /// Nothing is taken off a lease for clocks that run differently.
    NoMargin,
}

/// What there is and how long it lasts.
#[derive(Clone, Debug)]
pub(super) struct LockModel {
    /// One entry for each client: whether it waits in the queue if it must.
    pub(super) waits: &'static [bool],
    pub(super) ttl: Ticks,
    pub(super) place: Ticks,
    /// What a client takes off every lease.
    pub(super) margin: Ticks,
    /// The store's clock may run ahead by one in so many.
    pub(super) drift: Option<Ticks>,
    /// How many messages can be on their way at once.
    pub(super) room: usize,
    pub(super) flaw: Option<Flaw>,
    pub(super) mistake: Option<LockMistake>,
}

impl LockModel {
    /// How much of a lease is left to rely upon, that long after it was asked for.
    fn left(&self, lease: Ticks, age: Ticks) -> Ticks {
        let age = if self.mistake == Some(LockMistake::CountFromReply) { 0 } else { age };
        let margin = if self.mistake == Some(LockMistake::NoMargin) { 0 } else { self.margin };
        lease.saturating_sub(margin).saturating_sub(age)
    }

    fn is_right(&self) -> bool {
        self.flaw.is_none() && self.mistake.is_none()
    }

    fn client_steps(
        &self,
        who: Who,
        client: &LockClient,
        state: &LockWorld,
        steps: &mut Vec<LockStep>,
    ) {
        match client.phase {
            LockPhase::Idle => steps.push(LockStep::Ask(who)),
            LockPhase::Asking { .. } => {
                steps.extend([LockStep::AskAgain(who), LockStep::GiveUp(who)]);
            }
            LockPhase::Waiting { beat: None, .. } | LockPhase::Holding { call: None, .. } => {
                steps.extend([LockStep::Renew(who), LockStep::GiveUp(who)]);
            }
            LockPhase::Waiting { .. } | LockPhase::Holding { .. } => {
                steps.extend([LockStep::Forget(who), LockStep::GiveUp(who)]);
            }
            LockPhase::Lost => steps.push(LockStep::GiveUp(who)),
            LockPhase::Leaving { .. } if !state.is_leaving(who) => {
                steps.push(LockStep::GiveUpAgain(who));
            }
            LockPhase::Leaving { .. } | LockPhase::Gone => {}
        }
    }
}

impl World for LockModel {
    type State = LockWorld;
    type Step = LockStep;

    fn start(&self) -> LockWorld {
        LockWorld::new(self)
    }

    fn steps(&self, state: &LockWorld, steps: &mut Vec<LockStep>) {
        for (who, client) in (0..).zip(&state.clients) {
            self.client_steps(who, client, state, steps);
        }
        for &message in &state.net {
            steps.push(LockStep::Arrive(message));
            if message.may_repeat() {
                steps.push(LockStep::ArriveTwice(message));
            }
            steps.push(LockStep::Lose(message));
        }
        steps.push(LockStep::Tick);
        if self.drift.is_some_and(|every| state.since_leap >= every) {
            steps.push(LockStep::Leap);
        }
    }

    fn after(&self, last: &LockWorld, step: LockStep) -> Option<LockWorld> {
        let mut state = last.clone();
        match step {
            LockStep::Ask(who) | LockStep::AskAgain(who) => state.ask(who),
            LockStep::Renew(who) => state.renew(who),
            LockStep::Forget(who) => state.forget(who),
            LockStep::GiveUp(who) => state.give_up(who, self),
            LockStep::GiveUpAgain(who) => state.send_release(who, self),
            LockStep::Arrive(message) => {
                state.net.retain(|other| *other != message);
                state.arrive(message, self);
            }
            LockStep::ArriveTwice(message) => state.arrive(message, self),
            LockStep::Lose(message) => state.net.retain(|other| *other != message),
            LockStep::Tick => state.tick(self),
            LockStep::Leap => state.leap(),
        }
        (state.net.len() <= self.room).then(|| {
            state.renumber();
            state
        })
    }

    fn broken(&self, state: &LockWorld) -> Option<&'static str> {
        state.broken.or_else(|| state.breaks(self.is_right()))
    }
}
