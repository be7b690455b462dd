//! Pushes: what the law sends and what the clients of the store get.

use distlock_core::law::AddressedPush;
use distlock_core::{ClientId, Push};
use futures_util::{FutureExt, StreamExt};

use super::DifferReport;
use super::compare::Numbers;
use super::episode::Episode;

/// A push of the law that a client of the store must get.
pub(super) struct Expected {
    client: usize,
    push: Push,
    arrived: bool,
}

impl Episode<'_> {
    /// Notes what the law pushes.
    pub(super) fn expect_pushes(&mut self, notices: &[AddressedPush]) {
        if !self.clients[0].capabilities().push {
            return;
        }
        self.pushes.extend(notices.iter().map(|notice| Expected {
            client: client_index(notice.to),
            push: notice.push,
            arrived: false,
        }));
    }

    /// Waits for what must come, and takes in what else has come.
    pub(super) async fn watch_pushes(&mut self, report: &mut DifferReport) {
        for client in 0..self.clients.len() {
            while let Some(Some(push)) = self.streams[client].next().now_or_never() {
                self.arrived(client, push, report);
            }
            while self.pushes.iter().any(|push| push.client == client && !push.arrived) {
                let next = self.streams[client].next();
                match tokio::time::timeout(self.differ.push_within, next).await {
                    Ok(Some(push)) => self.arrived(client, push, report),
                    Ok(None) => self.fail("a stream of pushes has ended"),
                    Err(_) => {
                        let missing = self.pushes.iter().find(|push| !push.arrived);
                        let missing = missing.map(|push| (push.client, push.push));
                        self.fail(&format!("a push did not come: {missing:?}"));
                    }
                }
            }
        }
    }

    /// Compares a push. It may come twice or late, but must have been sent.
    fn arrived(&mut self, client: usize, push: Push, report: &mut DifferReport) {
        let (Push::Granted { id, .. } | Push::Broken { id }) = push else {
            return;
        };
        if !self.known.iter().any(|known| known.ask.claim.id == id) {
            return; // Of an earlier key, and late.
        }
        self.note(format!("  client {client} is pushed {push:?}"));
        // A claim can be broken twice if it was asked again after its burial.
        let sent = |expected: &Expected| {
            expected.client == client && is_of(expected.push, push, &self.numbers)
        };
        let open = self.pushes.iter().position(|expected| !expected.arrived && sent(expected));
        let known = open.or_else(|| self.pushes.iter().position(sent));
        let Some(index) = known else {
            self.fail(&format!("client {client} got a push that was not sent: {push:?}"));
        };
        let expected = &mut self.pushes[index];
        expected.arrived = true;
        report.add(if matches!(push, Push::Broken { .. }) { "broken" } else { "pushed" });
        if let (Push::Granted { fence, .. }, Push::Granted { fence: minted, .. }) =
            (expected.push, push)
        {
            let verdict = self.numbers.pair("pushed fence", fence, minted);
            self.judge(verdict);
        }
    }
}

/// True if the store's push tells what the model's does, of the same claim and place.
fn is_of(model: Push, store: Push, numbers: &Numbers) -> bool {
    match (model, store) {
        (Push::Broken { id: model }, Push::Broken { id: store }) => model == store,
        (Push::Granted { id: model, ticket, .. }, Push::Granted { id, ticket: same, .. }) => {
            model == id && numbers.store(ticket) == Some(same)
        }
        _ => false,
    }
}

fn client_index(id: ClientId) -> usize {
    usize::try_from(u128::from_be_bytes(*id.as_bytes())).expect("made from an index")
}
