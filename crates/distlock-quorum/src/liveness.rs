//! Whether a node can be heard: one that cannot is left alone, unless the others do not suffice.
//!
//! A call that is decided by a majority does not wait for the rest, but it would still send to
//! them, dial them, and leave a task behind to listen. For a node that is known to be silent that
//! is done once in a while, to find out whether it is back, and not with every call.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use distlock_core::sync::lock;

/// How long a silent node is left alone at first; it doubles up to [`SILENCE_PAUSE_MAX`].
const SILENCE_PAUSE_MIN: Duration = Duration::from_millis(20);
const SILENCE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// What is known of how a node answers.
#[derive(Debug)]
pub(super) struct Liveness {
    /// How long a call may be unanswered before the node counts as silent.
    patience: Duration,
    state: Mutex<LivenessState>,
}

#[derive(Debug, Default)]
struct LivenessState {
    /// When a call was sent that is unanswered; none if anything was heard since.
    waits_since: Option<Instant>,
    silence: Option<Silence>,
}

#[derive(Debug)]
struct Silence {
    /// When it is asked again.
    over_at: Instant,
    pause: Duration,
}

impl Silence {
    fn from(now: Instant) -> Self {
        Self { over_at: now + SILENCE_PAUSE_MIN, pause: SILENCE_PAUSE_MIN }
    }
}

impl Liveness {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, state: Mutex::default() }
    }

    /// It has answered. True if it was silent before.
    pub(super) fn heard(&self) -> bool {
        let mut state = lock(&self.state);
        state.waits_since = None;
        state.silence.take().is_some()
    }

    /// It could not be reached.
    pub(super) fn failed(&self, now: Instant) {
        lock(&self.state).silence.get_or_insert_with(|| Silence::from(now));
    }

    /// A call that was sent then is not waited for any more.
    pub(super) fn waits(&self, since: Instant) {
        lock(&self.state).waits_since.get_or_insert(since);
    }

    /// True if it was silent when it was last asked, whether it is left alone at present or not.
    pub(super) fn is_suspect(&self) -> bool {
        lock(&self.state).silence.is_some()
    }

    /// True if it is to be left alone. Now and then a client is told otherwise and asks it, so that
    /// it is noticed when it is back.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let late = state.waits_since.is_some_and(|since| now > since + self.patience);
        match &mut state.silence {
            Some(silence) if silence.over_at > now => true,
            Some(silence) => {
                silence.pause = (silence.pause * 2).min(SILENCE_PAUSE_MAX);
                silence.over_at = now + silence.pause;
                false
            }
            None if late => {
                state.silence = Some(Silence::from(now));
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_node_is_silent_when_it_failed_or_has_not_answered_for_long() {
        let (liveness, start) = (Liveness::new(500 * MS), Instant::now());
        assert!(!liveness.is_silent(start));
        liveness.waits(start);
        liveness.waits(start + 400 * MS);
        assert!(!liveness.is_silent(start + 500 * MS), "slow is not silent");
        assert!(liveness.is_silent(start + 501 * MS));
        assert!(
            !liveness.is_silent(start + 530 * MS) && liveness.is_suspect(),
            "asked, not awaited"
        );
        assert!(liveness.heard(), "it was silent until now");
        assert!(!liveness.is_suspect());
        assert!(!liveness.heard() && !liveness.is_silent(start + 600 * MS));
        liveness.failed(start + 700 * MS);
        assert!(liveness.is_silent(start + 701 * MS));
    }

    #[test]
    fn a_silent_node_is_asked_once_in_a_while() {
        let (liveness, start) = (Liveness::new(500 * MS), Instant::now());
        liveness.failed(start);
        let asked = (0..10_000).filter(|ms| !liveness.is_silent(start + *ms * MS)).count();
        assert!((15..=30).contains(&asked), "asked {asked} times in ten seconds");
    }
}
