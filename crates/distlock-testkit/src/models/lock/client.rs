//! A client: what it believes, and until when.

use super::net::RenewalSpan;
use super::{LockMistake, LockModel};
use crate::models::book::{BookReply, Number, Ticks};

/// Where a client stands. Ages count from when something was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockPhase {
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
        call: Option<(Ticks, RenewalSpan)>,
    },
    Lost,
    Leaving {
        waited: bool,
    },
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockClient {
    pub(super) phase: LockPhase,
    /// An ask of it was never answered, so it may still arrive.
    pub(super) doubtful: bool,
}

/// What a client does about what it has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockNext {
    Nothing,
    /// The grant is almost over: the same claim is asked for again.
    AskAgain,
    /// It is over: the claim is given up.
    GiveUp,
}

impl LockClient {
    pub(super) const NEW: Self = Self { phase: LockPhase::Idle, doubtful: false };

    pub(super) fn believes(&self) -> bool {
        matches!(self.phase, LockPhase::Holding { .. })
    }

    pub(super) fn tick(&mut self, oldest: Ticks) {
        let older = |age: &mut Ticks| *age = (*age + 1).min(oldest);
        match &mut self.phase {
            LockPhase::Asking { sent, .. } => older(sent),
            LockPhase::Waiting { acked, beat, .. } => {
                older(acked);
                beat.iter_mut().for_each(older);
            }
            LockPhase::Holding { left, call, .. } => {
                *left = left.saturating_sub(1);
                call.iter_mut().for_each(|(age, _)| older(age));
                if *left == 0 {
                    self.phase = LockPhase::Lost;
                }
            }
            LockPhase::Idle | LockPhase::Lost | LockPhase::Leaving { .. } | LockPhase::Gone => {}
        }
    }

    pub(super) fn answered(&mut self, reply: BookReply, world: &LockModel) -> LockNext {
        match self.phase {
            LockPhase::Asking { sent, early } => self.answered_ask(reply, sent, early, world),
            LockPhase::Waiting { ticket, acked, beat: Some(beat) } => match reply {
                BookReply::Waiting { ticket: now, .. } => {
                    let acked = if now >= ticket { acked.min(beat) } else { acked };
                    let ticket = now.max(ticket);
                    self.phase = LockPhase::Waiting { ticket, acked, beat: None };
                    LockNext::Nothing
                }
                BookReply::Held { fence } => {
                    let left = world.left(world.place, beat);
                    self.hold(left, fence, None, None)
                }
                _ => LockNext::GiveUp,
            },
            LockPhase::Holding { left, fence, ticket, call: Some((age, span)) } => {
                let more = match (span, reply) {
                    (RenewalSpan::Ttl, BookReply::Held { .. }) => world.left(world.ttl, age),
                    (RenewalSpan::Place, BookReply::Held { .. }) => world.left(world.place, age),
                    // The place was still there when this was sent, so the grant inherited it.
                    (RenewalSpan::Place, BookReply::Waiting { ticket: now, .. })
                        if ticket == Some(now) =>
                    {
                        world.left(world.place, age)
                    }
                    (RenewalSpan::Place, BookReply::Waiting { .. }) => 0,
                    _ => {
                        self.phase = LockPhase::Lost;
                        return LockNext::Nothing;
                    }
                };
                self.phase = LockPhase::Holding { left: left.max(more), fence, ticket, call: None };
                LockNext::Nothing
            }
            LockPhase::Leaving { .. } if reply == BookReply::Released => {
                self.phase = LockPhase::Gone;
                LockNext::Nothing
            }
            _ => LockNext::Nothing,
        }
    }

    fn answered_ask(
        &mut self,
        reply: BookReply,
        sent: Ticks,
        early: Option<(Number, Number)>,
        world: &LockModel,
    ) -> LockNext {
        match reply {
            BookReply::Held { fence } => match world.left(world.ttl, sent) {
                0 => LockNext::GiveUp,
                left => self.hold(left, fence, None, None),
            },
            BookReply::Waiting { ticket, .. } => {
                self.phase = LockPhase::Waiting { ticket, acked: sent, beat: None };
                match early {
                    Some((pushed, fence)) => self.pushed(pushed, fence, world),
                    None => LockNext::Nothing,
                }
            }
            BookReply::Busy if !self.doubtful => {
                self.phase = LockPhase::Gone;
                LockNext::Nothing
            }
            _ => LockNext::GiveUp,
        }
    }

    pub(super) fn pushed(&mut self, pushed: Number, fence: Number, world: &LockModel) -> LockNext {
        match &mut self.phase {
            LockPhase::Asking { early, .. } => {
                *early = Some((pushed, fence));
                LockNext::Nothing
            }
            LockPhase::Waiting { ticket, acked, beat }
                if *ticket == pushed || world.mistake == Some(LockMistake::AnyTicket) =>
            {
                let left = match world.mistake {
                    Some(LockMistake::FullTtlOnPush) => world.left(world.ttl, *acked),
                    Some(LockMistake::CountFromPush) => world.left(world.place, 0),
                    Some(LockMistake::CountFromLastSend) => {
                        world.left(world.place, beat.unwrap_or(*acked))
                    }
                    _ => world.left(world.place, *acked),
                };
                let (ticket, call) = (*ticket, beat.map(|age| (age, RenewalSpan::Place)));
                self.hold(left, fence, Some(ticket), call)
            }
            _ => LockNext::Nothing,
        }
    }

    /// Begins to believe, unless it is too late for that.
    fn hold(
        &mut self,
        left: Ticks,
        fence: Number,
        ticket: Option<Number>,
        call: Option<(Ticks, RenewalSpan)>,
    ) -> LockNext {
        if left == 0 {
            return LockNext::AskAgain;
        }
        self.phase = LockPhase::Holding { left, fence, ticket, call };
        LockNext::Nothing
    }

    pub(super) fn numbers(&mut self, visit: &mut dyn FnMut(&mut Number)) {
        match &mut self.phase {
            LockPhase::Asking { early: Some((ticket, fence)), .. } => {
                visit(ticket);
                visit(fence);
            }
            LockPhase::Waiting { ticket, .. } => visit(ticket),
            LockPhase::Holding { fence, ticket, .. } => {
                visit(fence);
                ticket.iter_mut().for_each(visit);
            }
            _ => {}
        }
    }
}
