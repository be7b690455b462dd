//! Locks in a file: how many a second, and how fast a key goes from one process to another.

use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::TempFolder;
use rustix::time::{ClockId, clock_gettime};

use crate::report::Report;
use crate::round::{Effort, Flavor, median};
use crate::worker::{Worker, ready_and_wait};

const KEY: &str = "contended";

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let span = effort.span * 4;
    let mut rates: Vec<_> = (0..effort.rounds).map(|_| uncontended(span)).collect();
    report.add("sqlite_uncontended_per_s", median(&mut rates));
    let mut latencies: Vec<_> = (0..effort.rounds).flat_map(|_| handovers(span)).collect();
    report.add("sqlite_handover_p50_ms", median(&mut latencies));
}

fn url(folder: &TempFolder) -> String {
    format!("sqlite:{}", folder.path().join("locks.db").display())
}

/// Acquire and release with no contention, by one task.
fn uncontended(span: Duration) -> f64 {
    let (folder, runtime) = (TempFolder::new(), Flavor::TwoWorkers.runtime());
    let locks = Locks::connect(&url(&folder)).expect("our own URL is valid");
    let mutex = locks.mutex("uncontended").expect("a short key");
    let cycle = async || {
        let guard = mutex.lock().await.expect("it is free");
        guard.release().await.expect("the file answers");
    };
    runtime.block_on(cycle());
    let (start, mut cycles) = (Instant::now(), 0.0);
    while start.elapsed() < span {
        runtime.block_on(cycle());
        cycles += 1.0;
    }
    cycles / start.elapsed().as_secs_f64()
}

/// Milliseconds from the call of release in one process to the hold in the other.
fn handovers(span: Duration) -> Vec<f64> {
    let folder = TempFolder::new();
    let (url, span_ms) = (url(&folder), span.as_millis().to_string());
    let mut workers: Vec<_> =
        ["a", "b"].map(|name| Worker::start(&["file", &url, name, &span_ms])).into();
    workers.iter_mut().for_each(Worker::ready);
    workers.iter_mut().for_each(Worker::go);
    let mut holds: Vec<(u64, usize, u64, u64)> = Vec::new();
    for (process, worker) in workers.into_iter().enumerate() {
        holds.extend(worker.output().lines().filter_map(|line| {
            let mut numbers = line.split(' ').map_while(|word| word.parse().ok());
            Some((numbers.next()?, process, numbers.next()?, numbers.next()?))
        }));
    }
    // Fences grow from holder to holder, and all processes of a machine share its clock.
    holds.sort_unstable();
    let changes = holds.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    changes.map(|pair| pair[1].2.saturating_sub(pair[0].3) as f64 / 1e6).collect()
}

/// One of the processes: prints of every hold its fence, and when it began and ended.
pub(crate) fn work(url: &str, name: &str, span_ms: u64) {
    let runtime = Flavor::CurrentThread.runtime();
    let locks = Locks::connect(url).expect("our own URL is valid");
    runtime.block_on(async {
        let warm = locks.mutex(format!("warm-{name}")).expect("a short key");
        warm.lock().await.expect("it is free").release().await.expect("the file answers");
    });
    ready_and_wait();
    let until = Instant::now() + Duration::from_millis(span_ms);
    let mutex = locks.mutex(KEY).expect("a short key");
    let mut lines = Vec::new();
    runtime.block_on(async {
        while Instant::now() < until {
            let Ok(guard) = mutex.lock().await else { continue };
            let (fence, held) = (guard.fence(), now_ns());
            // The other one takes its place in the queue meanwhile.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let released = now_ns();
            let _ = guard.release().await;
            lines.push(format!("{fence} {held} {released}"));
        }
    });
    println!("{}", lines.join("\n"));
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
