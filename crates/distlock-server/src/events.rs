//! What happens to the locks, as it happens: server-sent events that can be taken up again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use distlock::{EntryId, FeedItem, StartAt};
use futures_util::{StreamExt, stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::auth::Caller;
use crate::body::QueryOf;
use crate::problem::Problem;
use crate::state::App;
use crate::wire::{self, EventsQuery, Refusals};

/// How often a stream says that it is alive.
pub(crate) const STREAM_PING_EVERY: Duration = Duration::from_secs(15);

/// The first thing on a stream: come back after two seconds if it breaks.
pub(crate) const STREAM_HELLO: &str = ": distlock\nretry: 2000\n\n";

pub(crate) const STREAM_PING: &str = "event: ping\ndata: {}\n\n";

/// Streams what happens to the locks. A client that comes back with `Last-Event-ID` misses nothing
/// that the journal still has.
#[utoipa::path(get, path = crate::paths::EVENTS_PATH, tag = "locks", params(EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "go on after this event",
            max_length = 64)),
    responses(
        (status = 200, description = "events: queued, gave-up, granted, at-risk, released, lost, \
            broken; missed if some are no longer kept; ping every 15 s", body = String,
            content_type = "text/event-stream"),
        Refusals))]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(query): QueryOf<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may_look_at(&query.prefix)?;
    let since = since(&headers)?;
    let place = app.limits.wait(&caller)?;
    let feed = app.locks.feed(since)?;
    let mut ping = tokio::time::interval_at(Instant::now() + STREAM_PING_EVERY, STREAM_PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ready = VecDeque::from([STREAM_HELLO.to_owned()]);
    let channel = Channel { app, caller, feed, prefix: query.prefix, ping, ready, _place: place };
    let body = stream::unfold(channel, |mut channel| async move {
        let text = channel.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), channel))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    Ok((kind, Body::from_stream(body)).into_response())
}

fn since(headers: &HeaderMap) -> Result<StartAt, Problem> {
    let Some(id) = headers.get("last-event-id").filter(|id| !id.is_empty()) else {
        return Ok(StartAt::Now);
    };
    let id = id.to_str().ok().and_then(|id| EntryId::new(id).ok());
    id.map(StartAt::After).ok_or_else(|| Problem::invalid("Last-Event-ID is none of our ids"))
}

/// One stream of events to one client.
struct Channel {
    app: Arc<App>,
    caller: Caller,
    feed: std::pin::Pin<Box<dyn stream::Stream<Item = FeedItem> + Send>>,
    prefix: String,
    ping: Interval,
    ready: VecDeque<String>,
    _place: OwnedSemaphorePermit,
}

impl Channel {
    /// The next piece of the stream; none when the service stops, or the token has ended.
    async fn next(&mut self) -> Option<String> {
        loop {
            if !self.caller.is_current(&self.app) {
                return None;
            }
            if let Some(text) = self.ready.pop_front() {
                return Some(text);
            }
            tokio::select! {
                biased;
                () = self.app.stop.cancelled() => return None,
                news = self.feed.next() => self.ready.extend(self.tell(news?)),
                _ = self.ping.tick() => return Some(STREAM_PING.to_owned()),
            }
        }
    }

    fn tell(&self, news: FeedItem) -> Option<String> {
        match news {
            FeedItem::Entry(entry) if entry.note.key.as_str().starts_with(&self.prefix) => {
                Some(wire::event(&entry))
            }
            FeedItem::Entry(_) => None,
            FeedItem::Missed => Some("event: missed\ndata: {}\n\n".to_owned()),
            FeedItem::Unreachable(fault) => {
                tracing::warn!(%fault, "the journal cannot be read");
                Some("event: unreachable\ndata: {}\n\n".to_owned())
            }
            _ => None,
        }
    }
}
