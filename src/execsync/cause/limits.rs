//! Limits of a container, and whether it has reached them.

use crate::execsync::evidence::{CpuUsage, Evidence};

/// Minimum share of throttled CFS periods worth reporting.
const NOTABLE_THROTTLING: f64 = 0.1;

/// Minimum share of the pids limit worth reporting.
const NEARLY_ALL: f64 = 0.9;

/// Formats a CPU limit in the unit of manifests: `50m CPU`, `2 CPU`.
pub(crate) fn cpu_limit(processors: f64) -> String {
    let milli = (processors * 1000.0).round();
    if milli % 1000.0 == 0.0 { format!("{} CPU", milli / 1000.0) } else { format!("{milli}m CPU") }
}

/// Returns whether the container has almost as many processes as it may have.
pub(in crate::execsync) fn is_at_pids_limit(evidence: &Evidence) -> bool {
    pids(evidence).is_some_and(|(current, max)| ratio(current, max) >= NEARLY_ALL)
}

/// Returns the number of processes of the container, and its limit.
pub(in crate::execsync) fn pids(evidence: &Evidence) -> Option<(u64, u64)> {
    evidence.pids.and_then(|pids| Some((pids.current, pids.max?)))
}

/// Returns whether the container was throttled often enough to report it.
pub(in crate::execsync) fn is_throttled(cpu: &CpuUsage) -> bool {
    cpu.throttled_periods > 0 && ratio(cpu.throttled_periods, cpu.periods) >= NOTABLE_THROTTLING
}

#[expect(clippy::cast_precision_loss, reason = "processes")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
