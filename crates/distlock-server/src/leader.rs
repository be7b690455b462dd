//! Who leads an election: once, or as a stream of every change.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use distlock::{Error, Leader};
use futures_util::{StreamExt, stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::auth::Caller;
use crate::body::KeyPath;
use crate::events::{STREAM_HELLO, STREAM_PING, STREAM_PING_EVERY};
use crate::problem::Problem;
use crate::state::App;
use crate::wire::{self, ElectionBody, Refusals};

/// How soon a change is seen.
const LEADER_POLL_EVERY: Duration = Duration::from_millis(250);

/// What a stream of server-sent events is asked for with.
const EVENT_STREAM: &str = "text/event-stream";

/// Shows who leads the election of a key: whoever holds it, under the term that is its fence. With
/// `Accept: text/event-stream` it goes on and tells of every change.
#[utoipa::path(get, path = crate::paths::LEADER_PATH, tag = "locks",
    params(("key" = String, Path, description = "the key, percent-encoded", max_length = 512)),
    responses(
        (status = 200, description = "the leader and the candidates in line; as a stream: events \
            leader and vacant, unreachable while the store is, ping every 15 s",
            content((ElectionBody = "application/json"), (String = "text/event-stream"))),
        Refusals))]
pub(crate) async fn leader(
    State(app): State<Arc<App>>,
    caller: Caller,
    KeyPath(key): KeyPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may_look_at(key.as_str())?;
    let election = app.locks.election(&key)?.look_every(LEADER_POLL_EVERY)?;
    if !wants_stream(&headers) {
        let (leader, standby) = tokio::try_join!(election.leader(), election.standby())?;
        return Ok(Json(ElectionBody::new(&key, leader.as_ref(), &standby)).into_response());
    }
    let place = app.limits.wait(&caller)?;
    let mut ping = tokio::time::interval_at(Instant::now() + STREAM_PING_EVERY, STREAM_PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let changes = election.observe();
    let feed = LeaderStream { app, caller, changes, ping, hello: true, _place: place };
    let body = stream::unfold(feed, |mut feed| async move {
        let text = feed.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), feed))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    Ok((kind, Body::from_stream(body)).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted.is_some_and(|accept| accept.contains(EVENT_STREAM))
}

/// One stream of changes to one client.
struct LeaderStream {
    app: Arc<App>,
    caller: Caller,
    changes: stream::BoxStream<'static, Result<Option<Leader>, Error>>,
    ping: Interval,
    hello: bool,
    _place: OwnedSemaphorePermit,
}

impl LeaderStream {
    /// The next piece of the stream; none when the service stops, or the token has ended.
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.hello) {
            return Some(STREAM_HELLO.to_owned());
        }
        if !self.caller.is_current(&self.app) {
            return None;
        }
        tokio::select! {
            biased;
            () = self.app.stop.cancelled() => None,
            change = self.changes.next() => Some(text(change?)),
            _ = self.ping.tick() => Some(STREAM_PING.to_owned()),
        }
    }
}

fn text(change: Result<Option<Leader>, Error>) -> String {
    match change {
        Ok(Some(leader)) => wire::leader_event(&leader),
        Ok(None) => "event: vacant\ndata: {}\n\n".to_owned(),
        Err(error) => {
            tracing::warn!(%error, "the leader cannot be seen");
            "event: unreachable\ndata: {}\n\n".to_owned()
        }
    }
}
