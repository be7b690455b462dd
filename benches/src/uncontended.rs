//! Acquire and release with no contention: as many keys as tasks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock_testkit::servers::RedisServer;
use tokio::runtime::Runtime;

use crate::contender::{Contender, Kind};
use crate::place;
use crate::proxy::{self, HALF_A_MS};
use crate::report::Report;
use crate::round::{Effort, Flavor, cpu_seconds, median};
use crate::server::{self, CommandStats};
use crate::worker::Worker;

const TASKS: [usize; 4] = [1, 8, 64, 512];

/// In how many turns a round is cut for those who are quick enough: a machine that is not alone is
/// faster at one moment than at the next, and what is compared should happen at the same. Several
/// tasks need a while to find their step.
fn turns(kind: Kind, tasks: usize) -> u32 {
    match (kind, tasks) {
        (Kind::Distkit | Kind::Redlock, _) => 1,
        (_, 1) => 30,
        _ => 5,
    }
}

/// redlock opens a connection per call: more rounds would run out of ports.
const REDLOCK_ROUNDS: usize = 2;

/// What was done by contender and number of tasks, one entry a round.
pub(crate) type Rounds = BTreeMap<(Kind, usize), Vec<Done>>;

/// What was done in a while.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    cycles: u32,
    took: Duration,
    /// Seconds of CPU, of the client and of the server.
    client_cpu: f64,
    server_cpu: f64,
}

impl Done {
    /// Cycles per second.
    pub(crate) fn rate(self) -> f64 {
        f64::from(self.cycles) / self.took.as_secs_f64()
    }

    /// Seconds of CPU per cycle, of client and server together.
    pub(crate) fn cost(self) -> f64 {
        (self.client_cpu + self.server_cpu) / f64::from(self.cycles)
    }

    /// Seconds of the server's CPU per cycle.
    pub(crate) fn server_cost(self) -> f64 {
        self.server_cpu / f64::from(self.cycles)
    }

    fn and(self, other: Self) -> Self {
        Self {
            cycles: self.cycles + other.cycles,
            took: self.took + other.took,
            client_cpu: self.client_cpu + other.client_cpu,
            server_cpu: self.server_cpu + other.server_cpu,
        }
    }
}

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let mut worst = f64::INFINITY;
    for flavor in [Flavor::TwoWorkers, Flavor::CurrentThread] {
        let rounds = rounds(effort, flavor, &Kind::ALL, &TASKS, Distance::Loopback);
        for tasks in TASKS {
            let costs = ratio(&rounds, Done::cost, [Kind::Distlock, Kind::Limit], tasks);
            report.add(format!("uncontended_{tasks}_cpu_vs_limit{}", flavor.suffix()), costs);
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Limit) {
                let ratio = ratio(&rounds, Done::rate, [kind, Kind::Limit], tasks);
                let peer = match kind {
                    Kind::Distlock => String::new(),
                    peer => format!("{}_", peer.name()),
                };
                report.add(format!("{peer}uncontended_{tasks}_vs_limit{}", flavor.suffix()), ratio);
                if kind == Kind::Distlock {
                    worst = worst.min(ratio);
                }
            }
        }
        if flavor == Flavor::TwoWorkers {
            let ratio = ratio(&rounds, Done::rate, [Kind::Distlock, Kind::Rslock], 64);
            report.add("uncontended_64_vs_rslock", ratio);
            for tasks in [1, 64] {
                let kinds = [Kind::Distlock, Kind::Limit];
                let ratio = self::ratio(&rounds, Done::server_cost, kinds, tasks);
                report.add(format!("server_us_vs_limit_{tasks}"), ratio);
            }
        }
    }
    report.add("uncontended_worst_vs_limit", worst);
    let kinds = [Kind::Distlock, Kind::Limit];
    let far = rounds(effort, Flavor::TwoWorkers, &kinds, &[1, 64], Distance::OneMs);
    for tasks in [1, 64] {
        let ratio = ratio(&far, Done::rate, kinds, tasks);
        report.add(format!("uncontended_{tasks}_vs_limit_1ms"), ratio);
    }
}

/// The median over the rounds of one contender's figure by another's of the same round.
pub(crate) fn ratio(
    rounds: &Rounds,
    figure: fn(Done) -> f64,
    kinds: [Kind; 2],
    tasks: usize,
) -> f64 {
    let [one, other] = kinds.map(|kind| rounds[&(kind, tasks)].iter().copied().map(figure));
    let mut ratios: Vec<_> = one.zip(other).map(|(one, other)| one / other).collect();
    median(&mut ratios)
}

/// Where a round takes place.
#[derive(Clone, Copy)]
struct Stage<'a> {
    runtime: &'a Runtime,
    /// Seconds of CPU that the server has used.
    served: &'a dyn Fn() -> f64,
}

/// How far the server is, as a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distance {
    Loopback,
    FifthOfAMs,
    OneMs,
}

impl Distance {
    pub(crate) const ALL: [Self; 3] = [Self::Loopback, Self::FifthOfAMs, Self::OneMs];

    /// What the names of metrics end with.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Loopback => "",
            Self::FifthOfAMs => "_0_2ms",
            Self::OneMs => "_1ms",
        }
    }

    /// The URL at which the server is that far away, and what has to live meanwhile.
    fn url(self, server: &RedisServer) -> (String, Option<Worker>) {
        let each_way = match self {
            Self::Loopback => return (server.url(), None),
            Self::FifthOfAMs => Duration::from_micros(100),
            Self::OneMs => HALF_A_MS,
        };
        let (worker, url) = proxy::start_apart(server, each_way);
        (url, Some(worker))
    }
}

/// Rounds on a server of their own.
pub(crate) fn rounds(
    effort: Effort,
    flavor: Flavor,
    kinds: &[Kind],
    tasks: &[usize],
    distance: Distance,
) -> Rounds {
    rounds_on(&RedisServer::start(), effort, flavor, kinds, tasks, distance)
}

pub(crate) fn rounds_on(
    server: &RedisServer,
    effort: Effort,
    flavor: Flavor,
    kinds: &[Kind],
    tasks: &[usize],
    distance: Distance,
) -> Rounds {
    let _placed = place::apart(std::slice::from_ref(server));
    let (runtime, served) = (flavor.runtime(), server::cpu_clock(server));
    let (url, _proxy) = distance.url(server);
    let mut contenders = Vec::new();
    for kind in kinds {
        contenders.push((*kind, runtime.block_on(Contender::connect(*kind, &url))));
    }
    let mut rounds = Rounds::new();
    for round in 0..effort.rounds {
        for &tasks in tasks {
            let stage = Stage { runtime: &runtime, served: &served };
            for (kind, done) in one_round(stage, &contenders, tasks, effort.span, round) {
                rounds.entry((kind, tasks)).or_default().push(done);
            }
        }
        // The order alternates from round to round.
        contenders.rotate_left(1);
    }
    rounds
}

/// What each does, in turns.
fn one_round(
    stage: Stage<'_>,
    contenders: &[(Kind, Contender)],
    tasks: usize,
    span: Duration,
    round: usize,
) -> BTreeMap<Kind, Done> {
    let mut sums: BTreeMap<Kind, Done> = BTreeMap::new();
    for turn in 0..turns(Kind::Limit, tasks) {
        for (kind, contender) in contenders {
            let late = *kind == Kind::Redlock && round >= REDLOCK_ROUNDS;
            if late || turn >= turns(*kind, tasks) {
                continue;
            }
            let busy = (*kind == Kind::BusyPolling).then(|| KeepAwake::start(stage.runtime));
            let done = measured(stage, contender, tasks, span / turns(*kind, tasks));
            drop(busy);
            let sum = sums.entry(*kind).or_default();
            *sum = sum.and(done);
        }
    }
    sums
}

/// What so many tasks do in about this time.
fn measured(
    Stage { runtime, served }: Stage<'_>,
    contender: &Contender,
    tasks: usize,
    span: Duration,
) -> Done {
    // The first cycle pays for connections and for scripts that are not known yet.
    runtime.block_on(cycles(contender.clone(), 0, Instant::now()));
    let (start, client, server) = (Instant::now(), cpu_seconds(), served());
    let handles: Vec<_> = (0..tasks)
        .map(|task| runtime.spawn(cycles(contender.clone(), task, start + span)))
        .collect();
    let mut done = 0;
    for handle in handles {
        done += runtime.block_on(handle).expect("no task panics");
    }
    let took = start.elapsed();
    let (client_cpu, server_cpu) = (cpu_seconds() - client, served() - server);
    Done { cycles: done, took, client_cpu, server_cpu }
}

/// A task that always has something to do, so that the runtime polls its sockets without sleeping.
struct KeepAwake(tokio::task::JoinHandle<()>);

impl KeepAwake {
    fn start(runtime: &Runtime) -> Self {
        Self(runtime.spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        }))
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes and gives back one key until then, and at least once.
async fn cycles(contender: Contender, task: usize, until: Instant) -> u32 {
    let mut lock = contender.lock(&format!("bench-{task}"));
    let mut done = 0;
    loop {
        if let Some(held) = lock.acquire().await {
            done += u32::from(lock.release(held).await);
        }
        if Instant::now() >= until {
            return done;
        }
    }
}

/// One contender alone, so many cycles: prints microseconds per cycle, of CPU and of the clock.
/// For profilers, and for machines too busy for wall-clock times.
pub(crate) fn work(name: &str, flavor: Flavor, tasks: usize, keys: usize, cycles: u32) {
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).expect("a contender");
    let server = RedisServer::start();
    let runtime = flavor.runtime();
    let contender = runtime.block_on(Contender::connect(kind, &server.url()));
    let each = cycles / tasks as u32;
    runtime.block_on(times(contender.clone(), 0, 1));
    let calls = CommandStats::read(&server);
    let served = server::cpu_clock(&server);
    let before = (cpu_seconds(), served());
    let start = Instant::now();
    let handles: Vec<_> =
        (0..tasks).map(|task| runtime.spawn(times(contender.clone(), task % keys, each))).collect();
    for handle in handles {
        runtime.block_on(handle).expect("no task panics");
    }
    let wall = start.elapsed().as_secs_f64();
    let after = (cpu_seconds(), served());
    let per_cycle = |spent: f64| spent * 1e6 / f64::from(each) / tasks as f64;
    let (client, served) = (per_cycle(after.0 - before.0), per_cycle(after.1 - before.1));
    let (wall, sent) = (per_cycle(wall), CommandStats::read(&server).sent_since(&calls));
    let sent = sent as f64 / f64::from(each) / tasks as f64;
    println!(
        "{name} {tasks} tasks, per cycle: client {client:.2} us, server {served:.2} us, \
         all {wall:.2} us, {sent:.2} scripts"
    );
}

async fn times(contender: Contender, task: usize, times: u32) {
    let mut lock = contender.lock(&format!("bench-{task}"));
    for _ in 0..times {
        if let Some(held) = lock.acquire().await {
            lock.release(held).await;
        }
    }
}
