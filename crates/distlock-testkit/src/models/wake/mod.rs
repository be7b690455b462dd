//! Waking up: whoever was granted the lock while it waits is told, or is about to ask.
//!
//! Connections are reliable until they break, so a heartbeat is never what wakes a waiter. Where
//! the channel belongs to the client it is subscribed before the first ask; where it belongs to
//! the key (on a cluster) with the first wait, and whoever has just subscribed asks again.

mod state;
mod step;

use super::book::Who;
use super::check::World;
pub(super) use state::State;
use state::{Duty, Phase};
pub(super) use step::Step;

/// A mistake that a client or a store could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Whoever has subscribed after it asked does not ask again.
    SubscribeLast,
    /// Whoever has a new connection subscribes and does not ask again.
    SleepOnAfterBreak,
    /// Grants that come of something ended are made, and nobody is told.
    PurgeTellsNobody,
    /// A release grants, and nobody is told.
    ReleaseTellsNobody,
}

/// How many there are and how they listen.
#[derive(Clone, Debug)]
pub(super) struct Wake {
    pub(super) clients: Who,
    /// The channel belongs to the key: it is subscribed with the first wait.
    pub(super) late: bool,
    /// How many connections may break.
    pub(super) breaks: u8,
    /// How many clients may crash.
    pub(super) crashes: u8,
    pub(super) mistake: Option<Mistake>,
}

impl Wake {
    fn client_steps(&self, who: Who, state: &State, steps: &mut Vec<Step>) {
        let client = &state.clients[usize::from(who)];
        match client.phase {
            Phase::Crashed => {
                if state.book.knows(who) {
                    steps.push(Step::End(who));
                }
                return;
            }
            _ if !client.connected => {
                steps.push(Step::Reconnect(who));
                return;
            }
            _ => {}
        }
        match (client.phase, client.duty) {
            (_, Duty::Subscribe) => steps.push(Step::Subscribe(who)),
            (Phase::Idle, _) => steps.push(Step::Ask(who)),
            (Phase::Waiting, _) if client.is_idle() => steps.push(Step::Look(who)),
            (Phase::Holding, _) => steps.push(Step::Release(who)),
            _ => {}
        }
        if !client.up.is_empty() {
            steps.push(Step::Serve(who));
        }
        if !client.down.is_empty() {
            steps.push(Step::Read(who));
        }
        if state.breaks < self.breaks {
            steps.push(Step::Break(who));
        }
        if state.crashes < self.crashes && client.phase != Phase::Idle {
            steps.push(Step::Crash(who));
        }
    }
}

impl World for Wake {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State::new(self)
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        (0..self.clients).for_each(|who| self.client_steps(who, state, steps));
    }

    fn after(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Ask(who) => state.ask(who),
            Step::Subscribe(who) => state.subscribe(who),
            Step::Look(who) => state.look(who),
            Step::Release(who) => state.release(who),
            Step::Serve(who) => state.serve(who, self),
            Step::Read(who) => state.read(who, self),
            Step::Break(who) => state.break_off(who),
            Step::Reconnect(who) => state.reconnect(who),
            Step::Crash(who) => state.crash(who),
            Step::End(who) => state.book.end(who),
        }
        state.renumber();
        Some(state)
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken()
    }
}
