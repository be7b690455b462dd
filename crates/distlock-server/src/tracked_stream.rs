//! A stream that reports what becomes of the grant it carries, and that its client still reads.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connections::TrackedConnection;
use crate::delivery::Transit;
use crate::socket::Socket;

/// What HTTP is spoken over: a socket, or TLS on one.
#[derive(Debug)]
pub(crate) struct TrackedStream<S> {
    pub(crate) inner: S,
    pub(crate) socket: Arc<Socket>,
    pub(crate) transit: Arc<Transit>,
    pub(crate) connection: Arc<TrackedConnection>,
}

impl<S: AsyncWrite + Unpin> TrackedStream<S> {
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.transit.is_loaded() && self.socket.is_closed_by_client() {
            self.transit.broke();
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = ready!(write(Pin::new(&mut self.inner), cx));
        match &written {
            Ok(_) => {
                self.transit.wrote();
                self.connection.wrote(Instant::now());
            }
            Err(_) => self.transit.broke(),
        }
        Poll::Ready(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match ready!(Pin::new(&mut self.inner).poll_read(cx, buffer)) {
            Ok(()) => {
                if buffer.filled().len() > before {
                    self.transit.heard();
                }
                Poll::Ready(Ok(()))
            }
            // Many clients close a TLS connection without saying so: that is a plain end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            Err(error) => {
                self.transit.broke();
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |inner, cx| inner.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |inner, cx| inner.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
