//! Notable facts in the evidence, one sentence each.

use std::time::Duration;

use super::cause::Cause;
use super::percent;
use crate::execsync::evidence::{CpuUsage, Evidence, PressureStall};
use crate::terminal::format::duration;

/// Minimum share of stalled time worth reporting.
const NOTABLE_STALL: f64 = 0.1;

/// Minimum share of throttled CFS periods worth reporting.
const NOTABLE_THROTTLING: f64 = 0.1;

/// Minimum share of the pids limit worth reporting.
const NEARLY_ALL: f64 = 0.9;

/// Minimum load per processor worth reporting.
const NOTABLE_LOAD: f64 = 1.5;

/// Returns a sentence for each notable fact in the evidence that can explain the causes.
pub(super) fn notable(evidence: &Evidence, causes: &[Cause]) -> Vec<String> {
    let mut found = Vec::new();
    let window = duration(evidence.window);
    if evidence.is_frozen == Some(true) {
        found.push("The container is frozen: no process in it can run.".to_owned());
    }
    let is_slow = causes.iter().any(|cause| *cause == Cause::Throttled || cause.depends_on_node());
    if let Some(cpu) = evidence.cpu.filter(|cpu| is_slow && is_throttled(cpu)) {
        let quota =
            cpu.quota.map_or_else(String::new, |quota| format!(" by its limit of {}", cpu_limit(quota)));
        found.push(format!(
            "The container was throttled{quota} in {} of {} CFS periods within {window}, for {} summed over \
             its processors.",
            cpu.throttled_periods,
            cpu.periods,
            duration(cpu.throttled)
        ));
    }
    if let Some(kills) = evidence.oom_kills.filter(|kills| *kills > 0) {
        found.push(format!(
            "The kernel killed {kills} of the container's processes for lack of memory (OOM)."
        ));
    }
    if let Some((current, max)) = pids(evidence).filter(|_| is_at_pids_limit(evidence)) {
        found.push(format!("The container has {current} of at most {max} processes and threads."));
    }
    if causes.iter().any(|cause| cause.depends_on_node()) {
        found.extend(load(evidence));
    }
    found
}

/// Returns a sentence for each notable fact about the load of the container and the node.
fn load(evidence: &Evidence) -> Vec<String> {
    let (owner, pressure, measured) = match evidence.container_pressure {
        Some(pressure) => ("the container", Some(pressure), evidence.window),
        None => ("the node", evidence.node_pressure, evidence.psi_window),
    };
    let mut found: Vec<String> =
        pressure.iter().flat_map(|pressure| stalls(pressure, owner, measured)).collect();
    if let Some((load, processors)) = evidence.load
        && load >= NOTABLE_LOAD * f64::from(u32::try_from(processors).unwrap_or(u32::MAX))
    {
        found.push(format!("The node's load was {load} over the last minute, with {processors} processors."));
    }
    if let (container @ 2.., node) | (container, node @ 10..) = evidence.in_flight {
        found.push(format!(
            "When the call ended, {container} ExecSyncs were in flight in the container and {node} on the \
             node, including the call itself."
        ));
    }
    found
}

/// Formats a CPU limit in the unit of manifests: `50m CPU`, `2 CPU`.
pub(super) fn cpu_limit(processors: f64) -> String {
    let milli = (processors * 1000.0).round();
    if milli % 1000.0 == 0.0 { format!("{} CPU", milli / 1000.0) } else { format!("{milli}m CPU") }
}

/// Returns whether the container has almost as many processes as it may have.
pub(super) fn is_at_pids_limit(evidence: &Evidence) -> bool {
    pids(evidence).is_some_and(|(current, max)| ratio(current, max) >= NEARLY_ALL)
}

/// Returns the number of processes of the container, and its limit.
fn pids(evidence: &Evidence) -> Option<(u64, u64)> {
    evidence.pids.and_then(|pids| Some((pids.current, pids.max?)))
}

fn stalls(pressure: &PressureStall, owner: &str, window: Duration) -> Vec<String> {
    let all = [("CPU", pressure.cpu), ("I/O", pressure.io), ("memory", pressure.memory)];
    let notable = all.into_iter().filter(|(_, stalled)| {
        !window.is_zero() && stalled.as_secs_f64() / window.as_secs_f64() >= NOTABLE_STALL
    });
    let sentence = |(what, stalled)| {
        format!(
            "Processes of {owner} were stalled on {what} for {} of {} ({}).",
            duration(stalled),
            duration(window),
            percent(stalled, window)
        )
    };
    notable.map(sentence).collect()
}

/// Returns whether the container was throttled often enough to report it.
pub(super) fn is_throttled(cpu: &CpuUsage) -> bool {
    cpu.throttled_periods > 0 && ratio(cpu.throttled_periods, cpu.periods) >= NOTABLE_THROTTLING
}

#[expect(clippy::cast_precision_loss, reason = "processes")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
