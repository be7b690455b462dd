//! The kit itself is tested: every planted bug is caught by the promise that names it, and a
//! backend that honestly offers less passes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::backends::Memory;
use distlock_core::{
    Answer, Ask, Backend, Capabilities, Claim, Cursor, Fault, Holder, Key, Label, ManualClock,
    Order, Page, Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal, Snapshot, Standing,
    Streaming, TTL_MAX, Target, Wait,
};
use distlock_testkit::conformance::{self, Need, Subject};
use futures_util::{StreamExt, stream};
use tokio::task::{LocalSet, spawn_local};

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// No bug either: declares no queue, no counting and one order, and refuses the rest.
    OffersLess,
    AskingAgainRequeues,
    BatchLosesTheLast,
    BreakIgnoresTheFence,
    BuryIsForgotten,
    BusyIsAFault,
    FenceRepeats,
    InspectTellsTheId,
    KeysAreFolded,
    NeverPushes,
    OneShotQueues,
    OwnerDecides,
    PlacesNeverDie,
    PushHasAnotherTicket,
    ReleaseAlwaysSaysHeld,
    ReleaseIgnoresTheClaim,
    RenewalCreates,
    RenewalShortens,
    ServesUndeclared,
}

/// A client of a good store that does one thing wrong.
#[derive(Debug)]
struct Planted {
    inner: Memory,
    bug: Bug,
    /// Every ask that was not refused, the newest last.
    asked: Arc<Mutex<Vec<Ask>>>,
}

impl Planted {
    fn remembered(&self, wanted: impl Fn(&Ask) -> bool) -> Option<Ask> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().rev().find(|ask| wanted(ask)).cloned()
    }

    fn remember(&self, ask: &Ask) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(ask.clone());
    }

    fn key(&self, key: &Key) -> Key {
        match self.bug {
            Bug::KeysAreFolded => Key::new(key.as_str().to_lowercase()).expect("as long as before"),
            _ => key.clone(),
        }
    }

    fn claim(&self, claim: &Claim) -> Claim {
        Claim::new(self.key(&claim.key), claim.id)
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, Fault> {
        let mut ask = Ask { claim: self.claim(&ask.claim), ..ask.clone() };
        match self.bug {
            Bug::OffersLess => {
                if let Some(what) = self.capabilities().missing_for(&ask) {
                    return Err(Fault::unsupported(what));
                }
            }
            Bug::AskingAgainRequeues => {
                let target = Target::Claim(ask.claim.clone());
                self.inner.release(&target, ReleaseOptions::default()).await?;
            }
            Bug::OneShotQueues => {
                ask.wait = ask.wait.or(Some(Wait { place: ask.ttl, waiters_max: 9 }));
            }
            Bug::OwnerDecides => {
                let same = |old: &Ask| old.claim.key == ask.claim.key && old.owner == ask.owner;
                ask.claim = self.remembered(same).map_or(ask.claim.clone(), |old| old.claim);
            }
            Bug::PlacesNeverDie => {
                ask.wait = ask.wait.map(|wait| Wait { place: TTL_MAX, ..wait });
            }
            _ => {}
        }
        let answer = self.inner.acquire(&ask).await?;
        match (self.bug, &answer) {
            (Bug::BusyIsAFault, Answer::Busy(_)) => Err(Fault::transient("acquire", "busy")),
            (Bug::FenceRepeats, Answer::Granted { .. }) => Ok(Answer::Granted { fence: 7 }),
            (_, Answer::Granted { .. }) => {
                self.remember(&ask);
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }

    async fn renew_inside(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        let renewal = Renewal { claim: self.claim(&renewal.claim), ..renewal.clone() };
        let batch = [renewal];
        let (_, standing) = self.inner.renew(&batch).next().await.expect("one answer");
        standing
    }

    async fn stand(&self, renewal: &Renewal) -> Result<Standing, Fault> {
        match (self.bug, self.renew_inside(renewal).await?) {
            (Bug::RenewalCreates, Standing::Gone) => {
                let owner = Label::new("owner", "zombie").expect("a valid label");
                let ask = Ask::new(renewal.claim.clone(), owner, renewal.span);
                self.inner.acquire(&ask).await?;
                self.renew_inside(renewal).await
            }
            (Bug::RenewalShortens, standing @ Standing::Held { .. }) => {
                let held =
                    self.remembered(|ask| ask.claim == renewal.claim).expect("it was asked for");
                let target = Target::Claim(held.claim.clone());
                self.inner.release(&target, ReleaseOptions::default()).await?;
                self.inner.acquire(&Ask { ttl: renewal.span, ..held }).await?;
                Ok(standing)
            }
            (_, standing) => Ok(standing),
        }
    }

    async fn let_go(
        &self,
        target: &Target,
        mut how: ReleaseOptions,
    ) -> Result<ReleaseOutcome, Fault> {
        let mut target = match target {
            Target::Claim(claim) => Target::Claim(self.claim(claim)),
            other => other.clone(),
        };
        match (self.bug, &mut target) {
            (Bug::BuryIsForgotten, _) => how.bury = Duration::ZERO,
            (Bug::BreakIgnoresTheFence, Target::Fence { key, fence }) => {
                let look = self.inner.inspect(key).await?;
                *fence = look.holders.first().map_or(0, |holder| holder.fence);
            }
            (Bug::ReleaseIgnoresTheClaim, Target::Claim(claim)) => {
                let holder = self.remembered(|ask| ask.claim.key == claim.key);
                *claim = holder.map_or(claim.clone(), |ask| ask.claim);
            }
            _ => {}
        }
        match (self.bug, self.inner.release(&target, how).await?) {
            (Bug::ReleaseAlwaysSaysHeld, _) => Ok(ReleaseOutcome::WasHeld),
            (_, outcome) => Ok(outcome),
        }
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, Fault> {
        let mut look = self.inner.inspect(&self.key(key)).await?;
        if self.bug == Bug::InspectTellsTheId
            && let Some(ask) = self.remembered(|ask| ask.claim.key == *key)
        {
            let owner = Label::new("owner", ask.claim.id.reveal()).expect("a valid label");
            let tell = |holder: Holder| Holder { owner: owner.clone(), ..holder };
            look.holders = look.holders.into_iter().map(tell).collect();
        }
        look.key = key.clone();
        Ok(look)
    }
}

impl Backend for Planted {
    distlock_testkit::forward_backend!(inner: probe, extensions);

    fn capabilities(&self) -> Capabilities {
        let mut offered = self.inner.capabilities();
        if self.bug == Bug::OffersLess {
            (offered.queue, offered.push, offered.counting) = (false, false, false);
            (offered.groups, offered.reentry) = (false, false);
            (offered.downgrade, offered.listing) = (false, false);
            offered.orders = &[Order::PreferReaders];
        }
        offered.counting &= self.bug != Bug::ServesUndeclared;
        offered
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(self.ask(ask))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let lost = usize::from(self.bug == Bug::BatchLosesTheLast && batch.len() > 1);
        let answers = stream::iter(&batch[..batch.len() - lost]).enumerate();
        Box::pin(answers.then(move |(index, renewal)| async move {
            if renewal.weight.is_some() && !self.capabilities().downgrade {
                return (index, Err(Fault::unsupported("downgrades")));
            }
            (index, self.stand(renewal).await)
        }))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        Box::pin(self.let_go(target, how))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        Box::pin(self.look(key))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        match self.bug {
            Bug::OffersLess => Box::pin(async { Err(Fault::unsupported("a list of keys")) }),
            _ => self.inner.list(prefix, cursor),
        }
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        match self.bug {
            Bug::NeverPushes => Box::pin(stream::pending()),
            Bug::PushHasAnotherTicket => Box::pin(self.inner.pushes().map(|push| match push {
                Push::Granted { id, ticket, fence } => {
                    Push::Granted { id, ticket: ticket + 1, fence }
                }
                other => other,
            })),
            _ => self.inner.pushes(),
        }
    }
}

struct PlantedSubject {
    clock: ManualClock,
    store: Memory,
    bug: Bug,
    asked: Arc<Mutex<Vec<Ask>>>,
}

impl PlantedSubject {
    fn new(bug: Bug) -> Self {
        let clock = ManualClock::new();
        let store = Memory::with_clock(Arc::new(clock.clone()));
        Self { clock, store, bug, asked: Arc::default() }
    }
}

impl Subject for PlantedSubject {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let (inner, asked) = (self.store.client(), Arc::clone(&self.asked));
        let client: Arc<dyn Backend> = Arc::new(Planted { inner, bug: self.bug, asked });
        Box::pin(async { client })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.clock.advance(while_) })
    }
}

// The wrapper itself is innocent: with no bug, or with less on offer, every promise is kept.
distlock_testkit::conformance!(wrapped, PlantedSubject::new(Bug::None));
distlock_testkit::conformance!(modest, PlantedSubject::new(Bug::OffersLess));

/// One test for each bug: the promise panics. Time is paused, so that waiting in vain takes none.
macro_rules! catches {
    ($($name:ident: $bug:ident => $module:ident::$promise:ident [$($need:ident),*],)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let check = async {
                let subject = PlantedSubject::new(Bug::$bug);
                let promise = conformance::$module::$promise;
                conformance::run(promise, &[$(Need::$need),*], &subject).await;
            };
            let outcome = LocalSet::new().run_until(async { spawn_local(check).await }).await;
            let caught = outcome.expect_err("the planted bug is not caught");
            assert!(caught.is_panic(), "{caught:?}");
        }
    )*};
}

catches! {
    asking_again_requeues: AskingAgainRequeues => queue::asking_again_keeps_the_place [Queue],
    batch_loses_the_last: BatchLosesTheLast => limits::a_batch_answers_each_index_once [],
    break_ignores_the_fence: BreakIgnoresTheFence
        => breaking::a_break_with_another_fence_changes_nothing [Fencing],
    bury_is_forgotten: BuryIsForgotten => dead::a_buried_claim_is_refused [],
    busy_is_a_fault: BusyIsAFault => mutex::a_second_asker_is_busy [],
    fence_repeats: FenceRepeats => fences::fences_grow_over_releases [Fencing],
    inspect_tells_the_id: InspectTellsTheId => inspect::a_look_gives_away_no_claim_id [],
    keys_are_folded: KeysAreFolded => limits::odd_keys_do_not_interfere [],
    never_pushes: NeverPushes => push::a_granted_waiter_is_pushed [Push, Queue],
    one_shot_queues: OneShotQueues => queue::a_one_shot_never_queues [Queue],
    owner_decides: OwnerDecides => mutex::the_same_owner_excludes_itself [],
    places_never_die: PlacesNeverDie => waiting::a_dead_waiter_is_passed_over [Queue],
    push_has_another_ticket: PushHasAnotherTicket
        => push::a_granted_waiter_is_pushed [Push, Queue],
    release_always_says_held: ReleaseAlwaysSaysHeld => release::a_second_release_is_gone [],
    release_ignores_the_claim: ReleaseIgnoresTheClaim
        => release::a_wrong_claims_release_changes_nothing [],
    renewal_creates: RenewalCreates => expiry::a_renewal_never_creates [],
    renewal_shortens: RenewalShortens => expiry::a_renewal_never_shortens [],
    serves_undeclared: ServesUndeclared => semaphore::at_most_n_hold [Counting],
}
