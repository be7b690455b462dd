//! What the service counts, and how Prometheus reads it. No key is ever a label.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use distlock::Error;

use crate::auth::Caller;
use crate::problem::Problem;
use crate::state::App;

/// The upper bounds of the buckets of every histogram, in seconds.
const BUCKETS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0];

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: [AtomicU64; 5],
    request_seconds: Histogram,
    granted: AtomicU64,
    refused: AtomicU64,
    acquire_wait: Histogram,
    renewed: AtomicU64,
    renew_lost: AtomicU64,
    renew_failed: AtomicU64,
    waiting: Arc<AtomicI64>,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

/// Counts a request that waits, for as long as it lives.
#[derive(Debug)]
pub(crate) struct WaitingNow(Arc<AtomicI64>);

impl Drop for WaitingNow {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn answered(&self, status: u16, took: Duration) {
        if let Some(class) = self.requests.get(usize::from(status / 100).saturating_sub(1)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
        self.request_seconds.add(took);
    }

    /// An acquisition ended, after this long if it was granted.
    pub(crate) fn acquired<E>(&self, outcome: &Result<Duration, E>) {
        match outcome {
            Ok(waited) => {
                self.granted.fetch_add(1, Ordering::Relaxed);
                self.acquire_wait.add(*waited);
            }
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn renewed(&self, error: Option<&Error>) {
        let counter = match error {
            None => &self.renewed,
            Some(Error::NotHeld { .. } | Error::Lost { .. }) => &self.renew_lost,
            Some(_) => &self.renew_failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waiting(&self) -> WaitingNow {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingNow(Arc::clone(&self.waiting))
    }

    /// The text that Prometheus reads.
    fn render(&self, stats: distlock::Stats) -> String {
        let mut page = Page(String::with_capacity(4_096));
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.head("distlock_http_requests_total", "counter", "Requests answered, by status class.");
        for (class, counter) in (1..).zip(&self.requests) {
            page.line(
                "distlock_http_requests_total",
                &format!("class=\"{class}xx\""),
                read(counter),
            );
        }
        page.histogram("distlock_http_request_seconds", "Time to answer.", &self.request_seconds);
        page.head("distlock_acquire_total", "counter", "Acquisitions, by outcome.");
        page.line("distlock_acquire_total", "outcome=\"granted\"", read(&self.granted));
        page.line("distlock_acquire_total", "outcome=\"refused\"", read(&self.refused));
        let help = "How long granted acquisitions took.";
        page.histogram("distlock_acquire_wait_seconds", help, &self.acquire_wait);
        page.head("distlock_renew_total", "counter", "Renewals of leases, by outcome.");
        page.line("distlock_renew_total", "outcome=\"renewed\"", read(&self.renewed));
        page.line("distlock_renew_total", "outcome=\"lost\"", read(&self.renew_lost));
        page.line("distlock_renew_total", "outcome=\"failed\"", read(&self.renew_failed));
        page.head("distlock_lost_total", "counter", "Locks that this service kept and lost.");
        page.line("distlock_lost_total", "", stats.losses);
        page.head("distlock_held", "gauge", "Locks that this service keeps alive.");
        page.line("distlock_held", "", stats.held);
        page.head("distlock_waiters", "gauge", "Requests that wait for a lock.");
        let waiting = self.waiting.load(Ordering::Relaxed).max(0);
        page.line("distlock_waiters", "", waiting);
        page.head("distlock_releasing", "gauge", "Releases on their way.");
        page.line("distlock_releasing", "", stats.releasing);
        page.0
    }
}

impl Histogram {
    fn add(&self, span: Duration) {
        let seconds = span.as_secs_f64();
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Text in the format of Prometheus.
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut sum = 0;
        for (bound, bucket) in BUCKETS.iter().zip(&histogram.buckets) {
            sum += bucket.load(Ordering::Relaxed);
            self.line(&format!("{name}_bucket"), &format!("le=\"{bound}\""), sum);
        }
        // The buckets are read one by one while others count: all of them never exceed the whole.
        let count = histogram.count.load(Ordering::Relaxed).max(sum);
        self.line(&format!("{name}_bucket"), "le=\"+Inf\"", count);
        let micros = histogram.micros.load(Ordering::Relaxed);
        self.line(&format!("{name}_sum"), "", micros as f64 / 1e6);
        self.line(&format!("{name}_count"), "", count);
    }
}

/// What the service has counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "text for Prometheus", body = String,
        content_type = "text/plain")))]
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<impl IntoResponse, Problem> {
    caller.may_read()?;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, app.metrics.render(app.locks.stats())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_up_to_the_whole() {
        let metrics = Metrics::default();
        for ms in [0, 3, 700, 120_000] {
            metrics.acquired::<()>(&Ok(Duration::from_millis(ms)));
        }
        metrics.acquired(&Err(()));
        let page = metrics.render(distlock::Stats::default());
        for line in [
            "distlock_acquire_wait_seconds_bucket{le=\"0.001\"} 1",
            "distlock_acquire_wait_seconds_bucket{le=\"60\"} 3",
            "distlock_acquire_wait_seconds_bucket{le=\"+Inf\"} 4",
            "distlock_acquire_wait_seconds_count 4",
            "distlock_acquire_total{outcome=\"refused\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }
}
