//! A value on a real Redis server.

use distlock_fenced::redis::{get, overwrite, set};
use distlock_testkit::servers::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::play::{Balance, play};

const KEY: &str = "balance:17";

struct RedisBalance(MultiplexedConnection);

impl RedisBalance {
    async fn on(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        Self(client.get_multiplexed_async_connection().await.unwrap())
    }
}

impl Balance for RedisBalance {
    type Seen = ();

    async fn read(&self, fence: u64) -> Option<(i64, ())> {
        let balance: Option<i64> = get(&mut self.0.clone(), KEY, fence).await.ok()?;
        Some((balance.unwrap_or(0), ()))
    }

    async fn write(&self, fence: u64, (): (), balance: i64) -> bool {
        set(&mut self.0.clone(), KEY, fence, balance).await.is_ok()
    }
}

/// The same without a look at the fence before the read.
struct CheckedAtTheWriteAlone(RedisBalance);

impl Balance for CheckedAtTheWriteAlone {
    type Seen = ();

    async fn read(&self, _fence: u64) -> Option<(i64, ())> {
        let mut connection = self.0.0.clone();
        let balance: Option<i64> =
            redis::cmd("GET").arg(KEY).query_async(&mut connection).await.ok()?;
        Some((balance.unwrap_or(0), ()))
    }

    async fn write(&self, fence: u64, (): (), balance: i64) -> bool {
        overwrite(&mut self.0.0.clone(), KEY, fence, balance).await.is_ok()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_on_redis_loses_no_update() {
    let server = RedisServer::start();
    let (paused, next) = (RedisBalance::on(&server).await, RedisBalance::on(&server).await);
    play(&paused, &next).await.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_on_redis_that_is_checked_at_the_write_alone_loses_updates() {
    let server = RedisServer::start();
    let paused = CheckedAtTheWriteAlone(RedisBalance::on(&server).await);
    let next = CheckedAtTheWriteAlone(RedisBalance::on(&server).await);
    play(&paused, &next).await.assert_something_lost();
}
