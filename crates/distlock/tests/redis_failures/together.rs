//! Many tasks of one client, each with a key of its own: their calls go out together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_testkit::servers::RedisServer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::*;

const TASKS: usize = 64;

/// Takes and gives back a key until then; how long that took at most. Once, if `keep` says so, the
/// thread is kept for as long while the key is held.
async fn cycle(mutex: distlock::Mutex, until: Instant, keep: Option<Duration>) -> Duration {
    let (mut longest, mut keep) = (Duration::ZERO, keep);
    while Instant::now() < until {
        let began = Instant::now();
        let guard = mutex.lock().await.unwrap();
        let kept = keep.take().inspect(|keep| std::thread::sleep(*keep)).unwrap_or_default();
        guard.release().await.unwrap();
        longest = longest.max(began.elapsed() - kept);
    }
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_keeps_a_thread_holds_up_nobody_else() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    for _ in 0..2 {
        let until = Instant::now() + ms(2700);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let mutex = locks.mutex(format!("{KEY}-{task}")).unwrap();
            tasks.spawn(cycle(mutex, until, (task == TASKS / 2).then_some(ms(2400))));
        }
        let longest = tasks.join_all().await.into_iter().max().unwrap();
        assert!(longest < ms(1500), "a client was held up for {longest:?}");
    }
    nothing_left(&server, ms(2000)).await;
}

#[test]
fn a_client_that_two_runtimes_share_serves_both() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    // The connection lives on one of the two: neither ends before the other is done.
    let done = Arc::new(Barrier::new(2));
    let run = |first: usize| {
        let (locks, done) = (locks.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let until = Instant::now() + ms(1000);
                let mut tasks = JoinSet::new();
                for task in first..first + TASKS {
                    let mutex = locks.mutex(format!("{KEY}-{task}")).unwrap();
                    tasks.spawn(cycle(mutex, until, None));
                }
                let longest = tasks.join_all().await.into_iter().max().unwrap();
                done.wait().await;
                longest
            })
        })
    };
    let threads = [run(0), run(TASKS)];
    for thread in threads {
        let longest = thread.join().unwrap();
        assert!(longest < ms(5000), "a client was held up for {longest:?}");
    }
}
