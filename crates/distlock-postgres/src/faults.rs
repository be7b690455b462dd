//! What an error of the client crate or the server means: try again, or change something first.

use distlock_core::{Fault, FaultKind};
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use super::config::PostgresConfig;

/// What a state of the server means for a call, and what to do about it.
struct StateMeaning {
    /// The state, or the class that it begins with.
    state: &'static str,
    kind: FaultKind,
    advice: &'static str,
}

const fn means(state: &'static str, kind: FaultKind, advice: &'static str) -> StateMeaning {
    StateMeaning { state, kind, advice }
}

const CREATE_SCHEMA: &str = "run `distlock schema postgres` and give its output to psql, as a role \
                             that may create a schema";
const RIGHTS: &str = "grant the role of the URL USAGE on the schema and SELECT, INSERT, UPDATE, \
                      DELETE on its tables; `distlock schema postgres` prints the statements";
const READS: &str = "the server only reads: name the primary, or all servers";
const BUSY: &str =
    "another session keeps a row of this key locked: see pg_locks and pg_stat_activity";

/// The first that fits counts.
const MEANINGS: [StateMeaning; 20] = [
    means("40001", FaultKind::Transient, ""),
    means("40P01", FaultKind::Transient, ""),
    means("55P03", FaultKind::Transient, BUSY),
    means("57014", FaultKind::Transient, "check how busy the server is; raise response_timeout_ms"),
    means("57P", FaultKind::Transient, "the server restarts or ends connections: see its log"),
    means("25006", FaultKind::Transient, READS),
    means("25P", FaultKind::Transient, ""),
    means("08", FaultKind::Transient, "check the network, and the pooler if there is one"),
    means("53100", FaultKind::Permanent, "the disk of the server is full: make room"),
    means(
        "53300",
        FaultKind::Transient,
        "the server has no connection left: raise max_connections",
    ),
    means("53", FaultKind::Transient, "the server is short of resources: see its log"),
    means("58", FaultKind::Transient, "see the log of the server"),
    means("XX", FaultKind::Permanent, "see the log of the server"),
    means("28", FaultKind::Denied, "check the user and the password in the URL, and pg_hba.conf"),
    means("42501", FaultKind::Denied, RIGHTS),
    means("3D000", FaultKind::Permanent, "create the database, or name another one in the URL"),
    means("3F000", FaultKind::Permanent, CREATE_SCHEMA),
    means("42P01", FaultKind::Permanent, CREATE_SCHEMA),
    means("42703", FaultKind::Permanent, "the tables are of another version: update distlock"),
    means("23", FaultKind::Permanent, "another program wrote rows of this key: delete them"),
];

fn meaning(state: &SqlState) -> Option<&'static StateMeaning> {
    MEANINGS.iter().find(|meaning| state.code().starts_with(meaning.state))
}

/// Turns an error into a fault. `action` completes "could not …".
pub(super) fn fault(action: &'static str, error: &Error, config: &PostgresConfig) -> Fault {
    let text = describe(error);
    let (kind, advice) = match error.code().map(meaning) {
        Some(Some(meaning)) => (meaning.kind, meaning.advice),
        Some(None) => (FaultKind::Permanent, ""),
        // The network, or the client crate: the server may have executed the call.
        None => (FaultKind::Transient, "check the network and the server"),
    };
    let fault = match kind {
        FaultKind::Transient => Fault::transient(action, text),
        FaultKind::Denied => Fault::denied(action, text),
        _ => Fault::permanent(action, text),
    };
    let fault = fault.at_store(config.location());
    if advice.is_empty() { fault } else { fault.advise(advice) }
}

/// The same for a connection that could not be made.
pub(super) fn dial_fault(action: &'static str, error: &Error, config: &PostgresConfig) -> Fault {
    let text = describe(error);
    if error.code().is_none() {
        if text.contains("invalid peer certificate") || text.contains("certificate") {
            let cure = "name the authority of the server's certificate with ca=FILE, and a host \
                        that the certificate names";
            return Fault::permanent(action, text).at_store(config.location()).advise(cure);
        }
        let cure = if text.contains("does not allow writes") {
            READS
        } else {
            "check that a server listens there, and the host and port of the URL"
        };
        let fault = Fault::transient(action, text).at_store(config.location()).advise(cure);
        return if is_refused(error) { fault.unsent() } else { fault };
    }
    fault(action, error, config)
}

/// True if no server listens at the address.
fn is_refused(error: &Error) -> bool {
    let mut below = std::error::Error::source(error);
    while let Some(cause) = below {
        let io = cause.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        below = cause.source();
    }
    false
}

/// What the server says, or the causes of an error of the client crate in one line.
fn describe(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut below = std::error::Error::source(error);
    while let Some(cause) = below {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        below = cause.source();
    }
    text
}

/// True if the error ended a transaction and nothing else.
pub(super) fn spares_connection(error: &Error) -> bool {
    let Some(db) = error.as_db_error() else { return false };
    let fatal = !matches!(db.parsed_severity(), Some(Severity::Error));
    // A server that became a standby is not the one to ask.
    !fatal && *db.code() != SqlState::READ_ONLY_SQL_TRANSACTION
}

/// True if the tables are not there.
pub(super) fn has_no_tables(error: &Error) -> bool {
    let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    error.code().is_some_and(|code| missing.contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_says_whether_to_try_again() {
        for (state, kind) in [
            ("40001", FaultKind::Transient),
            ("40P01", FaultKind::Transient),
            ("55P03", FaultKind::Transient),
            ("57014", FaultKind::Transient),
            ("57P01", FaultKind::Transient),
            ("57P03", FaultKind::Transient),
            ("08006", FaultKind::Transient),
            ("25006", FaultKind::Transient),
            ("25P03", FaultKind::Transient),
            ("53100", FaultKind::Permanent),
            ("53300", FaultKind::Transient),
            ("28P01", FaultKind::Denied),
            ("42501", FaultKind::Denied),
            ("42P01", FaultKind::Permanent),
        ] {
            let found = meaning(&SqlState::from_code(state)).map(|meaning| meaning.kind);
            assert_eq!(found, Some(kind), "{state}");
        }
    }
}
