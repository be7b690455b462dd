//! The stage on which the promises play: clients with terse verbs, and what one expects to hear.

use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Backend, Busy, CAPACITY_MAX, Claim, ClaimId, Fault, Key, Label, Order, Push,
    QueuePosition, ReentryId, ReleaseOptions, ReleaseOutcome, Renewal, Snapshot, Standing,
    Streaming, Target, Ticket, Wait,
};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::Subject;

/// A lease or place that a promise waits out.
pub(super) const SHORT: Duration = Duration::from_secs(2);

/// A lease or place that outlives every promise, however slow the store is.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// What a store may be late by: some count in whole milliseconds.
pub(super) const STORE_LATE_MAX: Duration = Duration::from_millis(50);

/// How long a push or the end of a stream may take on a real network.
const DELIVERY_MAX: Duration = Duration::from_secs(5);

/// How many may queue at once where a promise is not about that.
const WAITERS_MAX: u32 = 1_000;

/// The store under test and a prefix that no other promise and no other run uses.
pub(super) struct KitStage<'a> {
    subject: &'a dyn Subject,
    prefix: String,
}

impl<'a> KitStage<'a> {
    /// A stage of its own. The prefix says which line of the kit made a key that is found later.
    #[track_caller]
    pub(super) fn new(subject: &'a dyn Subject) -> Self {
        let at = Location::caller();
        let file = Path::new(at.file()).file_stem().unwrap_or_default().to_string_lossy();
        let run = fresh_id().reveal();
        Self { subject, prefix: format!("kit/{file}-{}/{run}", at.line()) }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key that the promise is about.
    pub(super) fn key(&self) -> Key {
        self.named("")
    }

    /// Another key of this stage.
    pub(super) fn named(&self, name: &str) -> Key {
        key(format!("{}{name}", self.prefix))
    }

    /// Clients of the store, as many as the caller has names for.
    pub(super) async fn clients<const N: usize>(&self) -> [KitClient; N] {
        let mut clients = Vec::with_capacity(N);
        for _ in 0..N {
            clients.push(self.client().await);
        }
        clients.try_into().unwrap_or_else(|_| unreachable!("as many as were made"))
    }

    pub(super) async fn client(&self) -> KitClient {
        KitClient { backend: self.subject.client().await }
    }

    pub(super) async fn pass(&self, while_: Duration) {
        self.subject.pass(while_).await;
    }

    /// Lets everything short come to its end.
    pub(super) async fn outlive_short(&self) {
        self.pass(SHORT + STORE_LATE_MAX).await;
    }

    /// A new one-shot claim for all of the key.
    pub(super) fn mutex(&self) -> Ask {
        mutex(&self.key())
    }

    pub(super) fn reader(&self, order: Order) -> Ask {
        Ask { order, ..self.permits(1, CAPACITY_MAX) }
    }

    pub(super) fn writer(&self, order: Order) -> Ask {
        Ask { order, ..self.permits(CAPACITY_MAX, CAPACITY_MAX) }
    }

    /// `weight` of `capacity`.
    pub(super) fn permits(&self, weight: u32, capacity: u32) -> Ask {
        Ask { weight, capacity, ..self.mutex() }
    }
}

/// A validated key.
pub(super) fn key(name: impl AsRef<str>) -> Key {
    Key::new(name).expect("the kit makes valid keys")
}

/// A new one-shot claim for all of `key`.
pub(super) fn mutex(key: &Key) -> Ask {
    Ask::new(Claim::new(key.clone(), fresh_id()), label("kit"), LONG)
}

pub(super) fn fresh_id() -> ClaimId {
    ClaimId::random().expect("the system has random bytes")
}

pub(super) fn fresh_reentry() -> ReentryId {
    ReentryId::random().expect("the system has random bytes")
}

pub(super) fn label(text: &str) -> Label {
    Label::new("label", text).expect("the kit makes valid labels")
}

/// What an ask can say beyond its kind.
pub(super) trait AskExt: Sized {
    fn lasting(self, ttl: Duration) -> Self;
    fn queued(self, place: Duration) -> Self;
    fn owned_by(self, owner: &str) -> Self;
    fn grouped(self, group: &str) -> Self;
    fn reentering(self, reentry: ReentryId) -> Self;
    /// The same wish under a claim id of its own.
    fn again(&self) -> Self;
}

impl AskExt for Ask {
    fn lasting(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    fn queued(self, place: Duration) -> Self {
        Self { wait: Some(Wait { place, waiters_max: WAITERS_MAX }), ..self }
    }

    fn owned_by(self, owner: &str) -> Self {
        Self { owner: label(owner), ..self }
    }

    fn grouped(self, group: &str) -> Self {
        Self { group: Some(label(group)), ..self }
    }

    fn reentering(self, reentry: ReentryId) -> Self {
        Self { reentry: Some(reentry), ..self }
    }

    fn again(&self) -> Self {
        let claim = Claim::new(self.claim.key.clone(), fresh_id());
        Self { claim, ..self.clone() }
    }
}

/// One client of the store. A fault is never what a promise is about, so every verb expects an
/// answer.
#[derive(Clone)]
pub(super) struct KitClient {
    pub(super) backend: Arc<dyn Backend>,
}

impl KitClient {
    /// An order for readers and writers that this store offers.
    pub(super) fn order(&self) -> Order {
        *self.backend.capabilities().orders.first().expect("a store that shares has an order")
    }

    pub(super) async fn ask(&self, ask: &Ask) -> Answer {
        ask.check().expect("the kit asks for valid things");
        let answer = self.backend.acquire(ask).await.expect("an acquire is answered");
        self.settled().await;
        match answer {
            // A claim that is outvoted releases what some nodes may have granted.
            Answer::Outvoted(why) => {
                let claim = ask.claim.clone();
                let target = match ask.attempt {
                    Some(attempt) => Target::Attempt { claim, attempt },
                    None => Target::Claim(claim),
                };
                self.release_target(&target, ReleaseOptions::default()).await;
                *why
            }
            answer => answer,
        }
    }

    /// Asks and expects a place in the queue.
    pub(super) async fn queue(&self, ask: &Ask) -> Ticket {
        let busy = busy(self.ask(ask).await);
        busy.ticket.expect("a waiting ask gets a place")
    }

    /// Keeps a hold for `span`.
    pub(super) async fn renew(&self, ask: &Ask, span: Duration) -> Standing {
        self.renewal(Renewal::hold(ask.claim.clone(), span)).await
    }

    /// Keeps a place for as long as the ask wants it to live without a heartbeat.
    pub(super) async fn beat(&self, ask: &Ask, ticket: Ticket) -> Standing {
        let place = ask.wait.expect("only a waiting claim has a heartbeat").place;
        self.renewal(Renewal::place(ask.claim.clone(), place, ticket)).await
    }

    pub(super) async fn renewal(&self, renewal: Renewal) -> Standing {
        let mut answers = self.renewals(&[renewal]).await;
        assert_eq!(answers.len(), 1, "one renewal has one answer");
        let (index, standing) = answers.remove(0);
        assert_eq!(index, 0, "the only renewal has the first index");
        standing.expect("a renewal is answered")
    }

    /// All answers to a batch, in the sequence in which they come.
    pub(super) async fn renewals(
        &self,
        batch: &[Renewal],
    ) -> Vec<(usize, Result<Standing, Fault>)> {
        let answers = self.backend.renew(batch).collect();
        let answers = timeout(DELIVERY_MAX, answers).await;
        self.settled().await;
        answers.expect("the answers to a batch come to an end")
    }

    /// Waits for what a call left in flight: a store of several nodes answers before its last node
    /// does, and the next step of a promise must not overtake that node.
    async fn settled(&self) {
        self.backend
            .extensions()
            .drain()
            .await
            .expect("what a call left in flight comes to an end");
    }

    pub(super) async fn release(&self, ask: &Ask) -> ReleaseOutcome {
        self.give_up(ask, ReleaseOptions::default()).await
    }

    pub(super) async fn give_up(&self, ask: &Ask, how: ReleaseOptions) -> ReleaseOutcome {
        self.release_target(&Target::Claim(ask.claim.clone()), how).await
    }

    /// An operator breaks the hold that has this fence.
    pub(super) async fn break_hold(&self, key: &Key, fence: u64) -> ReleaseOutcome {
        self.release_target(&Target::Fence { key: key.clone(), fence }, ReleaseOptions::default())
            .await
    }

    pub(super) async fn release_target(
        &self,
        target: &Target,
        how: ReleaseOptions,
    ) -> ReleaseOutcome {
        let outcome = self.backend.release(target, how).await.expect("a release is answered");
        self.settled().await;
        outcome
    }

    pub(super) async fn inspect(&self, key: &Key) -> Snapshot {
        self.backend.inspect(key).await.expect("a look is answered")
    }

    /// Starts to listen; what was pushed before is not heard.
    pub(super) fn listen(&self) -> PushInbox {
        PushInbox(self.backend.pushes())
    }
}

/// The pushes for one client.
pub(super) struct PushInbox(Streaming<'static, Push>);

impl PushInbox {
    pub(super) async fn hear(&mut self) -> Push {
        let push = timeout(DELIVERY_MAX, self.0.next()).await.expect("a push comes in time");
        push.expect("the pushes go on as long as the client lives")
    }
}

/// How a release leaves the key taken for a while.
pub(super) fn keeping(keep: Duration) -> ReleaseOptions {
    ReleaseOptions { keep, ..ReleaseOptions::default() }
}

/// How a release makes the claim id unusable for a while.
pub(super) fn burying(bury: Duration) -> ReleaseOptions {
    ReleaseOptions { bury, ..ReleaseOptions::default() }
}

/// Expects a grant; answers its fence.
#[track_caller]
pub(super) fn granted(answer: Answer) -> u64 {
    match answer {
        Answer::Granted { fence } => fence,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Expects a refusal that is no error.
#[track_caller]
pub(super) fn busy(answer: Answer) -> Busy {
    match answer {
        Answer::Busy(busy) => busy,
        other => panic!("expected busy, got {other:?}"),
    }
}

/// Expects a refusal and answers the label of the holder it names.
#[track_caller]
pub(super) fn busy_with(answer: Answer) -> String {
    let holder = busy(answer).holder.expect("busy names a holder");
    holder.owner.as_str().to_owned()
}

/// Expects a hold; answers its fence.
#[track_caller]
pub(super) fn held(standing: Standing) -> u64 {
    match standing {
        Standing::Held { fence } => fence,
        other => panic!("expected held, got {other:?}"),
    }
}

/// Expects a place in the queue.
#[track_caller]
pub(super) fn waiting(standing: Standing) -> QueuePosition {
    match standing {
        Standing::Waiting(waiting) => waiting,
        other => panic!("expected waiting, got {other:?}"),
    }
}

/// Expects a claim that the store no longer knows.
#[track_caller]
pub(super) fn gone(standing: Standing) {
    match standing {
        Standing::Gone => {}
        other => panic!("expected gone, got {other:?}"),
    }
}
