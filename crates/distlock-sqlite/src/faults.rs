//! What an error of SQLite means: try again, or change something first.

use std::path::Path;

use distlock_core::Fault;
use rusqlite::{Error, ErrorCode, ffi};

/// Turns an error into a fault that names the file and says what to do. `action` completes
/// "could not …".
pub(super) fn fault(action: &'static str, file: &Path, error: &Error) -> Fault {
    let fault = if is_passing(error) {
        Fault::transient(action, error.to_string())
    } else if is_denied(error) {
        Fault::denied(action, error.to_string())
    } else {
        Fault::permanent(action, error.to_string())
    };
    let fault = fault.at_store(&file.to_string_lossy());
    match advice(error) {
        "" => fault,
        advice => fault.advise(advice),
    }
}

/// True if this user may not use the file.
fn is_denied(error: &Error) -> bool {
    let denied = [ErrorCode::ReadOnly, ErrorCode::CannotOpen, ErrorCode::PermissionDenied];
    error.sqlite_error_code().is_some_and(|code| denied.contains(&code))
}

/// True if the same call may succeed later.
pub(super) fn is_passing(error: &Error) -> bool {
    let passing = [
        // Another process writes, recovers or checkpoints, and did not finish in time.
        ErrorCode::DatabaseBusy,
        ErrorCode::DatabaseLocked,
        ErrorCode::FileLockingProtocolFailed,
        ErrorCode::SchemaChanged,
        ErrorCode::OutOfMemory,
        ErrorCode::OperationInterrupted,
        // A disk may come back.
        ErrorCode::SystemIoFailure,
    ];
    error.sqlite_error_code().is_some_and(|code| passing.contains(&code)) && !is_full(error)
}

/// True if a row holds what distlock does not write there: the fault of that row alone.
pub(super) fn is_foreign(error: &Error) -> bool {
    matches!(
        error,
        Error::FromSqlConversionFailure(..)
            | Error::InvalidColumnType(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::Utf8Error(..)
    )
}

/// True if the connection is of no use any more.
pub(super) fn ends_connection(error: &Error) -> bool {
    let busy = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked, ErrorCode::DiskFull];
    error.sqlite_error_code().is_none_or(|code| !busy.contains(&code))
}

/// SQLite reports a disk that is full as such, or as a file that cannot be made longer.
fn is_full(error: &Error) -> bool {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || extended == Some(ffi::SQLITE_IOERR_SHMSIZE)
}

fn advice(error: &Error) -> &'static str {
    if is_full(error) {
        return "the disk or a quota is full: make room";
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process keeps it locked: is one stopped, or is the file open in a shell?"
        }
        Some(ErrorCode::ReadOnly) => {
            "the file and its folder must be writable by this user: change that, or name another \
             file"
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "its folder must exist and this user must be able to write to it"
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            "the file is damaged: stop all programs that use it, move it away together with its \
             -wal and -shm files, and start them again"
        }
        Some(ErrorCode::SystemIoFailure) => {
            "see what the kernel says about the disk, and whether the size of files is limited"
        }
        Some(ErrorCode::NotADatabase) => "this is some other file: name another one",
        Some(_) => "",
        None => "a row makes no sense: was the file edited by hand?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_whether_to_try_again_and_what_to_do() {
        for (code, passes, says) in [
            (ffi::SQLITE_BUSY, true, "keeps it locked"),
            (ffi::SQLITE_BUSY_SNAPSHOT, true, "keeps it locked"),
            (ffi::SQLITE_BUSY_RECOVERY, true, "keeps it locked"),
            (ffi::SQLITE_IOERR_READ, true, "the kernel"),
            (ffi::SQLITE_FULL, false, "make room"),
            (ffi::SQLITE_IOERR_SHMSIZE, false, "make room"),
            (ffi::SQLITE_READONLY, false, "writable"),
            (ffi::SQLITE_READONLY_DIRECTORY, false, "writable"),
            (ffi::SQLITE_CANTOPEN, false, "must exist"),
            (ffi::SQLITE_CORRUPT, false, "damaged"),
            (ffi::SQLITE_NOTADB, false, "some other file"),
        ] {
            let error = Error::SqliteFailure(ffi::Error::new(code), None);
            let fault = fault("acquire", Path::new("/x.db"), &error);
            assert_eq!(fault.is_transient(), passes, "{fault}");
            assert!(fault.to_string().contains(says), "{fault}");
        }
    }
}
