//! Where the service listens: an address of TCP, or the path of a Unix socket.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::TcpListener;

use crate::ServerError;
use crate::socket::Socket;
use crate::unix_socket::UnixSocket;

/// Where to listen: `127.0.0.1:3009`, `[::1]:3009` or `unix:/run/distlock/http.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// An address of TCP. Anything but loopback needs tokens.
    Tcp(SocketAddr),
    /// A Unix socket, which only this user can connect to.
    Unix(PathBuf),
}

impl Listen {
    /// True if only processes of this machine can connect.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: wants a path, such as unix:/run/distlock/http.sock"),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text
                .parse()
                .map(Self::Tcp)
                .map_err(|_| "want an address with a port, such as 127.0.0.1:3009, or unix:PATH"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl Listener {
    pub(crate) async fn bind(listen: &Listen) -> Result<Self, ServerError> {
        let refuse = |source| ServerError::Listen { listen: listen.clone(), source };
        match listen {
            Listen::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp).map_err(refuse),
            Listen::Unix(path) => UnixSocket::bind(path).map(Self::Unix).map_err(refuse),
        }
    }

    /// The address of TCP, with the port that was chosen.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// The next connection, and the address of the client. That of a Unix socket is local.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection is taken out only when it is returned.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Socket::tcp(stream), peer))
            }
            Self::Unix(socket) => {
                let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                Ok((socket.accept().await?, local))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_the_same() {
        for text in ["127.0.0.1:3009", "[::1]:3009", "unix:/run/distlock/http.sock"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for bad in ["", "localhost", "127.0.0.1", "unix:", "3009"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
        let local = |text: &str| text.parse::<Listen>().unwrap().is_local();
        assert!(local("127.0.0.1:1") && local("[::1]:1") && local("unix:a"));
        assert!(!local("0.0.0.0:1") && !local("10.0.0.1:1"));
    }
}
