//! A client: what it believes, and until when.

use super::net::Span;
use super::{Lock, Mistake};
use crate::models::book::{Number, Reply, Ticks};

/// Where a client stands. Ages count from when something was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// A push may overtake the answer to the ask; it is kept until the ticket is known.
    Asking {
        sent: Ticks,
        early: Option<(Number, Number)>,
    },
    /// `acked` is the age of the last request that was answered with this ticket.
    Waiting {
        ticket: Number,
        acked: Ticks,
        beat: Option<Ticks>,
    },
    Holding {
        left: Ticks,
        fence: Number,
        ticket: Option<Number>,
        call: Option<(Ticks, Span)>,
    },
    Lost,
    Leaving {
        waited: bool,
    },
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(super) phase: Phase,
    /// An ask of it was never answered, so it may still arrive.
    pub(super) doubtful: bool,
}

/// What a client does about what it has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// The grant is almost over: the same claim is asked for again.
    AskAgain,
    /// It is over: the claim is given up.
    GiveUp,
}

impl Client {
    pub(super) const NEW: Self = Self { phase: Phase::Idle, doubtful: false };

    pub(super) fn believes(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    pub(super) fn tick(&mut self, oldest: Ticks) {
        let older = |age: &mut Ticks| *age = (*age + 1).min(oldest);
        match &mut self.phase {
            Phase::Asking { sent, .. } => older(sent),
            Phase::Waiting { acked, beat, .. } => {
                older(acked);
                beat.iter_mut().for_each(older);
            }
            Phase::Holding { left, call, .. } => {
                *left = left.saturating_sub(1);
                call.iter_mut().for_each(|(age, _)| older(age));
                if *left == 0 {
                    self.phase = Phase::Lost;
                }
            }
            Phase::Idle | Phase::Lost | Phase::Leaving { .. } | Phase::Gone => {}
        }
    }

    pub(super) fn answered(&mut self, reply: Reply, world: &Lock) -> Next {
        match self.phase {
            Phase::Asking { sent, early } => self.answered_ask(reply, sent, early, world),
            Phase::Waiting { ticket, acked, beat: Some(beat) } => match reply {
                Reply::Waiting { ticket: now, .. } => {
                    let acked = if now >= ticket { acked.min(beat) } else { acked };
                    let ticket = now.max(ticket);
                    self.phase = Phase::Waiting { ticket, acked, beat: None };
                    Next::Nothing
                }
                Reply::Held { fence } => {
                    let left = world.left(world.place, beat);
                    self.hold(left, fence, None, None)
                }
                _ => Next::GiveUp,
            },
            Phase::Holding { left, fence, ticket, call: Some((age, span)) } => {
                let more = match (span, reply) {
                    (Span::Ttl, Reply::Held { .. }) => world.left(world.ttl, age),
                    (Span::Place, Reply::Held { .. }) => world.left(world.place, age),
                    // The place was still there when this was sent, so the grant inherited it.
                    (Span::Place, Reply::Waiting { ticket: now, .. }) if ticket == Some(now) => {
                        world.left(world.place, age)
                    }
                    (Span::Place, Reply::Waiting { .. }) => 0,
                    _ => {
                        self.phase = Phase::Lost;
                        return Next::Nothing;
                    }
                };
                self.phase = Phase::Holding { left: left.max(more), fence, ticket, call: None };
                Next::Nothing
            }
            Phase::Leaving { .. } if reply == Reply::Released => {
                self.phase = Phase::Gone;
                Next::Nothing
            }
            _ => Next::Nothing,
        }
    }

    fn answered_ask(
        &mut self,
        reply: Reply,
        sent: Ticks,
        early: Option<(Number, Number)>,
        world: &Lock,
    ) -> Next {
        match reply {
            Reply::Held { fence } => match world.left(world.ttl, sent) {
                0 => Next::GiveUp,
                left => self.hold(left, fence, None, None),
            },
            Reply::Waiting { ticket, .. } => {
                self.phase = Phase::Waiting { ticket, acked: sent, beat: None };
                match early {
                    Some((pushed, fence)) => self.pushed(pushed, fence, world),
                    None => Next::Nothing,
                }
            }
            Reply::Busy if !self.doubtful => {
                self.phase = Phase::Gone;
                Next::Nothing
            }
            _ => Next::GiveUp,
        }
    }

    pub(super) fn pushed(&mut self, pushed: Number, fence: Number, world: &Lock) -> Next {
        match &mut self.phase {
            Phase::Asking { early, .. } => {
                *early = Some((pushed, fence));
                Next::Nothing
            }
            Phase::Waiting { ticket, acked, beat }
                if *ticket == pushed || world.mistake == Some(Mistake::AnyTicket) =>
            {
                let left = match world.mistake {
                    Some(Mistake::FullTtlOnPush) => world.left(world.ttl, *acked),
                    Some(Mistake::CountFromPush) => world.left(world.place, 0),
                    Some(Mistake::CountFromLastSend) => {
                        world.left(world.place, beat.unwrap_or(*acked))
                    }
                    _ => world.left(world.place, *acked),
                };
                let (ticket, call) = (*ticket, beat.map(|age| (age, Span::Place)));
                self.hold(left, fence, Some(ticket), call)
            }
            _ => Next::Nothing,
        }
    }

    /// Begins to believe, unless it is too late for that.
    fn hold(
        &mut self,
        left: Ticks,
        fence: Number,
        ticket: Option<Number>,
        call: Option<(Ticks, Span)>,
    ) -> Next {
        if left == 0 {
            return Next::AskAgain;
        }
        self.phase = Phase::Holding { left, fence, ticket, call };
        Next::Nothing
    }

    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(&mut Number)) {
        match &mut self.phase {
            Phase::Asking { early: Some((ticket, fence)), .. } => {
                visit(ticket);
                visit(fence);
            }
            Phase::Waiting { ticket, .. } => visit(ticket),
            Phase::Holding { fence, ticket, .. } => {
                visit(fence);
                ticket.iter_mut().for_each(visit);
            }
            _ => {}
        }
    }
}
