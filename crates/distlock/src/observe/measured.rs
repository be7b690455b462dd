//! A backend whose calls are timed, and whose renewals are counted.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use distlock_core::{
    AcquireMany, Answer, Ask, Backend, Capabilities, Confirmed, Cursor, Extensions, Fault, Health,
    Key, ManyAnswer, Page, Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal, Replicated,
    Snapshot, Standing, Streaming, TTL_MIN, Target,
};
use futures_util::StreamExt;

use super::Meter;

/// A backend that tells how long it takes.
#[derive(Debug)]
pub(crate) struct Measured {
    inner: Arc<dyn Backend>,
    meter: Arc<Meter>,
}

impl Measured {
    pub(crate) fn new(inner: Arc<dyn Backend>, meter: Arc<Meter>) -> Self {
        Self { inner, meter }
    }

    fn time<'a, T: 'a>(&'a self, op: &'static str, call: Pending<'a, T>) -> Pending<'a, T> {
        let timer = Timer::start(&self.meter, op);
        Box::pin(async move {
            let _timer = timer;
            call.await
        })
    }

    /// A call that tells numbers of its own, such as how many nodes of a quorum answer.
    fn watch<'a, T: 'a>(&'a self, mut call: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(poll_fn(move |cx| self.meter.record(|| call.as_mut().poll(cx))))
    }

    /// Counts the answer to a renewal of a hold. Those who wait only show that they live, and one
    /// for the shortest time there is only looks: see [`Leases::find`](crate::Leases::find).
    fn count(&self, renewal: &Renewal, answer: &Result<Standing, Fault>) {
        if renewal.ticket.is_some() || renewal.span <= TTL_MIN {
            return;
        }
        let outcome = match answer {
            Ok(Standing::Held { .. }) => "renewed",
            Ok(Standing::Waiting(_)) => return,
            Ok(_) => "gone",
            Err(_) => "failed",
        };
        self.meter.renewed(&renewal.claim.key, outcome);
    }
}

/// A call under way. One that is given up has taken as long as anybody waited for it.
struct Timer<'a> {
    meter: &'a Meter,
    op: &'static str,
    started: Instant,
}

impl<'a> Timer<'a> {
    fn start(meter: &'a Meter, op: &'static str) -> Self {
        Self { meter, op, started: Instant::now() }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.meter.called(self.op, self.started.elapsed());
    }
}

impl Backend for Measured {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        self.time("acquire", self.inner.acquire(ask))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let timer = Timer::start(&self.meter, "renew");
        let answers = self.inner.renew(batch).inspect(move |(index, answer)| {
            // Ends with the stream.
            let _ = &timer;
            if let Some(renewal) = batch.get(*index) {
                self.count(renewal, answer);
            }
        });
        Box::pin(answers)
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        self.time("release", self.inner.release(target, how))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        self.time("inspect", self.watch(self.inner.inspect(key)))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        self.time("list", self.inner.list(prefix, cursor))
    }

    fn probe(&self) -> Pending<'_, Health> {
        self.time("probe", self.watch(self.inner.probe()))
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        self.inner.pushes()
    }

    fn extensions(&self) -> Extensions<'_> {
        let inner = self.inner.extensions();
        Extensions {
            replicated: inner.replicated.map(|_| self as &dyn Replicated),
            many: inner.many.map(|_| self as &dyn AcquireMany),
            ..inner
        }
    }
}

impl Replicated for Measured {
    fn confirm<'a>(&'a self, renewal: &'a Renewal, replicas: u32) -> Pending<'a, Confirmed> {
        self.time("confirm", self.inner.extensions().confirm(renewal, replicas))
    }
}

impl AcquireMany for Measured {
    fn acquire_all<'a>(&'a self, asks: &'a [Ask]) -> Pending<'a, ManyAnswer> {
        match self.inner.extensions().many {
            Some(many) => self.time("acquire", many.acquire_all(asks)),
            None => Box::pin(async { Err(Fault::unsupported("several keys in one step")) }),
        }
    }
}
