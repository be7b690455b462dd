//! Values on Redis and Valkey that a stale holder can neither read nor overwrite.
//!
//! The value is a plain string at its key, so every other program can `GET` it. The fence is kept
//! at a second key with the same hash tag: `{key}:fence`. It has no expiry, and the server must not
//! evict it (`maxmemory-policy noeviction`). Programs that `SET` or `DEL` the value themselves
//! bypass the check.
//!
//! ```no_run
//! # async fn deposit(guard: &distlock::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! use distlock_fenced::redis::{get, set};
//!
//! let client = redis::Client::open("redis://127.0.0.1")?;
//! let mut connection = client.get_multiplexed_async_connection().await?;
//!
//! let balance: Option<i64> = get(&mut connection, "balance:17", guard.fence()).await?;
//! set(&mut connection, "balance:17", guard.fence(), balance.unwrap_or(0) + 10).await?;
//! # Ok(())
//! # }
//! ```

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{ErrorKind, FromRedisValue, RedisError, Script, ToRedisArgs, Value};

use crate::FencedError;
#[cfg(doc)]
use crate::Refused;
use crate::register::{FenceStep, valid};

static GET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("lua/raise.lua"), include_str!("lua/get.lua")))
});
static SET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("lua/check.lua"), include_str!("lua/set.lua")))
});
static OVERWRITE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("lua/raise.lua"), include_str!("lua/set.lua")))
});

/// Raises the fence of a value, then reads it.
///
/// ```no_run
/// # async fn example(connection: &mut redis::aio::MultiplexedConnection, fence: u64)
/// # -> Result<(), distlock_fenced::FencedError<redis::RedisError>> {
/// let balance: Option<i64> = distlock_fenced::redis::get(connection, "balance", fence).await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, the fence may have been raised. That is harmless: it is the caller's.
///
/// # Errors
///
/// [`Refused::Stale`] if a newer holder was here: the lock is lost.
pub async fn get<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    key: &str,
    fence: u64,
) -> Result<Option<T>, FencedError<RedisError>> {
    let value = run(&GET, connection, key, fence, None::<&str>, FenceStep::Raise).await?;
    redis::from_redis_value(value).map_err(|error| FencedError::Store(error.into()))
}

/// Writes a value that was computed from what [`get`] returned under the same fence.
///
/// ```no_run
/// # async fn example(connection: &mut redis::aio::MultiplexedConnection, fence: u64)
/// # -> Result<(), distlock_fenced::FencedError<redis::RedisError>> {
/// distlock_fenced::redis::set(connection, "balance", fence, 110).await
/// # }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, the value may have been written. Asking again is harmless.
///
/// # Errors
///
/// [`Refused::Stale`] as for [`get`], [`Refused::NotRaised`] if this fence has not read the value.
pub async fn set(
    connection: &mut impl ConnectionLike,
    key: &str,
    fence: u64,
    value: impl ToRedisArgs,
) -> Result<(), FencedError<RedisError>> {
    run(&SET, connection, key, fence, Some(value), FenceStep::Check).await.map(drop)
}

/// Writes a value that does not depend on the one before it. Needs no [`get`].
///
/// ```no_run
/// # async fn example(connection: &mut redis::aio::MultiplexedConnection, fence: u64)
/// # -> Result<(), distlock_fenced::FencedError<redis::RedisError>> {
/// distlock_fenced::redis::overwrite(connection, "leader", fence, "host-a").await
/// # }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, the value may have been written. Asking again is harmless.
///
/// # Errors
///
/// [`Refused::Stale`] if a newer holder was here: the lock is lost.
pub async fn overwrite(
    connection: &mut impl ConnectionLike,
    key: &str,
    fence: u64,
    value: impl ToRedisArgs,
) -> Result<(), FencedError<RedisError>> {
    run(&OVERWRITE, connection, key, fence, Some(value), FenceStep::Raise).await.map(drop)
}

/// Where the fence of a value is kept: in the same slot of a cluster.
///
/// # Errors
///
/// If the key contains `}` and has no hash tag: no second key can be sure to be in its slot.
pub fn fence_key(key: &str) -> Result<String, RedisError> {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    if tag.is_some_and(|(tag, _)| !tag.is_empty()) {
        return Ok(format!("{key}:fence"));
    }
    if key.contains('}') {
        let why = "a key with } needs a hash tag, such as {account/17}";
        return Err((ErrorKind::InvalidClientConfig, why, key.to_owned()).into());
    }
    Ok(format!("{{{key}}}:fence"))
}

/// Runs a script, and says why if it refuses.
async fn run(
    script: &Script,
    connection: &mut impl ConnectionLike,
    key: &str,
    fence: u64,
    value: Option<impl ToRedisArgs>,
    step: FenceStep,
) -> Result<Value, FencedError<RedisError>> {
    valid(fence)?;
    let mut call = script.key(key);
    call.key(fence_key(key).map_err(FencedError::Store)?).arg(fence);
    if let Some(value) = value {
        call.arg(value);
    }
    let (done, reply): (bool, Value) =
        call.invoke_async(connection).await.map_err(FencedError::Store)?;
    if done {
        return Ok(reply);
    }
    let newest =
        redis::from_redis_value(reply).map_err(|error| FencedError::Store(error.into()))?;
    Err(step.refusal(fence, newest).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_fence_is_kept_in_the_slot_of_its_value() {
        let pairs = [
            ("balance:17", "{balance:17}:fence"),
            ("{account}:17", "{account}:17:fence"),
            ("a{b", "{a{b}:fence"),
        ];
        for (key, fence) in pairs {
            assert_eq!(fence_key(key).unwrap(), fence);
        }
        for key in ["a}b", "{}a", "}{"] {
            assert!(fence_key(key).is_err(), "{key}");
        }
    }
}
