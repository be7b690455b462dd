//! What the network does to a message, drawn from a seed.

use std::time::Duration;

use crate::Rng;

/// What goes wrong, and how often. Probabilities are between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// A request never arrives: nothing happens and the caller learns of it by a time-out.
    pub lose_request: f64,
    /// A request is executed and its answer never arrives.
    pub lose_reply: f64,
    /// A request is executed a second time, up to [`late`](Self::late) after the answer.
    pub duplicate: f64,
    /// A message takes up to this long, drawn for the way there and for the way back.
    pub delay: (f64, Duration),
    /// A call that its caller drops is executed all the same, up to [`late`](Self::late) later:
    /// its bytes had left.
    pub late_after_drop: f64,
    /// A push never arrives.
    pub lose_push: f64,
    /// A push arrives twice.
    pub duplicate_push: f64,
    /// A push takes up to this long; others overtake it.
    pub delay_push: (f64, Duration),
    /// How much later a repeated or dropped request may be executed.
    pub late: Duration,
    /// After how long a call without an answer ends with a transient fault. What has been sent by
    /// then is executed all the same.
    pub response_timeout: Duration,
}

impl Faults {
    /// A perfect network with a response time-out of one second.
    pub const NONE: Self = Self {
        lose_request: 0.0,
        lose_reply: 0.0,
        duplicate: 0.0,
        delay: (0.0, Duration::ZERO),
        late_after_drop: 0.0,
        lose_push: 0.0,
        duplicate_push: 0.0,
        delay_push: (0.0, Duration::ZERO),
        late: Duration::from_secs(1),
        response_timeout: Duration::from_secs(1),
    };

    /// Everything goes wrong with this probability; messages take up to `delay`.
    pub fn all(probability: f64, delay: Duration) -> Self {
        Self {
            lose_request: probability,
            lose_reply: probability,
            duplicate: probability,
            delay: (probability, delay),
            late_after_drop: probability,
            lose_push: probability,
            duplicate_push: probability,
            delay_push: (probability, delay),
            ..Self::NONE
        }
    }
}

/// What a [`Faulty`](crate::Faulty) did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that callers made; every claim of a renewed batch counts.
    pub requests: u64,
    /// Requests lost on the way there.
    pub lost_requests: u64,
    /// Answers lost on the way back.
    pub lost_replies: u64,
    /// Requests that were delayed.
    pub delayed: u64,
    /// Requests executed twice.
    pub duplicated: u64,
    /// Requests executed although their caller had dropped them or had given up waiting.
    pub late: u64,
    /// Requests that ended with their dropped caller.
    pub abandoned: u64,
    /// Pushes lost.
    pub lost_pushes: u64,
    /// Pushes delayed.
    pub delayed_pushes: u64,
    /// Pushes delivered twice.
    pub duplicated_pushes: u64,
}

/// Decides what happens next.
pub(super) struct Dice {
    pub(super) rng: Rng,
    pub(super) faults: Faults,
    pub(super) counts: Counts,
}

/// What will happen to one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) lose_request: bool,
    pub(super) lose_reply: bool,
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) again: Option<Duration>,
    pub(super) late: Option<Duration>,
    pub(super) response_timeout: Duration,
}

impl Dice {
    /// Draws what will happen to a request. Every fate draws as many numbers, so that changing one
    /// probability leaves the rest of a seed as it was.
    pub(super) fn fate(&mut self) -> Fate {
        let Self { rng, faults, counts } = self;
        let lose_request = rng.chance(faults.lose_request);
        let lose_reply = rng.chance(faults.lose_reply);
        let (there, back) = (delay(rng, faults.delay), delay(rng, faults.delay));
        let again = delay_if(rng, faults.duplicate, faults.late);
        let late = delay_if(rng, faults.late_after_drop, faults.late);
        counts.requests += 1;
        counts.lost_requests += u64::from(lose_request);
        counts.lost_replies += u64::from(lose_reply && !lose_request);
        counts.delayed += u64::from(!lose_request && !(there + back).is_zero());
        counts.duplicated += u64::from(again.is_some() && !lose_request);
        let response_timeout = faults.response_timeout;
        Fate { lose_request, lose_reply, there, back, again, late, response_timeout }
    }

    /// Draws when the copies of a push arrive.
    pub(super) fn deliveries(&mut self) -> Vec<Duration> {
        let Self { rng, faults, counts } = self;
        let lost = rng.chance(faults.lose_push);
        let twice = rng.chance(faults.duplicate_push);
        let delays = [delay(rng, faults.delay_push), delay(rng, faults.delay_push)];
        if lost {
            counts.lost_pushes += 1;
            return Vec::new();
        }
        counts.duplicated_pushes += u64::from(twice);
        let copies = &delays[..1 + usize::from(twice)];
        counts.delayed_pushes += u64::from(copies.iter().any(|delay| !delay.is_zero()));
        copies.to_vec()
    }
}

fn delay(rng: &mut Rng, (probability, max): (f64, Duration)) -> Duration {
    delay_if(rng, probability, max).unwrap_or_default()
}

/// Up to `max` with this probability, in whole milliseconds as the timers count.
fn delay_if(rng: &mut Rng, probability: f64, max: Duration) -> Option<Duration> {
    let chosen = rng.chance(probability);
    let millis = rng.below(u64::try_from(max.as_millis()).unwrap_or(u64::MAX).saturating_add(1));
    chosen.then(|| Duration::from_millis(millis))
}
