//! Who may do what, and who is not let in at all.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use distlock::Locks;
use distlock_server::{Server, ServerConfig, ServerError};
use reqwest::RequestBuilder;
use serde_json::json;

use crate::support::{ADMIN, Answer, KEY, LOCKER, On, PATH, READER, Service, tokens};

async fn guarded() -> Service {
    Service::with(On::Memory, |config| config.tokens = tokens()).await
}

fn lease(service: &Service) -> RequestBuilder {
    service.request("POST", &format!("/api/v1/locks/{PATH}/leases"))
}

#[tokio::test]
async fn a_service_that_others_can_reach_needs_tokens() {
    let open = ServerConfig::new("0.0.0.0:0".parse().unwrap());
    let refused = Server::bind(open.clone(), Locks::memory()).await.unwrap_err();
    assert!(matches!(refused, ServerError::Unprotected(_)), "{refused}");
    let mut protected = open;
    protected.tokens = tokens();
    assert!(Server::bind(protected, Locks::memory()).await.is_ok());
}

#[tokio::test]
async fn without_a_token_nothing_is_told_and_nothing_is_done() {
    let service = guarded().await;
    let wrong = [
        lease(&service),
        lease(&service).bearer_auth("nobody-0123456789abcdef"),
        lease(&service).bearer_auth(""),
        lease(&service).basic_auth("x", Some("wrong")),
        lease(&service).header("authorization", "Digest x"),
        lease(&service).header("authorization", "Basic !!"),
        lease(&service).header("dapr-api-token", "wrong"),
        service.request("GET", "/api/v1/locks"),
        service.request("GET", &format!("/api/v1/locks/{PATH}/history")),
        service.request("GET", "/api/v1/events"),
        service.request("GET", "/api/v1/summary"),
        service.request("GET", "/metrics"),
        service.request("POST", "/api/locks/simple/r"),
        service.request("POST", "/v1.0-alpha1/lock/lockstore"),
        service.request("GET", "/v1.0/metadata"),
        service.request("GET", "/api/compat/terraform/x"),
        // Tokens stand in headers, never in URLs.
        service.request("GET", &format!("/api/v1/locks?token={ADMIN}")),
    ];
    for request in wrong {
        let refused = Answer::of(request).await.is(401);
        assert_eq!(refused.header("www-authenticate"), "Bearer realm=\"distlock\"");
        assert!(refused.json.get("detail").is_none(), "a hint: {}", refused.text);
    }
    for open in ["/health", "/livez", "/readyz", "/api/openapi.json", "/api/docs"] {
        service.get(open).await.is(200);
    }
}

#[tokio::test]
async fn a_token_is_presented_in_three_ways() {
    let service = guarded().await;
    let basic = STANDARD.encode(format!("anybody:{LOCKER}"));
    for request in [
        lease(&service).bearer_auth(LOCKER),
        lease(&service).header("authorization", format!("bearer  {LOCKER}")),
        lease(&service).header("authorization", format!("Basic {basic}")),
        lease(&service).header("dapr-api-token", LOCKER),
    ] {
        let granted = Answer::of(request).await.is(201);
        let released = service.request("DELETE", &format!("/api/v1/locks/{PATH}/lease"));
        let released = released.bearer_auth(LOCKER).header("lease-id", granted.text_of("leaseId"));
        Answer::of(released).await.is(204);
    }
}

#[tokio::test]
async fn a_scope_allows_what_it_says() {
    let service = guarded().await;
    let path = format!("/api/v1/locks/{PATH}");
    let broken = json!({"fence": 1, "reason": "x"});
    for (token, method, path, status) in [
        (READER, "GET", path.clone(), 200),
        (READER, "GET", "/api/v1/locks".into(), 200),
        (READER, "GET", "/api/v1/summary".into(), 200),
        (READER, "GET", "/metrics".into(), 200),
        (READER, "POST", format!("{path}/leases"), 403),
        (READER, "POST", format!("{path}/break"), 403),
        (READER, "POST", "/api/locks/simple/deploy%2Fx".into(), 403),
        (LOCKER, "GET", path.clone(), 200),
        (LOCKER, "GET", "/api/v1/locks?prefix=deploy/".into(), 200),
        (LOCKER, "GET", "/api/v1/locks?prefix=deplo".into(), 403),
        (LOCKER, "GET", "/api/v1/locks".into(), 403),
        (LOCKER, "GET", "/api/v1/locks/jobs".into(), 403),
        (LOCKER, "GET", "/api/v1/summary".into(), 403),
        (LOCKER, "GET", "/metrics".into(), 403),
        (LOCKER, "POST", "/api/v1/locks/jobs/leases".into(), 403),
        (LOCKER, "POST", "/api/v1/locks/deploy/leases".into(), 403),
        (LOCKER, "POST", format!("{path}/break"), 403),
        (ADMIN, "GET", "/api/v1/locks".into(), 200),
        (ADMIN, "POST", format!("{path}/break"), 412),
        (ADMIN, "POST", "/api/v1/locks/jobs/leases".into(), 201),
    ] {
        let request = service.request(method, &path).bearer_auth(token);
        let request = if path.ends_with("break") { request.json(&broken) } else { request };
        let answer = Answer::of(request).await;
        assert_eq!(answer.status, status, "{token} {method} {path}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_web_page_of_others_gets_nothing() {
    let service = Service::with(On::Memory, |config| config.hosts = vec!["locks.lan".into()]).await;
    for host in ["evil.example", "evil.example:3009", "127.0.0.1.evil.example"] {
        let request = service.request("GET", "/health").header("host", host);
        Answer::of(request).await.is(403);
    }
    for host in ["localhost", "127.0.0.1:80", "[::1]:3009", "locks.lan", "LOCKS.lan:3009"] {
        let request = service.request("GET", "/health").header("host", host);
        let answer = Answer::of(request).await.is(200);
        assert!(answer.headers.get("access-control-allow-origin").is_none());
    }
    for (name, value) in
        [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
    {
        Answer::of(lease(&service).header(name, value)).await.is(403);
    }
    let own = format!("http://{}", service.address);
    Answer::of(lease(&service).header("origin", own)).await.is(201);
    Answer::of(service.request("OPTIONS", "/api/v1/locks")).await.is(405);
    assert_eq!(service.get("/api/v1/locks").await.json["locks"][0]["key"], KEY);
}

#[tokio::test]
async fn every_answer_forbids_what_is_not_ours() {
    let service = guarded().await;
    for path in ["/health", "/nowhere", "/api/v1/locks", "/api/docs"] {
        let answer = service.get(path).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'self'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
    }
}
