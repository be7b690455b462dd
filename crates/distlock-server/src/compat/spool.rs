//! A state on its way to or from a client: a file without a name, so that a slow client costs a
//! file descriptor and disk space, but no memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use distlock::ClaimId;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use super::transfers::Transfer;
use crate::problem::Problem;

/// The largest state.
const STATE_MAX: usize = 64 * 1024 * 1024;

/// How long an upload may take, and how long it may pause.
const UPLOAD_MAX: Duration = Duration::from_secs(120);
const UPLOAD_PAUSE_MAX: Duration = Duration::from_secs(10);

/// How much of a download is in memory.
const PIECE: usize = 64 * 1024;

/// The file. It is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Spool(File);

impl Spool {
    /// An empty one in this folder. Only this process can open it.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let name = ClaimId::random().map_err(io::Error::other)?.reveal();
        let path = folder.join(format!(".spool-{name}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self(file))
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// How much is in it. Reads begin at the beginning again.
    pub(crate) fn rewind(&mut self) -> io::Result<u64> {
        self.0.rewind()?;
        Ok(self.0.metadata()?.len())
    }

    /// Fills as much of the buffer as there is.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    /// Takes in the body of a request.
    pub(crate) async fn receive(self, request: Request) -> Result<Self, Problem> {
        let mut file = tokio::fs::File::from_std(self.0);
        let mut body = Limited::new(request.into_body(), STATE_MAX);
        let copy = async {
            while let Some(frame) = tokio::time::timeout(UPLOAD_PAUSE_MAX, body.frame())
                .await
                .map_err(|_| too_slow())?
            {
                let frame = frame.map_err(|error| refuse(&*error))?;
                if let Ok(bytes) = frame.into_data() {
                    file.write_all(&bytes).await.map_err(|error| unwritten(&error))?;
                }
            }
            file.flush().await.map_err(|error| unwritten(&error))
        };
        tokio::time::timeout(UPLOAD_MAX, copy).await.map_err(|_| too_slow())??;
        Ok(Self(file.into_std().await))
    }

    /// Sends it piece by piece, as fast as the client reads.
    pub(crate) fn send(mut self, transfer: Transfer) -> Result<Response, Problem> {
        let length = self.rewind().map_err(|error| unwritten(&error))?;
        let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(self.0), PIECE);
        let body = CountedDownload { pieces, _transfer: transfer };
        let headers = [
            (header::CONTENT_TYPE, "application/json".to_owned()),
            (header::CONTENT_LENGTH, length.to_string()),
        ];
        Ok((headers, Body::from_stream(body)).into_response())
    }
}

/// A download counts until its last piece has been read, or its client has left.
struct CountedDownload {
    pieces: ReaderStream<tokio::fs::File>,
    _transfer: Transfer,
}

impl futures_util::Stream for CountedDownload {
    type Item = io::Result<bytes::Bytes>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::pin::Pin::new(&mut self.pieces).poll_next(cx)
    }
}

fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "The body took too long")
}

fn refuse(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Problem {
    if error.is::<LengthLimitError>() {
        let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large");
        return problem.detail(format!("a state must be at most {STATE_MAX} bytes"));
    }
    Problem::bad_request("the body ended before its time")
}

fn unwritten(error: &io::Error) -> Problem {
    tracing::error!(%error, "a Terraform state could not be spooled");
    Problem::unavailable()
}
