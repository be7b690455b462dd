//! One key and up to 100,000 who wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::{Guard, Locks, Mutex};
use distlock_testkit::servers::RedisServer;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::report::Report;
use crate::round::{Effort, Flavor, median};
use crate::server::{self, CommandStats};
use crate::worker::{Worker, ready_and_wait};

const SIZES: [usize; 3] = [10, 1_000, 100_000];
const PROCESSES: usize = 10;

/// The most hand-overs that are measured at a stretch.
const STRETCH_MAX: usize = 500;

/// How many join the queue at once: each is answered before its response timeout.
const AT_ONCE: usize = 500;

/// A crowd that has not queued up within this never will.
const QUEUE_MAX: Duration = Duration::from_secs(20);

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    measure_grants(effort, report);
    let one_key = Crowd { waiters: 100_000, keys: 1, suffix: "" };
    let many_keys = Crowd { waiters: 20_000, keys: 1_000, suffix: "_1000_keys" };
    for crowd in [one_key, many_keys] {
        measure_idle(crowd, effort, report);
    }
}

/// Waiters in `PROCESSES` processes, spread evenly over the keys.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    waiters: usize,
    keys: usize,
    /// What the names of its metrics end with.
    suffix: &'static str,
}

/// Server time of a release that admits the next, by the number of waiters.
fn measure_grants(effort: Effort, report: &mut Report) {
    let server = RedisServer::start();
    let runtime = Flavor::TwoWorkers.runtime();
    let mut lines: Vec<_> =
        SIZES.iter().map(|size| runtime.block_on(Line::new(&server.url(), *size))).collect();
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); SIZES.len()];
    for _ in 0..effort.rounds {
        for (line, costs) in lines.iter_mut().zip(&mut costs) {
            costs.push(line.round(&runtime, &server));
        }
    }
    let medians: Vec<_> = costs.iter_mut().map(|costs| median(costs)).collect();
    report.add("grant_cost_10_us", medians[0]);
    report.add("grant_cost_1k_vs_10", medians[1] / medians[0]);
    report.add("grant_cost_100k_vs_10", medians[2] / medians[0]);
    runtime.shutdown_background();
    // A client that still waits has a clean-up that would be sent: the server goes first.
    drop(server);
    std::mem::forget(lines);
}

/// One key with a holder and a constant number of waiters, in steps.
struct Line {
    locks: Locks,
    mutex: Mutex,
    size: usize,
    joined: usize,
    holder: Option<Guard>,
    pace: Arc<Pace>,
    last: mpsc::UnboundedReceiver<Guard>,
}

/// How many more hand-overs a stretch has.
struct Pace {
    left: AtomicUsize,
    last: mpsc::UnboundedSender<Guard>,
}

impl Line {
    async fn new(url: &str, size: usize) -> Self {
        let locks = Locks::connect(url).expect("our own URL is valid");
        // Heartbeats come so rarely that hardly any falls into a stretch.
        let place = Duration::from_secs(600);
        let locks = locks.configure(|options| options.place(place)).expect("a sane place");
        let mutex = locks.mutex(format!("line-{size}")).expect("a short key");
        let holder = Some(mutex.lock().await.expect("it is free"));
        let (sender, last) = mpsc::unbounded_channel();
        let pace = Arc::new(Pace { left: AtomicUsize::new(0), last: sender });
        let mut line = Self { locks, mutex, size, joined: 0, holder, pace, last };
        line.fill().await;
        line
    }

    /// Lets new waiters join until the line is as long as it should be.
    async fn fill(&mut self) {
        let time_is_up = Instant::now() + QUEUE_MAX;
        while self.joined < self.size {
            let more = AT_ONCE.min(self.size - self.joined);
            for _ in 0..more {
                tokio::spawn(wait_and_pass_on(self.mutex.clone(), Arc::clone(&self.pace)));
            }
            self.joined += more;
            let filled = until_waiting(&self.locks, self.joined, time_is_up).await;
            assert!(filled, "the line does not fill: {:?}", self.locks.stats());
        }
    }

    /// Microseconds of server time per release.
    fn round(&mut self, runtime: &Runtime, server: &RedisServer) -> f64 {
        let (mut calls, mut micros) = (0, 0);
        while calls < STRETCH_MAX as u64 {
            runtime.block_on(self.fill());
            let stretch = self.size.min(STRETCH_MAX);
            self.pace.left.store(stretch, Ordering::SeqCst);
            let before = CommandStats::read(server);
            let holder = self.holder.take().expect("a client holds");
            let last = runtime.block_on(async {
                holder.release().await.expect("the server answers");
                self.last.recv().await
            });
            let spent = CommandStats::read(server).scripts_since(&before);
            self.holder = last;
            self.joined -= stretch;
            calls += spent.0;
            micros += spent.1;
        }
        micros as f64 / calls as f64
    }
}

/// Waits for a turn and lets the next have it; the last of a stretch stays.
async fn wait_and_pass_on(mutex: Mutex, pace: Arc<Pace>) {
    let Ok(guard) = mutex.lock().await else { return };
    if pace.left.fetch_sub(1, Ordering::SeqCst) > 1 {
        guard.release().await.expect("the server answers");
    } else {
        // No client listens once the bench is over.
        let _ = pace.last.send(guard);
    }
}

/// Waits until so many wait. False if the time is up before.
async fn until_waiting(locks: &Locks, waiters: usize, time_is_up: Instant) -> bool {
    while locks.stats().waiting < waiters {
        if Instant::now() > time_is_up {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}

/// What the server does for a crowd that only waits.
fn measure_idle(crowd: Crowd, effort: Effort, report: &mut Report) {
    let server = RedisServer::start();
    let runtime = Flavor::TwoWorkers.runtime();
    let locks = Locks::connect(&server.url()).expect("our own URL is valid");
    let holders: Vec<_> = (0..crowd.keys)
        .map(|key| runtime.block_on(mutex(&locks, key).lock()).expect("it is free"))
        .collect();
    let (each, keys) = ((crowd.waiters / PROCESSES).to_string(), crowd.keys.to_string());
    let mut workers: Vec<_> =
        (0..PROCESSES).map(|_| Worker::start(&["idle", &server.url(), &each, &keys])).collect();
    workers.iter_mut().for_each(Worker::ready);
    // Those who came last get into step with the others.
    std::thread::sleep(Duration::from_secs(2));
    let served = server::cpu_clock(&server);
    let (cpu, start) = (served(), Instant::now());
    std::thread::sleep(effort.rest);
    let share = (served() - cpu) / start.elapsed().as_secs_f64();
    workers.iter_mut().for_each(Worker::go);
    let waiting: f64 =
        workers.into_iter().filter_map(|w| w.output().trim().parse::<f64>().ok()).sum();
    report.add(format!("idle_waiters{}", crowd.suffix), waiting);
    // A crowd that could not even queue up says nothing about what it costs.
    let whole = waiting >= 0.99 * crowd.waiters as f64;
    let share = if whole { share } else { f64::NAN };
    report.add(format!("idle_waiters{}_server_core", crowd.suffix), share);
    runtime.shutdown_background();
    drop(server);
    std::mem::forget(holders);
}

fn mutex(locks: &Locks, key: usize) -> Mutex {
    locks.mutex(format!("crowd-{key}")).expect("a short key")
}

/// One of the processes that wait: prints how many do. Leaving the queue in order tells nothing.
pub(crate) fn idle(url: &str, waiters: usize, keys: usize) {
    let runtime = Flavor::TwoWorkers.runtime();
    let locks = Locks::connect(url).expect("our own URL is valid");
    runtime.block_on(async {
        let time_is_up = Instant::now() + QUEUE_MAX;
        for first in (0..waiters).step_by(AT_ONCE) {
            let more = AT_ONCE.min(waiters - first);
            for waiter in first..first + more {
                let mutex = mutex(&locks, waiter % keys);
                tokio::spawn(async move { mutex.lock().await.map(drop) });
            }
            // A server that cannot cope with the heartbeats shows in the figure, not in a failure.
            until_waiting(&locks, first + more, time_is_up).await;
        }
    });
    ready_and_wait();
    println!("{}", locks.stats().waiting);
    std::process::exit(0);
}
