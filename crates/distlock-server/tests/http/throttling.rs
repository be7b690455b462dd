//! Wrong tokens are limited per address range and in total; a valid token never is.

use std::net::IpAddr;

use reqwest::Client;
use serde_json::json;

use crate::support::{ADMIN, Answer, LOCKER, On, PATH, READER, Service, tokens};

async fn guarded() -> Service {
    Service::with(On::Memory, |config| config.tokens = tokens()).await
}

/// A service that takes the address of a client from the header of a proxy.
async fn behind_proxy() -> Service {
    Service::with(On::Memory, |config| {
        config.tokens = tokens();
        config.behind_proxy = true;
    })
    .await
}

async fn guess(service: &Service, number: u32) -> Answer {
    let token = format!("guess-{number:020}");
    Answer::of(service.request("GET", "/api/v1/locks").bearer_auth(token)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_valid_token_is_never_throttled() {
    let service = guarded().await;
    let lease = service.request("POST", &format!("/api/v1/locks/{PATH}/leases"));
    let lease = Answer::of(lease.bearer_auth(LOCKER).json(&json!({}))).await.is(201);
    let mut refused = Vec::new();
    for number in 0..50 {
        let answer = guess(&service, number).await;
        match answer.status {
            401 => assert!(answer.json.get("detail").is_none(), "a hint: {}", answer.text),
            _ => refused.push(answer.is(429)),
        }
        let renewal = service.request("PUT", &format!("/api/v1/locks/{PATH}/lease"));
        let renewal = renewal.bearer_auth(LOCKER).header("lease-id", lease.text_of("leaseId"));
        Answer::of(renewal).await.is(200);
    }
    let last = refused.last().expect("fifty guesses were answered");
    let seconds: u64 = last.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    // A token that was never seen from this address is valid all the same.
    for token in [ADMIN, READER] {
        Answer::of(service.request("GET", "/api/v1/locks").bearer_auth(token)).await.is(200);
    }
    // Without a token nothing is guessed, and what is open stays open.
    service.get("/api/v1/locks").await.is(401);
    service.get("/health").await.is(200);
    let numbers = service.request("GET", "/metrics").bearer_auth(ADMIN);
    let numbers = Answer::of(numbers).await.is(200).text;
    assert!(numbers.contains("distlock_http_refused_tokens_total{outcome=\"throttled\"}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_loopback_addresses_are_one_range() {
    let service = guarded().await;
    let mut unauthorized = 0;
    for number in 0..60_u8 {
        let from = IpAddr::from([127, 0, number / 10, number + 1]);
        let client = Client::builder().local_address(from).build().unwrap();
        let request = client.get(service.url("/api/v1/locks"));
        let answer = Answer::of(request.bearer_auth(format!("guess-{number:020}"))).await;
        assert!([401, 429].contains(&answer.status), "{}", answer.text);
        unauthorized += u32::from(answer.status == 401);
    }
    assert!((1..=15).contains(&unauthorized), "{unauthorized} of 60 guesses were answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_from_everywhere_are_limited_in_total() {
    let service = behind_proxy().await;
    let mut unauthorized = 0;
    for number in 0..3_000_u32 {
        let [_, _, high, low] = number.to_be_bytes();
        let request = service.request("GET", "/api/v1/locks");
        let request = request.header("x-forwarded-for", format!("203.{high}.{low}.9"));
        let answer = Answer::of(request.bearer_auth(format!("guess-{number:020}"))).await;
        assert!([401, 429].contains(&answer.status), "{}", answer.text);
        unauthorized += u32::from(answer.status == 401);
    }
    assert!((1..=1_000).contains(&unauthorized), "{unauthorized} of 3,000 were answered");
    let valid = service.request("GET", "/api/v1/locks").header("x-forwarded-for", "203.0.0.9");
    Answer::of(valid.bearer_auth(ADMIN)).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_told_by_the_last_proxy_and_never_by_a_client() {
    let service = behind_proxy().await;
    let guess = |from: String, number: u32| {
        let request = service.request("GET", "/api/v1/locks").header("x-forwarded-for", from);
        Answer::of(request.bearer_auth(format!("guess-{number:020}")))
    };
    for number in 0..50 {
        guess("203.0.113.7".to_owned(), number).await;
    }
    guess("203.0.113.8".to_owned(), 0).await.is(429);
    guess("198.51.100.9".to_owned(), 0).await.is(401);
    guess("203.0.113.7, 198.51.100.9".to_owned(), 0).await.is(401);
    // Where no proxy is announced, the header is text of the client's choice.
    let direct = guarded().await;
    let mut statuses = Vec::new();
    for number in 0..50 {
        let request = direct.request("GET", "/api/v1/locks");
        let request = request.header("x-forwarded-for", format!("203.0.{number}.9"));
        let request = request.bearer_auth(format!("guess-{number:020}"));
        statuses.push(Answer::of(request).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}
