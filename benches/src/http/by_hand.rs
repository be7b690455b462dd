//! The least that a service could do: the scripts of the library, and nothing around them.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use distlock::ClaimId;
use redis::aio::MultiplexedConnection;
use tokio::net::TcpListener;

use crate::round::{load, plain_connection};

macro_rules! script {
    ($flags:literal, $($file:literal),+) => {
        concat!($flags, $(include_str!(
            concat!("../../../crates/distlock-redis/lua/", $file)
        )),+)
    };
}

// As the driver puts them together.
const ACQUIRE: &str = script!(
    "#!lua\n",
    "names.lua",
    "clock.lua",
    "acquire_free.lua",
    "number.lua",
    "acquire_grant.lua",
    "texts.lua",
    "acquire_behind.lua",
    "number.lua",
    "join.lua",
    "acquire_wait.lua",
    "law.lua",
    "acquire.lua"
);
const RELEASE: &str = script!(
    "#!lua flags=allow-oom\n",
    "names.lua",
    "release_free.lua",
    "clock.lua",
    "texts.lua",
    "next.lua",
    "release_next.lua",
    "number.lua",
    "enter.lua",
    "release_told.lua",
    "law.lua",
    "release.lua"
);

/// The ask as the scripts take it: owner, reason, order, client, group, reentry id, capacity.
const ASK: &str = "http\n\n0\n0123456789abcdef0123456789abcdef\n\n\n1";

const TTL_MS: u32 = 30_000;

#[derive(Clone)]
struct ByHand {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
}

/// Starts the service; it runs until the runtime ends.
pub(super) async fn start(url: &str) -> SocketAddr {
    let mut connection = plain_connection(url).await;
    let acquire = load(&mut connection, ACQUIRE).await.into();
    let release = load(&mut connection, RELEASE).await.into();
    let state = ByHand { connection, acquire, release };
    let router = Router::new().route("/{key}", post(take).delete(give_back)).with_state(state);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// The main key of a lock.
fn main_key(key: &str) -> String {
    format!("by-hand:{{{key}}}")
}

async fn take(
    State(mut hand): State<ByHand>,
    Path(key): Path<String>,
) -> Result<(StatusCode, Json<serde_json::Value>), StatusCode> {
    let id = ClaimId::random().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?.reveal();
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(&*hand.acquire).arg(2).arg(main_key(&key)).arg("by-hand:fence");
    cmd.arg(&id).arg(ASK).arg(TTL_MS).arg("");
    let answer: Result<String, _> = cmd.query_async(&mut hand.connection).await;
    let answer = answer.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let fence = answer.strip_prefix(&id).and_then(|rest| rest.strip_prefix("\ngranted\n"));
    let fence: u64 = fence.and_then(|fence| fence.parse().ok()).ok_or(StatusCode::CONFLICT)?;
    let body = serde_json::json!({"leaseId": id, "key": key, "fence": fence, "ttlMs": TTL_MS});
    Ok((StatusCode::CREATED, Json(body)))
}

async fn give_back(
    State(mut hand): State<ByHand>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> StatusCode {
    let id = headers.get("lease-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(&*hand.release).arg(1).arg(main_key(&key)).arg(id);
    let answer: Result<String, _> = cmd.query_async(&mut hand.connection).await;
    match answer {
        Ok(held) if held == id => StatusCode::NO_CONTENT,
        Ok(_) => StatusCode::GONE,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
