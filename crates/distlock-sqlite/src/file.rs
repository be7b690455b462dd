//! The file that the locks are in: who may read it, and whether its disk can carry locks at all.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use distlock_core::Fault;

use super::config::SqliteConfig;

/// File systems whose files may be changed by other machines, or whose locks and shared memory do
/// not work between processes. The numbers are those of `statfs`.
const REFUSED: [(u64, &str); 15] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x564c, "NCP"),
    (0x786f_4256, "VirtualBox shared folders"),
];

pub(super) const OPEN_FILE: &str = "open the file of locks";

/// Refuses disks that cannot carry locks. Makes the folder if it is the user's own default.
pub(super) fn check(config: &SqliteConfig) -> Result<(), Fault> {
    let folder = config.file.parent().unwrap_or(Path::new("/"));
    if config.is_default {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| fault(config, &error))?;
    }
    let disk = rustix::fs::statfs(folder).map_err(|error| fault(config, &error.into()))?;
    // The kernel's number is 32 bits wide, its type depends on the machine.
    #[allow(clippy::cast_sign_loss, reason = "a bit pattern")]
    let Some(name) = refused(disk.f_type as u64) else { return Ok(()) };
    let text = format!("the file system is {name}, whose locks and shared memory are unreliable");
    let fault = Fault::permanent(OPEN_FILE, text).at_store(config.location());
    Err(fault.advise("name a file on a disk of this machine, or use redis://"))
}

/// Makes an empty file for this user only.
pub(super) fn make(config: &SqliteConfig) -> Result<(), Fault> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&config.file);
    made.map(drop).map_err(|error| fault(config, &error))
}

/// Gives a file its final name, unless there is one of that name already.
pub(super) fn give_name(draft: &Path, config: &SqliteConfig) -> Result<(), Fault> {
    match fs::hard_link(draft, &config.file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(fault(config, &error)),
        _ => Ok(()),
    }
}

fn fault(config: &SqliteConfig, error: &io::Error) -> Fault {
    let denied = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
    let fault = if denied.contains(&error.kind()) {
        Fault::denied(OPEN_FILE, error.to_string())
    } else {
        Fault::permanent(OPEN_FILE, error.to_string())
    };
    let fault = fault.at_store(config.location());
    match advice(error) {
        "" => fault,
        advice => fault.advise(advice),
    }
}

fn refused(magic: u64) -> Option<&'static str> {
    let magic = magic & 0xffff_ffff;
    REFUSED.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "make its folder first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "this user must be able to write to its folder: change that, or name another file"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room",
        _ => "",
    }
}

/// Which file a path leads to now: none if to no file.
pub(super) fn inode(file: &Path) -> Option<(u64, u64)> {
    fs::metadata(file).ok().map(|data| (data.dev(), data.ino()))
}

/// What an operator should know about the file.
pub(super) fn warnings(file: &Path) -> Vec<String> {
    let mode = fs::metadata(file).map(|data| data.permissions().mode() & 0o777);
    match mode {
        Ok(mode) if mode & 0o077 != 0 => vec![format!(
            "other users may open {} (mode {mode:03o}), and every reader can release every \
             lock in it: chmod 600",
            file.display()
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_machines_are_refused() {
        for (magic, name) in REFUSED {
            assert_eq!(refused(magic), Some(name));
            // Where the kernel's type is signed, the upper half is filled with ones.
            assert_eq!(refused(magic | 0xffff_ffff_0000_0000), Some(name));
        }
        for (magic, name) in [(0xef53, "ext4"), (0x0102_1994, "tmpfs"), (0x9123_683e, "btrfs")] {
            assert_eq!(refused(magic), None, "{name} is a disk of this machine");
        }
    }
}
