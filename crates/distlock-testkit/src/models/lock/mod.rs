//! One lock at one store: leases, renewals, the queue, pushes, and a network that loses, delays and
//! repeats. Without waiting clients it is the model of the lease, with them that of the hand-over.

mod client;
mod net;
mod state;

use super::book::{Flaw, Ticks, Who};
use super::check::World;
use client::{Client, Phase};
use net::Step;
pub(super) use net::name;
pub(super) use state::State;

/// A mistake that a client could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
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
pub(super) struct Lock {
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
    pub(super) mistake: Option<Mistake>,
}

impl Lock {
    /// How much of a lease is left to rely upon, that long after it was asked for.
    fn left(&self, lease: Ticks, age: Ticks) -> Ticks {
        let age = if self.mistake == Some(Mistake::CountFromReply) { 0 } else { age };
        let margin = if self.mistake == Some(Mistake::NoMargin) { 0 } else { self.margin };
        lease.saturating_sub(margin).saturating_sub(age)
    }

    fn is_right(&self) -> bool {
        self.flaw.is_none() && self.mistake.is_none()
    }

    fn client_steps(&self, who: Who, client: &Client, state: &State, steps: &mut Vec<Step>) {
        match client.phase {
            Phase::Idle => steps.push(Step::Ask(who)),
            Phase::Asking { .. } => steps.extend([Step::AskAgain(who), Step::GiveUp(who)]),
            Phase::Waiting { beat: None, .. } | Phase::Holding { call: None, .. } => {
                steps.extend([Step::Renew(who), Step::GiveUp(who)]);
            }
            Phase::Waiting { .. } | Phase::Holding { .. } => {
                steps.extend([Step::Forget(who), Step::GiveUp(who)]);
            }
            Phase::Lost => steps.push(Step::GiveUp(who)),
            Phase::Leaving { .. } if !state.is_leaving(who) => steps.push(Step::GiveUpAgain(who)),
            Phase::Leaving { .. } | Phase::Gone => {}
        }
    }
}

impl World for Lock {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State::new(self)
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (who, client) in (0..).zip(&state.clients) {
            self.client_steps(who, client, state, steps);
        }
        for &message in &state.net {
            steps.push(Step::Arrive(message));
            if message.may_repeat() {
                steps.push(Step::ArriveTwice(message));
            }
            steps.push(Step::Lose(message));
        }
        steps.push(Step::Tick);
        if self.drift.is_some_and(|every| state.since_leap >= every) {
            steps.push(Step::Leap);
        }
    }

    fn after(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Ask(who) | Step::AskAgain(who) => state.ask(who),
            Step::Renew(who) => state.renew(who),
            Step::Forget(who) => state.forget(who),
            Step::GiveUp(who) => state.give_up(who, self),
            Step::GiveUpAgain(who) => state.send_release(who, self),
            Step::Arrive(message) => {
                state.net.retain(|other| *other != message);
                state.arrive(message, self);
            }
            Step::ArriveTwice(message) => state.arrive(message, self),
            Step::Lose(message) => state.net.retain(|other| *other != message),
            Step::Tick => state.tick(self),
            Step::Leap => state.leap(),
        }
        (state.net.len() <= self.room).then(|| {
            state.renumber();
            state
        })
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken.or_else(|| state.breaks(self.is_right()))
    }
}
