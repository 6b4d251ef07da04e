//! Numbers of a report over all probes.

use std::time::Duration;

use serde::Serialize;

use super::lifecycle::{LifecycleEvent, LifecycleKind};
use super::probe::ProbeReport;
use super::serialize::optional_milliseconds;
use crate::execsync::ProbeMatch;
use crate::history::timeline::{Durations, Minute};

/// Numbers of attempts by result, and percentiles of their latency. A percentile is the upper bound
/// of a bucket that is 19 % wide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Number of probes.
    pub probes: usize,
    /// Number of probes with a failure, a timeout or an error.
    pub failed_probes: usize,
    /// Number of attempts.
    pub attempts: u64,
    /// Number of successes.
    pub successes: u64,
    /// Number of failures without timeouts.
    pub failures: u64,
    /// Number of timeouts.
    pub timeouts: u64,
    /// Number of errors.
    pub errors: u64,
    /// Number of attempts without a result: discarded, or given up by their client.
    pub no_result: u64,
    /// Number of attempts that probeshim answered itself.
    pub not_sent: u64,
    /// Number of attempts that were slow and did not fail.
    pub slow: u64,
    /// Number of kills of containers because of a probe.
    pub kills: u64,
    /// Number of kills that were not made, because of the enforcement mode.
    pub would_be_kills: u64,
    /// Number of starts of containers after an exit in the period.
    pub restarts: u64,
    /// Median of the latency.
    #[serde(rename = "p50Ms", serialize_with = "optional_milliseconds")]
    pub p50: Option<Duration>,
    /// 90th percentile of the latency.
    #[serde(rename = "p90Ms", serialize_with = "optional_milliseconds")]
    pub p90: Option<Duration>,
    /// 99th percentile of the latency.
    #[serde(rename = "p99Ms", serialize_with = "optional_milliseconds")]
    pub p99: Option<Duration>,
}

impl Totals {
    /// Returns the numbers of probes and of the events of their containers.
    pub(super) fn new(probes: &[ProbeReport], durations: &Durations, lifecycle: &[LifecycleEvent]) -> Self {
        let mut all = Minute::default();
        for probe in probes {
            all.merge(&probe.results);
        }
        // The command of a person is no probe.
        let is_probe = |probe: &&ProbeReport| probe.kind != ProbeMatch::UNKNOWN;
        let kills = |kind| lifecycle.iter().filter(|event| event.kind == kind).map(|event| event.count).sum();
        Self {
            probes: probes.iter().filter(is_probe).count(),
            failed_probes: probes.iter().filter(is_probe).filter(|probe| probe.failed() > 0).count(),
            attempts: all.attempts().into(),
            successes: all.successes.into(),
            failures: all.failures.into(),
            timeouts: all.timeouts.into(),
            errors: all.errors.into(),
            no_result: (all.discarded + all.unknown).into(),
            not_sent: all.not_sent.into(),
            slow: all.slow.into(),
            kills: kills(LifecycleKind::Killed),
            would_be_kills: kills(LifecycleKind::WouldBeKilled),
            restarts: lifecycle.iter().filter(|event| event.is_restart).map(|event| event.count).sum(),
            p50: durations.quantile(0.5).filter(|_| durations.count() > 0),
            p90: durations.quantile(0.9).filter(|_| durations.count() > 0),
            p99: durations.quantile(0.99).filter(|_| durations.count() > 0),
        }
    }
}
