//! Where the store is and how to speak to it, from a URL.
//!
//! Long because a third of it are the tests of what each option means.

use std::time::Duration;

use distlock_core::Invalid;
use redis::aio::ConnectionLike;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};
use url::Url;

use super::shared_connection::SharedConnection;
use super::tls::{TlsFiles, install_provider};

/// The namespace that keys are put in unless the URL names another.
const NAMESPACE: &str = "distlock";

/// Where the store is and how to speak to it.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) topology: Topology,
    pub(super) namespace: String,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    /// The certificates of a URL that names some.
    pub(super) tls_files: TlsFiles,
    /// A push is only a reason to ask the server: for servers where others may publish.
    pub(super) verify_push: bool,
    /// Requests may leave together: off only to measure what that brings.
    pub(super) batch: bool,
    location: String,
}

/// What kind of store it is.
#[derive(Clone)]
pub(super) enum Topology {
    /// One server.
    Server(ConnectionInfo),
    /// The primary that these Sentinels name.
    Sentinel { sentinels: Vec<ConnectionAddr>, primary: String, login: RedisConnectionInfo },
    /// A cluster that these nodes belong to.
    Cluster(Vec<ConnectionInfo>),
    /// Whatever a connection leads to that the program has made.
    Shared(SharedConnection),
}

impl Config {
    /// Reads a URL: `redis://[[user]:password@]host[:port][/db]`, `rediss://…`, `redis+unix://…`,
    /// `redis-sentinel://h1,h2/primary[/db]` or `redis-cluster://h1,h2`, the last two also with
    /// `rediss-` for TLS, with the options of [`Own`].
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let (url, others) = split_hosts(text)?;
        let shown = without_secrets(&url);
        if url.fragment().is_some() {
            let why = "must not have a fragment: write # as %23";
            return Err(Invalid::new("URL", shown, why));
        }
        let (mut own, known) = (Own::default(), own_options(&url)?);
        let rest = own.take(known)?;
        let mut plain = url.clone();
        plain.set_query(None);
        if !rest.is_empty() {
            plain.query_pairs_mut().extend_pairs(rest);
        }
        let topology = match url.scheme() {
            "redis-sentinel" | "rediss-sentinel" => sentinel(&plain, &others, &shown)?,
            "redis-cluster" | "rediss-cluster" => cluster(&plain, &others, &shown)?,
            _ if others.is_empty() => Topology::Server(server(plain.as_str(), &shown)?),
            _ => return Err(unusable(&shown)),
        };
        if url.scheme().starts_with("rediss") {
            install_provider();
            own.tls_files.read()?;
        } else if !own.tls_files.is_empty() {
            let why = "are options of TLS: use rediss://, rediss-sentinel:// or rediss-cluster://";
            return Err(Invalid::new("URL option", "ca, cert, key", why));
        }
        Ok(Self::with(own, topology))
    }

    fn with(own: Own, topology: Topology) -> Self {
        let location = topology.location();
        let Own { namespace, connect_timeout, response_timeout, tls_files, verify_push, batch } =
            own;
        Self {
            topology,
            namespace,
            connect_timeout,
            response_timeout,
            tls_files,
            verify_push,
            batch,
            location,
        }
    }

    /// Where the store is, without secrets.
    pub(super) fn location(&self) -> &str {
        &self.location
    }

    /// The server of a client that the program has made.
    pub(super) fn of_client(client: &redis::Client, namespace: &str) -> Self {
        let info = client.get_connection_info();
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.clone().set_redis_settings(redis).set_tcp_settings(tcp());
        if is_tls(info.addr()) {
            install_provider();
        }
        Self::own(namespace, |_| Topology::Server(info))
    }

    /// The other end of a connection that the program has made.
    pub(super) fn of_connection<C>(connection: C, namespace: &str) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let shared = |patience| Topology::Shared(SharedConnection::new(connection, patience));
        Self::own(namespace, shared)
    }

    fn own(namespace: &str, topology: impl FnOnce(Duration) -> Topology) -> Self {
        let own = Own { namespace: namespace.to_owned(), ..Own::default() };
        let topology = topology(own.response_timeout);
        Self::with(own, topology)
    }

    /// True if the connection is the program's: it listens to nothing on our behalf.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.topology, Topology::Shared(_))
    }

    pub(super) fn is_tls(&self) -> bool {
        self.location.starts_with("rediss")
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }
}

impl Topology {
    /// Where it is, as a URL without secrets.
    fn location(&self) -> String {
        let all = |addrs: &mut dyn Iterator<Item = &ConnectionAddr>| {
            let (mut scheme, mut hosts) = ("redis", Vec::new());
            for addr in addrs {
                if is_tls(addr) {
                    scheme = "rediss";
                }
                hosts.push(addr.to_string());
            }
            (scheme, hosts.join(","))
        };
        match self {
            Self::Server(info) => match info.addr() {
                ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
                addr => format!("{}://{addr}", if is_tls(addr) { "rediss" } else { "redis" }),
            },
            Self::Sentinel { sentinels, primary, .. } => {
                let (scheme, hosts) = all(&mut sentinels.iter());
                format!("{scheme}-sentinel://{hosts}/{primary}")
            }
            Self::Cluster(nodes) => {
                let (scheme, hosts) = all(&mut nodes.iter().map(ConnectionInfo::addr));
                format!("{scheme}-cluster://{hosts}")
            }
            Self::Shared(_) => "the server of a shared connection".to_owned(),
        }
    }
}

pub(super) fn is_tls(addr: &ConnectionAddr) -> bool {
    matches!(addr, ConnectionAddr::TcpTls { .. })
}

/// The options that are ours and not the client crate's.
struct Own {
    namespace: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    tls_files: TlsFiles,
    verify_push: bool,
    batch: bool,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
            tls_files: TlsFiles::default(),
            verify_push: false,
            batch: true,
        }
    }
}

impl Own {
    /// Takes our own options and returns those that the client crate knows.
    fn take(&mut self, all: Vec<(String, String)>) -> Result<Vec<(String, String)>, Invalid> {
        let mut rest = Vec::new();
        for (name, value) in all {
            match name.as_str() {
                "namespace" => self.namespace = value,
                "connect_timeout_ms" => {
                    self.connect_timeout = millis("connect_timeout_ms", &value)?;
                }
                "response_timeout_ms" => {
                    self.response_timeout = millis("response_timeout_ms", &value)?;
                }
                "ca" => self.tls_files.ca = Some(value.into()),
                "cert" => self.tls_files.cert = Some(value.into()),
                "key" => self.tls_files.key = Some(value.into()),
                "verify_push" => self.verify_push = switch("verify_push", &value)?,
                "batch" => self.batch = switch("batch", &value)?,
                _ => rest.push((name, value)),
            }
        }
        Ok(rest)
    }
}

fn own_options(url: &Url) -> Result<Vec<(String, String)>, Invalid> {
    const KNOWN: [&str; 11] = [
        "namespace",
        "connect_timeout_ms",
        "response_timeout_ms",
        "db",
        "user",
        "pass",
        "ca",
        "cert",
        "key",
        "verify_push",
        "batch",
    ];
    let pairs = url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned()));
    let all: Vec<_> = pairs.collect();
    match all.iter().find(|(name, _)| !KNOWN.contains(&name.as_str())) {
        Some((name, _)) => {
            let why = "is not an option of this URL; known are namespace, db, user, pass, \
                       connect_timeout_ms, response_timeout_ms, ca, cert, key, verify_push, batch";
            Err(Invalid::new("URL option", name, why))
        }
        None => Ok(all),
    }
}

fn millis(what: &'static str, value: &str) -> Result<Duration, Invalid> {
    match value.parse() {
        Ok(ms @ 1..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err(Invalid::new(what, value, "must be between 1 and 60000")),
    }
}

fn switch(what: &'static str, value: &str) -> Result<bool, Invalid> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(Invalid::new(what, value, "must be 0 or 1")),
    }
}

/// The URL with its first host, and the other hosts, which no URL proper can have.
fn split_hosts(text: &str) -> Result<(Url, Vec<String>), Invalid> {
    let refuse =
        || Invalid::new("URL", "(hidden)", "must be a URL such as redis://host/ or memory:");
    let (scheme, rest) = text.split_once("://").ok_or_else(refuse)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let mut hosts = hosts.split(',');
    let first = hosts.next().unwrap_or_default();
    let url = Url::parse(&format!("{scheme}://{login}{first}{tail}")).map_err(|_| refuse())?;
    Ok((url, hosts.map(str::to_owned).collect()))
}

fn server(url: &str, shown: &str) -> Result<ConnectionInfo, Invalid> {
    let info = url.into_connection_info().map_err(|_| unusable(shown))?;
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(redis).set_tcp_settings(tcp()))
}

/// The same URL as if its first host were a server of its own.
fn as_server(url: &Url, host: Option<&str>, path: &str, shown: &str) -> Result<String, Invalid> {
    let scheme = if url.scheme().starts_with("rediss") { "rediss" } else { "redis" };
    let first = || match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    let host = host.map_or_else(first, str::to_owned);
    let mut server = Url::parse(&format!("{scheme}://{host}/")).map_err(|_| unusable(shown))?;
    if host.contains(['@', '/', '?', '#']) {
        return Err(unusable(shown));
    }
    let _ = server.set_username(url.username());
    let _ = server.set_password(url.password());
    server.set_path(path);
    server.set_query(url.query());
    Ok(server.into())
}

fn sentinel(url: &Url, others: &[String], shown: &str) -> Result<Topology, Invalid> {
    let mut path = url.path().trim_matches('/').splitn(2, '/');
    let primary = path.next().unwrap_or_default().to_owned();
    if primary.is_empty() {
        return Err(Invalid::new(
            "URL",
            shown,
            "must name the primary: redis-sentinel://h1,h2/name",
        ));
    }
    let db = path.next().unwrap_or_default().to_owned();
    let hosts = std::iter::once(None).chain(others.iter().map(|host| Some(host.as_str())));
    let infos = hosts
        .map(|host| server(&as_server(url, host, &db, shown)?, shown))
        .collect::<Result<Vec<_>, _>>()?;
    let login = infos.first().map(|info| info.redis_settings().clone()).unwrap_or_default();
    let sentinels = infos.iter().map(|info| sentinel_port(info.addr())).collect();
    Ok(Topology::Sentinel { sentinels, primary, login })
}

/// Sentinels listen on a port of their own unless the URL says otherwise.
fn sentinel_port(addr: &ConnectionAddr) -> ConnectionAddr {
    match addr {
        ConnectionAddr::Tcp(host, 6379) => ConnectionAddr::Tcp(host.clone(), 26379),
        ConnectionAddr::TcpTls { host, port: 6379, insecure, tls_params } => {
            let (host, tls_params) = (host.clone(), tls_params.clone());
            ConnectionAddr::TcpTls { host, port: 26379, insecure: *insecure, tls_params }
        }
        other => other.clone(),
    }
}

fn cluster(url: &Url, others: &[String], shown: &str) -> Result<Topology, Invalid> {
    if !url.path().trim_matches('/').is_empty() {
        return Err(Invalid::new("URL", shown, "must not name a db: a cluster has only one"));
    }
    let hosts = std::iter::once(None).chain(others.iter().map(|host| Some(host.as_str())));
    let nodes = hosts.map(|host| server(&as_server(url, host, "", shown)?, shown));
    Ok(Topology::Cluster(nodes.collect::<Result<_, _>>()?))
}

fn unusable(shown: &str) -> Invalid {
    Invalid::new("URL", shown, "must name a host or, for redis+unix://, a path")
}

/// Requests leave at once, and a peer that has gone is noticed in seconds instead of hours.
pub(super) fn tcp() -> TcpSettings {
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
    shown.set_fragment(None);
    // Neither fails for a URL that can have a host, and others have no such part.
    let _ = shown.set_password(None);
    let _ = shown.set_username("");
    shown.to_string()
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("location", &self.location)
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
            ("redis://a,b/", "URL"),
            ("redis-sentinel://a,b", "URL"),
            ("redis-sentinel://a,b:x/p", "URL"),
            ("redis-cluster://a,b/3", "URL"),
            ("redis-cluster://a,b#c", "URL"),
            ("redis://h/?verify_push=yes", "verify_push"),
        ] {
            assert_eq!(Config::parse(url).unwrap_err().what, what, "{url}");
        }
    }

    #[test]
    fn several_hosts_are_several_hosts() {
        let url = "redis-sentinel://u:p@a:1,b/main/2?namespace=x";
        let Topology::Sentinel { sentinels, primary, login } = Config::parse(url).unwrap().topology
        else {
            panic!("not a sentinel")
        };
        let tcp = |host: &str, port| ConnectionAddr::Tcp(host.to_owned(), port);
        assert_eq!(sentinels, [tcp("a", 1), tcp("b", 26379)]);
        assert_eq!((primary.as_str(), login.db(), login.password()), ("main", 2, Some("p")));
        let Topology::Cluster(nodes) = Config::parse("redis-cluster://a:1,b:2,c").unwrap().topology
        else {
            panic!("not a cluster")
        };
        let addresses: Vec<_> = nodes.iter().map(|node| node.addr().clone()).collect();
        assert_eq!(addresses, [tcp("a", 1), tcp("b", 2), tcp("c", 6379)]);
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        for scheme in ["redis", "redis-cluster"] {
            let good = format!("{scheme}://bob:s3ntinel@h/?pass=s3ntinel");
            let config = Config::parse(&good).unwrap();
            assert!(!format!("{config:?}").contains("s3ntinel"), "{config:?}");
        }
        for bad in ["redis://bob:s3ntinel@h/?oops=1", "redis-sentinel://bob:s3ntinel@a,b"] {
            let refused = Config::parse(bad).unwrap_err();
            assert!(!refused.to_string().contains("s3ntinel"), "{refused}");
        }
    }
}
