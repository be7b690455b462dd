//! Exit codes, which are API, and which failure has which.

use distlock::{Error, FaultKind};

/// Wrong flags or arguments.
pub(crate) const USAGE: u8 = 64;
/// The backend cannot be reached, or too few nodes of a quorum can.
pub(crate) const UNREACHABLE: u8 = 69;
/// The lock was not acquired.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The backend does not let this user in.
pub(crate) const NOT_AUTHORISED: u8 = 77;
/// A URL, a file or a backend that cannot serve.
pub(crate) const CONFIGURATION: u8 = 78;
/// The lease was lost and the command stopped.
pub(crate) const LOST: u8 = 79;
/// The command ran for as long as `--max-hold` allows.
pub(crate) const MAX_HOLD: u8 = 124;
/// A failure of distlock itself.
pub(crate) const INTERNAL: u8 = 125;
/// The command is there and cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command is not there.
pub(crate) const NOT_FOUND: u8 = 127;

/// The code of somebody who was ended by a signal.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(INTERNAL)
}

/// Why a command could not do what it was told.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: Option<String>,
}

impl Failure {
    /// A failure that says why.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    /// A failure that has been told already, or that nobody wants to hear of.
    pub(crate) fn silent(code: u8) -> Self {
        Self { code, message: None }
    }

    /// Wrong flags or arguments.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code_of(&error), format!("could not {}", stripped(&error.to_string())))
    }
}

/// A fault says "could not" itself.
fn stripped(message: &str) -> &str {
    message.strip_prefix("could not ").unwrap_or(message)
}

/// The code that an error of the library amounts to.
pub(crate) fn code_of(error: &Error) -> u8 {
    match error {
        Error::Timeout { source: Some(fault), .. }
        | Error::Backend(fault)
        | Error::ReleaseUncertain { source: fault, .. } => match fault.kind() {
            FaultKind::Transient => UNREACHABLE,
            _ if is_refusal(&fault.to_string()) => NOT_AUTHORISED,
            _ => CONFIGURATION,
        },
        Error::Held { .. }
        | Error::Timeout { source: None, .. }
        | Error::RetriesExhausted { .. }
        | Error::TooManyWaiters { .. } => NOT_ACQUIRED,
        Error::Lost { .. } | Error::NotHeld { .. } => LOST,
        Error::NoQuorum { .. } | Error::NotReplicated { .. } => UNREACHABLE,
        Error::Unsupported { .. } | Error::Conflict { .. } => CONFIGURATION,
        Error::Invalid(refused) if refused.what.starts_with("URL") => CONFIGURATION,
        Error::Invalid(_) => USAGE,
        _ => INTERNAL,
    }
}

/// How servers and file systems say that they do not let this user in.
const REFUSALS: [&str; 8] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "NoPerm",
    "can't run this command",
    "ermission denied",
    "uthentication",
    "this user must be able to",
];

fn is_refusal(message: &str) -> bool {
    REFUSALS.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use distlock::{Fault, Invalid, Key};

    use super::*;

    #[test]
    fn every_error_has_the_documented_code() {
        let key = || Key::new("k").unwrap();
        let fault = |text: &str| Fault::permanent("acquire", text);
        let waited = std::time::Duration::from_secs(1);
        for (error, code) in [
            (Error::Held { key: key(), retry_after: None, holder: None, ahead: 0 }, 75),
            (Error::Timeout { key: key(), waited, source: None }, 75),
            (Error::Backend(Fault::transient("acquire", "connection refused")), 69),
            (Error::Backend(fault("NOAUTH Authentication required.")), 77),
            (Error::Backend(fault("WRONGTYPE of a key")), 78),
            (Error::Unsupported { what: "semaphores" }, 78),
            (Error::NotHeld { key: key() }, 79),
            (Error::Invalid(Invalid::new("URL scheme", "x", "is unknown")), 78),
            (Error::Invalid(Invalid::new("key", "", "must not be empty")), 64),
            (Error::Closed, 125),
        ] {
            assert_eq!(code_of(&error), code, "{error}");
        }
    }

    #[test]
    fn a_message_completes_could_not_once() {
        let fault = Fault::transient("reach the store", "refused");
        let failure = Failure::from(Error::Backend(fault));
        assert_eq!(failure.message(), Some("could not reach the store: refused"));
    }
}
