//! One server with TLS: which certificates are believed, and what is said of those that are not.

use std::time::Duration;

use distlock::{Error, FaultKind, Locks};
use distlock_testkit::servers::{Certificates, ClientCertificates, RedisServer};

const WAIT: Duration = Duration::from_secs(20);

/// Takes a lock, waits for it from another client, is pushed the grant, and releases it.
pub(crate) async fn use_lock(url: &str) {
    let (one, two) = (Locks::connect(url).unwrap(), Locks::connect(url).unwrap());
    let guard = one.mutex("k").unwrap().try_lock_for(WAIT).await.unwrap();
    let waits = two.mutex("k").unwrap();
    let waiting = tokio::spawn(async move { waits.try_lock_for(WAIT).await });
    while one.inspect("k").await.unwrap().waiters_total == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > fence);
    assert!(two.capabilities().push, "grants are pushed over TLS");
    next.release().await.unwrap();
    assert!(one.inspect("k").await.unwrap().holders.is_empty());
}

/// The error of a first attempt.
async fn refused(url: &str) -> Error {
    Locks::connect(url).unwrap().mutex("k").unwrap().try_lock().await.unwrap_err()
}

fn url(server: &RedisServer, query: &str) -> String {
    format!("rediss://127.0.0.1:{}/?{query}", server.tls_port())
}

/// The error is about the certificates, names the server, and does not call for another attempt.
fn is_about_certificates(error: &Error, server: &RedisServer, says: &str) {
    let text = error.to_string();
    assert!(text.contains(says), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{}", server.tls_port())), "{text}");
    assert!(
        matches!(error, Error::Backend(fault) if fault.kind() == FaultKind::Permanent),
        "{text}"
    );
}

#[tokio::test]
async fn a_lock_is_taken_waited_for_pushed_and_released_over_tls() {
    let certificates = Certificates::for_loopback();
    let server = RedisServer::start_tls(&certificates, ClientCertificates::Ignored);
    use_lock(&url(&server, &certificates.query())).await;
    let by_name = format!("rediss://localhost:{}/?{}", server.tls_port(), certificates.query());
    use_lock(&by_name).await;
}

#[tokio::test]
async fn a_server_that_another_authority_signed_is_refused() {
    let (ours, theirs) = (Certificates::for_loopback(), Certificates::for_loopback());
    let server = RedisServer::start_tls(&theirs, ClientCertificates::Ignored);
    is_about_certificates(&refused(&url(&server, &ours.query())).await, &server, "ca=");
    // Nor do the authorities of the system know it.
    is_about_certificates(&refused(&url(&server, "")).await, &server, "ca=");
}

#[tokio::test]
async fn a_server_of_another_name_is_refused() {
    let certificates = Certificates::for_names(&["locks.example"]);
    let server = RedisServer::start_tls(&certificates, ClientCertificates::Ignored);
    let error = refused(&url(&server, &certificates.query())).await;
    is_about_certificates(&error, &server, "locks.example");
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_the_server_wants_one() {
    let certificates = Certificates::for_loopback();
    let server = RedisServer::start_tls(&certificates, ClientCertificates::Required);
    use_lock(&url(&server, &certificates.query_of_client())).await;
    let error = refused(&url(&server, &certificates.query())).await;
    is_about_certificates(&error, &server, "cert=");
    // One that another authority signed is as good as none.
    let others = Certificates::for_loopback();
    let (cert, key) = (others.path("client.pem"), others.path("client.key"));
    let query = format!("{}&cert={}&key={}", certificates.query(), cert.display(), key.display());
    is_about_certificates(&refused(&url(&server, &query)).await, &server, "cert=");
}

#[tokio::test]
async fn plain_text_where_tls_is_spoken_and_tls_where_it_is_not_are_faults_with_advice() {
    let certificates = Certificates::for_loopback();
    let server = RedisServer::start_tls(&certificates, ClientCertificates::Ignored);
    let plain = refused(&format!("redis://127.0.0.1:{}/", server.tls_port())).await.to_string();
    assert!(plain.contains("rediss://"), "{plain}");
    let tls = format!("rediss://127.0.0.1:{}/?{}", server.port(), certificates.query());
    let tls = refused(&tls).await.to_string();
    assert!(tls.contains("redis://"), "{tls}");
}

#[tokio::test]
async fn certificates_that_are_replaced_are_read_with_the_next_connection() {
    let certificates = Certificates::for_loopback();
    let mut server = RedisServer::start_tls(&certificates, ClientCertificates::Ignored);
    let locks = Locks::connect(&url(&server, &certificates.query())).unwrap();
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    let renewed = Certificates::for_loopback();
    for name in ["ca.pem", "server.pem", "server.key"] {
        std::fs::copy(renewed.path(name), certificates.path(name)).unwrap();
    }
    server.restart();
    let guard = locks.mutex("k").unwrap().try_lock_for(WAIT).await.unwrap();
    guard.release().await.unwrap();
}
