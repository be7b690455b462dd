//! Users who may not do everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use distlock::backends::Redis;
use distlock::{HoldEnd, Locks};
use distlock_testkit::servers::RedisServer;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata};

use crate::network::with_user;
use crate::support::*;

/// A client whose user has these rules on top of everything.
fn limited(server: &RedisServer, rules: &[&str]) -> Locks {
    let mut words = vec!["ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all"];
    words.extend(rules);
    assert!(server.command(&words).contains("OK"), "{rules:?}");
    locks(&with_user(server, "limited"))
}

/// True if a server says that the user may not do this: Redis 7.0 in the first way, Valkey and
/// later versions of Redis in the second.
fn is_denial(text: &str) -> bool {
    text.contains("can't run this command") || text.contains("has no permissions to run")
}

/// A hand-over between two clients; says how long after the release the second got the lock.
async fn hand_over(a: &Locks, b: &Locks) -> std::time::Duration {
    let held = lock(a).await;
    let next = wait(b);
    queued(a, 1).await;
    assert_eq!(held.release().await.unwrap(), HoldEnd::Released);
    let released = Instant::now();
    let (at, guard) = tokio::time::timeout(ms(5000), next).await.unwrap().unwrap();
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), HoldEnd::Released);
    at.saturating_duration_since(released)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_publish_hands_over_by_heartbeats() {
    let server = RedisServer::start();
    let a = limited(&server, &["-publish"]);
    let took = hand_over(&a, &locks(&server.url())).await;
    assert!(took < PLACE / 4 + ms(500), "{took:?}");
    nothing_left(&server, ms(500)).await;
}

#[tokio::test]
async fn a_user_who_may_not_subscribe_is_warned_once_and_wakes_by_heartbeats() {
    let server = RedisServer::start();
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    limited(&server, &["resetchannels"]);
    // On the thread of the test, where its subscriber is.
    let redis = Redis::open(&with_user(&server, "limited")).unwrap();
    let b = Locks::without_thread(Arc::new(redis)).configure(|o| o.ttl(TTL).place(PLACE)).unwrap();
    for _ in 0..3 {
        let took = hand_over(&locks(&server.url()), &b).await;
        assert!(took < PLACE / 4 + ms(500), "{took:?}");
        server.command(&["CLIENT", "KILL", "USER", "limited"]);
    }
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_command_is_named() {
    for command in ["evalsha", "eval"] {
        let server = RedisServer::start();
        let a = limited(&server, &["-fcall", &format!("-{command}")]);
        let error = try_lock(&a).await.unwrap_err();
        assert!(!error.is_transient(), "{command}: {error}");
        let text = error.to_string();
        assert!(
            text.to_uppercase().contains("NOPERM") && text.contains(&format!("'{command}'")),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_denied_inside_a_script_is_permanent_and_grants_nothing() {
    for command in ["time", "set", "exists"] {
        let server = RedisServer::start();
        let a = limited(&server, &[&format!("-{command}")]);
        let error = a.mutex(KEY).unwrap().lock().await.unwrap_err();
        assert!(!error.is_transient(), "{command}: {error}");
        assert!(is_denial(&error.to_string()), "{command}: {error}");
        assert_eq!(left(&server), [] as [&str; 0], "{command} left something");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_delete_gets_the_error_from_release() {
    let server = RedisServer::start();
    let a = limited(&server, &["-del"]);
    let error = lock(&a).await.release().await.unwrap_err();
    let text = format!("{error} {:?}", std::error::Error::source(&error));
    assert!(is_denial(&text) && text.contains("+del"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_denied_inside_a_script_is_among_those_that_the_error_asks_for() {
    for command in ["time", "set"] {
        let server = RedisServer::start();
        let a = limited(&server, &[&format!("-{command}")]);
        let error = try_lock(&a).await.unwrap_err().to_string();
        assert!(error.to_lowercase().contains(&format!("+{command}")), "{command}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_permanent_and_shown_nowhere() {
    let server = RedisServer::start();
    limited(&server, &[]);
    let url = format!("redis://limited:s3cret@127.0.0.1:{}/", server.port());
    let error = try_lock(&locks(&url)).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
}

/// Counts the warnings about subscriptions.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        if text.0.contains("may not subscribe") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{value:?} "));
    }
}
