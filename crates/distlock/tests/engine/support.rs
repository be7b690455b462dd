//! What the tests of the engine, the keeper and the guards share: a stage, replies, a listener.

#![allow(dead_code, reason = "three binaries share it and none uses everything")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::clock::TokioClock;
use distlock::{Backoff, Error, Event, Guard, Locks, Options, WaitMode};
use distlock_core::{Answer, Ask, Busy, ClaimId, Push, Standing};
use distlock_testkit::{Scripted, ScriptedReply};
use tokio::task::JoinHandle;

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// How much of the default ttl can be relied upon: 1 % drift and 2 ms come off.
pub(crate) const VALID: Duration = Duration::from_millis(29_698);

/// How much of the default place can be relied upon.
pub(crate) const PLACE_VALID: Duration = Duration::from_millis(3_958);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A scripted store and locks on it, on the runtime's paused clock.
pub(crate) fn stage() -> (Scripted, Locks) {
    let backend = Scripted::new();
    let locks = Locks::with_clock(Arc::new(backend.clone()), Arc::new(TokioClock::new()));
    (backend, locks)
}

/// The same with other options.
pub(crate) fn stage_with(change: impl FnOnce(Options) -> Options) -> (Scripted, Locks) {
    let (backend, locks) = stage();
    (backend, locks.configure(change).expect("options in range"))
}

/// A stage without a queue: clients poll with this backoff.
pub(crate) fn polling(backoff: Backoff) -> (Scripted, Locks) {
    stage_with(|o| o.wait_mode(WaitMode::Poll(backoff)))
}

/// Lets all tasks run without letting time pass.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Refused without a place.
pub(crate) fn refused(retry_after: Option<Duration>) -> Answer {
    Answer::Busy(Busy { ticket: None, ahead: 0, retry_after, holder: None })
}

/// Queued somewhere behind.
pub(crate) fn queued(ticket: u64) -> Answer {
    Answer::Busy(Busy { ticket: Some(ticket), ahead: 1, retry_after: None, holder: None })
}

/// Still in the queue, somewhere behind.
pub(crate) fn waiting(ticket: u64) -> Standing {
    Standing::Waiting(distlock_core::QueuePosition { ticket, ahead: 1, retry_after: None })
}

/// First in the queue, behind a lease that can end after a while.
pub(crate) fn first(ticket: u64, retry_after: Duration) -> Standing {
    let retry_after = Some(retry_after);
    Standing::Waiting(distlock_core::QueuePosition { ticket, ahead: 0, retry_after })
}

/// The first ask gets a place under ticket 7 and keeps it; later asks are granted.
pub(crate) fn queue_up(backend: &Scripted) {
    backend.on_acquire(queued(7));
    backend.always_renew(waiting(7));
}

/// The id under which the last ask was made.
pub(crate) fn last_id(backend: &Scripted) -> ClaimId {
    backend.acquires().last().expect("a client asked").1.claim.id
}

/// Pushes a grant to the client that asked last.
pub(crate) fn push(backend: &Scripted, ticket: u64, fence: u64) {
    backend.push(Push::Granted { id: last_id(backend), ticket, fence });
}

pub(crate) type Locking = JoinHandle<Result<Guard, Error>>;

/// Locks key `k` in a task of its own and lets it get as far as it can without time.
pub(crate) async fn start_lock(locks: &Locks) -> Locking {
    let mutex = locks.mutex("k").expect("a good key");
    let locking = tokio::spawn(async move { mutex.lock().await });
    settle().await;
    locking
}

/// Locks a key that is free.
pub(crate) async fn hold(locks: &Locks, key: &str) -> Guard {
    locks.mutex(key).expect("a good key").lock().await.expect("it is free")
}

/// When each acquire was sent.
pub(crate) fn asked_at(backend: &Scripted) -> Vec<Duration> {
    backend.acquires().into_iter().map(|(at, _)| at).collect()
}

/// When each claim was renewed.
pub(crate) fn renewed_at(backend: &Scripted) -> Vec<Duration> {
    backend.renewals().into_iter().map(|(at, _)| at).collect()
}

/// A transient fault as the reply to an acquire.
pub(crate) fn unreachable() -> ScriptedReply<Ask, Answer> {
    ScriptedReply::transient()
}

pub(crate) type Seen = Arc<Mutex<Vec<Event>>>;

/// Collects every event from now on.
pub(crate) fn listen(locks: &Locks) -> Seen {
    let seen = Seen::default();
    let into = Arc::clone(&seen);
    locks.on_event(move |event| into.lock().expect("no panic").push(event.clone()));
    seen
}

/// How many events of a kind were seen.
pub(crate) fn count(seen: &Seen, kind: fn(&Event) -> bool) -> usize {
    seen.lock().expect("no panic").iter().filter(|event| kind(event)).count()
}

pub(crate) fn granted(event: &Event) -> bool {
    matches!(event, Event::Granted { .. })
}

pub(crate) fn released(event: &Event) -> bool {
    matches!(event, Event::Released { .. })
}

pub(crate) fn lost(event: &Event) -> bool {
    matches!(event, Event::Lost { .. })
}

pub(crate) fn at_risk(event: &Event) -> bool {
    matches!(event, Event::AtRisk { .. })
}
