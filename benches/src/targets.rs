//! What the figures must reach.

/// Which side of the bound is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::AtMost(bound) => write!(f, "<= {bound}"),
        }
    }
}

/// Every promised metric.
pub(crate) const TARGETS: [(&str, Bound); 24] = [
    ("uncontended_1_vs_limit", Bound::AtLeast(0.92)),
    ("uncontended_64_vs_limit", Bound::AtLeast(0.8)),
    ("uncontended_64_vs_rslock", Bound::AtLeast(1.1)),
    ("uncontended_worst_vs_limit", Bound::AtLeast(0.9)),
    ("handover_p50_rtts", Bound::AtMost(2.2)),
    ("handover_p50_rtts_1ms", Bound::AtMost(1.2)),
    ("handover_commands", Bound::AtMost(2.1)),
    ("handovers_per_rtt_16", Bound::AtLeast(0.55)),
    ("handovers_per_rtt_128", Bound::AtLeast(0.5)),
    ("handovers_per_rtt_1ms", Bound::AtLeast(0.9)),
    ("renew_client_cpu_vs_distkit", Bound::AtMost(0.1)),
    ("renew_tasks", Bound::AtMost(1.0)),
    ("renew_server_block_ms", Bound::AtMost(0.2)),
    ("grant_cost_100k_vs_10", Bound::AtMost(2.0)),
    ("sqlite_uncontended_per_s", Bound::AtLeast(5000.0)),
    ("sqlite_handover_p50_ms", Bound::AtMost(10.0)),
    ("idle_waiters_server_core", Bound::AtMost(0.05)),
    ("quorum5_vs_raw", Bound::AtMost(1.5)),
    ("quorum5_two_killed_p99_rtts", Bound::AtMost(3.0)),
    ("quorum5_two_paused_p99_rtts", Bound::AtMost(3.0)),
    ("run_vs_flock", Bound::AtMost(3.0)),
    ("http_lease_vs_handwritten", Bound::AtLeast(0.6)),
    ("http_lease_errors", Bound::AtMost(0.0)),
    ("http_waiters", Bound::AtLeast(1_000.0)),
];

/// What a metric must reach, if anything was promised of it.
pub(crate) fn of(metric: &str) -> Option<Bound> {
    TARGETS.iter().find(|(name, _)| *name == metric).map(|(_, bound)| *bound)
}
