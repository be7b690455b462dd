//! What an error of the client crate or the server means: try again, or change something first.

use distlock_core::Fault;
use redis::{RedisError, Value};

use super::config::Config;

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

/// How servers refuse a command inside a script: Redis 7.0, which does not say which, and later
/// versions and Valkey, which do.
const DENIED_INSIDE: [&str; 2] =
    ["user executing the script can't run this command", "has no permissions to run the"];

/// All that the library uses, for the access list.
pub(super) const NEEDED: &str = "the user needs +fcall +function|load (or +eval +evalsha) +time \
    +get +mget +set +append +del +exists +pttl +pexpire +pexpireat +zadd +zrem +zscore +zmscore \
    +zrange +zrangebyscore +zrevrangebyscore +zrangebylex +zcard +zcount +zlexcount \
    +zremrangebyscore +zremrangebyrank +hget +hset +hdel +hmget +hincrby +publish +spublish \
    +subscribe +ssubscribe, for the journal +xadd +xtrim +xrange +xrevrange, and for replicas \
    +wait";

/// What the causes of faults say, and what to do about it. The first that fits counts; the client
/// crate passes on some causes, such as those of TLS and of the nodes of a cluster, only as texts.
const ADVICE: [(&str, &str); 20] = [
    ("NOPERM", NEEDED),
    (DENIED_INSIDE[0], NEEDED),
    (DENIED_INSIDE[1], NEEDED),
    ("WRONGPASS", LOGIN),
    ("NOAUTH", LOGIN),
    ("uthentication failed", LOGIN),
    ("UnknownIssuer", AUTHORITY),
    ("BadSignature", AUTHORITY),
    ("certificate not valid for name", "use a host name that the certificate of the server names"),
    ("certificate expired", "renew the certificate of the server"),
    (
        "received fatal alert",
        "the server refuses this client's certificate: cert=FILE and key=FILE",
    ),
    ("received corrupt message", "no TLS is spoken on this port: use its TLS port, or redis://"),
    ("onnection refused", "check that a server listens there, and the host and port of the URL"),
    ("failed to lookup address", "check the host name in the URL"),
    ("LOADING", "the server is starting: it answers when its data is loaded"),
    ("READONLY", "the server is a replica: name its primary, or use redis-sentinel://"),
    ("MISCONF", "the server cannot save its data: see its log"),
    ("OOM", "the server has no memory left: raise maxmemory, or remove data"),
    ("CLUSTERDOWN", "a part of the cluster is down: see CLUSTER INFO"),
    ("timed out", "check the network and how busy the server is; raise response_timeout_ms"),
];

const AUTHORITY: &str =
    "name the file of the authority that signed the certificate of the server: ca=FILE";

const LOGIN: &str = "check the user and the password in the URL";

fn advice(text: &str) -> Option<&'static str> {
    ADVICE.iter().find(|(words, _)| text.contains(words)).map(|(_, advice)| *advice)
}

/// Turns an error into a fault. `action` completes "could not …".
pub(super) fn fault(action: &'static str, error: RedisError) -> Fault {
    let text = error.to_string();
    let told = |detail: &str| detail.contains("delete it");
    if code(&error) == Some("WRONGTYPE") && !error.detail().is_some_and(told) {
        let cure = "something else wrote a key of this lock: look at its side keys and delete it";
        return Fault::permanent(action, error).advise(cure);
    }
    let fault = if is_refused(&error, &text) {
        Fault::denied(action, error)
    } else if is_passing(&error) && !is_about_certificates(&text) {
        Fault::transient(action, error)
    } else {
        Fault::permanent(action, error)
    };
    match advice(&text) {
        Some(advice) => fault.advise(advice),
        None => fault,
    }
}

/// The same for a connection that could not be made.
pub(super) fn dial_fault(action: &'static str, error: RedisError, config: &Config) -> Fault {
    let closed = error.is_connection_dropped() || error.is_unrecoverable_error();
    let (silent, refused) = (error.is_timeout(), error.is_connection_refusal());
    let fault = fault(action, error);
    if refused {
        return fault.unsent();
    }
    if config.is_tls() && silent {
        let advice = "check the network and how busy the server is; if no TLS is spoken on this \
                      port, use its TLS port, or redis://";
        return fault.advise(advice);
    }
    if closed && fault.advice().is_none() {
        let advice = "the server closed the connection before it answered: if it speaks TLS on \
                      this port, use rediss://";
        return fault.advise(advice);
    }
    fault
}

/// True if TLS failed in a way that does not pass by itself.
fn is_about_certificates(text: &str) -> bool {
    ["invalid peer certificate", "received fatal alert", "received corrupt message"]
        .iter()
        .any(|words| text.contains(words))
}

/// True if the server does not let this user in, or not do this.
fn is_refused(error: &RedisError, text: &str) -> bool {
    // A cluster's connection wraps what the nodes answered, and a script what a command did.
    REFUSALS.iter().chain(&DENIED_INSIDE).any(|words| text.contains(words))
        || error.kind() == redis::ErrorKind::AuthenticationFailed
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
