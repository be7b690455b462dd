//! Many leases held at once: what it costs to keep them.

use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::LockOptions;
use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use tokio::runtime::Handle;

use crate::place;
use crate::report::Report;
use crate::round::{Effort, Flavor, cpu_seconds, median, plain_connection, quantile};
use crate::server;
use crate::worker::{Worker, ready_and_wait};

const LEASES: usize = 10_000;
const TTL: Duration = Duration::from_secs(3);

/// How often the two are compared.
const ROUNDS: usize = 3;

/// How many acquisitions are under way at once while the leases are taken.
const AT_ONCE: usize = 100;

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    // What a call takes is measured while no other client is there, and what the two cost at one
    // and the same time: a machine that is not alone is faster at one moment than at the next.
    let alone = RedisServer::start();
    let placed = place::apart(std::slice::from_ref(&alone));
    let ours = Holding::start(&alone, "distlock", effort);
    server::log_every_call(&alone);
    let (_, tasks) = ours.end();
    drop(placed);
    let runtime = Flavor::CurrentThread.runtime();
    let mut calls = runtime.block_on(server::script_calls_ms(&alone.url()));
    let (mut costs, mut their_tasks) = ([vec![], vec![], vec![]], f64::NAN);
    for _ in 0..ROUNDS {
        let servers = [RedisServer::start(), RedisServer::start()];
        let [ours, theirs] = [("distlock", &servers[0]), ("distkit", &servers[1])]
            .map(|(contender, server)| Holding::start(server, contender, effort));
        let [(ours, _), (theirs, tasks)] = Holding::end_both(ours, theirs);
        their_tasks = tasks;
        costs.iter_mut().zip([ours, theirs, ours / theirs]).for_each(|(all, one)| all.push(one));
    }
    let [ours, theirs, ratio] = costs.each_mut().map(|all| median(all));
    report.add("renew_client_cpu_s", ours);
    report.add("distkit_renew_client_cpu_s", theirs);
    report.add("renew_client_cpu_vs_distkit", ratio);
    report.add("renew_tasks", tasks);
    report.add("distkit_renew_tasks", their_tasks);
    report.add("renew_server_block_ms", quantile(&mut calls, 0.99));
    report.add("renew_server_block_max_ms", quantile(&mut calls, 1.0));
}

/// A process that has its leases, and is about to hold them for a while.
struct Holding {
    worker: Worker,
    contender: &'static str,
}

impl Holding {
    fn start(server: &RedisServer, contender: &'static str, effort: Effort) -> Self {
        let (leases, span) = (LEASES.to_string(), effort.rest.as_millis().to_string());
        let mut worker = Worker::start(&["renewal", contender, &server.url(), &leases, &span]);
        worker.ready();
        Self { worker, contender }
    }

    fn end(mut self) -> (f64, f64) {
        self.worker.go();
        self.spent()
    }

    fn end_both(mut one: Self, mut other: Self) -> [(f64, f64); 2] {
        one.worker.go();
        other.worker.go();
        [one.spent(), other.spent()]
    }

    /// CPU seconds and tasks.
    fn spent(self) -> (f64, f64) {
        let output = self.worker.output();
        let mut numbers = output.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
        let mut next = || numbers.next().unwrap_or(f64::NAN);
        let (cpu, tasks, kept) = (next(), next(), next());
        assert!(kept >= LEASES as f64, "{} kept {kept} of {LEASES} leases", self.contender);
        (cpu, tasks)
    }
}

/// The process that holds the leases: prints CPU seconds, tasks and how many are still held.
pub(crate) fn work(contender: &str, url: &str, leases: usize, span_ms: u64) {
    let runtime = Flavor::TwoWorkers.runtime();
    runtime.block_on(async {
        // What a connection takes for itself is not the lock's doing.
        let before = tasks();
        let _plain = plain_connection(url).await;
        let a_connection = tasks() - before;
        let span = Duration::from_millis(span_ms);
        match contender {
            "distlock" => keep_distlock(url, leases, span, a_connection * 2).await,
            _ => keep_distkit(url, leases, span, a_connection * 2).await,
        }
    });
}

async fn keep_distlock(url: &str, leases: usize, span: Duration, connections: usize) {
    let locks = Locks::connect(url).expect("our own URL is valid");
    let locks = locks.configure(|options| options.ttl(TTL)).expect("a sane ttl");
    let mut guards = Vec::with_capacity(leases);
    for first in (0..leases).step_by(AT_ONCE) {
        let mut taking = tokio::task::JoinSet::new();
        for lease in first..(first + AT_ONCE).min(leases) {
            let mutex = locks.mutex(format!("lease-{lease}")).expect("a short key");
            taking.spawn(async move { mutex.lock().await.expect("it is free") });
        }
        guards.extend(taking.join_all().await);
    }
    rest(span, connections).await;
    println!("{}", guards.iter().filter(|guard| guard.is_held()).count());
    end();
}

async fn keep_distkit(url: &str, leases: usize, span: Duration, connections: usize) {
    let client = redis::Client::open(url).expect("our own URL is valid");
    let manager = client.get_connection_manager().await.expect("our own server is up");
    let mut guards = Vec::with_capacity(leases);
    for first in (0..leases).step_by(AT_ONCE) {
        let mut taking = tokio::task::JoinSet::new();
        for lease in first..(first + AT_ONCE).min(leases) {
            let key = DistkitRedisKey::try_from(format!("lease-{lease}")).expect("a short key");
            let mut options = LockOptions::new(key, manager.clone());
            options.ttl = TTL;
            let mutex = distkit::lock::Mutex::new(options);
            taking.spawn(async move { mutex.lock().await.expect("it is free") });
        }
        guards.extend(taking.join_all().await);
    }
    rest(span, connections).await;
    println!("{}", guards.len());
    end();
}

/// Does nothing for a while, and prints what that took.
async fn rest(span: Duration, connections: usize) {
    tokio::task::block_in_place(ready_and_wait);
    let before = cpu_seconds();
    tokio::time::sleep(span).await;
    println!("{} {}", cpu_seconds() - before, tasks().saturating_sub(connections));
}

/// Ten thousand releases tell nothing more: the server is thrown away.
fn end() -> ! {
    std::process::exit(0)
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
