//! Rounds: how much to measure, the runtimes to measure on, and the round trip of a round.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Rounds over all contenders.
    pub(crate) rounds: usize,
    /// How long one contender is measured in one round.
    pub(crate) span: Duration,
    /// The same for peers that poll, which need longer to show anything.
    pub(crate) slow_span: Duration,
    /// How long leases are renewed and waiters idle.
    pub(crate) rest: Duration,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        rounds: 9,
        span: Duration::from_millis(150),
        slow_span: Duration::from_millis(1_000),
        rest: Duration::from_secs(10),
    };
    pub(crate) const QUICK: Self = Self {
        rounds: 3,
        span: Duration::from_millis(50),
        slow_span: Duration::from_millis(500),
        rest: Duration::from_secs(3),
    };
}

/// The two kinds of runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    TwoWorkers,
    CurrentThread,
}

impl Flavor {
    pub(crate) fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::TwoWorkers => Builder::new_multi_thread(),
            Self::CurrentThread => Builder::new_current_thread(),
        };
        builder.worker_threads(2).enable_all().build().expect("a runtime can be made")
    }

    /// What the names of metrics end with.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::TwoWorkers => "",
            Self::CurrentThread => "_ct",
        }
    }
}

/// A round trip: one script call that does nothing, awaited.
#[derive(Clone)]
pub(crate) struct Echo {
    connection: MultiplexedConnection,
    hash: String,
}

impl Echo {
    pub(crate) async fn connect(url: &str) -> Self {
        let mut connection = plain_connection(url).await;
        let hash = load(&mut connection, "return 1").await;
        Self { connection, hash }
    }

    /// The median of so many round trips.
    pub(crate) async fn rtt(&mut self, times: usize) -> Duration {
        let mut all = Vec::with_capacity(times);
        for _ in 0..times {
            let start = Instant::now();
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(&self.hash).arg(0);
            let _: i64 = cmd.query_async(&mut self.connection).await.expect("the server answers");
            all.push(start.elapsed().as_secs_f64());
        }
        Duration::from_secs_f64(median(&mut all))
    }
}

/// A connection as the client crate makes it by default.
pub(crate) async fn plain_connection(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("our own URL is valid");
    client.get_multiplexed_async_connection().await.expect("our own server is up")
}

/// Makes a script known to the server.
pub(crate) async fn load(connection: &mut MultiplexedConnection, text: &str) -> String {
    let mut cmd = redis::cmd("SCRIPT");
    cmd.arg("LOAD").arg(text);
    cmd.query_async(connection).await.expect("the script is valid")
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// NaN if there are no values.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Seconds of CPU that this process has used.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
