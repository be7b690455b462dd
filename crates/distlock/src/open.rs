//! From a URL to a backend: the only place that knows all of them.

use std::sync::Arc;

use distlock_core::{Backend, Invalid};

use crate::backends::Memory;

/// Opens the backend that a URL names. Sends nothing yet.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Backend>, Invalid> {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    match scheme {
        "memory" => memory(url),
        "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "redis-cluster" => redis(url),
        _ => Err(Invalid::new(
            "URL scheme",
            scheme,
            "is unknown; known are memory:, redis://, rediss://, redis+unix://, \
             redis-sentinel:// and redis-cluster://",
        )),
    }
}

fn memory(url: &str) -> Result<Arc<dyn Backend>, Invalid> {
    match url {
        "memory:" | "memory://" => Ok(Arc::new(Memory::new())),
        _ => Err(Invalid::new("URL", url, "must be just memory: since there is nothing to choose")),
    }
}

#[cfg(feature = "redis")]
fn redis(url: &str) -> Result<Arc<dyn Backend>, Invalid> {
    Ok(Arc::new(crate::backends::Redis::open(url)?))
}

#[cfg(not(feature = "redis"))]
fn redis(_: &str) -> Result<Arc<dyn Backend>, Invalid> {
    let why = "needs the feature `redis` of the crate distlock, which is off";
    Err(Invalid::new("URL scheme", "redis", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_opened_is_refused_with_the_reason() {
        for (url, says) in [
            ("", "unknown"),
            ("etcd://h", "unknown"),
            ("memory:x", "nothing to choose"),
            ("redis://h/?nope=1", "not an option"),
        ] {
            let refused = open(url).unwrap_err().to_string();
            assert!(refused.contains(says), "{url}: {refused}");
        }
    }

    #[test]
    fn known_urls_open_without_a_server() {
        for url in ["memory:", "redis://127.0.0.1:1/", "rediss://h/", "redis+unix:///run/r.sock"] {
            assert!(open(url).is_ok(), "{url}");
        }
    }
}
