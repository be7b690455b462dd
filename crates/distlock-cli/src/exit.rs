//! Exit codes, which are API, and which failure has which.

use distlock::{Error, Fault, FaultKind};

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

/// The code of a process that a signal has ended.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(INTERNAL)
}

/// Why a command could not do what it was told.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: Option<String>,
    /// No request has reached the store, so nothing can be left there.
    is_unsent: bool,
}

impl Failure {
    /// A failure that says why.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()), is_unsent: false }
    }

    /// A failure that has been told already, or that must stay silent.
    pub(crate) fn silent(code: u8) -> Self {
        Self { code, message: None, is_unsent: false }
    }

    /// Wrong flags or arguments.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// True if no request can have reached the store, so that nothing can be left there.
    pub(crate) fn is_unsent(&self) -> bool {
        self.is_unsent
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
        let code = code_of(&error);
        let mut message = format!("could not {}", stripped(&error.to_string()));
        if matches!(code, UNREACHABLE | NOT_AUTHORISED) {
            message.push_str("; distlock doctor tells more");
        }
        let is_unsent = fault_of(&error).is_some_and(Fault::is_unsent);
        Self { code, message: Some(message), is_unsent }
    }
}

/// A fault says "could not" itself.
fn stripped(message: &str) -> &str {
    message.strip_prefix("could not ").unwrap_or(message)
}

/// The fault of the store that an error is about.
fn fault_of(error: &Error) -> Option<&Fault> {
    match error {
        Error::Timeout { source: Some(fault), .. }
        | Error::Backend(fault)
        | Error::ReleaseUncertain { source: fault, .. } => Some(fault),
        _ => None,
    }
}

/// The code that an error of the library amounts to.
pub(crate) fn code_of(error: &Error) -> u8 {
    if let Some(fault) = fault_of(error) {
        return match fault.kind() {
            FaultKind::Transient => UNREACHABLE,
            FaultKind::Denied => NOT_AUTHORISED,
            _ => CONFIGURATION,
        };
    }
    match error {
        Error::Held { .. }
        | Error::Timeout { .. }
        | Error::RetriesExhausted { .. }
        | Error::TooManyWaiters { .. } => NOT_ACQUIRED,
        Error::Lost { .. } | Error::NotHeld { .. } => LOST,
        Error::NoQuorum { .. } | Error::NotReplicated { .. } => UNREACHABLE,
        Error::Unsupported { .. } | Error::Conflict { .. } => CONFIGURATION,
        Error::Url(_) => CONFIGURATION,
        Error::Invalid(_) => USAGE,
        _ => INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use distlock::{Invalid, Key};

    use super::*;

    #[test]
    fn every_error_has_the_documented_code() {
        let key = || Key::new("k").unwrap();
        let waited = std::time::Duration::from_secs(1);
        for (error, code) in [
            (Error::Held { key: key(), retry_after: None, holder: None, ahead: 0 }, 75),
            (Error::Timeout { key: key(), waited, source: None }, 75),
            (Error::Backend(Fault::transient("acquire", "connection refused")), 69),
            (Error::Backend(Fault::denied("acquire", "wrong password")), 77),
            (Error::Backend(Fault::permanent("acquire", "a key of another type")), 78),
            (Error::Unsupported { what: "semaphores" }, 78),
            (Error::NotHeld { key: key() }, 79),
            (Error::Url(Invalid::new("journal", "x", "must be on or off")), 78),
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
        let said = "could not reach the store: refused; distlock doctor tells more";
        assert_eq!(failure.message(), Some(said));
        assert_eq!(Failure::usage("no").message(), Some("no"));
    }
}
