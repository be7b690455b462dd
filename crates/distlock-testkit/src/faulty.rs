//! A network that loses, delays and repeats messages, in front of any backend.

mod fate;

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::{
    AcquireMany, Answer, Ask, Backend, Capabilities, Confirmed, Cursor, Extensions, Fault, Health,
    Key, ManyAnswer, Page, Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal, Replicated,
    Snapshot, Standing, Streaming, Target,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::Rng;
pub use fate::{Counts, Faults};
use fate::{Dice, Fate};

/// A backend behind a bad network. Clones share the network.
///
/// Everything is drawn from one seed: on a current-thread runtime with paused time the same seed
/// gives the same run again. Each claim of a renewed batch has a fate of its own.
///
/// Requests travel in tasks of their own, so calls need a tokio runtime. [`Faulty::settled`] waits
/// for those still under way.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use distlock_core::{Ask, Backend, Claim, ClaimId, Key, Label};
/// use distlock_testkit::{Faults, Faulty, Scripted};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let faulty = Faulty::new(Arc::new(Scripted::new()), 7, Faults::NONE);
/// let claim = Claim::new(Key::new("k")?, ClaimId::random()?);
/// let ask = Ask::new(claim, Label::new("owner", "me")?, Duration::from_secs(30));
///
/// faulty.cut();
/// assert!(faulty.acquire(&ask).await.is_err_and(|fault| fault.is_transient()));
/// faulty.heal();
/// assert!(faulty.acquire(&ask).await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Backend>,
    network: Arc<Network>,
}

struct Network {
    dice: Mutex<Dice>,
    under_way: watch::Sender<usize>,
}

/// A request that can be executed once or twice, without its caller.
type NetworkRequest<T> = Box<dyn Fn() -> Pending<'static, T> + Send + Sync>;

impl Faulty {
    /// Puts a network with these faults in front of `inner`.
    pub fn new(inner: Arc<dyn Backend>, seed: u64, faults: Faults) -> Self {
        let dice = Dice { rng: Rng::new(seed), faults, counts: Counts::default() };
        let under_way = watch::Sender::new(0);
        Self { inner, network: Arc::new(Network { dice: Mutex::new(dice), under_way }) }
    }

    /// Changes what goes wrong from now on. Messages under way keep their fate.
    pub fn set(&self, faults: Faults) {
        self.network.dice().faults = faults;
    }

    /// What goes wrong now.
    pub fn faults(&self) -> Faults {
        self.network.dice().faults
    }

    /// Nothing goes wrong any more; the time-outs stay.
    pub fn heal(&self) {
        self.only(|_| {});
    }

    /// Nothing gets through in either direction.
    pub fn cut(&self) {
        self.only(|faults| (faults.lose_request, faults.lose_push) = (1.0, 1.0));
    }

    /// Requests arrive and are executed; no answer and no push comes back.
    pub fn cut_replies(&self) {
        self.only(|faults| (faults.lose_reply, faults.lose_push) = (1.0, 1.0));
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.network.dice().counts
    }

    /// Waits until no request is under way, late and repeated ones included.
    pub async fn settled(&self) {
        // The sender is borrowed here, so it cannot close while we wait.
        let _ = self.network.under_way.subscribe().wait_for(|count| *count == 0).await;
    }

    fn only(&self, change: impl FnOnce(&mut Faults)) {
        let mut dice = self.network.dice();
        let Faults { late, response_timeout, .. } = dice.faults;
        dice.faults = Faults { late, response_timeout, ..Faults::NONE };
        change(&mut dice.faults);
    }

    /// Sends a request over the network and waits for what comes back.
    fn send<T: Send + 'static>(&self, request: NetworkRequest<T>) -> Pending<'static, T> {
        let network = Arc::clone(&self.network);
        Box::pin(async move {
            let fate = network.dice().fate();
            let (reply, answer) = oneshot::channel();
            let given_up = Arc::new(AtomicBool::new(false));
            if !fate.lose_request {
                // Taken here and not in the task, so that `settled` sees it from now on.
                let trip = Trip::start(&network);
                let gone = Arc::clone(&given_up);
                tokio::spawn(trip.travel(fate, request, reply, gone));
            } else {
                drop(reply);
            }
            let answered = async {
                match answer.await {
                    Ok(result) => result,
                    Err(_) => pending().await,
                }
            };
            timeout(fate.response_timeout, answered).await.unwrap_or_else(|_| {
                given_up.store(true, Ordering::SeqCst);
                Err(Fault::transient("reach the store", "no answer in time"))
            })
        })
    }
}

/// One request on its way. Ends being counted when it is dropped.
struct Trip(Arc<Network>);

impl Trip {
    fn start(network: &Arc<Network>) -> Self {
        network.under_way.send_modify(|count| *count += 1);
        Self(Arc::clone(network))
    }

    async fn travel<T: Send + 'static>(
        self,
        fate: Fate,
        request: NetworkRequest<T>,
        mut reply: oneshot::Sender<Result<T, Fault>>,
        given_up: Arc<AtomicBool>,
    ) {
        let execution = async {
            pause(fate.there).await;
            request().await
        };
        tokio::pin!(execution);
        let result = tokio::select! {
            biased;
            result = &mut execution => Some(result),
            () = reply.closed() => None,
        };
        let result = match (result, fate.late) {
            (Some(result), _) => result,
            (None, late) if late.is_some() || given_up.load(Ordering::SeqCst) => {
                self.0.dice().counts.late += 1;
                pause(late.unwrap_or_default()).await;
                execution.await
            }
            (None, _) => return self.0.dice().counts.abandoned += 1,
        };
        pause(fate.back).await;
        if fate.lose_reply {
            // The caller must go on waiting, so the sender lives until it stops.
            reply.closed().await;
        } else {
            // No client waiting any more is what a dropped call is about.
            let _ = reply.send(result);
        }
        if let Some(again) = fate.again {
            pause(again).await;
            // The answer to a repeated message reaches no client.
            let _ = request().await;
        }
    }
}

impl Drop for Trip {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

/// Sleeps, unless there is nothing to sleep for: a timer would cost a millisecond.
async fn pause(while_: Duration) {
    if !while_.is_zero() {
        sleep(while_).await;
    }
}

impl Network {
    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// A call of the inner backend with arguments of its own, so that it outlives its caller.
macro_rules! request {
    ($self:ident, ($($name:ident = $value:expr),*), |$inner:ident| $call:expr) => {{
        let $inner = Arc::clone(&$self.inner);
        $(let $name = $value;)*
        $self.send(Box::new(move || {
            let $inner = Arc::clone(&$inner);
            $(let $name = $name.clone();)*
            Box::pin(async move { $call })
        }))
    }};
}

impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        request!(self, (ask = ask.clone()), |inner| inner.acquire(&ask).await)
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let one = |(index, renewal): (usize, &Renewal)| {
            let call = request!(self, (batch = [renewal.clone()]), |inner| {
                let first = inner.renew(&batch).next().await;
                let silent = || Fault::transient("renew", "the batch was not answered");
                first.ok_or_else(silent)?.1
            });
            async move { (index, call.await) }
        };
        Box::pin(batch.iter().enumerate().map(one).collect::<FuturesUnordered<_>>())
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        request!(self, (target = target.clone()), |inner| inner.release(&target, how).await)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        request!(self, (key = key.clone()), |inner| inner.inspect(&key).await)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        request!(self, (prefix = prefix.to_owned(), cursor = cursor.cloned()), |inner| inner
            .list(&prefix, cursor.as_ref())
            .await)
    }

    fn probe(&self) -> Pending<'_, Health> {
        request!(self, (), |inner| inner.probe().await)
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let network = Arc::clone(&self.network);
        // Every copy waits on its own, so that later pushes overtake delayed ones.
        Box::pin(self.inner.pushes().flat_map_unordered(None, move |push| {
            let copies = network.dice().deliveries().into_iter().map(|delay| async move {
                pause(delay).await;
                push
            });
            copies.collect::<FuturesUnordered<_>>()
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        let inner = self.inner.extensions();
        Extensions {
            replicated: inner.replicated.map(|_| self as &dyn Replicated),
            many: inner.many.map(|_| self as &dyn AcquireMany),
            ..inner
        }
    }
}

impl Replicated for Faulty {
    fn confirm<'a>(&'a self, renewal: &'a Renewal, replicas: u32) -> Pending<'a, Confirmed> {
        request!(self, (renewal = renewal.clone()), |inner| {
            inner.extensions().confirm(&renewal, replicas).await
        })
    }
}

impl AcquireMany for Faulty {
    fn acquire_all<'a>(&'a self, asks: &'a [Ask]) -> Pending<'a, ManyAnswer> {
        request!(self, (asks = asks.to_vec()), |inner| match inner.extensions().many {
            Some(many) => many.acquire_all(&asks).await,
            None => Err(Fault::unsupported("several keys in one step")),
        })
    }
}
