//! Where the store is and how to speak to it, from a URL.

use std::time::Duration;

use distlock_core::Invalid;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use url::Url;

/// The namespace that keys are put in unless the URL names another.
const NAMESPACE: &str = "distlock";

/// Where the store is and how to speak to it.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) topology: Topology,
    pub(super) namespace: String,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    /// The URL without its secrets.
    shown: String,
}

/// What kind of store it is.
#[derive(Clone)]
pub(super) enum Topology {
    /// One server.
    Server(ConnectionInfo),
}

impl Config {
    /// Reads a URL: `redis://[[user]:password@]host[:port][/db]`, `rediss://…`, `redis+unix://…`,
    /// with the options `namespace`, `connect_timeout_ms` and `response_timeout_ms`.
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let mut url = Url::parse(text)
            .map_err(|_| Invalid::new("URL", "(hidden)", "must be a URL such as redis://host/"))?;
        let shown = without_secrets(&url);
        let mut config = Self {
            topology: Topology::Server(placeholder(&shown)?),
            namespace: NAMESPACE.to_owned(),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
            shown,
        };
        let rest = config.take_options(&url)?;
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        config.topology = Topology::Server(server(&url, &config.shown)?);
        Ok(config)
    }

    /// Takes our own options out of the query and returns those that the client crate knows.
    fn take_options(&mut self, url: &Url) -> Result<Vec<(String, String)>, Invalid> {
        let mut rest = Vec::new();
        for (name, value) in url.query_pairs() {
            match &*name {
                "namespace" => self.namespace = value.into_owned(),
                "connect_timeout_ms" => {
                    self.connect_timeout = millis("connect_timeout_ms", &value)?;
                }
                "response_timeout_ms" => {
                    self.response_timeout = millis("response_timeout_ms", &value)?;
                }
                "db" | "user" | "pass" => rest.push((name.into_owned(), value.into_owned())),
                _ => {
                    let known = "is not an option of this URL; known are namespace, db, user, \
                                 pass, connect_timeout_ms, response_timeout_ms";
                    return Err(Invalid::new("URL option", &name, known));
                }
            }
        }
        Ok(rest)
    }
}

fn millis(what: &'static str, value: &str) -> Result<Duration, Invalid> {
    match value.parse() {
        Ok(ms @ 1..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err(Invalid::new(what, value, "must be between 1 and 60000")),
    }
}

fn placeholder(shown: &str) -> Result<ConnectionInfo, Invalid> {
    "redis://127.0.0.1/".into_connection_info().map_err(|_| unusable(shown))
}

fn server(url: &Url, shown: &str) -> Result<ConnectionInfo, Invalid> {
    let info = url.as_str().into_connection_info().map_err(|_| unusable(shown))?;
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(redis).set_tcp_settings(tcp()))
}

fn unusable(shown: &str) -> Invalid {
    Invalid::new("URL", shown, "must be redis://, rediss:// or redis+unix:// with a host or path")
}

/// Requests leave at once, and a peer that has gone is noticed in seconds instead of hours.
fn tcp() -> TcpSettings {
    let alive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(alive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(10));
    settings
}

/// The URL as it may appear in logs and errors.
fn without_secrets(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    // Neither fails for a URL that can have a host, and others have no such part.
    let _ = shown.set_password(None);
    let _ = shown.set_username("");
    shown.to_string()
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("url", &self.shown)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let url = "redis://h:7000/3?namespace=jobs&response_timeout_ms=250";
        let config = Config::parse(url).unwrap();
        assert_eq!(config.namespace, "jobs");
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        for (url, what) in [
            ("redis://h/?ttl=5", "URL option"),
            ("redis://h/?connect_timeout_ms=0", "connect_timeout_ms"),
            ("not a url", "URL"),
            ("redis://", "URL"),
        ] {
            assert_eq!(Config::parse(url).unwrap_err().what, what, "{url}");
        }
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let config = Config::parse("redis://bob:s3ntinel@h/?pass=s3ntinel").unwrap();
        assert!(!format!("{config:?}").contains("s3ntinel"), "{config:?}");
        let refused = Config::parse("redis://bob:s3ntinel@h/?oops=1").unwrap_err();
        assert!(!refused.to_string().contains("s3ntinel"), "{refused}");
    }
}
