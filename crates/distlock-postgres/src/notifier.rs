//! Telling the clients of other processes, in transactions of their own.
//!
//! The server lets transactions that notify commit one after the other, so a verb that did would
//! cost half of the throughput. A message that is lost costs its receiver one heartbeat and nothing
//! else.

use std::sync::{Arc, Mutex};

use distlock_core::law::AddressedPush;
use distlock_core::sync::lock;
use distlock_core::{ClaimId, ClientId, Fault, Push};
use tokio::sync::watch;
use tokio::time::timeout;

use super::pipeline::{Pipeline, many_texts};
use super::shared::PostgresShared;

/// How many notices wait to be sent.
const NOTICES_MAX: usize = 20_000;

/// How many pushes go into one message: the server takes 8,000 bytes.
const NOTIFIED_AT_ONCE_MAX: usize = 90;

/// What a client sends itself to know whether it hears.
pub(super) const PROBE: &str = "probe";

/// Notices on their way to other clients.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    waiting: Mutex<Vec<AddressedPush>>,
    is_busy: watch::Sender<bool>,
}

impl Notifier {
    /// Sends notices soon.
    pub(super) fn tell(
        &self,
        shared: &Arc<PostgresShared>,
        notices: impl Iterator<Item = AddressedPush>,
    ) {
        let mut waiting = lock(&self.waiting);
        let room = NOTICES_MAX.saturating_sub(waiting.len());
        waiting.extend(notices.take(room));
        if !waiting.is_empty() && !self.is_busy.send_replace(true) {
            tokio::spawn(send_all(Arc::clone(shared)));
        }
    }

    /// Waits until nothing is on its way.
    pub(super) async fn drained(&self) {
        // The sender is this value's own.
        let _ = self.is_busy.subscribe().wait_for(|busy| !busy).await;
    }

    fn take(&self) -> Vec<AddressedPush> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() {
            self.is_busy.send_replace(false);
        }
        std::mem::take(&mut waiting)
    }
}

async fn send_all(shared: Arc<PostgresShared>) {
    loop {
        let notices = shared.notifier.take();
        if notices.is_empty() {
            return;
        }
        let messages = messages(&notices);
        let sent = timeout(shared.config.response_timeout, notify(&shared, &messages)).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::debug!("waiters were not told of their grants: their heartbeats find them");
        }
    }
}

/// Sends messages, each to the channel before it.
pub(super) async fn notify(
    shared: &PostgresShared,
    messages: &[(String, String)],
) -> Result<(), Fault> {
    const ACTION: &str = "tell waiters of their grants";
    let mut lease = shared.others.lease(ACTION).await?;
    let begin = lease.begin();
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    // Nothing is lost that would have to be on the disk.
    pipeline.control("SET LOCAL synchronous_commit = off");
    let channels = many_texts(messages.iter().map(|(channel, _)| channel.as_str()));
    let texts = many_texts(messages.iter().map(|(_, message)| message.as_str()));
    pipeline.add(include_str!("../sql/notify.sql"), vec![channels, texts]);
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    lease.finish(ACTION, sent).await.map(drop)
}

/// The channel that a client listens to.
pub(super) fn channel(client: ClientId) -> String {
    format!("distlock_{}", client.reveal())
}

fn messages(notices: &[AddressedPush]) -> Vec<(String, String)> {
    let mut clients: Vec<_> = notices.iter().map(|notice| notice.to).collect();
    clients.sort_unstable();
    clients.dedup();
    let mut messages = Vec::new();
    for client in clients {
        let pushes = notices.iter().filter(|notice| notice.to == client);
        let encoded: Vec<_> = pushes.filter_map(|notice| encode(notice.push)).collect();
        let texts = encoded.chunks(NOTIFIED_AT_ONCE_MAX).map(|some| some.join("\n"));
        messages.extend(texts.map(|text| (channel(client), text)));
    }
    messages
}

fn encode(push: Push) -> Option<String> {
    match push {
        Push::Granted { id, ticket, fence } => Some(format!("g {} {ticket} {fence}", id.reveal())),
        Push::Broken { id } => Some(format!("b {}", id.reveal())),
        _ => None,
    }
}

/// The pushes of a message. What makes no sense is left out: every user of the database may write.
pub(super) fn decode(message: &str) -> impl Iterator<Item = Push> {
    message.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (kind, id) = (words.next()?, words.next()?.parse::<ClaimId>().ok()?);
        let mut number = || words.next()?.parse().ok();
        match kind {
            "g" => Some(Push::Granted { id, ticket: number()?, fence: number()? }),
            "b" => Some(Push::Broken { id }),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_arrives_as_it_was_sent() {
        let (to, id) = (ClientId::random().unwrap(), ClaimId::random().unwrap());
        let granted = Push::Granted { id, ticket: 7, fence: u64::MAX >> 11 };
        let notices: Vec<_> = (0..NOTIFIED_AT_ONCE_MAX)
            .map(|_| AddressedPush { to, push: granted })
            .chain([AddressedPush { to, push: Push::Broken { id } }])
            .collect();
        let messages = messages(&notices);
        assert_eq!(messages.len(), 2, "a message has a bound");
        assert!(messages.iter().all(|(channel, text)| channel.len() < 64 && text.len() < 8_000));
        let read: Vec<_> = messages.iter().flat_map(|(_, text)| decode(text)).collect();
        let sent: Vec<_> = notices.iter().map(|notice| notice.push).collect();
        assert_eq!(read, sent);
    }

    #[test]
    fn what_makes_no_sense_is_no_push() {
        for text in [PROBE, "", "g", "g x 1 2", "z 00000000000000000000000000000000"] {
            assert_eq!(decode(text).count(), 0, "{text:?}");
        }
    }
}
