//! Numbers of a report over all probes.

use serde::Serialize;

use super::attempt_counts::{AttemptCounts, LatencyPercentiles};
use super::lifecycle::{LifecycleEvent, LifecycleKind};
use super::probe::ProbeReport;
use crate::execsync::ProbeMatch;
use crate::history::timeline::Minute;

/// Numbers of a report over all probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Number of probes.
    pub probes: usize,
    /// Number of probes with a failure, a timeout or an error.
    pub failed_probes: usize,
    /// Numbers of attempts.
    #[serde(flatten)]
    pub counts: AttemptCounts,
    /// Number of kills of containers because of a probe.
    pub kills: u64,
    /// Number of kills that were not made, because of the enforcement mode.
    pub would_be_kills: u64,
    /// Number of starts of containers after an exit in the period.
    pub restarts: u64,
    /// Percentiles of the latency.
    #[serde(flatten)]
    pub latency: LatencyPercentiles,
}

impl Totals {
    /// Returns the numbers of probes and of the events of their containers.
    pub(super) fn new(probes: &[ProbeReport], lifecycle: &[LifecycleEvent]) -> Self {
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
            counts: AttemptCounts::from(&all),
            kills: kills(LifecycleKind::Killed),
            would_be_kills: kills(LifecycleKind::WouldBeKilled),
            restarts: lifecycle.iter().filter(|event| event.is_restart).map(|event| event.count).sum(),
            latency: LatencyPercentiles::from(&all.durations),
        }
    }
}
