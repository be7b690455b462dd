//! Waiting for a turn: in the queue of the store, or by polling.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Busy, Moment, QueuePosition as Standing};

use super::super::backoff::{Backoff, random};
use super::super::request::WaitLimit;
use super::{AcquireState, UsableGrant};
use crate::Error;
use crate::keeper::PlaceVerdict;
use crate::observe::Event;
use crate::options::WaitMode;

/// A pushed grant with less time left than this is extended before it is handed out.
const MIN_USEFUL: Duration = Duration::from_millis(5);

impl AcquireState<'_> {
    /// Held by others. Waits for a turn in the queue and says what came of it; without a queue,
    /// pauses.
    pub(super) async fn busy(
        &mut self,
        busy: Busy,
        sent_at: Moment,
    ) -> Result<Option<UsableGrant>, Error> {
        if self.limit == WaitLimit::Once {
            let Busy { retry_after, holder, ahead, .. } = busy;
            let holder = holder.map(Box::new);
            return Err(Error::Held { key: self.key(), retry_after, holder, ahead });
        }
        self.seen.queued(busy.ticket, busy.ahead);
        let polls = matches!(self.settings.wait_mode, WaitMode::Poll(_));
        let Some(ticket) = busy.ticket.filter(|_| !polls) else {
            self.pause(busy.retry_after).await?;
            return Ok(None);
        };
        let Busy { ahead, retry_after, .. } = busy;
        self.wait_for_turn(Standing { ticket, ahead, retry_after }, sent_at).await
    }

    async fn wait_for_turn(
        &mut self,
        standing: Standing,
        sent_at: Moment,
    ) -> Result<Option<UsableGrant>, Error> {
        // A call with a deadline rides out any silence until then.
        let patience = match self.limit {
            WaitLimit::Forever => self.settings.patience,
            WaitLimit::Once | WaitLimit::For(_) => Duration::MAX,
        };
        let (claim, last_fault) = (self.ask.claim.clone(), Arc::clone(&self.last_fault));
        let verdict =
            self.keeper.wait(claim, standing, sent_at, &self.settings, last_fault, patience)?;
        let verdict = tokio::select! {
            biased;
            verdict = verdict => verdict.unwrap_or(PlaceVerdict::Closed),
            () = self.place_is_enough() => {
                self.place_kept = true;
                self.seen.place_kept();
                let waited = self.keeper.clock.now().since(self.started);
                return Err(Error::Timeout { key: self.key(), waited, source: None });
            }
        };
        self.seen.heard(&verdict);
        let at = self.keeper.clock.now();
        match verdict {
            // With little time left, or if no keeper is going to renew it, asking again under the
            // same claim extends the grant to the full ttl.
            PlaceVerdict::Granted { until, .. }
                if self.full_ttl || until <= at.after(MIN_USEFUL) =>
            {
                Ok(None)
            }
            PlaceVerdict::Granted { fence, until, .. } => {
                let (renew_at, ticket) = (self.soon_after_a_push(at, until), Some(standing.ticket));
                Ok(Some(UsableGrant { fence, at, until, renew_at, ticket, replicas: 0 }))
            }
            PlaceVerdict::Gone => {
                let key = self.key();
                tracing::warn!(%key, "place in the queue lost, queueing again");
                self.keeper.observer.place_lost();
                self.keeper.observer.emit(|| Event::PlaceLost { key });
                self.start_over()?;
                Ok(None)
            }
            PlaceVerdict::Failed(fault) => Err(Error::from_fault(fault)),
            PlaceVerdict::Closed => Err(Error::Closed),
        }
    }

    /// Ends when a call that keeps its place has waited long enough.
    async fn place_is_enough(&self) {
        match self.keep_place_after {
            Some(max_wait) => {
                let waited = self.keeper.clock.now().since(self.started);
                tokio::time::sleep(max_wait.saturating_sub(waited)).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Pauses before the next attempt, no longer than until the holder's lease can end.
    async fn pause(&mut self, retry_after: Option<Duration>) -> Result<(), Error> {
        self.retries += 1;
        let random = random(self.ask.claim.id, self.retries);
        let pause = match &self.settings.wait_mode {
            WaitMode::Poll(backoff) => backoff.next(self.retries, random),
            WaitMode::Queue => Backoff::default().next(self.retries, random),
        };
        let Some(pause) = pause else {
            return Err(Error::RetriesExhausted { key: self.key(), attempts: self.attempts });
        };
        let lease_ends = retry_after.unwrap_or(Duration::MAX).max(Duration::from_millis(1));
        // A place is kept alive by the attempts, so there are at least two in its life.
        let place_ends = self.ask.wait.map_or(Duration::MAX, |wait| wait.place / 2);
        self.sleep(pause.min(lease_ends).min(place_ends)).await
    }

    /// A grant to a waiter is good for what was left of its place. It is extended to the full ttl
    /// a little later, so that holds shorter than that never pay for it.
    fn soon_after_a_push(&self, at: Moment, until: Moment) -> Moment {
        at.after((self.settings.wait.place / 4).min(until.since(at) / 2))
    }
}
