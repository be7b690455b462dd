//! Every world, every mutant of it, and what must be reachable in it for it to prove anything.

use super::book::Flaw;
use super::check::{Found, World, explore, nearest};
use super::lock::{self, LockModel};
use super::quorum::{self, QuorumModel};
use super::wake::{self, WakeModel};

/// How much to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSize {
    /// Enough for every rule to matter: seconds.
    Small,
    /// More clients, more messages, longer leases: minutes.
    Large,
}

/// One exploration.
pub struct Case {
    /// The model.
    pub model: &'static str,
    /// The mutant or the goal; for the real rule, its size.
    pub name: &'static str,
    run: Box<dyn Fn(usize) -> Found + Send + Sync>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.model, self.name)
    }
}

impl Case {
    fn rule(model: &'static str, name: &'static str, world: impl World) -> Self {
        Self { model, name, run: Box::new(move |threads| explore(&world, threads)) }
    }

    fn mutant(model: &'static str, name: &'static str, world: impl World) -> Self {
        Self { model, name, run: Box::new(move |_| explore(&world, 1)) }
    }

    fn goal<W: World>(
        model: &'static str,
        name: &'static str,
        world: W,
        reached: fn(&W, &W::State) -> Option<&'static str>,
    ) -> Self {
        Self { model, name, run: Box::new(move |_| nearest(&world, reached)) }
    }

    /// Explores, on so many threads where a shortest trace is not looked for.
    pub fn run(&self, threads: usize) -> Found {
        (self.run)(threads)
    }
}

const LEASE_CASES: &str = "lease";
const HAND_OVER_CASES: &str = "hand-over";
const WAKE_UP_CASES: &str = "wake-up";
const FENCE_CASES: &str = "quorum fence";
const AMNESIA_CASES: &str = "quorum amnesia";

fn lease() -> LockModel {
    LockModel {
        waits: &[false, false],
        ttl: 4,
        place: 2,
        margin: 1,
        drift: Some(4),
        room: 2,
        flaw: None,
        mistake: None,
    }
}

fn hand_over() -> LockModel {
    LockModel { waits: &[true, false], ttl: 3, margin: 0, drift: None, ..lease() }
}

fn wake(late: bool) -> WakeModel {
    WakeModel { clients: 3, late, breaks: 1, crashes: 1, mistake: None }
}

fn fence() -> QuorumModel {
    QuorumModel { nodes: 3, clients: 2, clocks: false, restarts: 0, proposals: &[0], mistake: None }
}

fn amnesia() -> QuorumModel {
    QuorumModel { clocks: true, restarts: 1, ..fence() }
}

/// The real rules. None of them may be broken anywhere.
pub fn rules(size: ModelSize) -> Vec<Case> {
    if size == ModelSize::Small {
        return vec![
            Case::rule(LEASE_CASES, "2 clients, 2 messages", lease()),
            Case::rule(HAND_OVER_CASES, "1 waits, 2 messages", hand_over()),
            Case::rule(WAKE_UP_CASES, "3 clients, own channels", wake(false)),
            Case::rule(
                WAKE_UP_CASES,
                "3 clients, channels of the key",
                WakeModel { crashes: 0, ..wake(true) },
            ),
            Case::rule(
                FENCE_CASES,
                "2 clients, proposals",
                QuorumModel { proposals: &[0, 3], ..fence() },
            ),
            Case::rule(AMNESIA_CASES, "2 clients, 1 restart", amnesia()),
        ];
    }
    let both = &[true, true];
    vec![
        Case::rule(LEASE_CASES, "2 clients, 4 messages", LockModel { room: 4, ..lease() }),
        Case::rule(HAND_OVER_CASES, "1 waits, 3 messages", LockModel { room: 3, ..hand_over() }),
        Case::rule(HAND_OVER_CASES, "2 wait, 2 messages", LockModel { waits: both, ..hand_over() }),
        Case::rule(
            WAKE_UP_CASES,
            "3 clients, own channels",
            WakeModel { breaks: 2, ..wake(false) },
        ),
        Case::rule(WAKE_UP_CASES, "3 clients, channels of the key", wake(true)),
        Case::rule(FENCE_CASES, "3 clients", QuorumModel { clients: 3, ..fence() }),
        Case::rule(
            AMNESIA_CASES,
            "2 clients, 2 restarts",
            QuorumModel { restarts: 2, ..amnesia() },
        ),
    ]
}

/// Rules that are wrong on purpose. Each must be found out.
pub fn mutants() -> Vec<Case> {
    let mut cases = lease_mutants();
    cases.extend(hand_over_mutants());
    cases.extend(wake_mutants());
    cases.extend(quorum_mutants());
    cases
}

fn lease_mutants() -> Vec<Case> {
    use lock::LockMistake;
    let by = |mistake| LockModel { mistake: Some(mistake), ..lease() };
    let creates = LockModel { flaw: Some(Flaw::RenewalCreates), ..lease() };
    vec![
        Case::mutant(
            LEASE_CASES,
            "validity counts from the reply",
            by(LockMistake::CountFromReply),
        ),
        Case::mutant(LEASE_CASES, "margin below the drift", by(LockMistake::NoMargin)),
        Case::mutant(
            LEASE_CASES,
            "answers are not matched with requests",
            by(LockMistake::AnyAnswer),
        ),
        Case::mutant(LEASE_CASES, "a release never buries", by(LockMistake::NoBurial)),
        Case::mutant(LEASE_CASES, "a renewal re-creates", creates),
    ]
}

fn hand_over_mutants() -> Vec<Case> {
    use lock::LockMistake;
    let by = |mistake| LockModel { mistake: Some(mistake), ..hand_over() };
    let law = |flaw| LockModel { flaw: Some(flaw), ..hand_over() };
    let three = LockModel { waits: &[true, false, false], ..law(Flaw::NewcomersBarge) };
    vec![
        Case::mutant(
            HAND_OVER_CASES,
            "a push counts for the full ttl",
            by(LockMistake::FullTtlOnPush),
        ),
        Case::mutant(
            HAND_OVER_CASES,
            "a push is trusted without ticket",
            by(LockMistake::AnyTicket),
        ),
        Case::mutant(
            HAND_OVER_CASES,
            "validity counts from the push",
            by(LockMistake::CountFromPush),
        ),
        Case::mutant(
            HAND_OVER_CASES,
            "validity counts from the last heartbeat sent",
            by(LockMistake::CountFromLastSend),
        ),
        Case::mutant(HAND_OVER_CASES, "a release admits no waiter", law(Flaw::ReleaseAdmitsNobody)),
        Case::mutant(HAND_OVER_CASES, "a purge admits no waiter", law(Flaw::PurgeAdmitsNobody)),
        Case::mutant(HAND_OVER_CASES, "a newcomer barges", three),
        Case::mutant(
            HAND_OVER_CASES,
            "a cancel leaves the queue, but not a grant made meanwhile",
            law(Flaw::CancelMissesGrant),
        ),
        Case::mutant(HAND_OVER_CASES, "a renewal re-creates", law(Flaw::RenewalCreates)),
        Case::mutant(HAND_OVER_CASES, "a renewal may shorten", law(Flaw::RenewalShortens)),
        Case::mutant(
            HAND_OVER_CASES,
            "asking again does not refresh the lease",
            law(Flaw::RepeatKeepsOldLease),
        ),
    ]
}

fn wake_mutants() -> Vec<Case> {
    use wake::WakeMistake;
    let by = |late, mistake| WakeModel { mistake: Some(mistake), ..wake(late) };
    vec![
        Case::mutant(
            WAKE_UP_CASES,
            "the client that subscribes after asking does not ask again",
            by(true, WakeMistake::SubscribeLast),
        ),
        Case::mutant(
            WAKE_UP_CASES,
            "a new connection does not ask again",
            by(false, WakeMistake::SleepOnAfterBreak),
        ),
        Case::mutant(
            WAKE_UP_CASES,
            "a purge admits the next and does not tell it",
            by(false, WakeMistake::PurgeTellsNobody),
        ),
        Case::mutant(
            WAKE_UP_CASES,
            "a release admits the next and does not tell it",
            by(false, WakeMistake::ReleaseTellsNobody),
        ),
    ]
}

fn quorum_mutants() -> Vec<Case> {
    use quorum::QuorumMistake;
    let fence = |mistake| QuorumModel { mistake: Some(mistake), ..fence() };
    let amnesia = |mistake| QuorumModel { mistake: Some(mistake), ..amnesia() };
    vec![
        Case::mutant(FENCE_CASES, "no write-back", fence(QuorumMistake::NoWriteBack)),
        Case::mutant(
            FENCE_CASES,
            "write-back without ownership",
            fence(QuorumMistake::WriteBackByAnybody),
        ),
        Case::mutant(
            AMNESIA_CASES,
            "restart without quarantine",
            amnesia(QuorumMistake::NoQuarantine),
        ),
        Case::mutant(AMNESIA_CASES, "quarantine without re-seed", amnesia(QuorumMistake::NoReseed)),
        Case::mutant(
            AMNESIA_CASES,
            "re-seed before the quarantine is over",
            amnesia(QuorumMistake::ReseedEarly),
        ),
    ]
}

/// What must be reachable under the real rules: a world in which nothing happens breaks nothing.
pub fn goals() -> Vec<Case> {
    vec![
        Case::goal(LEASE_CASES, "a client holds after another has lost", lease(), |_, state| {
            state.is_succeeded().then_some("reached")
        }),
        Case::goal(HAND_OVER_CASES, "a pushed grant is believed", hand_over(), |_, state| {
            state.is_pushed().then_some("reached")
        }),
        Case::goal(HAND_OVER_CASES, "a push overtakes an answer", hand_over(), |_, state| {
            state.is_overtaken().then_some("reached")
        }),
        Case::goal(
            WAKE_UP_CASES,
            "the lock is handed over a new connection",
            wake(true),
            |_, state| state.is_woken_after_break().then_some("reached"),
        ),
        Case::goal(FENCE_CASES, "a fence is written back before it counts", fence(), |_, state| {
            state.is_written_back().then_some("reached")
        }),
        Case::goal(AMNESIA_CASES, "a node that forgot votes again", amnesia(), |_, state| {
            state.is_rejoined().then_some("reached")
        }),
    ]
}
