//! What clients know of a key from answers and pushes alone, and random histories seen that way.
//!
//! A hold is counted for as long as the client may rely on it, which is at most as long as the
//! store counts it. So whatever overlaps here overlaps for users.

use std::collections::BTreeMap;

use distlock_core::law::AddressedPush;
use distlock_core::{
    Answer, Ask, ClaimId, ClientId, Moment, Order, Push, ReleaseOptions, ReleaseOutcome, Standing,
};
use distlock_core::{Renewal, Target, Ticket};

use super::rng::{HISTORY_STEPS, Told, seeds};
use super::walk::{Mix, Walk};
use super::world::{Op, Reply, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting {
        ticket: Ticket,
        until: Moment,
    },
    Held {
        fence: u64,
        until: Moment,
    },
    /// Refused, released, broken or answered as gone, and not asked for since.
    Ended,
}

/// One claim as its client sees it. The weight in the ask is what it holds after a downgrade.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) ask: Ask,
    pub(crate) client: ClientId,
    pub(crate) state: State,
    /// The last fence it had.
    pub(crate) fence: Option<u64>,
}

/// A grant that a client heard of, and what was around it at that moment.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) ask: Ask,
    pub(crate) fence: u64,
    /// The place it had, if it was pushed.
    pub(crate) ticket: Option<Ticket>,
    /// The fence that the claim had before: then this is a repeat.
    pub(crate) fence_before: Option<u64>,
    /// The largest fence or ticket that anybody had seen before.
    pub(crate) top_before: u64,
    /// Those who held beside it, without its own thread of work.
    pub(crate) beside: Vec<Life>,
    /// Those who went on waiting, without its own thread of work.
    pub(crate) waiting: Vec<(Ticket, Ask)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) lives: BTreeMap<ClaimId, Life>,
    /// Buried or broken claims, and until when that is remembered.
    pub(crate) dead: BTreeMap<ClaimId, Moment>,
    top: u64,
    now: Moment,
}

/// One step of a history, as clients saw it.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) before: &'a Seen,
    pub(crate) after: &'a Seen,
    pub(crate) world: &'a World,
    pub(crate) op: &'a Op,
    pub(crate) reply: &'a Reply,
    pub(crate) grants: &'a [Grant],
}

impl Seen {
    /// Those who hold.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Life> {
        self.lives
            .values()
            .filter(|life| matches!(life.state, State::Held { until, .. } if until > self.now))
    }

    /// Those who wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Ticket, &Life)> {
        self.lives.values().filter_map(|life| match life.state {
            State::Waiting { ticket, until } if until > self.now => Some((ticket, life)),
            _ => None,
        })
    }

    /// Takes in a step and tells the grants in it.
    pub(crate) fn hear(
        &mut self,
        op: &Op,
        reply: &Reply,
        notices: &[AddressedPush],
        now: Moment,
    ) -> Vec<Grant> {
        self.now = now;
        self.dead.retain(|_, until| *until > now);
        let mut grants = Vec::new();
        match (op, reply) {
            // Others are let in before the newcomer is answered.
            (Op::Acquire(ask, client), Reply::Answer(answer)) => {
                self.hear_pushes(notices, None, &mut grants);
                self.hear_answer(ask, *client, answer, &mut grants);
            }
            (Op::Renew(renewal, client), Reply::Standing(standing)) => {
                let (earlier, later) = notices.split_at(let_in_before(renewal, standing, notices));
                self.hear_pushes(earlier, None, &mut grants);
                let until = now.after(renewal.span);
                self.hear_standing(renewal.claim.id, *client, standing, until);
                if let (Some(weight), Some(life)) =
                    (renewal.weight, self.lives.get_mut(&renewal.claim.id))
                    && matches!(standing, Standing::Held { .. })
                {
                    life.ask.weight = life.ask.weight.min(weight);
                }
                self.hear_pushes(later, None, &mut grants);
            }
            // A release may make room for those who are pushed.
            (Op::Release(target, how), Reply::Outcome(outcome)) => {
                let released = self.hear_outcome(target, *how, *outcome);
                self.hear_pushes(notices, released, &mut grants);
            }
            _ => {}
        }
        grants
    }

    fn hear_answer(
        &mut self,
        ask: &Ask,
        client: ClientId,
        answer: &Answer,
        grants: &mut Vec<Grant>,
    ) {
        let (now, id) = (self.now, ask.claim.id);
        let fresh = Life { ask: ask.clone(), client, state: State::Ended, fence: None };
        let life = self.lives.entry(id).or_insert(fresh);
        match answer {
            // A dead attempt says nothing of the claim, which others may have.
            Answer::Dead if ask.attempt.is_some() => {}
            Answer::Granted { fence } => {
                if life.fence != Some(*fence) {
                    // A new hold, whatever became of the weight of an earlier one.
                    life.ask = ask.clone();
                }
                self.grant(id, *fence, None, now.after(ask.ttl), grants);
            }
            Answer::Busy(busy) => {
                let Some(ticket) = busy.ticket else {
                    life.state = State::Ended;
                    return;
                };
                if !matches!(life.state, State::Waiting { ticket: old, .. } if old == ticket) {
                    life.ask = ask.clone();
                }
                let heard = ask.wait.map_or(now, |wait| now.after(wait.place));
                life.wait(ticket, client, heard);
                self.top = self.top.max(ticket);
            }
            _ => life.state = State::Ended,
        }
    }

    fn hear_standing(&mut self, id: ClaimId, by: ClientId, standing: &Standing, heard: Moment) {
        let Some(life) = self.lives.get_mut(&id) else {
            return;
        };
        match standing {
            Standing::Held { fence } => {
                let (State::Held { until, .. } | State::Waiting { until, .. }) = life.state else {
                    panic!("{id:?} came back to life");
                };
                life.state = State::Held { fence: *fence, until: until.max(heard) };
                let before = life.fence.replace(*fence);
                let reentry = life.ask.reentry;
                self.top = self.top.max(*fence);
                // A thread of work has one fence: raised for one of them, it is raised for all.
                let together = |other: &&mut Life| {
                    reentry.is_some() && other.ask.reentry == reentry && other.fence == before
                };
                for other in self.lives.values_mut().filter(together) {
                    other.fence = Some(*fence);
                }
            }
            Standing::Waiting(waiting) => life.wait(waiting.ticket, by, heard),
            _ => life.state = State::Ended,
        }
    }

    fn hear_outcome(
        &mut self,
        target: &Target,
        how: ReleaseOptions,
        outcome: ReleaseOutcome,
    ) -> Option<ClaimId> {
        let claim = match target {
            Target::Claim(claim) => claim,
            // Others may still want the claim: it is over only if the store says so.
            Target::Attempt { claim, .. } if outcome != ReleaseOutcome::Gone => {
                self.lives.get_mut(&claim.id).unwrap().state = State::Ended;
                return Some(claim.id);
            }
            _ => return None,
        };
        if let Some(life) = self.lives.get_mut(&claim.id) {
            life.state = State::Ended;
        }
        if !how.bury.is_zero() {
            self.bury(claim.id, self.now.after(how.bury));
        }
        (outcome != ReleaseOutcome::Gone).then_some(claim.id)
    }

    fn bury(&mut self, id: ClaimId, until: Moment) {
        let end = self.dead.entry(id).or_insert(until);
        *end = until.max(*end);
    }

    /// A claim may be let in and then released in one step; it is reported to no client as a grant.
    fn hear_pushes(
        &mut self,
        notices: &[AddressedPush],
        released: Option<ClaimId>,
        grants: &mut Vec<Grant>,
    ) {
        for notice in notices {
            match notice.push {
                Push::Granted { id, ticket, fence } if released != Some(id) => {
                    let until = match self.lives[&id].state {
                        // What is left of the place, and never longer than it asked to hold.
                        State::Waiting { until, .. } => {
                            until.min(self.now.after(self.lives[&id].ask.ttl))
                        }
                        State::Held { until, .. } => until,
                        State::Ended => panic!("{id:?} was let in although it had ended"),
                    };
                    self.grant(id, fence, Some(ticket), until, grants);
                }
                Push::Broken { id } => {
                    let life = self.lives.get_mut(&id).unwrap();
                    if let State::Held { until, .. } = life.state {
                        life.state = State::Ended;
                        self.bury(id, until);
                    }
                }
                _ => {}
            }
        }
    }

    fn grant(
        &mut self,
        id: ClaimId,
        fence: u64,
        ticket: Option<Ticket>,
        heard: Moment,
        grants: &mut Vec<Grant>,
    ) {
        let life = self.lives.get_mut(&id).unwrap();
        let fence_before = life.fence.replace(fence);
        let until = match life.state {
            State::Held { until, .. } => until.max(heard),
            _ => heard,
        };
        life.state = State::Held { fence, until };
        let ask = life.ask.clone();
        let together = |other: &Life| {
            other.ask.claim.id == id || ask.reentry.is_some() && other.ask.reentry == ask.reentry
        };
        let beside = self.held().filter(|other| !together(other)).cloned().collect();
        let waiting = self.waiting().filter(|(_, other)| !together(other));
        let waiting = waiting.map(|(ticket, other)| (ticket, other.ask.clone())).collect();
        let top_before = self.top;
        self.top = top_before.max(fence);
        grants.push(Grant { ask, fence, ticket, fence_before, top_before, beside, waiting });
    }
}

/// How many of the notices are older than the answer to the renewal that caused them. Others are
/// let in before it is answered; only a downgrade makes room after that, and fences grow.
fn let_in_before(renewal: &Renewal, standing: &Standing, notices: &[AddressedPush]) -> usize {
    let (Some(_), Standing::Held { fence: held }) = (renewal.weight, standing) else {
        return notices.len();
    };
    notices.partition_point(
        |notice| matches!(notice.push, Push::Granted { fence, .. } if fence <= *held),
    )
}

impl Life {
    /// Heard of in the queue. A place that moves to another client keeps the longer life.
    fn wait(&mut self, ticket: Ticket, client: ClientId, heard: Moment) {
        let until = match self.state {
            State::Waiting { ticket: old, until } if old == ticket => until.max(heard),
            _ => heard,
        };
        self.client = client;
        self.state = State::Waiting { ticket, until };
    }
}

/// Runs random histories and shows every step of them. At the end of each, `last` may go on.
pub(crate) fn watch(
    name: &str,
    orders: &[Order],
    mix: Option<Mix>,
    mut step: impl FnMut(&Scene<'_>),
    mut last: impl FnMut(&mut World, &mut Seen),
) {
    for &order in orders {
        for seed in seeds(name, 0.25) {
            let _told = Told(format!("{name}, the history with seed {seed}, order {order}"));
            let (mut world, mut seen) = (World::new(), Seen::default());
            let mut walk = Walk::new(seed, order);
            walk.mix = mix.unwrap_or(walk.mix);
            for _ in 0..HISTORY_STEPS {
                let op = walk.next(world.now.at);
                let (reply, notices) = world.apply(&op);
                walk.hear(&reply, &notices);
                let before = seen.clone();
                let grants = seen.hear(&op, &reply, &notices, world.now.at);
                step(&Scene {
                    before: &before,
                    after: &seen,
                    world: &world,
                    op: &op,
                    reply: &reply,
                    grants: &grants,
                });
                world.forget_if_idle();
            }
            last(&mut world, &mut seen);
        }
    }
}
