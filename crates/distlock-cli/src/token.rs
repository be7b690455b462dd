//! A lease in the hands of a script: in a file that only its owner can read, or in the environment.
//!
//! The client that has the lease id can renew and release the lease, so it never stands on a
//! command line, where every user of the machine could read it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use distlock::Lease;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::json;

use crate::exit::{CONFIGURATION, Failure, NOT_AUTHORISED};

/// Where a script has the lease id, if not in a file.
pub(crate) const LEASE_VAR: &str = "DISTLOCK_LEASE";

/// The largest file that is read as a lease.
const SIZE_MAX: u64 = 16 * 1024;

/// Which lease to renew or release.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Which {
    /// The key; not needed with a token file
    #[arg(required_unless_present = "token_file")]
    pub(crate) key: Option<String>,

    /// The file that acquire has written. Without it the lease id is taken from DISTLOCK_LEASE
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Which {
    /// Reads the lease.
    pub(crate) fn lease(&self) -> Result<Lease, Failure> {
        let lease = match &self.token_file {
            Some(path) => read(path)?,
            None => from_environment(self.key.as_deref().unwrap_or_default())?,
        };
        match &self.key {
            Some(key) if *key != lease.key().as_str() => {
                let message = format!("the token file is of the key {:?}", lease.key());
                Err(Failure::usage(message))
            }
            _ => Ok(lease),
        }
    }
}

fn from_environment(key: &str) -> Result<Lease, Failure> {
    let id = std::env::var(LEASE_VAR).map_err(|_| {
        Failure::usage(format!(
            "no lease: name a --token-file, or put the lease id into {LEASE_VAR}"
        ))
    })?;
    let written = json!({ "key": key, "id": id.trim(), "fence": 0, "ttl_ms": 0 });
    serde_json::from_value(written)
        .map_err(|error| Failure::usage(format!("{LEASE_VAR} is not a lease id: {error}")))
}

fn read(path: &Path) -> Result<Lease, Failure> {
    let refused = |error: io::Error| refused(path, "read", &error);
    let file = OpenOptions::new().read(true).custom_flags(opening()).open(path).map_err(refused)?;
    check_private(path, &file)?;
    let mut text = String::new();
    file.take(SIZE_MAX).read_to_string(&mut text).map_err(refused)?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(CONFIGURATION, format!("{} is not a token file: {error}", path.display()))
    })
}

/// A token file that is open, before there is anything to write: one that cannot be written is
/// found out before the lock is taken.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    file: File,
}

impl TokenFile {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(opening())
            .open(path)
            .map_err(|error| refused(path, "write", &error))?;
        check_private(path, &file)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(&mut self, lease: &Lease) -> Result<(), Failure> {
        let text = serde_json::to_string(lease).map_err(io::Error::from);
        let written = text.and_then(|text| {
            self.file.set_len(0)?;
            self.file.write_all(format!("{text}\n").as_bytes())?;
            self.file.sync_all()
        });
        written.map_err(|error| refused(&self.path, "write", &error))
    }
}

/// How a token file is opened: through no link, since another user may have made it to have a file
/// of ours overwritten, and without waiting for the other end of a pipe.
fn opening() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

/// Refuses a file that others can read: they could release the lock. The owner of a file can read
/// it whatever its mode says, and one that is no plain file is read by something else.
fn check_private(path: &Path, file: &File) -> Result<(), Failure> {
    let about = file.metadata().map_err(|error| refused(path, "look at", &error))?;
    let name = path.display();
    let message = if !about.is_file() {
        format!("the token file {name} is not a plain file: name another one")
    } else if about.uid() != geteuid().as_raw() {
        format!("the token file {name} belongs to another user: name a file of your own")
    } else if about.mode() & 0o077 != 0 {
        format!(
            "others can read the token file {name}, and with it release the lock: chmod 600 {name}"
        )
    } else {
        return Ok(());
    };
    Err(Failure::new(NOT_AUTHORISED, message))
}

fn refused(path: &Path, action: &str, error: &io::Error) -> Failure {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        let name = path.display();
        let message = format!("the token file {name} is a symbolic link: name the file itself");
        return Failure::new(NOT_AUTHORISED, message);
    }
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let code = if denied { NOT_AUTHORISED } else { CONFIGURATION };
    Failure::new(code, format!("could not {action} the token file {}: {error}", path.display()))
}
