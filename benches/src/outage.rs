//! Acquire and release over five servers while two of them are killed or stopped, in round trips.
//!
//! Through proxies that delay everything by much more than the machine does: round trips are to be
//! counted, and not the moments that thirty threads and processes wait for one of two cores.

use std::time::{Duration, Instant};

use distlock::{Locks, Mutex};
use distlock_testkit::servers::RedisServer;

use crate::proxy;
use crate::report::Report;
use crate::round::{Echo, Effort, Flavor, quantile};

const NODES: usize = 5;
const EACH_WAY: Duration = Duration::from_millis(5);

/// Rounds, each with a round trip of its own.
const ROUNDS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Outage {
    /// All are up: what the machine adds by itself.
    None,
    Killed,
    Paused,
}

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    for (outage, name) in
        [(Outage::None, "all_up"), (Outage::Killed, "two_killed"), (Outage::Paused, "two_paused")]
    {
        let (mut rtts, failed) = calls(effort, outage);
        report.add(format!("quorum5_{name}_p50_rtts"), quantile(&mut rtts, 0.5));
        report.add(format!("quorum5_{name}_p99_rtts"), quantile(&mut rtts, 0.99));
        report.add(format!("quorum5_{name}_failures"), f64::from(failed));
    }
}

/// What each call took, in round trips of its round, from the second one that met the outage on;
/// and how many failed.
fn calls(effort: Effort, outage: Outage) -> (Vec<f64>, u32) {
    let mut servers: Vec<_> = (0..NODES).map(|_| RedisServer::start()).collect();
    let urls: Vec<_> = servers.iter().map(|server| proxy::start(server, EACH_WAY)).collect();
    let runtime = Flavor::TwoWorkers.runtime();
    runtime.block_on(async {
        let nodes: Vec<_> = urls.iter().map(|url| format!("node={url}")).collect();
        let locks = Locks::connect(&format!("quorum:?{}", nodes.join("&")));
        let mutex = locks.expect("our own URL is valid").mutex("quorum").expect("a short key");
        let mut echo = Echo::connect(&urls[NODES - 1]).await;
        for _ in 0..20 {
            cycle(&mutex).await;
        }
        for server in &mut servers[..2] {
            match outage {
                Outage::None => {}
                Outage::Killed => server.kill(),
                Outage::Paused => server.pause(),
            }
        }
        cycle(&mutex).await;
        let (mut rtts, mut failed) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let rtt = echo.rtt(50).await.as_secs_f64();
            let start = Instant::now();
            while start.elapsed() < effort.slow_span {
                match cycle(&mutex).await {
                    Some(both) => rtts.extend(both.map(|took| took.as_secs_f64() / rtt)),
                    None => failed += 1,
                }
            }
        }
        (rtts, failed)
    })
}

/// How long the acquire and the release took; none if either failed.
async fn cycle(mutex: &Mutex) -> Option<[Duration; 2]> {
    let start = Instant::now();
    let guard = mutex.lock().await.ok()?;
    let acquired = start.elapsed();
    guard.release().await.ok()?;
    Some([acquired, start.elapsed() - acquired])
}
