//! Limits of a container and of the node, and whether they explain a slow or failed call.

use crate::execsync::evidence::{CpuUsage, Evidence, Pids};

/// Minimum share of throttled CFS periods worth reporting.
const NOTABLE_THROTTLING: f64 = 0.1;

/// Minimum share of throttled CFS periods, and of throttled time, that explains a slow call.
const SLOWED_SHARE: f64 = 0.2;

/// Maximum share of CPU time in the time of a command that waits.
const MAX_WAITING_CPU: f64 = 0.1;

/// Maximum share of the time in which a command that waits can have been stalled. It waited for
/// something else for the rest of the time.
pub(in crate::execsync) const MAX_STALL_OF_WAITING: f64 = 0.4;

/// Minimum number of ExecSyncs in flight on the node in a storm, and their minimum number per
/// processor.
const STORM_IN_FLIGHT: usize = 10;
const STORM_PER_PROCESSOR: usize = 2;

/// Minimum share of the pids limit worth reporting.
const NEARLY_ALL: f64 = 0.9;

/// Formats a CPU limit in the unit of manifests: `50m CPU`, `2 CPU`.
pub(crate) fn cpu_limit(processors: f64) -> String {
    let milli = (processors * 1000.0).round();
    if milli % 1000.0 == 0.0 { format!("{} CPU", milli / 1000.0) } else { format!("{milli}m CPU") }
}

impl Evidence {
    /// Returns the number of processes of the object with the least room for more, if it has almost
    /// as many as it may have.
    #[must_use]
    pub fn pids_at_limit(&self) -> Option<Pids> {
        self.pids.filter(|pids| pids.max.is_some_and(|max| ratio(pids.current, max) >= NEARLY_ALL))
    }
}

/// Returns whether the container was throttled often enough to report it.
pub(in crate::execsync) fn is_throttled(cpu: &CpuUsage) -> bool {
    cpu.throttled_periods > 0 && ratio(cpu.throttled_periods, cpu.periods) >= NOTABLE_THROTTLING
}

/// Returns whether the container cannot start another process.
pub(in crate::execsync) fn has_no_process_left(evidence: &Evidence) -> bool {
    evidence.pids.is_some_and(|pids| pids.max.is_some_and(|max| pids.current >= max))
}

/// Returns whether the container was throttled for so much of the measured time that it explains a
/// slow call. The throttled time is summed over processors, so it alone may be that of other
/// processes of the container.
pub(in crate::execsync) fn is_slowed_by_throttling(evidence: &Evidence) -> bool {
    evidence.cpu.is_some_and(|cpu| {
        ratio(cpu.throttled_periods, cpu.periods) >= SLOWED_SHARE
            && cpu.throttled >= evidence.window.mul_f64(SLOWED_SHARE)
    })
}

/// Returns whether the processes of the container computed for a small part of the time, although
/// they could have had CPU for most of it. Processes of the node were stalled on CPU at least as
/// long as those of the container.
pub(in crate::execsync) fn has_waited(evidence: &Evidence) -> bool {
    let (pressure, window) = match evidence.container_pressure {
        Some(pressure) => (pressure, evidence.window),
        None => (evidence.node_pressure.unwrap_or_default(), evidence.psi_window),
    };
    hardly_computes(evidence) && pressure.cpu <= window.mul_f64(MAX_STALL_OF_WAITING)
}

/// Returns whether the container computed for a small part of the time, and was not throttled.
pub(in crate::execsync) fn hardly_computes(evidence: &Evidence) -> bool {
    let used = evidence.cpu.filter(|cpu| !is_throttled(cpu)).and_then(|cpu| cpu.used);
    used.is_some_and(|used| used < evidence.window.mul_f64(MAX_WAITING_CPU))
}

/// Returns whether a call had so many others in flight with it that the node had too little CPU for
/// them. Calls that wait for something else, such as a runtime that hangs, use no CPU. Without a
/// measured pressure, there is no proof.
pub(super) fn is_in_storm(evidence: &Evidence) -> bool {
    let processors = evidence.load.map_or(1, |(_, processors)| processors);
    let container = evidence.container_pressure.unwrap_or_default().notable(evidence.window);
    let lacks_cpu = evidence.notable_of_node()[0] || container[0];
    let (_, node) = evidence.in_flight;
    node >= STORM_IN_FLIGHT.max(STORM_PER_PROCESSOR.saturating_mul(processors)) && lacks_cpu
}

#[expect(clippy::cast_precision_loss, reason = "processes")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
