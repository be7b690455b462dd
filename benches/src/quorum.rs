//! Acquire and release over five servers, beside the least that has to be said to five servers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::contender::{COMPARE_AND_DELETE, TTL, next_token, set_if_free};
use crate::outage;
use crate::place;
use crate::report::Report;
use crate::round::{Effort, Flavor, cpu_seconds, load, median, plain_connection};
use crate::server;

const NODES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Raw,
    Distlock,
    Rslock,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Raw, "raw"), (Kind::Distlock, "distlock"), (Kind::Rslock, "rslock")];

/// A client of all five servers.
enum Client {
    Raw { nodes: Vec<MultiplexedConnection>, hash: String },
    Distlock(distlock::Mutex),
    Rslock(rslock::LockManager),
}

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    for flavor in [Flavor::TwoWorkers, Flavor::CurrentThread] {
        let times = times(effort, flavor);
        for (kind, prefix) in [(Kind::Distlock, ""), (Kind::Rslock, "rslock_")] {
            let pairs = times[&kind].iter().zip(&times[&Kind::Raw]);
            let ratio = median(&mut pairs.map(|(ours, raw)| ours / raw).collect::<Vec<_>>());
            report.add(format!("{prefix}quorum5_vs_raw{}", flavor.suffix()), ratio);
        }
    }
    outage::measure(effort, report);
}

/// Seconds per cycle by contender, a number a round.
fn times(effort: Effort, flavor: Flavor) -> BTreeMap<Kind, Vec<f64>> {
    let servers: Vec<_> = (0..NODES).map(|_| RedisServer::start()).collect();
    let _placed = place::apart(&servers);
    let runtime = flavor.runtime();
    let mut clients: Vec<_> = KINDS
        .into_iter()
        .map(|(kind, _)| (kind, runtime.block_on(Client::connect(kind, &servers))))
        .collect();
    let mut times = BTreeMap::<Kind, Vec<f64>>::new();
    for _ in 0..effort.rounds {
        for (kind, client) in &mut clients {
            times.entry(*kind).or_default().push(time(&runtime, client, effort.span));
        }
        // The order alternates from round to round.
        clients.rotate_left(1);
    }
    times
}

/// Seconds per cycle. Cycles that fail count as time lost.
fn time(runtime: &Runtime, client: &mut Client, span: Duration) -> f64 {
    // The first cycle pays for connections and for scripts that are not known yet.
    runtime.block_on(client.cycle());
    let (start, mut done) = (Instant::now(), 0);
    runtime.block_on(async {
        while start.elapsed() < span {
            done += u32::from(client.cycle().await);
        }
    });
    start.elapsed().as_secs_f64() / f64::from(done)
}

impl Client {
    async fn connect(kind: Kind, servers: &[RedisServer]) -> Self {
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        match kind {
            Kind::Raw => {
                let mut nodes = join_all(urls.iter().map(|url| plain_connection(url))).await;
                let hashes = nodes.iter_mut().map(|node| load(node, COMPARE_AND_DELETE));
                let hash = join_all(hashes).await.swap_remove(0);
                Self::Raw { nodes, hash }
            }
            Kind::Distlock => {
                let nodes: Vec<_> = urls.iter().map(|url| format!("node={url}")).collect();
                let locks = Locks::connect(&format!("quorum:?{}", nodes.join("&")));
                let locks = locks.expect("our own URL is valid");
                Self::Distlock(locks.mutex("quorum").expect("a short key"))
            }
            Kind::Rslock => Self::Rslock(rslock::LockManager::new(urls)),
        }
    }

    /// Acquires and releases. False if that failed.
    async fn cycle(&mut self) -> bool {
        match self {
            Self::Raw { nodes, hash } => {
                let token = next_token();
                let asks = nodes.iter_mut().map(|node| set_if_free(node, "raw", &token));
                let granted = join_all(asks).await.into_iter().all(|granted| granted);
                let releases = nodes.iter_mut().map(|node| {
                    let mut cmd = redis::cmd("EVALSHA");
                    cmd.arg(&*hash).arg(1).arg("raw").arg(&token);
                    async move { cmd.query_async::<i64>(node).await == Ok(1) }
                });
                granted & join_all(releases).await.into_iter().all(|released| released)
            }
            Self::Distlock(mutex) => match mutex.lock().await {
                Ok(guard) => guard.release().await.is_ok(),
                Err(_) => false,
            },
            Self::Rslock(manager) => match manager.lock("rslock", TTL).await {
                Ok(lock) => {
                    lock.release().await;
                    true
                }
                Err(_) => false,
            },
        }
    }
}

/// One contender alone, so many cycles: prints microseconds per cycle on the wall, and of CPU of
/// the client and of the servers. For profilers, and for machines too busy for wall-clock times.
pub(crate) fn work(name: &str, cycles: u32) {
    let (kind, _) = KINDS.into_iter().find(|(_, known)| *known == name).expect("a contender");
    let servers: Vec<_> = (0..NODES).map(|_| RedisServer::start()).collect();
    let runtime = Flavor::TwoWorkers.runtime();
    let mut client = runtime.block_on(Client::connect(kind, &servers));
    runtime.block_on(client.cycle());
    let clocks: Vec<_> = servers.iter().map(server::cpu_clock).collect();
    let served = || clocks.iter().map(|clock| clock()).sum::<f64>();
    let (start, before) = (Instant::now(), (cpu_seconds(), served()));
    runtime.block_on(async {
        for _ in 0..cycles {
            client.cycle().await;
        }
    });
    let wall = start.elapsed().as_secs_f64();
    let after = (cpu_seconds(), served());
    let each = |spent: f64| spent * 1e6 / f64::from(cycles);
    let (client, server) = (each(after.0 - before.0), each(after.1 - before.1));
    println!("{name}: {:.1} us, client {client:.1} us, servers {server:.1} us", each(wall));
}
