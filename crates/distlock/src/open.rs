//! From a URL to a backend: the only place that knows all of them.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Backend, Invalid, Journal, Retention};

use crate::backends::Memory;

/// What a URL leads to.
pub(crate) struct Opened {
    pub(crate) backend: Arc<dyn Backend>,
    /// Where the past of the locks is kept, if the store can keep it.
    pub(crate) journal: Option<Arc<dyn Journal>>,
    /// How much of it is to be kept, if the URL asks for it.
    pub(crate) retention: Option<Retention>,
    /// The backend once more, if it is a quorum.
    #[cfg(feature = "quorum")]
    pub(crate) quorum: Option<Arc<crate::backends::Quorum>>,
}

impl Opened {
    /// A store that can keep a journal, too.
    fn both(store: Arc<impl Backend + Journal>) -> Self {
        Self {
            backend: Arc::clone(&store) as _,
            journal: Some(store),
            retention: None,
            #[cfg(feature = "quorum")]
            quorum: None,
        }
    }
}

/// Opens the backend that a URL names. Sends nothing yet.
pub(crate) fn open(url: &str) -> Result<Opened, Invalid> {
    let (url, retention) = take_retention(url)?;
    let opened = open_plain(&url)?;
    Ok(Opened { retention, ..opened })
}

fn open_plain(url: &str) -> Result<Opened, Invalid> {
    // What follows may be a secret, also where a part was forgotten.
    let scheme = url.split([':', '/', '?', '@']).next().unwrap_or_default();
    match scheme {
        "memory" => memory(url),
        "sqlite" => sqlite(url),
        "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "rediss-sentinel"
        | "redis-cluster" | "rediss-cluster" => redis(url),
        "postgres" | "postgresql" => postgres(url),
        "quorum" => quorum(url),
        _ => Err(Invalid::new(
            "URL scheme",
            scheme,
            "is unknown; known are memory:, sqlite:, redis://, rediss://, redis+unix://, \
             redis-sentinel://, rediss-sentinel://, redis-cluster://, rediss-cluster://, \
             postgres:// and quorum:?node=..",
        )),
    }
}

/// Takes the options of the journal, which are the same for every store, out of a URL.
fn take_retention(url: &str) -> Result<(String, Option<Retention>), Invalid> {
    let Some((place, query)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut on, mut retention, mut rest) = (false, Retention::default(), Vec::new());
    for option in query.split('&') {
        match option.split_once('=') {
            Some(("journal", "on")) => on = true,
            Some(("journal", "off")) => on = false,
            Some(("journal", other)) => {
                return Err(Invalid::new("journal", other, "must be on or off"));
            }
            Some(("journal_entries", count)) => {
                let refuse = |_| Invalid::new("journal_entries", count, "must be a number");
                retention.entries = count.parse().map_err(refuse)?;
            }
            Some(("journal_days", count)) => {
                let refuse = |_| Invalid::new("journal_days", count, "must be a number");
                let days: u32 = count.parse().map_err(refuse)?;
                retention.age = Duration::from_secs(u64::from(days) * 24 * 60 * 60);
            }
            _ => rest.push(option),
        }
    }
    retention.check()?;
    let mut url = place.to_owned();
    if !rest.is_empty() {
        url = format!("{url}?{}", rest.join("&"));
    }
    Ok((url, on.then_some(retention)))
}

fn memory(url: &str) -> Result<Opened, Invalid> {
    match url {
        "memory:" | "memory://" => Ok(Opened::both(Arc::new(Memory::new()))),
        _ => {
            let why = "must be just memory: since there is nothing to choose";
            Err(Invalid::new("URL", "memory:…", why))
        }
    }
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
fn sqlite(url: &str) -> Result<Opened, Invalid> {
    Ok(Opened::both(Arc::new(crate::backends::Sqlite::open(url)?)))
}

#[cfg(not(all(feature = "sqlite", target_os = "linux")))]
fn sqlite(_: &str) -> Result<Opened, Invalid> {
    let why = "needs Linux and the feature `sqlite` of the crate distlock, which is off";
    Err(Invalid::new("URL scheme", "sqlite", why))
}

/// A quorum of backends, each with a URL of its own.
#[cfg(feature = "quorum")]
fn quorum(url: &str) -> Result<Opened, Invalid> {
    let open_node = |url: &str| open_plain(url).map(|node| (node.backend, node.journal));
    let (backend, journal) = distlock_quorum::open(url, open_node)?;
    let quorum = Arc::new(backend);
    let backend = Arc::clone(&quorum) as _;
    Ok(Opened { backend, journal, retention: None, quorum: Some(quorum) })
}

#[cfg(not(feature = "quorum"))]
fn quorum(_: &str) -> Result<Opened, Invalid> {
    let why = "needs the feature `quorum` of the crate distlock, which is off";
    Err(Invalid::new("URL scheme", "quorum", why))
}

#[cfg(feature = "redis")]
fn redis(url: &str) -> Result<Opened, Invalid> {
    Ok(Opened::both(Arc::new(crate::backends::Redis::open(url)?)))
}

#[cfg(not(feature = "redis"))]
fn redis(_: &str) -> Result<Opened, Invalid> {
    let why = "needs the feature `redis` of the crate distlock, which is off";
    Err(Invalid::new("URL scheme", "redis", why))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Opened, Invalid> {
    Ok(Opened::both(Arc::new(crate::backends::Postgres::open(url)?)))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str) -> Result<Opened, Invalid> {
    let why = "needs the feature `postgres` of the crate distlock, which is off";
    Err(Invalid::new("URL scheme", "postgres", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_driver_that_was_left_out_is_said_to_be_off() {
        for scheme in ["redis", "rediss", "redis+unix", "redis-sentinel", "rediss-cluster"] {
            let refused = open(&format!("{scheme}://h/x")).map(|_| ()).unwrap_err();
            // The command line takes its exit code from this.
            assert_eq!(refused.what, "URL scheme");
            assert!(refused.to_string().contains("feature `redis`"), "{refused}");
        }
        #[cfg(not(feature = "sqlite"))]
        {
            let refused = open("sqlite:/x.db").map(|_| ()).unwrap_err();
            assert_eq!(refused.what, "URL scheme");
            assert!(refused.to_string().contains("feature `sqlite`"), "{refused}");
        }
        #[cfg(not(feature = "postgres"))]
        {
            let refused = open("postgres://h/").map(|_| ()).unwrap_err();
            assert_eq!(refused.what, "URL scheme");
            assert!(refused.to_string().contains("feature `postgres`"), "{refused}");
        }
        // What needs no feature is there, and an unknown scheme has an error of its own.
        assert!(open("memory:").is_ok());
        let unknown = open("etcd://h").map(|_| ()).unwrap_err().to_string();
        assert!(unknown.contains("unknown"), "{unknown}");
    }

    #[cfg(all(feature = "redis", feature = "sqlite", feature = "quorum"))]
    #[test]
    fn what_cannot_be_opened_is_refused_with_the_reason() {
        for (url, says) in [
            ("", "unknown"),
            ("etcd://h", "unknown"),
            ("memory:x", "nothing to choose"),
            ("redis://h/?nope=1", "not an option"),
            ("quorum:?node=redis://a&node=redis://b", "between 3 and 31"),
            ("quorum:?node=redis://a&node=redis://b&node=redis://u:p@A:6379/", "listed twice"),
            ("quorum:?node=redis://a&node=redis://b&node=quorum:", "not be a quorum"),
            ("quorum:?node=redis://a&node=redis://b&node=redis://c&ttl=3", "not an option"),
            ("quorum:?node=redis://a&node=redis://b&node=redis://c?x=1", "not an option"),
            ("quorum:redis://a", "must be like"),
            ("memory:?journal=maybe", "on or off"),
            ("memory:?journal_entries=0", "between 1 and"),
            ("memory:?journal_days=many", "a number"),
            ("sqlite:/tmp/x.db?nope=1", "not an option"),
        ] {
            let refused = open(url).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains(says), "{url}: {refused}");
        }
    }

    #[cfg(all(feature = "redis", feature = "sqlite", feature = "quorum"))]
    #[test]
    fn known_urls_open_without_a_server() {
        for url in [
            "memory:",
            "sqlite:/nowhere/x.db",
            "redis://127.0.0.1:1/",
            "rediss://h/",
            "redis+unix:///run/r.sock",
        ] {
            assert!(open(url).is_ok(), "{url}");
        }
        assert!(open("quorum:?node=redis://a&node=redis://b&node=redis://c?namespace=x").is_ok());
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_journal_is_an_option_of_every_url() {
        let retention = |url| open(url).unwrap().retention;
        assert_eq!(retention("memory:"), None);
        assert_eq!(retention("memory:?journal=off"), None);
        assert_eq!(retention("memory:?journal=on"), Some(Retention::default()));
        let url = "redis://h/?journal=on&namespace=x&journal_entries=7&journal_days=2";
        let age = Duration::from_secs(2 * 24 * 60 * 60);
        assert_eq!(retention(url), Some(Retention { entries: 7, age }));
    }
}
