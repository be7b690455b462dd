//! A store, its clients, and everything that goes wrong between them.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::backends::Memory;
use distlock::clock::{BootClock, TokioClock};
use distlock::{Backend, Clock, Error, HoldWatcher, Locks, Moment};
use distlock_testkit::history::{History, ValidityEnd};
use distlock_testkit::{Faults, Faulty, Rng};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{KEYS, Player};
use crate::planted::{Bug, Planted};
use crate::witness::{Holding, Passage, WeakHolding, Witness};

const CLIENTS: usize = 4;
const TASKS: usize = 2;
const ROUNDS: u64 = 6;

/// How long things go wrong, in steps of the director.
const STEPS: u64 = 40;

/// After the last fault, everybody has had its turn by then: far more than all leases together.
const HEALED_WITHIN: Duration = Duration::from_secs(120);

/// What clients that crashed left behind ends by itself by then.
const EXPIRED_WITHIN: Duration = Duration::from_secs(5);

/// The clock of all clients. It naps like that of a machine.
#[derive(Clone, Debug)]
struct ClientClock(TokioClock);

impl Clock for ClientClock {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn nap(&self) -> Duration {
        BootClock.nap()
    }
}

/// The clock of the store, which runs at a rate of its own.
#[derive(Debug)]
struct StoreClock(TokioClock, f64);

impl Clock for StoreClock {
    fn now(&self) -> Moment {
        let passed = self.0.now().since(Moment::ORIGIN).mul_f64(self.1);
        Moment::ORIGIN.after(passed)
    }

    fn nap(&self) -> Duration {
        Duration::MAX
    }
}

/// What the players of one world share.
pub(crate) struct Shared {
    pub(crate) keys: Vec<&'static str>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    doing: BTreeMap<String, String>,
    grants: BTreeMap<String, u64>,
    broken: HashSet<(String, u64)>,
    holdings: Vec<WeakHolding>,
    leaks: Vec<(Holding, HoldWatcher)>,
    summary: Summary,
}

/// What happened in a world, for those who want to know that anything did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) grants: u64,
    pub(crate) losses: u64,
    pub(crate) refusals: u64,
    pub(crate) cancellations: u64,
    pub(crate) breaks: u64,
    pub(crate) crashes: u64,
    pub(crate) pauses: u64,
    pub(crate) leaks: u64,
    pub(crate) places_lost: u64,
    pub(crate) simulated: Duration,
}

impl Shared {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn doing(&self, name: &str, what: String) {
        self.notes().doing.insert(name.into(), what);
    }

    pub(crate) fn refused(&self, error: &Error) {
        assert!(!matches!(error, Error::Invalid(_) | Error::Unsupported { .. }), "{error}");
        self.notes().summary.refusals += 1;
    }

    pub(crate) fn cancelled(&self) {
        self.notes().summary.cancellations += 1;
    }

    pub(crate) fn granted(&self, name: &str) {
        let client = name.split('/').next().unwrap_or(name);
        *self.notes().grants.entry(client.into()).or_default() += 1;
    }

    pub(crate) fn holds(&self, holding: &Holding) {
        self.notes().holdings.push(holding.weak());
    }

    /// True if an operator broke this hold.
    pub(crate) fn is_broken(&self, key: &str, fence: u64) -> bool {
        self.notes().broken.contains(&(key.into(), fence))
    }

    pub(crate) fn leaked(&self, holding: &Holding, watch: HoldWatcher) {
        let mut notes = self.notes();
        notes.summary.leaks += 1;
        notes.leaks.push((holding.clone(), watch));
    }
}

/// One client and what stands between it and the store.
struct Client {
    name: String,
    locks: Locks,
    network: Faulty,
    witness: Witness,
    tasks: Vec<JoinHandle<()>>,
    crashed: bool,
}

pub(crate) struct World {
    store: Memory,
    history: History,
    shared: Arc<Shared>,
    clients: Vec<Client>,
    operator: Locks,
    rng: Rng,
    began: Instant,
}

impl World {
    /// A world of this seed. Must be made inside a runtime whose time is paused.
    pub(crate) fn new(seed: u64, bug: Bug) -> Self {
        let mut rng = Rng::new(seed);
        let clock = TokioClock::new();
        let store = Memory::with_clock(Arc::new(StoreClock(clock, bug.rate())));
        let clock: Arc<dyn Clock> = Arc::new(ClientClock(clock));
        let history = History::new(seed);
        let first = *rng.pick(&KEYS);
        let shared = Shared { keys: vec![first, *rng.pick(&KEYS)], notes: Mutex::default() };
        let shared = Arc::new(shared);
        let operator = Locks::with_clock(Arc::new(store.client()), Arc::clone(&clock));
        let mut world = Self {
            store,
            history,
            shared,
            clients: Vec::new(),
            operator,
            rng,
            began: Instant::now(),
        };
        for number in 0..CLIENTS {
            let client = world.client(number, &clock, bug);
            world.clients.push(client);
        }
        world
    }

    fn client(&mut self, number: usize, clock: &Arc<dyn Clock>, bug: Bug) -> Client {
        let inner = self.store.client();
        let pushed = inner.pushes();
        let planted = Arc::new(Planted::new(inner, bug));
        let network = Faulty::new(planted, self.rng.next_u64(), self.faults());
        let backend = Arc::new(network.clone());
        let witness = Witness::new(backend, pushed, self.history.clone(), Arc::clone(clock));
        let locks = Locks::with_clock(Arc::new(witness.clone()), Arc::clone(clock));
        let locks = locks.configure(|o| o.ttl(Duration::from_millis(400))).unwrap();
        let name = format!("client-{number}");
        let player = |task: usize, rng: Rng| Player {
            name: format!("{name}/{task}"),
            locks: locks.clone(),
            witness: witness.clone(),
            shared: Arc::clone(&self.shared),
            rng,
            bug,
            may_leak: false,
        };
        let mut rngs = Rng::new(self.rng.next_u64());
        let tasks = (0..TASKS)
            .map(|task| tokio::spawn(player(task, Rng::new(rngs.next_u64())).play(ROUNDS)))
            .collect();
        Client { name, locks, network, witness, tasks, crashed: false }
    }

    fn faults(&mut self) -> Faults {
        let timings = Faults {
            late: Duration::from_millis(400),
            response_timeout: Duration::from_millis(120),
            ..Faults::NONE
        };
        let probability = *self.rng.pick(&[0.0, 0.05, 0.2, 0.4]);
        let delay = Duration::from_millis(5 + self.rng.below(200));
        let all = Faults::all(probability, delay);
        Faults { late: timings.late, response_timeout: timings.response_timeout, ..all }
    }

    /// Runs the world to its end. Says everything that must not happen and did.
    pub(crate) async fn run(mut self) -> Result<Summary, Vec<String>> {
        for _ in 0..STEPS {
            let pause = Duration::from_millis(5 + self.rng.below(120));
            sleep(pause).await;
            self.disturb().await;
        }
        for client in self.clients.iter().filter(|client| !client.crashed) {
            client.network.heal();
            client.witness.gate.set(Passage::Open);
        }
        let mut wrong = Vec::new();
        wrong.extend(self.everybody_is_served().await.err());
        wrong.extend(self.closing_leaves_nothing().await);
        self.end_leaks();
        wrong.extend(self.history.check().iter().take(8).map(ToString::to_string));
        let tally = self.history.tally();
        if tally.live > 0 || tally.granted != tally.released + tally.lost {
            wrong.push(format!("the sum is wrong: {tally:?}"));
        }
        let mut summary = self.shared.notes().summary.clone();
        (summary.grants, summary.losses) = (tally.granted, tally.lost);
        summary.simulated = self.began.elapsed();
        let places_lost = self.clients.iter().map(|client| client.locks.stats().places_lost);
        summary.places_lost = places_lost.sum();
        if wrong.is_empty() { Ok(summary) } else { Err(wrong) }
    }

    /// One more thing goes wrong, or stops doing so.
    async fn disturb(&mut self) {
        let faults = self.faults();
        let pause = Duration::from_millis(20 + self.rng.below(900));
        let chosen = usize::try_from(self.rng.below(CLIENTS as u64)).unwrap();
        let alive = self.clients.iter().filter(|client| !client.crashed).count();
        let client = &mut self.clients[chosen];
        match self.rng.below(20) {
            0..4 => client.network.set(faults),
            4..6 => client.network.cut(),
            6..8 => client.network.cut_replies(),
            8..12 => client.network.heal(),
            12..15 if !client.crashed => {
                self.shared.notes().summary.pauses += 1;
                let gate = client.witness.gate.clone();
                gate.set(Passage::Closed);
                tokio::spawn(async move {
                    sleep(pause).await;
                    gate.set(Passage::Open);
                });
            }
            15 if alive > 2 && !client.crashed => client.crash(&self.shared),
            16..18 => self.break_one().await,
            // No task runs for a while, and then all at once.
            18 => tokio::time::advance(pause).await,
            _ => {}
        }
    }

    /// An operator breaks a hold, having made sure that its owner stopped working.
    async fn break_one(&mut self) {
        let key = *self.rng.pick(&self.shared.keys);
        let holders = self.operator.inspect(key).await.unwrap().holders;
        if holders.is_empty() {
            return;
        }
        let fence = self.rng.pick(&holders).fence;
        {
            let mut notes = self.shared.notes();
            notes.summary.breaks += 1;
            notes.broken.insert((key.into(), fence));
            let holdings = notes.holdings.iter().filter_map(WeakHolding::get);
            holdings
                .filter(|held| held.is(key, fence))
                .for_each(|held| held.end(ValidityEnd::Lost));
        }
        let _ = self.operator.break_hold(key, fence).await;
    }

    /// No waiter is stuck: after the last fault everybody ends within bounded time.
    async fn everybody_is_served(&mut self) -> Result<(), String> {
        let tasks: Vec<_> = self.clients.iter_mut().flat_map(|c| c.tasks.drain(..)).collect();
        let all = async {
            for task in tasks {
                // Those who crashed were aborted.
                if let Err(error) = task.await
                    && error.is_panic()
                {
                    return Err(format!("a player panicked: {error:?}"));
                }
            }
            Ok(())
        };
        let stuck = |_| {
            let doing = self.shared.notes().doing.clone();
            let stuck = doing.into_iter().filter(|(_, what)| what != "done").collect::<Vec<_>>();
            Err(format!("stuck {HEALED_WITHIN:?} after the last fault: {stuck:?}"))
        };
        timeout(HEALED_WITHIN, all).await.unwrap_or_else(stuck)
    }

    async fn closing_leaves_nothing(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for client in self.clients.iter().filter(|client| !client.crashed) {
            if let Err(error) = client.locks.close().await {
                wrong.push(format!("{} did not close: {error}", client.name));
            }
            let stats = client.locks.stats();
            if stats.held + stats.waiting + stats.releasing > 0 {
                wrong.push(format!("{} is closed and has {stats:?}", client.name));
            }
            let seen = self.shared.notes().grants.get(&client.name).copied().unwrap_or(0);
            if stats.grants != seen {
                wrong.push(format!("{} saw {seen} grants of {stats:?}", client.name));
            }
        }
        sleep(EXPIRED_WITHIN).await;
        let left = self.store.list("", None).await.unwrap().locks;
        if !left.is_empty() {
            wrong.push(format!("left at the store: {left:?}"));
        }
        for client in self.clients.iter().filter(|client| !client.crashed) {
            if client.locks.stats().tasks > 0 {
                wrong.push(format!("{} has a task left", client.name));
            }
        }
        wrong
    }

    fn end_leaks(&self) {
        for (holding, watch) in self.shared.notes().leaks.drain(..) {
            assert!(watch.end().is_some(), "a forgotten guard outlives its locks");
            holding.end(ValidityEnd::Lost);
        }
    }
}

impl Client {
    /// No message passes any more, and no task runs.
    fn crash(&mut self, shared: &Shared) {
        shared.notes().summary.crashes += 1;
        self.crashed = true;
        self.witness.gate.set(Passage::ClosedForEver);
        for (task, number) in self.tasks.iter().zip(0..) {
            task.abort();
            shared.doing(&format!("{}/{number}", self.name), "done".into());
        }
    }
}
