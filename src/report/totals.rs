//! Numbers of a report over all probes.

use serde::Serialize;

use super::attempt_counts::{AttemptCounts, LatencyPercentiles};
use super::lifecycle::{LifecycleEvent, LifecycleKind};
use super::probe::ProbeReport;
use crate::history::timeline::Minute;

/// Numbers of a report over all probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Number of probes.
    pub probes: usize,
    /// Number of probes with a failure, a timeout or an error.
    pub failed_probes: usize,
    /// Numbers of attempts, with other ExecSyncs.
    #[serde(flatten)]
    pub counts: AttemptCounts,
    /// Number of other ExecSyncs, which belong to no known probe, such as commands of people.
    pub other_execs: u64,
    /// Number of other ExecSyncs that failed, timed out or ended with an error.
    pub failed_other_execs: u64,
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
        let of_probes = probes.iter().filter(|probe| probe.is_probe());
        let other = |count: fn(&ProbeReport) -> u32| {
            probes.iter().filter(|probe| !probe.is_probe()).map(|probe| u64::from(count(probe))).sum()
        };
        let sum = |is_it: &dyn Fn(&LifecycleEvent) -> bool| {
            let its = lifecycle.iter().filter(|event| is_it(event));
            its.map(|event| event.count).fold(0, u64::saturating_add)
        };
        let kills = |kind| sum(&|event| event.kind == kind);
        Self {
            probes: of_probes.clone().count(),
            failed_probes: of_probes.filter(|probe| probe.failed() > 0).count(),
            counts: AttemptCounts::from(&all),
            other_execs: other(|probe| probe.results.attempts()),
            failed_other_execs: other(ProbeReport::failed),
            kills: kills(LifecycleKind::Killed),
            would_be_kills: kills(LifecycleKind::WouldBeKilled),
            restarts: sum(&|event| event.is_restart),
            latency: LatencyPercentiles::from(&all),
        }
    }
}
