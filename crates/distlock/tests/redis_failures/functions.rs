//! Servers on which functions are missing or denied: the library runs as scripts.

use std::sync::Arc;

use distlock::backends::Redis;
use distlock::{ClaimId, Durability, Key, Label, Locks};
use distlock_core::{Answer, Ask, Backend, Claim, Confirmed, Renewal};
use distlock_testkit::servers::{RedisServer, RedisServerOptions};

use crate::support::*;

/// ReleaseOptions often the server ran this command.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&*prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

async fn hand_over(server: &RedisServer) {
    let (a, b) = (locks(&server.url()), locks(&server.url()));
    let held = lock(&a).await;
    let next = wait(&b);
    queued(&a, 1).await;
    let fence = held.fence();
    held.release().await.unwrap();
    let (_, next) = next.await.unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
    nothing_left(server, ms(500)).await;
}

#[tokio::test]
async fn a_server_runs_functions() {
    let server = RedisServer::start();
    hand_over(&server).await;
    assert!(calls(&server, "fcall") > 0 && calls(&server, "evalsha") == 0);
}

#[tokio::test]
async fn where_functions_are_denied_scripts_run() {
    let server = RedisServer::start();
    server.deny_functions();
    hand_over(&server).await;
    assert!(calls(&server, "fcall") == 0 && calls(&server, "evalsha") > 0);
}

#[tokio::test]
async fn where_functions_may_be_called_but_not_loaded_scripts_run() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "default", "-function"]);
    hand_over(&server).await;
    assert!(calls(&server, "evalsha") > 0);
}

#[tokio::test]
async fn where_functions_are_missing_scripts_run() {
    let args = ["--rename-command", "FCALL", "", "--rename-command", "FUNCTION", ""];
    let args = args.map(str::to_owned).into();
    let server = RedisServer::start_with(RedisServerOptions { args });
    hand_over(&server).await;
    assert!(calls(&server, "evalsha") > 0);
}

#[tokio::test]
async fn a_server_that_forgot_the_library_is_told_again_within_the_call() {
    for scripts in [false, true] {
        let server = RedisServer::start();
        if scripts {
            server.deny_functions();
        }
        let a = locks(&server.url());
        for _ in 0..3 {
            let guard = try_lock(&a).await.unwrap();
            server.command(&["FUNCTION", "FLUSH"]);
            server.command(&["SCRIPT", "FLUSH"]);
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_fresh_client_confirms_a_hold_where_functions_are_denied() {
    for forgotten in [false, true] {
        let server = RedisServer::start();
        server.deny_functions();
        let claim = Claim::new(Key::new(KEY).unwrap(), ClaimId::random().unwrap());
        let ask = Ask::new(claim.clone(), Label::new("owner", "me").unwrap(), ms(60_000));
        let store = Redis::open(&server.url()).unwrap();
        assert!(matches!(store.acquire(&ask).await.unwrap(), Answer::Granted { .. }));
        if forgotten {
            server.command(&["SCRIPT", "FLUSH"]);
        }
        let fresh = Redis::open(&server.url()).unwrap();
        let confirmed =
            fresh.extensions().confirm(&Renewal::hold(claim, ms(60_000)), 0).await.unwrap();
        assert_eq!(confirmed, Confirmed::By(0));
    }
}

#[tokio::test]
async fn durable_locks_work_where_functions_are_denied() {
    let server = RedisServer::start();
    server.deny_functions();
    let redis = Arc::new(Redis::open(&server.url()).unwrap());
    let locks = Locks::new(redis).configure(|o| o.durability(Durability::Replicas(1)));
    let error = locks.unwrap().mutex(KEY).unwrap().try_lock().await.unwrap_err();
    assert!(error.to_string().contains("replica"), "{error}");
}

#[tokio::test]
async fn libraries_of_other_versions_are_listed_with_the_way_to_delete_them() {
    let server = RedisServer::start();
    let store = Redis::open(&server.url()).unwrap();
    assert_eq!(store.probe().await.unwrap().warnings, [] as [&str; 0]);
    let name = "distlock_0123456789abcdef";
    let library =
        format!("#!lua name={name}\nredis.register_function('{name}_x', function() return 1 end)");
    assert!(server.command(&["FUNCTION", "LOAD", &library]).contains(name));
    let warnings = store.probe().await.unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(&format!("FUNCTION DELETE {name}")), "{warnings:?}");
}
