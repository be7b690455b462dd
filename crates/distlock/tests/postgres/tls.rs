//! Encrypted connections, certificates, and who checks whom.

use distlock_core::{Backend, FaultKind};
use distlock_testkit::servers::{Certificates, ClientCertificates, PostgresServer};

use crate::support::{ask, granted, open};

fn url(server: &PostgresServer, query: &str) -> String {
    format!("{}?response_timeout_ms=10000&{query}", server.url())
}

#[tokio::test]
async fn a_server_is_known_by_its_authority_and_its_name() {
    let (ours, others) = (Certificates::for_loopback(), Certificates::for_loopback());
    let server = PostgresServer::start_tls(&ours, ClientCertificates::Ignored);
    for query in [ours.query(), format!("{}&sslmode=verify-full", ours.query())] {
        granted(&open(&url(&server, &query)), &ask("k/full")).await;
        server.sql("DELETE FROM distlock.holders; DELETE FROM distlock.keys");
    }
    let stranger = open(&url(&server, &others.query()));
    let fault = stranger.acquire(&ask("k")).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Permanent, "{fault}");
    let plain = open(&url(&server, "sslmode=disable"));
    let fault = plain.acquire(&ask("k")).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Denied, "{fault}");
    // As libpq: encrypted, without a check of the certificate.
    granted(&open(&url(&server, "sslmode=require")), &ask("k/require")).await;
    granted(&open(&url(&server, "")), &ask("k/prefer")).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_unless_the_authority_is_enough() {
    let certificates = Certificates::for_names(&["elsewhere"]);
    let server = PostgresServer::start_tls(&certificates, ClientCertificates::Ignored);
    let full = open(&url(&server, &format!("{}&sslmode=verify-full", certificates.query())));
    let fault = full.acquire(&ask("k")).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Permanent, "{fault}");
    let authority = format!("{}&sslmode=verify-ca", certificates.query());
    granted(&open(&url(&server, &authority)), &ask("k")).await;
}

#[tokio::test]
async fn a_server_that_wants_certificates_of_clients_gets_them() {
    let certificates = Certificates::for_loopback();
    let server = PostgresServer::start_tls(&certificates, ClientCertificates::Required);
    let without = open(&url(&server, &certificates.query()));
    assert!(without.acquire(&ask("k")).await.is_err());
    granted(&open(&url(&server, &certificates.query_of_client())), &ask("k")).await;
}
