//! One key that everybody wants: how fast it changes hands.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use tokio::runtime::Runtime;

use crate::contender::{Contender, Kind};
use crate::place::{self, Placed};
use crate::proxy::{self, HALF_A_MS};
use crate::report::Report;
use crate::round::{Echo, Effort, Flavor, median};
use crate::server::CommandStats;
use crate::worker::{Worker, ready_and_wait};

const KEY: &str = "contended";
const WAITERS: [usize; 3] = [2, 16, 128];
const PROCESSES: usize = 4;
const ROUND_TRIPS: usize = 100;

/// In how many turns a round is cut, with round trips before and after each: a machine that is not
/// alone is faster at one moment than at the next, and what is compared should happen at the same.
const TURNS: u32 = 5;

/// What one round over a contended key showed.
#[derive(Clone, Debug, Default)]
struct Round {
    changes_a_second: f64,
    /// From the call of release to the next holder holding, in seconds.
    p50: f64,
    commands_a_change: f64,
    rtt: f64,
}

impl Round {
    fn per_rtt(&self) -> f64 {
        self.changes_a_second * self.rtt
    }
}

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let span = effort.span * 2;
    let bench = Bench::new();
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); WAITERS.len()];
    let mut spread: Vec<Vec<f64>> = vec![Vec::new(); WAITERS.len()];
    let mut distant = Vec::new();
    for _ in 0..effort.rounds {
        for _ in 0..TURNS {
            for (index, waiters) in WAITERS.into_iter().enumerate() {
                let turn = bench.round(Kind::Distlock, waiters, span / TURNS, &bench.near());
                rounds[index].push(turn);
            }
            distant.push(bench.round(Kind::Distlock, 16, span * 2 / TURNS, &bench.far));
        }
        for (index, waiters) in WAITERS.into_iter().enumerate() {
            if waiters >= PROCESSES {
                spread[index].push(bench.round_over_processes(waiters, span));
            }
        }
    }
    for (index, waiters) in WAITERS.into_iter().enumerate() {
        let figure = over(&rounds[index], Round::per_rtt);
        report.add(format!("handovers_per_rtt_{waiters}"), figure);
        if waiters >= PROCESSES {
            report.add(format!("handovers_per_rtt_{waiters}_4p"), median(&mut spread[index]));
        }
    }
    report.add("handover_p50_rtts", over(&rounds[1], |round| round.p50 / round.rtt));
    report.add("handovers_per_rtt_1ms", over(&distant, Round::per_rtt));
    report.add("handover_p50_rtts_1ms", over(&distant, |round| round.p50 / round.rtt));
    let commands = rounds.iter().map(|rounds| over(rounds, |round| round.commands_a_change));
    report.add("handover_commands", commands.fold(f64::NAN, f64::max));
    measure_peers(&bench, effort, report, &rounds);
}

/// The peers poll, so they get longer rounds and fewer of them.
fn measure_peers(bench: &Bench, effort: Effort, report: &mut Report, ours: &[Vec<Round>]) {
    for kind in Kind::PEERS {
        for (index, waiters) in WAITERS.into_iter().enumerate().take(2) {
            let round = bench.round(kind, waiters, effort.slow_span, &bench.near());
            let (name, ours) = (kind.name(), over(&ours[index], Round::per_rtt));
            report.add(format!("{name}_handovers_per_rtt_{waiters}"), round.per_rtt());
            report.add(format!("handovers_{waiters}_vs_{name}"), ours / round.per_rtt());
        }
    }
}

fn over(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    median(&mut rounds.iter().map(figure).collect::<Vec<_>>())
}

/// A server, near and through a delay.
struct Bench {
    server: RedisServer,
    runtime: Runtime,
    far: String,
    _placed: Placed,
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start();
        let placed = place::apart(std::slice::from_ref(&server));
        let far = proxy::start(&server, HALF_A_MS);
        Self { server, runtime: Flavor::TwoWorkers.runtime(), far, _placed: placed }
    }

    fn near(&self) -> String {
        self.server.url()
    }

    fn rtt(&self, url: &str) -> f64 {
        let echo = async { Echo::connect(url).await.rtt(ROUND_TRIPS).await };
        self.runtime.block_on(echo).as_secs_f64()
    }

    /// So many tasks of this process take and release the key.
    fn round(&self, kind: Kind, waiters: usize, span: Duration, url: &str) -> Round {
        let rtt = self.rtt(url);
        let contender = self.runtime.block_on(warm(kind, url));
        let before = CommandStats::read(&self.server);
        let start = Instant::now();
        let trace = Arc::new(Trace::new(start + span / 6, start + span));
        let tasks: Vec<_> = (0..waiters)
            .map(|task| {
                let (contender, trace) = (contender.clone(), Arc::clone(&trace));
                self.runtime.spawn(contend(contender, task, start + span, trace))
            })
            .collect();
        for task in tasks {
            self.runtime.block_on(task).expect("no task panics");
        }
        let sent = CommandStats::read(&self.server).sent_since(&before);
        let mut seen = trace.seen.lock().expect("no task panics");
        let changes = seen.latencies.len() as f64;
        Round {
            changes_a_second: changes / (trace.until - trace.from).as_secs_f64(),
            p50: median(&mut seen.latencies),
            commands_a_change: sent as f64 / seen.changes as f64,
            rtt: f64::midpoint(rtt, self.rtt(url)),
        }
    }

    /// Changes of owner per round trip with as many tasks spread over several processes.
    fn round_over_processes(&self, waiters: usize, span: Duration) -> f64 {
        let (rtt, url) = (self.rtt(&self.near()), self.near());
        let (each, span_ms) = ((waiters / PROCESSES).to_string(), span.as_millis().to_string());
        let mut workers: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let first = (process * waiters / PROCESSES).to_string();
                Worker::start(&["handover", &url, &first, &each, &span_ms])
            })
            .collect();
        workers.iter_mut().for_each(Worker::ready);
        workers.iter_mut().for_each(Worker::go);
        let mut holds: Vec<(u64, usize)> = Vec::new();
        for worker in workers {
            holds.extend(worker.output().lines().filter_map(|line| {
                let (fence, task) = line.split_once(' ')?;
                Some((fence.parse().ok()?, task.parse().ok()?))
            }));
        }
        // Fences grow from holder to holder, whichever process they are in.
        holds.sort_unstable();
        let changes = holds.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        changes as f64 / span.as_secs_f64() * rtt
    }
}

/// A contender that has its connection, and whose scripts the server knows.
async fn warm(kind: Kind, url: &str) -> Contender {
    let contender = Contender::connect(kind, url).await;
    let mut lock = contender.lock("warm");
    let held = lock.acquire().await.expect("no other task wants it");
    lock.release(held).await;
    contender
}

/// Who held last, and how long it took to the next, while all are there: neither when the queue
/// forms nor when it ends.
struct Trace {
    from: Instant,
    until: Instant,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    released: Option<(usize, Instant)>,
    /// Changes of owner in all.
    changes: usize,
    /// One for each of those that count.
    latencies: Vec<f64>,
}

impl Trace {
    fn new(from: Instant, until: Instant) -> Self {
        Self { from, until, seen: Mutex::default() }
    }

    fn holding(&self, task: usize) {
        let now = Instant::now();
        let mut seen = self.seen.lock().expect("no task panics");
        if let Some((last, released)) = seen.released
            && last != task
        {
            seen.changes += 1;
            if (self.from..self.until).contains(&now) {
                seen.latencies.push(now.saturating_duration_since(released).as_secs_f64());
            }
        }
    }

    fn releasing(&self, task: usize) {
        self.seen.lock().expect("no task panics").released = Some((task, Instant::now()));
    }
}

async fn contend(contender: Contender, task: usize, until: Instant, trace: Arc<Trace>) {
    let mut lock = contender.lock(KEY);
    while Instant::now() < until {
        // Those who poll give up after some tries: they try again.
        let Some(held) = lock.acquire().await else { continue };
        trace.holding(task);
        trace.releasing(task);
        lock.release(held).await;
    }
}

/// One of the processes: prints every hold with its fence.
pub(crate) fn work(url: &str, first: usize, tasks: usize, span_ms: u64) {
    let runtime = Flavor::TwoWorkers.runtime();
    let locks = Locks::connect(url).expect("our own URL is valid");
    runtime.block_on(async {
        let warm = locks.mutex(format!("warm-{first}")).expect("a short key");
        warm.lock().await.expect("it is free").release().await.expect("the server answers");
    });
    ready_and_wait();
    let until = Instant::now() + Duration::from_millis(span_ms);
    let tasks: Vec<_> = (first..first + tasks)
        .map(|task| {
            let mutex = locks.mutex(KEY).expect("a short key");
            runtime.spawn(async move {
                let mut fences = Vec::new();
                while Instant::now() < until {
                    let Ok(guard) = mutex.lock().await else { continue };
                    fences.push((guard.fence(), task));
                    // One that is not answered in time is repeated by the keeper.
                    let _ = guard.release().await;
                }
                fences
            })
        })
        .collect();
    let mut holds = Vec::new();
    for task in tasks {
        holds.extend(runtime.block_on(task).expect("no task panics"));
    }
    let lines: Vec<_> = holds.iter().map(|(fence, task)| format!("{fence} {task}")).collect();
    println!("{}", lines.join("\n"));
}
