//! What libpq adds to a URL: the environment and the password file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_core::Invalid;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// The variables of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where the server of this machine listens on Debian and most others.
const SOCKET_FOLDER: &str = "/var/run/postgresql";

/// Adds what the URL left out.
pub(super) fn complete(
    server: &mut Config,
    environment: Environment<'_>,
    passfile: Option<&str>,
) -> Result<(), Invalid> {
    let list = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    if server.get_hosts().is_empty() {
        let local = if Path::new(SOCKET_FOLDER).exists() { SOCKET_FOLDER } else { "localhost" };
        for host in environment("PGHOST").map_or_else(|| vec![local.to_owned()], list) {
            server.host(host);
        }
    }
    if server.get_ports().is_empty() {
        for port in environment("PGPORT").map(list).unwrap_or_default() {
            let refuse = |_| Invalid::new("PGPORT", &port, "must be a port");
            server.port(port.parse().map_err(refuse)?);
        }
    }
    if server.get_user().is_none()
        && let Some(user) = environment("PGUSER").or_else(|| environment("USER"))
    {
        server.user(user);
    }
    if server.get_dbname().is_none()
        && let Some(name) = environment("PGDATABASE")
    {
        server.dbname(name);
    }
    if server.get_application_name().is_none()
        && let Some(name) = environment("PGAPPNAME")
    {
        server.application_name(name);
    }
    if server.get_options().is_none()
        && let Some(options) = environment("PGOPTIONS")
    {
        server.options(options);
    }
    if server.get_connect_timeout().is_none()
        && let Some(seconds) = environment("PGCONNECT_TIMEOUT")
    {
        let refuse = |_| Invalid::new("PGCONNECT_TIMEOUT", &seconds, "must be in seconds");
        server.connect_timeout(Duration::from_secs(seconds.parse().map_err(refuse)?));
    }
    match environment("PGTARGETSESSIONATTRS").as_deref() {
        None => {}
        Some("any") => {
            server.target_session_attrs(TargetSessionAttrs::Any);
        }
        Some("read-write" | "primary") => {
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Some(other) => {
            let why = "must be any or read-write: locks need a server that writes";
            return Err(Invalid::new("PGTARGETSESSIONATTRS", other, why));
        }
    }
    if server.get_password().is_none() {
        let password =
            environment("PGPASSWORD").or_else(|| password(server, environment, passfile));
        if let Some(password) = password {
            server.password(password);
        }
    }
    Ok(())
}

/// The password of this server in the password file.
fn password(
    server: &Config,
    environment: Environment<'_>,
    passfile: Option<&str>,
) -> Option<String> {
    let home = || Some(PathBuf::from(environment("HOME")?).join(".pgpass"));
    let file = passfile.map(PathBuf::from);
    let file = file.or_else(|| environment("PGPASSFILE").map(PathBuf::from)).or_else(home)?;
    if is_open_to_others(&file) {
        let file = file.display();
        tracing::warn!(%file, "the password file is not used: it must have mode 600");
        return None;
    }
    let text = std::fs::read_to_string(&file).ok()?;
    let host = match server.get_hosts().first()? {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".to_owned(),
    };
    let port = server.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = server.get_user()?.to_owned();
    let database = server.get_dbname().unwrap_or(&user).to_owned();
    find_password(&text, &[&host, &port, &database, &user])
}

fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o077 != 0)
}

/// The password of the first line whose fields are these, or `*`.
fn find_password(text: &str, wanted: &[&str; 4]) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut found = lines.map(fields).filter(|fields| {
        let pairs = fields.iter().zip(wanted);
        fields.len() == 5 && pairs.take(4).all(|(field, wanted)| field == "*" || field == wanted)
    });
    found.next()?.pop()
}

/// The fields of a line: `:` separates, and `\` makes the next character a plain one.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut chars) = (vec![String::new()], line.chars());
    while let Some(c) = chars.next() {
        let last = fields.len() - 1;
        match c {
            '\\' => fields[last].extend(chars.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    fields
}

/// Text with its escapes resolved; none if one of them is none.
pub(super) fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Text as a URL takes it.
pub(super) fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_by_all_four_fields() {
        let file = "# comment\nh:5432:d:ann:one\n*:*:other:ann:t\\:wo\n*:*:*:bob:th:ree\n";
        let find = |wanted| find_password(file, wanted);
        assert_eq!(find(&["h", "5432", "d", "ann"]).as_deref(), Some("one"));
        assert_eq!(find(&["x", "1", "other", "ann"]).as_deref(), Some("t:wo"));
        assert_eq!(find(&["x", "1", "d", "bob"]).as_deref(), Some("th:ree"));
        assert_eq!(find(&["x", "1", "d", "eve"]), None);
    }

    #[test]
    fn the_environment_completes_a_url_and_never_replaces_it() {
        let environment = |name: &str| {
            let set = [
                ("PGHOST", "db"),
                ("PGPORT", "7"),
                ("PGUSER", "ann"),
                ("PGPASSWORD", "pw"),
                ("PGDATABASE", "app"),
            ];
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let mut server: Config = "postgres://".parse().unwrap();
        complete(&mut server, &environment, None).unwrap();
        assert_eq!(server.get_hosts(), [Host::Tcp("db".to_owned())]);
        assert_eq!(server.get_ports(), [7]);
        assert_eq!((server.get_user(), server.get_dbname()), (Some("ann"), Some("app")));
        assert_eq!(server.get_password(), Some(&b"pw"[..]));
        let mut server: Config = "postgres://bob:own@h:1/d".parse().unwrap();
        complete(&mut server, &environment, None).unwrap();
        assert_eq!(server.get_password(), Some(&b"own"[..]));
        assert_eq!((server.get_user(), server.get_dbname()), (Some("bob"), Some("d")));
        assert_eq!(server.get_ports(), [1]);
    }

    #[test]
    fn escapes_are_read_as_they_are_written() {
        for text in ["a b&c=d?%", "ä/ö", ""] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert_eq!(decode("%4"), None);
        assert_eq!(decode("%zz"), None);
    }
}
