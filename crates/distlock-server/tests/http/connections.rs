//! Connections are bounded, and those without a token give way to those with one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use reqwest::Client;

use crate::support::{ADMIN, Answer, On, PATIENCE, Service, tokens};

/// A connection that has had one answer without a token and keeps quiet.
fn idle(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream
}

/// Reads until the service closes the connection; false if it does not.
fn is_closed(mut stream: &TcpStream) -> bool {
    let mut bytes = [0; 1_024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_without_a_token_lock_no_token_out() {
    let service = Service::with(On::Memory, |config| {
        config.tokens = tokens();
        config.connections_max = 150;
    })
    .await;
    let address = service.address;
    let flood =
        tokio::task::spawn_blocking(move || (0..300).map(|_| idle(address)).collect::<Vec<_>>());
    // While the flood comes in and after it, every request with a token is answered.
    for _ in 0..3 {
        let look = Client::new().get(service.url("/api/v1/locks")).bearer_auth(ADMIN);
        Answer::of(look.timeout(PATIENCE)).await.is(200);
    }
    let flood = flood.await.unwrap();
    let look = Client::new().get(service.url("/api/v1/locks")).bearer_auth(ADMIN);
    Answer::of(look.timeout(PATIENCE)).await.is(200);
    drop(flood);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_soon_unless_it_has_shown_a_token() {
    let service = Service::with(On::Memory, |config| config.tokens = tokens()).await;
    let address = service.address;
    let closed = tokio::task::spawn_blocking(move || {
        let mut known = TcpStream::connect(address).unwrap();
        known.set_read_timeout(Some(PATIENCE)).unwrap();
        let ask = format!(
            "GET /api/v1/locks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
        );
        let mut answer = [0; 4_096];
        known.write_all(ask.as_bytes()).unwrap();
        assert!(known.read(&mut answer).unwrap() > 0);
        let unknown = idle(address);
        let closed = is_closed(&unknown);
        known.write_all(ask.as_bytes()).unwrap();
        let count = known.read(&mut answer).unwrap();
        assert!(answer[..count].starts_with(b"HTTP/1.1 200"), "the known one was closed");
        closed
    });
    assert!(closed.await.unwrap(), "it was still open after {PATIENCE:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_has_few_connections_without_a_token() {
    let service = Service::with(On::Memory, |config| config.tokens = tokens()).await;
    let address = service.address;
    let closed = tokio::task::spawn_blocking(move || {
        let first = idle(address);
        // The first has been idle for long enough to give way, and not for long enough to be
        // closed for that alone.
        std::thread::sleep(Duration::from_millis(2_500));
        let _others: Vec<_> = (0..100).map(|_| idle(address)).collect();
        first.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        is_closed(&first)
    });
    assert!(closed.await.unwrap(), "a hundred and one are served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded_and_wait_their_turn() {
    let service = Service::with(On::Memory, |config| config.connections_max = 1).await;
    let look = || service.request("GET", "/api/v1/locks");
    // The client keeps this connection, which may do everything and is not sent away.
    Answer::of(look()).await.is(200);
    let late = Client::new().get(service.url("/health")).timeout(Duration::from_millis(300));
    assert!(late.send().await.is_err(), "a second connection was served");
    Answer::of(look().header("connection", "close")).await.is(200);
    Answer::of(Client::new().get(service.url("/health")).timeout(PATIENCE)).await.is(200);
}
