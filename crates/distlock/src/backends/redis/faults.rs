//! What an error of the client crate or the server means: try again, or mend it first.

use distlock_core::Fault;
use redis::{RedisError, Value};

/// Answers of a server that is starting, failing over, moving slots, or short of something.
const PASSING: [&str; 14] = [
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "OOM",
    "NOSCRIPT",
    "UNBLOCKED",
    "NOMASTERLINK",
];

/// How a server refuses a command inside a script. It does not say which.
const DENIED_INSIDE: &str = "user executing the script can't run this command";

/// All that the scripts use, for whoever writes the access list.
pub(super) const NEEDED: &str = "the user needs +eval +evalsha +time +get +mget +set +append +del \
    +exists +pttl +pexpire +pexpireat +zadd +zrem +zscore +zmscore +zrange +zrangebyscore \
    +zrevrangebyscore +zrangebylex +zcard +zcount +zlexcount +zremrangebyscore \
    +zremrangebyrank +hget +hset +hsetnx +hexists +hdel +hmget +hincrby +publish +spublish \
    +subscribe +ssubscribe, \
    and for the journal +xadd +xtrim +xrange +xrevrange";

/// Turns an error into a fault. `action` completes "could not …".
pub(super) fn fault(action: &'static str, error: RedisError) -> Fault {
    if error.detail().is_some_and(|detail| detail.contains(DENIED_INSIDE)) {
        return Fault::permanent(action, format!("{error}; {NEEDED}"));
    }
    if is_passing(&error) {
        Fault::transient(action, error)
    } else {
        Fault::permanent(action, error)
    }
}

/// What came of a call for several at once. None if the server would not do it for all of them:
/// then each goes by itself and hears why.
pub(super) fn for_all(
    action: &'static str,
    answer: Result<Result<Value, RedisError>, Fault>,
) -> Result<Option<Value>, Fault> {
    match answer? {
        Ok(value) => Ok(Some(value)),
        Err(error) if ends_connection(&error) => Err(fault(action, error)),
        Err(_) => Ok(None),
    }
}

/// Answers of a server that does not let this user in.
const REFUSALS: [&str; 3] = ["WRONGPASS", "NOAUTH", "NOPERM"];

/// True if the same call may succeed later.
fn is_passing(error: &RedisError) -> bool {
    // A cluster's connection wraps what the nodes answered as a broken connection.
    let refused = |detail: &str| REFUSALS.iter().any(|code| detail.contains(code));
    if error.is_io_error() && error.detail().is_some_and(refused) {
        return false;
    }
    if let Some(code) = code(error) {
        return PASSING.contains(&code);
    }
    !matches!(
        error.kind(),
        redis::ErrorKind::AuthenticationFailed
            | redis::ErrorKind::InvalidClientConfig
            | redis::ErrorKind::UnexpectedReturnType
            | redis::ErrorKind::RESP3NotSupported
    )
}

/// The code in front of a server's error, also if it comes from inside a script.
fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    // A denial inside a script has no code of its own.
    let inside = error.detail().filter(|_| code == "ERR");
    let inner = inside.and_then(|detail| detail.split_whitespace().next());
    Some(inner.filter(|word| PASSING.contains(word)).unwrap_or(code))
}

/// True if the connection is of no use any more: broken, silent, or to a server that may not write.
pub(super) fn ends_connection(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || error.kind() == redis::ErrorKind::ClusterConnectionNotFound
        || matches!(code(error), Some("READONLY" | "MASTERDOWN"))
}

/// Says what is wrong if a server that was taken for one by itself is a node of a cluster: it
/// refuses all that belongs to other nodes, and to try again does not help.
pub(super) fn unless_of_a_cluster(error: RedisError) -> RedisError {
    let elsewhere = ["non local key", "same slot"];
    let inside = |detail: &str| elsewhere.iter().any(|words| detail.contains(words));
    if matches!(error.code(), Some("MOVED" | "ASK" | "CROSSSLOT"))
        || error.code() == Some("ERR") && error.detail().is_some_and(inside)
    {
        let cure = "the server is a node of a cluster: use redis-cluster://";
        return (redis::ErrorKind::InvalidClientConfig, cure, error.to_string()).into();
    }
    error
}

/// True if the user may not do this.
pub(super) fn is_denied(error: &RedisError) -> bool {
    matches!(code(error), Some("NOPERM"))
}
