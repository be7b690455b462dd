//! One accepted socket, of TCP or of Unix. It outlives the HTTP on it, so that its end can be
//! examined.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A client that acknowledges nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Calls the method that both kinds have under the same name.
macro_rules! either {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            #[cfg(unix)]
            Socket::Unix($stream) => $call,
        }
    };
}

impl Socket {
    /// Small answers go out at once, and a client that disappeared is noticed.
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        let socket = SockRef::from(&stream);
        let probes = TcpKeepalive::new()
            .with_time(Duration::from_secs(10))
            .with_interval(Duration::from_secs(5))
            .with_retries(2);
        // A socket that cannot do these still works, just less well.
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_tcp_keepalive(&probes);
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(SILENCE_MAX));
        Self::Tcp(stream)
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_read(buffer))
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        either!(self, stream => stream.take_error())
    }

    /// True if the client has closed its end: it will not read what is written now.
    pub(crate) fn is_closed_by_client(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = either!(self, stream => SockRef::from(stream).peek(&mut byte));
        match peeked {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        either!(self, stream => SockRef::from(stream).shutdown(Shutdown::Write))
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read_ready(cx))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_write_ready(cx))
    }

    /// Writes as soon as the socket takes it.
    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&Self) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            match write(self) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

/// A handle for reading and writing. The socket is closed with its last handle.
#[derive(Debug)]
pub(crate) struct SocketIo(pub(crate) Arc<Socket>);

impl AsyncRead for SocketIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for SocketIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, |socket| either!(socket, stream => stream.try_write(bytes)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, |socket| either!(socket, stream => stream.try_write_vectored(parts)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.shutdown() {
            // A claim that is gone has shut it down for us.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}
