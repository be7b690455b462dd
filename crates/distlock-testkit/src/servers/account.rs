//! The account that servers run under which refuse to run as root.

use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An account without privileges, if the tests run as root; otherwise that of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// The account of the tests.
    Own,
    /// Another one, by the numbers of its user and group.
    Other(u32, u32),
}

impl Account {
    /// The account `postgres`, which the package of the server makes, if the tests run as root.
    ///
    /// # Panics
    ///
    /// If the tests run as root and there is no such account.
    pub(super) fn unprivileged() -> Self {
        let id = Command::new("id").arg("-u").output().expect("id is on the PATH");
        if id.stdout.trim_ascii() != b"0" {
            return Self::Own;
        }
        let accounts = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
        let line = accounts.lines().find(|line| line.starts_with("postgres:"));
        let mut fields = line.expect("`make setup` makes the account postgres").split(':').skip(2);
        let mut number = || fields.next().and_then(|text| text.parse().ok());
        match (number(), number()) {
            (Some(user), Some(group)) => Self::Other(user, group),
            _ => panic!("/etc/passwd does not say who postgres is"),
        }
    }

    /// A command that runs under this account.
    pub(super) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Self::Other(user, group) = self {
            command.uid(user).gid(group);
        }
        // The folder of the tests may be closed to the account.
        command.current_dir("/");
        command
    }

    /// Gives a file or folder to this account.
    pub(super) fn own(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other(user, group) => chown(path, Some(user), Some(group)),
        }
    }
}
