//! A backend that answers what a test tells it to, on tokio time that a test can pause.

mod call;
mod reply;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Backend, Capabilities, ClaimId, Confirmed, Cursor, Extensions, Fault, Health, Key,
    Page, Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal, Replicated, Snapshot, Standing,
    Streaming, Target,
};
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tokio::sync::broadcast;
use tokio::time::Instant;

pub use call::ScriptedCall;
pub use reply::{ReplyGate, ScriptedReply};

/// How many pushes a stream may fall behind before it misses some.
const SCRIPTED_PUSHES_MAX: usize = 1024;

/// A backend that answers what a test tells it to.
///
/// Every verb has a queue of [`ScriptedReply`]s and a default for when the queue is empty. The
/// defaults grant with growing fences, hold, and release. A renewed batch takes one reply per
/// claim, in the sequence of the batch. Every call is logged when it is first polled, since nothing
/// is sent before. Clones share everything.
///
/// ```
/// use std::time::Duration;
/// use distlock_core::{Answer, Ask, Backend, Claim, ClaimId, Key, Label};
/// use distlock_testkit::{ScriptedReply, Scripted};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = Scripted::new();
/// backend.on_acquire(ScriptedReply::transient());
/// backend.on_acquire(ScriptedReply::from(Answer::Full).after(Duration::from_secs(2)));
///
/// let claim = Claim::new(Key::new("k")?, ClaimId::random()?);
/// let ask = Ask::new(claim, Label::new("owner", "me")?, Duration::from_secs(30));
/// assert!(backend.acquire(&ask).await.is_err());
/// assert_eq!(backend.acquire(&ask).await?, Answer::Full);
/// assert_eq!(backend.acquire(&ask).await?, Answer::Granted { fence: 1 });
/// assert_eq!(backend.calls()[2].at(), Duration::from_secs(2));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Scripted {
    created: Instant,
    state: Arc<Mutex<ScriptedState>>,
}

struct ScriptedState {
    capabilities: Capabilities,
    calls: Vec<ScriptedCall>,
    acquire: VerbScript<Ask, Answer>,
    renew: VerbScript<Renewal, Standing>,
    release: VerbScript<Target, ReleaseOutcome>,
    confirm: VerbScript<Renewal, Confirmed>,
    inspect: VerbScript<Key, Snapshot>,
    list: VerbScript<String, Page>,
    probe: VerbScript<(), Health>,
    pushes: broadcast::Sender<Push>,
    /// The fence of every claim that was granted, so that a repeat and a renewal answer it again.
    fences: HashMap<ClaimId, u64>,
    fence_last: u64,
}

/// The replies prepared for one verb.
struct VerbScript<Q, A> {
    next: VecDeque<ScriptedReply<Q, A>>,
    default: Option<ScriptedReply<Q, A>>,
}

impl<Q, A> VerbScript<Q, A> {
    fn take(&mut self) -> Option<ScriptedReply<Q, A>>
    where
        A: Clone,
    {
        self.next.pop_front().or_else(|| self.default.clone())
    }
}

impl<Q, A> Default for VerbScript<Q, A> {
    fn default() -> Self {
        Self { next: VecDeque::new(), default: None }
    }
}

/// The two setters of a verb: its next reply and its default.
macro_rules! script {
    ($verb:ident, $on:ident, $always:ident, $ask:ty, $answer:ty) => {
        #[doc = concat!("Queues the reply to a coming `", stringify!($verb), "`.")]
        pub fn $on(&self, reply: impl Into<ScriptedReply<$ask, $answer>>) {
            self.state().$verb.next.push_back(reply.into());
        }

        #[doc = concat!("Sets the reply to every `", stringify!($verb), "` beyond the queue.")]
        pub fn $always(&self, reply: impl Into<ScriptedReply<$ask, $answer>>) {
            self.state().$verb.default = Some(reply.into());
        }
    };
}

impl Scripted {
    /// A backend that can do everything and says yes to all of it.
    pub fn new() -> Self {
        let state = ScriptedState {
            capabilities: Capabilities::ALL,
            calls: Vec::new(),
            acquire: VerbScript::default(),
            renew: VerbScript::default(),
            release: VerbScript::default(),
            confirm: VerbScript::default(),
            inspect: VerbScript::default(),
            list: VerbScript::default(),
            probe: VerbScript::default(),
            pushes: broadcast::channel(SCRIPTED_PUSHES_MAX).0,
            fences: HashMap::new(),
            fence_last: 0,
        };
        Self { created: Instant::now(), state: Arc::new(Mutex::new(state)) }
    }

    /// The same with other capabilities. They are declared and not enforced.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> Self {
        self.state().capabilities = capabilities;
        self
    }

    script!(acquire, on_acquire, always_acquire, Ask, Answer);
    script!(renew, on_renew, always_renew, Renewal, Standing);
    script!(release, on_release, always_release, Target, ReleaseOutcome);
    script!(confirm, on_confirm, always_confirm, Renewal, Confirmed);
    script!(inspect, on_inspect, always_inspect, Key, Snapshot);
    script!(list, on_list, always_list, String, Page);
    script!(probe, on_probe, always_probe, (), Health);

    /// Sends a push to all streams. A grant in it becomes the fence that later replies repeat.
    pub fn push(&self, push: Push) {
        let mut state = self.state();
        if let Push::Granted { id, fence, .. } = push {
            state.remember(id, fence);
        }
        // A push without a listener is no error: a push is only a shortcut.
        let _ = state.pushes.send(push);
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<ScriptedCall> {
        self.state().calls.clone()
    }

    /// Empties the log.
    pub fn forget_calls(&self) {
        self.state().calls.clear();
    }

    /// The acquires so far.
    pub fn acquires(&self) -> Vec<(Duration, Ask)> {
        let calls = self.calls().into_iter();
        calls
            .filter_map(|c| {
                if let ScriptedCall::Acquire { at, ask } = c { Some((at, ask)) } else { None }
            })
            .collect()
    }

    /// The renewed claims so far, one entry each.
    pub fn renewals(&self) -> Vec<(Duration, Renewal)> {
        let mut all = Vec::new();
        for call in self.calls() {
            if let ScriptedCall::Renew { at, renewals } = call {
                all.extend(renewals.into_iter().map(|renewal| (at, renewal)));
            }
        }
        all
    }

    /// The releases so far.
    pub fn releases(&self) -> Vec<(Duration, Target, ReleaseOptions)> {
        let mut all = Vec::new();
        for call in self.calls() {
            if let ScriptedCall::Release { at, target, how } = call {
                all.push((at, target, how));
            }
        }
        all
    }

    /// How many acquires there were.
    pub fn count_acquires(&self) -> usize {
        self.count(|call| matches!(call, ScriptedCall::Acquire { .. }))
    }

    /// How many batches were renewed.
    pub fn count_renews(&self) -> usize {
        self.count(|call| matches!(call, ScriptedCall::Renew { .. }))
    }

    /// How many releases there were.
    pub fn count_releases(&self) -> usize {
        self.count(|call| matches!(call, ScriptedCall::Release { .. }))
    }

    fn count(&self, which: impl Fn(&ScriptedCall) -> bool) -> usize {
        self.state().calls.iter().filter(|call| which(call)).count()
    }

    fn state(&self) -> MutexGuard<'_, ScriptedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a call and takes the reply that is due to it.
    fn called<T>(
        &self,
        call: impl FnOnce(Duration) -> ScriptedCall,
        take: impl FnOnce(&mut ScriptedState) -> T,
    ) -> T {
        let mut state = self.state();
        state.calls.push(call(self.created.elapsed()));
        take(&mut state)
    }
}

impl ScriptedState {
    fn remember(&mut self, id: ClaimId, fence: u64) {
        self.fences.insert(id, fence);
        self.fence_last = self.fence_last.max(fence);
    }

    /// The fence of a claim, minted if it has none yet.
    fn fence(&mut self, id: ClaimId) -> u64 {
        let next = self.fence_last + 1;
        let fence = *self.fences.entry(id).or_insert(next);
        self.fence_last = self.fence_last.max(fence);
        fence
    }
}

impl Default for Scripted {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("calls", &self.state().calls.len()).finish_non_exhaustive()
    }
}

impl Backend for Scripted {
    fn capabilities(&self) -> Capabilities {
        self.state().capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move {
            let log = |at| ScriptedCall::Acquire { at, ask: ask.clone() };
            let answer = match self.called(log, |state| state.acquire.take()) {
                Some(reply) => reply.play(ask).await?,
                None => Answer::Granted { fence: self.state().fence(ask.claim.id) },
            };
            if let Answer::Granted { fence } = answer {
                self.state().remember(ask.claim.id, fence);
            }
            Ok(answer)
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let all = async move {
            let log = |at| ScriptedCall::Renew { at, renewals: batch.to_vec() };
            let replies = self.called(log, |state| -> Vec<_> {
                batch.iter().map(|_| state.renew.take()).collect()
            });
            let each = batch.iter().zip(replies).enumerate();
            each.map(|(index, (renewal, reply))| async move {
                let standing = match reply {
                    Some(reply) => reply.play(renewal).await,
                    None => Ok(Standing::Held { fence: self.state().fence(renewal.claim.id) }),
                };
                (index, standing)
            })
            .collect::<FuturesUnordered<_>>()
        };
        Box::pin(stream::once(all).flatten())
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        Box::pin(async move {
            let log = |at| ScriptedCall::Release { at, target: target.clone(), how };
            match self.called(log, |state| state.release.take()) {
                Some(reply) => reply.play(target).await,
                None => Ok(ReleaseOutcome::WasHeld),
            }
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        Box::pin(async move {
            let log = |at| ScriptedCall::Inspect { at, key: key.clone() };
            match self.called(log, |state| state.inspect.take()) {
                Some(reply) => reply.play(key).await,
                None => Ok(Snapshot::free(key.clone())),
            }
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        Box::pin(async move {
            let prefix = prefix.to_owned();
            let log =
                |at| ScriptedCall::List { at, prefix: prefix.clone(), cursor: cursor.cloned() };
            match self.called(log, |state| state.list.take()) {
                Some(reply) => reply.play(&prefix).await,
                None => Ok(Page::default()),
            }
        })
    }

    fn probe(&self) -> Pending<'_, Health> {
        Box::pin(async move {
            match self.called(|at| ScriptedCall::Probe { at }, |state| state.probe.take()) {
                Some(reply) => reply.play(&()).await,
                None => Ok(Health::new("scripted", "scripted")),
            }
        })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let receiver =
            self.called(|at| ScriptedCall::Pushes { at }, |state| state.pushes.subscribe());
        Box::pin(stream::unfold(receiver, |mut receiver| async move {
            loop {
                match receiver.recv().await {
                    Ok(push) => return Some((push, receiver)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { replicated: Some(self), ..Extensions::at("a scripted store") }
    }
}

impl Replicated for Scripted {
    fn confirm<'a>(&'a self, renewal: &'a Renewal, replicas: u32) -> Pending<'a, Confirmed> {
        Box::pin(async move {
            let log = |at| ScriptedCall::Confirm { at, renewal: renewal.clone(), replicas };
            match self.called(log, |state| state.confirm.take()) {
                Some(reply) => reply.play(renewal).await,
                None => Ok(Confirmed::By(replicas)),
            }
        })
    }
}
