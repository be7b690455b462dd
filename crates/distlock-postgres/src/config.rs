//! Where the store is and how to speak to it, from a URL.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::Invalid;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Connection, Error, Socket};

use super::libpq::{self, Environment};
use super::tls::{CertificateCheck, EncryptedStream, PostgresTls};

/// The schema of the tables unless the URL names another.
const SCHEMA_DEFAULT: &str = "distlock";

/// Where the store is and how to speak to it.
#[derive(Clone)]
pub(super) struct PostgresConfig {
    pub(super) server: tokio_postgres::Config,
    /// Where to listen; none if not at all. A pooler has no sessions to listen in.
    pub(super) listen: Option<tokio_postgres::Config>,
    pub(super) tls: PostgresTls,
    pub(super) schema: String,
    pub(super) response_timeout: Duration,
    /// How many connections carry calls at most.
    pub(super) connections: usize,
    /// A push is only a reason to ask the server: for databases where others may NOTIFY.
    pub(super) verify_push: bool,
    /// How transactions begin.
    pub(super) begin: Arc<str>,
    pub(super) begin_read: Arc<str>,
    /// How calls for several keys limit what one that is locked costs the others.
    pub(super) hurry: Arc<str>,
    location: String,
}

/// The options that are ours.
const OURS: [&str; 12] = [
    "schema",
    "connections",
    "response_timeout_ms",
    "connect_timeout_ms",
    "listen",
    "verify_push",
    "ca",
    "cert",
    "key",
    "sslrootcert",
    "sslcert",
    "sslkey",
];

/// The options of libpq that the client crate reads.
const LIBPQ: [&str; 14] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "application_name",
    "options",
    "target_session_attrs",
    "load_balance_hosts",
    "keepalives",
    "keepalives_idle",
    "channel_binding",
    "connect_timeout",
];

impl PostgresConfig {
    /// Reads `postgres://[user[:password]@]host[:port][,host[:port]][/database][?options]`. What it
    /// leaves out comes from the environment and the password file, as for libpq.
    pub(super) fn parse(text: &str, environment: Environment<'_>) -> Result<Self, Invalid> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let options = read_options(query)?;
        let find = |names: &[&str]| {
            let found = options.iter().rev().find(|(name, _)| names.contains(&name.as_str()));
            found.map(|(_, value)| value.as_str())
        };
        let server = server(place, &options, environment)?;
        let listen = match find(&["listen"]) {
            None => Some(server.clone()),
            Some("off") => None,
            Some(url) => {
                let (place, query) = url.split_once('?').unwrap_or((url, ""));
                Some(server_of(place, &read_options(query)?, environment)?)
            }
        };
        let (ca, cert, key) =
            (find(&["ca", "sslrootcert"]), find(&["cert", "sslcert"]), find(&["key", "sslkey"]));
        let from = |given: Option<&str>, name: &str| {
            given.map(str::to_owned).or_else(|| environment(name)).map(Into::into)
        };
        let mut tls = PostgresTls {
            verify: CertificateCheck::Nothing,
            ca: from(ca, "PGSSLROOTCERT"),
            cert: from(cert, "PGSSLCERT"),
            key: from(key, "PGSSLKEY"),
        };
        let mode = find(&["sslmode"]).map(str::to_owned).or_else(|| environment("PGSSLMODE"));
        let (ssl_mode, verify) = ssl_mode(mode.as_deref(), tls.ca.is_some())?;
        tls.verify = verify;
        if ssl_mode != SslMode::Disable {
            tls.check()?;
        }
        let schema = schema(find(&["schema"]).unwrap_or(SCHEMA_DEFAULT))?;
        let response_timeout = match find(&["response_timeout_ms"]) {
            Some(text) => millis("response_timeout_ms", text)?,
            None => Duration::from_secs(1),
        };
        let connect_timeout = match find(&["connect_timeout_ms"]) {
            Some(text) => millis("connect_timeout_ms", text)?,
            None => Duration::from_secs(2),
        };
        let connections = match find(&["connections"]).unwrap_or("8").parse() {
            Ok(number @ 1..=64) => number,
            _ => {
                let given = find(&["connections"]).unwrap_or_default();
                return Err(Invalid::new("connections", given, "must be between 1 and 64"));
            }
        };
        let verify_push = match find(&["verify_push"]) {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(Invalid::new("verify_push", other, "must be 0 or 1")),
        };
        let set = |mut server: tokio_postgres::Config| {
            server.ssl_mode(ssl_mode);
            if server.get_connect_timeout().is_none() {
                server.connect_timeout(connect_timeout);
            }
            server
        };
        let server = set(server);
        let location = location(&server);
        let ms = response_timeout.as_millis();
        let limits = format!(
            "SET LOCAL search_path = {schema}, pg_temp; SET LOCAL statement_timeout = {ms}; \
             SET LOCAL lock_timeout = {ms}; SET LOCAL idle_in_transaction_session_timeout = {ms}"
        );
        Ok(Self {
            server,
            listen: listen.map(set),
            tls,
            begin: format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {limits}").into(),
            begin_read: format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {limits}").into(),
            hurry: format!("SET LOCAL lock_timeout = {}", (ms / 4).max(1)).into(),
            schema,
            response_timeout,
            connections,
            verify_push,
            location,
        })
    }

    /// Where the store is, without secrets.
    pub(super) fn location(&self) -> &str {
        &self.location
    }

    /// Connects to one of the servers of this store.
    pub(super) async fn dial(
        &self,
        server: &tokio_postgres::Config,
    ) -> Result<(Client, Connection<Socket, EncryptedStream<Socket>>), Error> {
        server.connect(self.tls.clone()).await
    }
}

/// A server with what the environment adds.
fn server(
    place: &str,
    options: &[(String, String)],
    environment: Environment<'_>,
) -> Result<tokio_postgres::Config, Invalid> {
    let known = |name: &str| OURS.contains(&name) || LIBPQ.contains(&name);
    let known = |name: &str| known(name) || name == "sslmode" || name == "passfile";
    if let Some((name, _)) = options.iter().find(|(name, _)| !known(name)) {
        let why = format!(
            "is not an option of this URL; known are {}, sslmode, passfile and {}",
            OURS.join(", "),
            LIBPQ.join(", ")
        );
        return Err(Invalid::new("URL option", name, why));
    }
    server_of(place, options, environment)
}

fn server_of(
    place: &str,
    options: &[(String, String)],
    environment: Environment<'_>,
) -> Result<tokio_postgres::Config, Invalid> {
    let refuse = || {
        let why = "must be like postgres://user@host:5432/database";
        Invalid::new("URL", shown(place), why)
    };
    let rest: Vec<_> = options
        .iter()
        .filter(|(name, _)| LIBPQ.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={}", libpq::encode(value)))
        .collect();
    let mut server: tokio_postgres::Config =
        format!("{place}?{}", rest.join("&")).parse().map_err(|_| refuse())?;
    let passfile = options.iter().find(|(name, _)| name == "passfile").map(|(_, file)| &**file);
    let given = |name: &str| options.iter().any(|(known, _)| known == name);
    libpq::complete(&mut server, environment, passfile)?;
    if !given("target_session_attrs") && environment("PGTARGETSESSIONATTRS").is_none() {
        // A standby carries no locks: among several servers the primary is meant.
        server.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if server.get_application_name().is_none() {
        server.application_name("distlock");
    }
    if !given("keepalives_idle") {
        server.keepalives_idle(Duration::from_secs(10));
    }
    server.keepalives_interval(Duration::from_secs(5)).keepalives_retries(3);
    server.tcp_user_timeout(Duration::from_secs(10));
    Ok(server)
}

fn read_options(query: &str) -> Result<Vec<(String, String)>, Invalid> {
    let options = query.split('&').filter(|option| !option.is_empty());
    options
        .map(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match (libpq::decode(name), libpq::decode(value)) {
                (Some(name), Some(value)) => Ok((name, value)),
                _ => Err(Invalid::new("URL option", name, "has an escape that is none")),
            }
        })
        .collect()
}

/// Whether to encrypt, and what of the server's certificate to check, as libpq does.
fn ssl_mode(mode: Option<&str>, has_ca: bool) -> Result<(SslMode, CertificateCheck), Invalid> {
    let trusted = if has_ca { CertificateCheck::Full } else { CertificateCheck::Nothing };
    match mode {
        Some("disable") => Ok((SslMode::Disable, CertificateCheck::Nothing)),
        None if has_ca => Ok((SslMode::Require, CertificateCheck::Full)),
        None | Some("prefer" | "allow") => Ok((SslMode::Prefer, trusted)),
        Some("require") => Ok((SslMode::Require, trusted)),
        Some("verify-ca") => Ok((SslMode::Require, CertificateCheck::Authority)),
        Some("verify-full") => Ok((SslMode::Require, CertificateCheck::Full)),
        Some(other) => {
            let why = "must be disable, prefer, require, verify-ca or verify-full";
            Err(Invalid::new("sslmode", other, why))
        }
    }
}

/// A schema whose name needs no quotes.
fn schema(name: &str) -> Result<String, Invalid> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if starts_well && name.len() <= 63 && name.chars().all(plain) && !name.starts_with("pg_") {
        return Ok(name.to_owned());
    }
    let why = "must be at most 63 lower-case letters, digits and _, and not begin with pg_";
    Err(Invalid::new("schema", name, why))
}

/// Checks the name of a schema.
pub(super) fn check_schema(name: &str) -> Result<String, Invalid> {
    schema(name)
}

fn millis(what: &'static str, value: &str) -> Result<Duration, Invalid> {
    match value.parse() {
        Ok(ms @ 1..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err(Invalid::new(what, value, "must be between 1 and 60000")),
    }
}

/// The URL as it may appear in errors.
fn shown(place: &str) -> String {
    match place.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => "(hidden)".to_owned(),
    }
}

fn location(server: &tokio_postgres::Config) -> String {
    let ports = server.get_ports();
    let host = |(at, host): (usize, &Host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    };
    let hosts: Vec<_> = server.get_hosts().iter().enumerate().map(host).collect();
    let database = server.get_dbname().map(|name| format!("/{name}")).unwrap_or_default();
    format!("postgres://{}{database}", hosts.join(","))
}

impl std::fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("location", &self.location)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<PostgresConfig, Invalid> {
        PostgresConfig::parse(url, &|_| None)
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let config = parse("postgres://u@h:7/d?schema=app_locks&response_timeout_ms=250").unwrap();
        assert_eq!(config.schema, "app_locks");
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        assert_eq!(config.location(), "postgres://h:7/d");
        for (url, what) in [
            ("postgres://h/?ttl=5", "URL option"),
            ("postgres://h/?schema=Locks", "schema"),
            ("postgres://h/?schema=a;drop", "schema"),
            ("postgres://h/?schema=pg_temp", "schema"),
            ("postgres://h/?connections=0", "connections"),
            ("postgres://h/?response_timeout_ms=0", "response_timeout_ms"),
            ("postgres://h/?sslmode=on", "sslmode"),
            ("postgres://h/?verify_push=yes", "verify_push"),
            ("postgres://h:x/", "URL"),
            ("postgres://h/?target_session_attrs=odd", "URL"),
            ("postgres://h/?ca=/no/such/file&sslmode=require", "ca"),
        ] {
            assert_eq!(parse(url).unwrap_err().what, what, "{url}");
        }
    }

    #[test]
    fn several_hosts_are_several_hosts_and_the_primary_is_meant() {
        let config = parse("postgresql://u:p@a:1,b:2/d").unwrap();
        assert_eq!(config.location(), "postgres://a:1,b:2/d");
        assert_eq!(config.server.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let any = parse("postgres://a,b/?target_session_attrs=any").unwrap();
        assert_eq!(any.server.get_target_session_attrs(), TargetSessionAttrs::Any);
    }

    #[test]
    fn the_listener_may_have_a_server_of_its_own() {
        let url = "postgres://u@pooler:6432/d?listen=postgres://u@direct:5432/d";
        let config = parse(url).unwrap();
        assert_eq!(location(&config.listen.unwrap()), "postgres://direct:5432/d");
        assert_eq!(location(&config.server), "postgres://pooler:6432/d");
        let same = parse("postgres://u@h/d").unwrap();
        assert_eq!(location(&same.listen.unwrap()), "postgres://h:5432/d");
        assert!(parse("postgres://u@h/d?listen=off").unwrap().listen.is_none());
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let config = parse("postgres://bob:s3ntinel@h/d?password=s3ntinel").unwrap();
        assert!(!format!("{config:?}").contains("s3ntinel"), "{config:?}");
        for bad in ["postgres://bob:s3ntinel@h:x/", "postgres://bob:s3ntinel@h/?oops=1"] {
            let refused = parse(bad).unwrap_err();
            assert!(!refused.to_string().contains("s3ntinel"), "{refused}");
        }
    }
}
