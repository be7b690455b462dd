//! A connection that tells the grant it carries what becomes of it.

use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::delivery::Transit;

/// One connection. The socket outlives the HTTP on it, so that its end can be looked at.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Arc<TcpStream>,
    transit: Arc<Transit>,
}

impl Line {
    pub(crate) fn new(stream: Arc<TcpStream>, transit: Arc<Transit>) -> Self {
        Self { stream, transit }
    }

    /// Writes as soon as the socket takes it.
    fn write(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.transit.is_loaded() && self.is_closed_by_client() {
            self.transit.broke();
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(written) => {
                    self.transit.wrote();
                    return Poll::Ready(Ok(written));
                }
                Err(error) => {
                    self.transit.broke();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// True if the client has closed its end: it will not read what is written now.
    fn is_closed_by_client(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(&*self.stream).peek(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) => {
                    buffer.advance(count);
                    if count > 0 {
                        self.transit.heard();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) => {
                    self.transit.broke();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(&*self.stream).shutdown(Shutdown::Write) {
            // A client that is gone has shut it down for us.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}
