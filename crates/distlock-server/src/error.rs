//! Why a service did not start, or ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Listen;

/// Why a service did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Other machines could reach the service without a token.
    #[error("listen on {0}: without tokens only a loopback address is allowed (--token-file)")]
    Unprotected(SocketAddr),
    /// The address cannot be listened on.
    #[error("listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: Listen,
        /// What the system says.
        source: io::Error,
    },
    /// The file with the tokens cannot be read, or other users can read it.
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
    /// A certificate or a key cannot be used.
    #[error("use {path:?} for TLS: {source}")]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The locks could not all be released at the end.
    #[error(transparent)]
    Locks(#[from] distlock::Error),
}
