//! What is recorded of breaks and logins, and what is shown to callers without a token.

use std::sync::{Arc, Mutex};

use distlock_server::Tokens;
use serde_json::json;

use crate::support::{ADMIN, Answer, LOCKER, On, PATH, READER, Service, tokens};

#[tokio::test]
async fn a_break_is_recorded_with_the_name_of_the_token() {
    let service = Service::with(On::Memory, |config| config.tokens = tokens()).await;
    let take = service.request("POST", &format!("/api/v1/locks/{PATH}/leases"));
    let granted = Answer::of(take.bearer_auth(LOCKER)).await.is(201);
    let broken = json!({"fence": granted.number_of("fence"), "reason": "stuck"});
    let request = service.request("POST", &format!("/api/v1/locks/{PATH}/break"));
    Answer::of(request.bearer_auth(ADMIN).json(&broken)).await.is(204);
    let past = service.request("GET", &format!("/api/v1/locks/{PATH}/history"));
    let past = Answer::of(past.bearer_auth(READER)).await.is(200);
    let visit = &past.json["visits"][0];
    assert_eq!((&visit["by"], &visit["why"]), (&json!("token-3"), &json!("stuck")));
}

const EXPIRED: &str = "expired-q1w2e3r4t5y6u7i8";

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_refused_login_is_recorded_with_its_address() {
    let log = Log::default();
    let writer = log.clone();
    let logged = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    // For this thread alone: all of the service runs on it.
    let _guard = tracing::subscriber::set_default(logged);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lines = format!("{EXPIRED} name=night-shift admin expires=2020-01-01");
        let tokens = Tokens::parse(&lines).unwrap();
        let service = Service::with(On::Memory, |config| config.tokens = tokens).await;
        for token in ["wrong-0123456789abcdef", EXPIRED] {
            let request = service.request("GET", "/api/v1/locks").bearer_auth(token);
            Answer::of(request).await.is(401);
        }
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("login refused") && log.contains("127.0.0.1"), "{log}");
    // Of a token that was valid once the name is known.
    assert!(log.contains("expired token") && log.contains("night-shift"), "{log}");
    assert!(!log.contains("wrong-0123456789abcdef") && !log.contains(EXPIRED), "{log}");
}

#[tokio::test]
async fn without_a_token_readiness_shows_no_details() {
    // A store in memory warns that it is one, and a file has a path.
    for on in [On::Memory, On::Sqlite] {
        let service = Service::with(on, |config| config.tokens = tokens()).await;
        let brief = service.get("/readyz").await.is(200);
        assert!(!brief.text.contains("warnings") && !brief.text.contains('/'), "{}", brief.text);
        let request = service.request("GET", "/readyz").bearer_auth("wrong-0123456789abcdef");
        assert_eq!(Answer::of(request).await.is(200).json, brief.json);
        let full = service.request("GET", "/readyz").bearer_auth(READER);
        let full = Answer::of(full).await.is(200);
        assert_eq!(full.json["checks"][0]["name"], "backend", "{}", full.text);
    }
}
