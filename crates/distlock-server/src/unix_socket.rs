//! A Unix socket that only this user can connect to, from the moment it exists.

#[cfg(unix)]
pub(crate) use here::UnixSocket;
#[cfg(not(unix))]
pub(crate) use renewed_ttls::UnixSocket;

#[cfg(unix)]
mod here {
    use std::fs::{self, DirBuilder, Permissions};
    use std::io::{self, ErrorKind};
    use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
    use std::path::{Path, PathBuf};

    use tokio::net::UnixListener;

    use crate::socket::Socket;

    /// A listening socket. Its file is removed with it.
    #[derive(Debug)]
    pub(crate) struct UnixSocket {
        listener: UnixListener,
        path: PathBuf,
        /// The file that this value made: another service may have replaced it.
        inode: u64,
    }

    impl UnixSocket {
        /// Listens on a path. A socket that no process listens on is replaced.
        pub(crate) fn bind(path: &Path) -> io::Result<Self> {
            check_stale(path)?;
            // The mode of a new socket depends on the umask, so it is made where others cannot
            // reach it, and moved when its mode is right. The move also replaces a stale one.
            let mut folder = path.as_os_str().to_owned();
            folder.push(format!(".{}", std::process::id()));
            let folder = PathBuf::from(folder);
            DirBuilder::new().mode(0o700).create(&folder)?;
            let made = make(&folder.join("s"), path);
            let _ = fs::remove_dir_all(&folder);
            let (listener, inode) = made?;
            Ok(Self { listener, path: path.to_owned(), inode })
        }

        pub(crate) async fn accept(&self) -> io::Result<Socket> {
            Ok(Socket::Unix(self.listener.accept().await?.0))
        }
    }

    impl Drop for UnixSocket {
        fn drop(&mut self) {
            let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == self.inode);
            if ours {
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    fn make(draft: &Path, path: &Path) -> io::Result<(UnixListener, u64)> {
        let listener = UnixListener::bind(draft)?;
        fs::set_permissions(draft, Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(draft)?.ino();
        fs::rename(draft, path)?;
        Ok((listener, inode))
    }

    /// Refuses a path with something else than a socket that no process listens on.
    fn check_stale(path: &Path) -> io::Result<()> {
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        if !found.file_type().is_socket() {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "there is a file that is no socket",
            ));
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there")),
        }
    }
}

#[cfg(not(unix))]
mod renewed_ttls {
    use std::io;
    use std::path::Path;

    use crate::socket::Socket;

    /// There are no Unix sockets on this system.
    #[derive(Debug)]
    pub(crate) enum UnixSocket {}

    impl UnixSocket {
        pub(crate) fn bind(_: &Path) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
        }

        pub(crate) async fn accept(&self) -> io::Result<Socket> {
            match *self {}
        }
    }
}
