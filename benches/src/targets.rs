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
pub(crate) const TARGETS: &[(&str, Bound)] = &[
    ("uncontended_1_vs_limit", Bound::AtLeast(0.88)),
    ("uncontended_8_vs_limit", Bound::AtLeast(0.95)),
    ("uncontended_64_vs_limit", Bound::AtLeast(1.1)),
    ("uncontended_512_vs_limit", Bound::AtLeast(1.3)),
    ("uncontended_1_vs_limit_1ms", Bound::AtLeast(0.97)),
    ("uncontended_64_vs_limit_1ms", Bound::AtLeast(1.0)),
    ("uncontended_1_cpu_vs_limit", Bound::AtMost(1.1)),
    ("uncontended_8_cpu_vs_limit", Bound::AtMost(1.0)),
    ("uncontended_64_cpu_vs_limit", Bound::AtMost(0.9)),
    ("uncontended_512_cpu_vs_limit", Bound::AtMost(0.75)),
    ("server_us_vs_limit_1", Bound::AtMost(1.8)),
    ("server_us_vs_limit_64", Bound::AtMost(1.0)),
    ("uncontended_64_vs_rslock", Bound::AtLeast(1.1)),
    ("handover_p50_rtts_1ms", Bound::AtMost(1.1)),
    ("handover_commands", Bound::AtMost(2.1)),
    ("handovers_per_rtt_16", Bound::AtLeast(0.6)),
    ("handovers_per_rtt_16_4p", Bound::AtLeast(0.5)),
    ("handovers_per_rtt_1ms", Bound::AtLeast(0.9)),
    ("renew_client_cpu_vs_distkit", Bound::AtMost(0.12)),
    ("renew_tasks", Bound::AtMost(1.0)),
    ("renew_server_block_ms", Bound::AtMost(0.2)),
    ("grant_cost_100k_vs_10", Bound::AtMost(1.5)),
    ("sqlite_uncontended_per_s", Bound::AtLeast(5000.0)),
    ("sqlite_handover_p50_ms", Bound::AtMost(10.0)),
    ("pg_uncontended_8_vs_upsert", Bound::AtLeast(0.8)),
    ("pg_handover_p50_commits", Bound::AtMost(3.0)),
    ("pg_hot_percent", Bound::AtLeast(99.0)),
    ("pg_renew_statements_per_s", Bound::AtMost(20.0)),
    ("idle_waiters_server_core", Bound::AtMost(0.02)),
    ("idle_waiters_1000_keys_server_core", Bound::AtMost(0.1)),
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
