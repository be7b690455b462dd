//! A client that does no more than it must, so that the servers are what is measured.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More than any answer here.
const ANSWER_MAX: usize = 8_192;

/// One connection that is kept alive.
pub(super) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("our own server listens");
        stream.set_nodelay(true).expect("it is a socket");
        Self { stream, buffer: vec![0; ANSWER_MAX] }
    }

    /// Sends a request without a body. Returns the status and the body of the answer.
    pub(super) async fn send(&mut self, line: &str, headers: &str) -> (u16, String) {
        let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        self.stream.write_all(request.as_bytes()).await.expect("our own server reads");
        let mut read = 0;
        loop {
            let more = self.stream.read(&mut self.buffer[read..]).await;
            let more = more.expect("our own server answers");
            assert!(more > 0, "our own server hung up, or its answer is too long");
            read += more;
            if let Some(answer) = whole(&self.buffer[..read]) {
                return answer;
            }
        }
    }
}

/// The answer, once all of it is there.
fn whole(read: &[u8]) -> Option<(u16, String)> {
    let text = str::from_utf8(read).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.get(9..12)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
    });
    (body.len() >= length.unwrap_or(0)).then(|| (status, body.to_owned()))
}
