//! Clients at work while nodes are killed, paused and restarted at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock::backends::QuorumOptions;
use distlock::clock::BootClock;
use distlock::{Clock, Locks};
use distlock_testkit::Rng;
use distlock_testkit::history::{AcquireSpec, History, ValidityEnd};
use distlock_testkit::servers::RedisServer;

use crate::support::Servers;

const CLIENTS: u64 = 8;
const KEYS: u64 = 4;
const TTL: Duration = Duration::from_millis(900);

fn seed() -> u64 {
    let given = std::env::var("DISTLOCK_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| BootClock.now().as_micros())
}

/// What has to be done.
#[derive(Clone, Copy)]
struct Quota {
    /// Acquisitions, if the machine is quick enough.
    wanted: u32,
    /// How long it tries to do all of them.
    span: Duration,
    /// Acquisitions without which nothing is shown, however long they take.
    least: u32,
}

impl Quota {
    fn chosen() -> Self {
        if std::env::var_os("DISTLOCK_SOAK").is_some() {
            return Self { wanted: 10_000, span: Duration::MAX, least: 10_000 };
        }
        Self { wanted: 1_000, span: Duration::from_secs(20), least: 300 }
    }

    fn is_met(self, done: u32, since: Duration) -> bool {
        done >= self.wanted || since >= self.span && done >= self.least
    }
}

/// Takes and gives back keys until enough was done.
async fn work(locks: Locks, seed: u64, history: History, done: Arc<AtomicU32>) {
    let (mut rng, clock) = (Rng::new(seed), BootClock);
    let (quota, started) = (Quota::chosen(), clock.now());
    while !quota.is_met(done.load(Ordering::Relaxed), clock.now().since(started)) {
        let key = format!("k{}", rng.below(KEYS));
        let entry = history.asks(AcquireSpec::mutex(key.clone()), clock.now());
        let taken = locks.mutex(&key).unwrap().try_lock_for(Duration::from_secs(30)).await;
        let Ok(guard) = taken else { continue };
        let now = clock.now();
        entry.granted(guard.fence(), now);
        tokio::time::sleep(Duration::from_micros(rng.below(2_000))).await;
        entry.valid_until(clock.now().after(guard.remaining()));
        let ended = if guard.is_held() { ValidityEnd::Released } else { ValidityEnd::Lost };
        entry.ended(ended, clock.now());
        // Whether the release was acknowledged or not, the hold is over.
        let _ = guard.release().await;
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Kills, pauses and brings back nodes, never more than two of them at once.
fn sabotage(mut servers: Servers, mut rng: Rng, stop: &AtomicBool) -> (Servers, u32) {
    let (mut ill, mut acts) = (Vec::<(usize, bool)>::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20 + rng.below(200)));
        if ill.len() == 2 || !ill.is_empty() && rng.chance(0.5) {
            let (node, killed) = ill.remove(0);
            if killed { servers[node].restart() } else { servers[node].resume() }
        } else {
            let node = usize::try_from(rng.below(5)).unwrap();
            if ill.iter().any(|(other, _)| *other == node) {
                continue;
            }
            let kill = rng.chance(0.5);
            if kill {
                servers[node].kill();
            } else {
                servers[node].pause();
            }
            ill.push((node, kill));
        }
        acts += 1;
    }
    for (node, killed) in ill {
        if killed { servers[node].restart() } else { servers[node].resume() }
    }
    (servers, acts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_in_chaos_never_hold_together_and_leave_nothing() {
    let seed = seed();
    println!("DISTLOCK_CHAOS_SEED={seed}");
    let servers = Servers::start(5);
    let options = QuorumOptions::default()
        .max_ttl(Duration::from_secs(1))
        .node_timeout(Duration::from_millis(300));
    let client = |_| {
        let locks = Locks::new(Arc::new(servers.quorum(options)));
        locks.configure(|o| o.ttl(TTL)).unwrap()
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    clients[0].mutex("founding").unwrap().lock().await.unwrap().release().await.unwrap();
    let (history, done) = (History::new(seed), Arc::new(AtomicU32::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let saboteur = std::thread::spawn({
        let (stop, rng) = (Arc::clone(&stop), Rng::new(seed));
        move || sabotage(servers, rng, &stop)
    });
    let working: Vec<_> = (1..)
        .zip(&clients)
        .map(|(n, locks)| {
            let (history, done) = (history.clone(), Arc::clone(&done));
            tokio::spawn(work(locks.clone(), seed.wrapping_add(n), history, done))
        })
        .collect();
    for client in working {
        client.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let (servers, acts) = saboteur.join().unwrap();
    println!("{} acquisitions, {acts} acts of sabotage", done.load(Ordering::Relaxed));
    assert!(acts > 0, "nothing was in the way");
    for locks in &clients {
        locks.close().await.unwrap();
    }
    history.assert_ok();
    for server in servers.iter() {
        nothing_is_left(server).await;
    }
}

/// What is left on a node that was ill ends with its lease, graves end with their time, and calls
/// that were late come to their end: soon there is nothing but the marks and the fence counter.
async fn nothing_is_left(server: &RedisServer) {
    let mut left = Vec::new();
    for _ in 0..100 {
        server.pass(Duration::from_secs(70));
        let keys = server.command(&["KEYS", "*"]);
        let names = keys.lines().filter(|line| line.contains("distlock"));
        let ours = |name: &&str| !name.contains(".distlock/quorum") && !name.contains("fence");
        left = names.filter(ours).map(str::to_owned).collect();
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("left behind: {left:?}");
}
