//! Why a service did not start, or ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a service did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Everybody could reach the service, and nobody would have to say who they are.
    #[error("listen on {0}: without tokens only a loopback address is allowed (--token-file)")]
    Unprotected(SocketAddr),
    /// The address cannot be listened on.
    #[error("listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The file with the tokens cannot be read.
    #[error("read the tokens in {path:?}: {source}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line of the file with the tokens makes no sense. It is not repeated: it has a secret.
    #[error("read the tokens: line {line}: {why}")]
    TokenLine {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The locks could not all be released at the end.
    #[error(transparent)]
    Locks(#[from] distlock::Error),
}
