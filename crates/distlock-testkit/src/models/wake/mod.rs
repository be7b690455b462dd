//! Waking up: the client that was granted the lock while it waits is told, or is about to ask.
//!
//! Connections are reliable until they break, so a heartbeat is never what wakes a waiter. Where
//! the channel belongs to the client it is subscribed before the first ask; where it belongs to
//! the key (on a cluster) with the first wait, and the client that has just subscribed asks again.

mod state;
mod step;

use super::book::Who;
use super::check::World;
pub(super) use state::WakeWorld;
use state::{Duty, WakePhase};
pub(super) use step::WakeStep;

/// A mistake that a client or a store could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeMistake {
    /// The client that has subscribed after it asked does not ask again.
    SubscribeLast,
    /// The client that has a new connection subscribes and does not ask again.
    SleepOnAfterBreak,
    /// Grants that come of something ended are made, and no client is told.
    PurgeTellsNobody,
    /// A release grants, and no client is told.
    ReleaseTellsNobody,
}

/// How many there are and how they listen.
#[derive(Clone, Debug)]
pub(super) struct WakeModel {
    pub(super) clients: Who,
    /// The channel belongs to the key: it is subscribed with the first wait.
    pub(super) late: bool,
    /// How many connections may break.
    pub(super) breaks: u8,
    /// How many clients may crash.
    pub(super) crashes: u8,
    pub(super) mistake: Option<WakeMistake>,
}

impl WakeModel {
    fn client_steps(&self, who: Who, state: &WakeWorld, steps: &mut Vec<WakeStep>) {
        let client = &state.clients[usize::from(who)];
        match client.phase {
            WakePhase::Crashed => {
                if state.book.knows(who) {
                    steps.push(WakeStep::End(who));
                }
                return;
            }
            _ if !client.connected => {
                steps.push(WakeStep::Reconnect(who));
                return;
            }
            _ => {}
        }
        match (client.phase, client.duty) {
            (_, Duty::Subscribe) => steps.push(WakeStep::Subscribe(who)),
            (WakePhase::Idle, _) => steps.push(WakeStep::Ask(who)),
            (WakePhase::Waiting, _) if client.is_idle() => steps.push(WakeStep::Look(who)),
            (WakePhase::Holding, _) => steps.push(WakeStep::Release(who)),
            _ => {}
        }
        if !client.up.is_empty() {
            steps.push(WakeStep::Serve(who));
        }
        if !client.down.is_empty() {
            steps.push(WakeStep::Read(who));
        }
        if state.breaks < self.breaks {
            steps.push(WakeStep::Break(who));
        }
        if state.crashes < self.crashes && client.phase != WakePhase::Idle {
            steps.push(WakeStep::Crash(who));
        }
    }
}

impl World for WakeModel {
    type State = WakeWorld;
    type Step = WakeStep;

    fn start(&self) -> WakeWorld {
        WakeWorld::new(self)
    }

    fn steps(&self, state: &WakeWorld, steps: &mut Vec<WakeStep>) {
        (0..self.clients).for_each(|who| self.client_steps(who, state, steps));
    }

    fn after(&self, last: &WakeWorld, step: WakeStep) -> Option<WakeWorld> {
        let mut state = last.clone();
        match step {
            WakeStep::Ask(who) => state.ask(who),
            WakeStep::Subscribe(who) => state.subscribe(who),
            WakeStep::Look(who) => state.look(who),
            WakeStep::Release(who) => state.release(who),
            WakeStep::Serve(who) => state.serve(who, self),
            WakeStep::Read(who) => state.read(who, self),
            WakeStep::Break(who) => state.break_off(who),
            WakeStep::Reconnect(who) => state.reconnect(who),
            WakeStep::Crash(who) => state.crash(who),
            WakeStep::End(who) => state.book.end(who),
        }
        state.renumber();
        Some(state)
    }

    fn broken(&self, state: &WakeWorld) -> Option<&'static str> {
        state.broken()
    }
}
