//! Every world, every mutant of it, and what must be reachable in it for it to prove anything.

use super::book::Flaw;
use super::check::{Found, World, explore, nearest};
use super::lock::{self, Lock};
use super::quorum::{self, Quorum};
use super::wake::{self, Wake};

/// How much to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
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

const LEASE: &str = "lease";
const HAND_OVER: &str = "hand-over";
const WAKE_UP: &str = "wake-up";
const FENCE: &str = "quorum fence";
const AMNESIA: &str = "quorum amnesia";

fn lease() -> Lock {
    Lock {
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

fn hand_over() -> Lock {
    Lock { waits: &[true, false], ttl: 3, margin: 0, drift: None, ..lease() }
}

fn wake(late: bool) -> Wake {
    Wake { clients: 3, late, breaks: 1, crashes: 1, mistake: None }
}

fn fence() -> Quorum {
    Quorum { nodes: 3, clients: 2, clocks: false, restarts: 0, proposals: &[0], mistake: None }
}

fn amnesia() -> Quorum {
    Quorum { clocks: true, restarts: 1, ..fence() }
}

/// The real rules. None of them may be broken anywhere.
pub fn rules(size: Size) -> Vec<Case> {
    if size == Size::Small {
        return vec![
            Case::rule(LEASE, "2 clients, 2 messages", lease()),
            Case::rule(HAND_OVER, "1 waits, 2 messages", hand_over()),
            Case::rule(WAKE_UP, "3 clients, own channels", wake(false)),
            Case::rule(
                WAKE_UP,
                "3 clients, channels of the key",
                Wake { crashes: 0, ..wake(true) },
            ),
            Case::rule(FENCE, "2 clients, proposals", Quorum { proposals: &[0, 3], ..fence() }),
            Case::rule(AMNESIA, "2 clients, 1 restart", amnesia()),
        ];
    }
    let both = &[true, true];
    vec![
        Case::rule(LEASE, "2 clients, 4 messages", Lock { room: 4, ..lease() }),
        Case::rule(HAND_OVER, "1 waits, 3 messages", Lock { room: 3, ..hand_over() }),
        Case::rule(HAND_OVER, "2 wait, 2 messages", Lock { waits: both, ..hand_over() }),
        Case::rule(WAKE_UP, "3 clients, own channels", Wake { breaks: 2, ..wake(false) }),
        Case::rule(WAKE_UP, "3 clients, channels of the key", wake(true)),
        Case::rule(FENCE, "3 clients", Quorum { clients: 3, ..fence() }),
        Case::rule(AMNESIA, "2 clients, 2 restarts", Quorum { restarts: 2, ..amnesia() }),
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
    use lock::Mistake;
    let by = |mistake| Lock { mistake: Some(mistake), ..lease() };
    let creates = Lock { flaw: Some(Flaw::RenewalCreates), ..lease() };
    vec![
        Case::mutant(LEASE, "validity counts from the reply", by(Mistake::CountFromReply)),
        Case::mutant(LEASE, "margin below the drift", by(Mistake::NoMargin)),
        Case::mutant(LEASE, "answers are not matched with requests", by(Mistake::AnyAnswer)),
        Case::mutant(LEASE, "a release never buries", by(Mistake::NoBurial)),
        Case::mutant(LEASE, "a renewal re-creates", creates),
    ]
}

fn hand_over_mutants() -> Vec<Case> {
    use lock::Mistake;
    let by = |mistake| Lock { mistake: Some(mistake), ..hand_over() };
    let law = |flaw| Lock { flaw: Some(flaw), ..hand_over() };
    let three = Lock { waits: &[true, false, false], ..law(Flaw::NewcomersBarge) };
    vec![
        Case::mutant(HAND_OVER, "a push counts for the full ttl", by(Mistake::FullTtlOnPush)),
        Case::mutant(HAND_OVER, "a push is trusted without ticket", by(Mistake::AnyTicket)),
        Case::mutant(HAND_OVER, "validity counts from the push", by(Mistake::CountFromPush)),
        Case::mutant(
            HAND_OVER,
            "validity counts from the last heartbeat sent",
            by(Mistake::CountFromLastSend),
        ),
        Case::mutant(HAND_OVER, "a release admits nobody", law(Flaw::ReleaseAdmitsNobody)),
        Case::mutant(HAND_OVER, "a purge admits nobody", law(Flaw::PurgeAdmitsNobody)),
        Case::mutant(HAND_OVER, "a newcomer barges", three),
        Case::mutant(
            HAND_OVER,
            "a cancel leaves the queue, but not a grant made meanwhile",
            law(Flaw::CancelMissesGrant),
        ),
        Case::mutant(HAND_OVER, "a renewal re-creates", law(Flaw::RenewalCreates)),
        Case::mutant(HAND_OVER, "a renewal may shorten", law(Flaw::RenewalShortens)),
        Case::mutant(
            HAND_OVER,
            "asking again does not refresh the lease",
            law(Flaw::RepeatKeepsOldLease),
        ),
    ]
}

fn wake_mutants() -> Vec<Case> {
    use wake::Mistake;
    let by = |late, mistake| Wake { mistake: Some(mistake), ..wake(late) };
    vec![
        Case::mutant(
            WAKE_UP,
            "whoever subscribes after asking does not ask again",
            by(true, Mistake::SubscribeLast),
        ),
        Case::mutant(
            WAKE_UP,
            "a new connection does not ask again",
            by(false, Mistake::SleepOnAfterBreak),
        ),
        Case::mutant(
            WAKE_UP,
            "a purge admits the next and does not tell it",
            by(false, Mistake::PurgeTellsNobody),
        ),
        Case::mutant(
            WAKE_UP,
            "a release admits the next and does not tell it",
            by(false, Mistake::ReleaseTellsNobody),
        ),
    ]
}

fn quorum_mutants() -> Vec<Case> {
    use quorum::Mistake;
    let fence = |mistake| Quorum { mistake: Some(mistake), ..fence() };
    let amnesia = |mistake| Quorum { mistake: Some(mistake), ..amnesia() };
    vec![
        Case::mutant(FENCE, "no write-back", fence(Mistake::NoWriteBack)),
        Case::mutant(FENCE, "write-back without ownership", fence(Mistake::WriteBackByAnybody)),
        Case::mutant(AMNESIA, "restart without quarantine", amnesia(Mistake::NoQuarantine)),
        Case::mutant(AMNESIA, "quarantine without re-seed", amnesia(Mistake::NoReseed)),
        Case::mutant(
            AMNESIA,
            "re-seed before the quarantine is over",
            amnesia(Mistake::ReseedEarly),
        ),
    ]
}

/// What must be reachable under the real rules: a world in which nothing happens breaks nothing.
pub fn goals() -> Vec<Case> {
    vec![
        Case::goal(LEASE, "somebody holds after another has lost", lease(), |_, state| {
            state.is_succeeded().then_some("reached")
        }),
        Case::goal(HAND_OVER, "a pushed grant is believed", hand_over(), |_, state| {
            state.is_pushed().then_some("reached")
        }),
        Case::goal(HAND_OVER, "a push overtakes an answer", hand_over(), |_, state| {
            state.is_overtaken().then_some("reached")
        }),
        Case::goal(WAKE_UP, "the lock is handed over a new connection", wake(true), |_, state| {
            state.is_woken_after_break().then_some("reached")
        }),
        Case::goal(FENCE, "a fence is written back before it counts", fence(), |_, state| {
            state.is_written_back().then_some("reached")
        }),
        Case::goal(AMNESIA, "a node that forgot votes again", amnesia(), |_, state| {
            state.is_rejoined().then_some("reached")
        }),
    ]
}
