//! What the service and its locks count, and how Prometheus reads it. No key is ever a label.
//!
//! The locks record through the facade `metrics`, and so does the service. Each service has a
//! recorder of its own, so that two of them in one program do not count for each other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use distlock::Locks;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::auth::Caller;
use crate::problem::Problem;
use crate::state::App;
use crate::summary;
use crate::wire::Refusals;

/// The upper bounds of the buckets of every histogram, in seconds: from a call to a store nearby to
/// a lock that is held for an hour.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3_600.0];

/// How often what was recorded is put into its buckets, whether anybody reads it or not.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// Everything that is counted.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<PrometheusRecorder>);

impl Metrics {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("there are buckets");
        let metrics = Self(Arc::new(builder.build_recorder()));
        metrics.record(describe);
        metrics
    }

    /// Locks whose numbers are shown here.
    pub(crate) fn of(&self, locks: Locks) -> Locks {
        locks.with_recorder(Arc::clone(&self.0) as _)
    }

    fn record(&self, work: impl FnOnce()) {
        ::metrics::with_local_recorder(&*self.0, work);
    }

    /// A request was answered.
    pub(crate) fn answered(&self, status: u16, took: Duration) {
        let class = match status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.record(|| {
            counter!("distlock_http_requests_total", "class" => class).increment(1);
            histogram!("distlock_http_request_seconds").record(took);
        });
    }

    /// A token was wrong or expired, or there were too many such.
    pub(crate) fn refused(&self, outcome: &'static str) {
        self.record(|| {
            counter!("distlock_http_refused_tokens_total", "outcome" => outcome).increment(1);
        });
    }

    /// The text that Prometheus reads.
    fn render(&self) -> String {
        self.0.handle().render()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn describe() {
    describe_counter!("distlock_http_requests_total", "Requests answered, by status class");
    let help = "Time to answer, waiting included";
    describe_histogram!("distlock_http_request_seconds", Unit::Seconds, help);
    let help = "Tokens that were wrong or expired, or throttled after too many of them";
    describe_counter!("distlock_http_refused_tokens_total", help);
}

/// Keeps what was recorded in its bounds until the service stops.
pub(crate) async fn tidy(app: Arc<App>) {
    let mut tick = tokio::time::interval(TIDY_EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => app.metrics.0.handle().run_upkeep(),
            () = app.stop.cancelled() => return,
        }
    }
}

/// What the service and its locks have counted, for Prometheus.
#[utoipa::path(get, path = crate::paths::METRICS_PATH, tag = "health",
    responses((status = 200, description = "text for Prometheus", body = String,
        content_type = "text/plain"), Refusals))]
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<impl IntoResponse, Problem> {
    caller.may_read_metrics()?;
    app.limits.tidy();
    // A look at a quorum is what updates the number of its nodes that are up.
    if app.config.quorum {
        summary::standing(&app.locks).await;
    }
    summary::redlock(&app).await;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, app.metrics.render()))
}
