//! Notable facts in the evidence, one sentence each.

use std::time::Duration;

use super::percent;
use crate::execsync::cause::Cause;
use crate::execsync::cause::limits::{cpu_limit, is_at_pids_limit, is_throttled, pids};
use crate::execsync::evidence::{Evidence, PressureStall};
use crate::terminal::format::duration;

/// Minimum share of stalled time worth reporting.
const NOTABLE_STALL: f64 = 0.1;

/// Maximum share of CPU time in the time of a command that waits.
const MAX_WAITING_CPU: f64 = 0.1;

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
    if causes.contains(&Cause::Run)
        && has_waited(evidence)
        && let Some(used) = evidence.cpu.and_then(|cpu| cpu.used)
    {
        found.push(format!(
            "All processes of the container used {} of CPU within {window}: the command waited, and did not compute.",
            duration(used)
        ));
    }
    if causes.iter().any(|cause| cause.depends_on_node()) {
        found.extend(load(evidence));
    }
    found
}

/// Returns whether the processes of the container computed for a small part of the time, although
/// they could have had CPU. On a busy node they may have waited for a processor.
pub(super) fn has_waited(evidence: &Evidence) -> bool {
    let (pressure, window) = match evidence.container_pressure {
        Some(pressure) => (pressure, evidence.window),
        None => (evidence.node_pressure.unwrap_or_default(), evidence.psi_window),
    };
    evidence.hardly_computes() && !pressure.notable(window)[0]
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

impl Evidence {
    /// Returns the stalls of the processes that delayed a call, with the time for which they were
    /// measured. `is_start` is whether the runtime was slow to start the command: its processes are
    /// those of the node. Otherwise the container counts, or the node if the container was not
    /// measured. Of a container that hardly computes it is not known whether it waits for a
    /// processor of a busy node or for something else, so the node's CPU does not count.
    #[must_use]
    pub fn stalls(&self, is_start: bool) -> (PressureStall, Duration) {
        if let Some(pressure) = self.container_pressure.filter(|_| !is_start) {
            return (pressure, self.window);
        }
        let mut pressure = self.node_pressure.unwrap_or_default();
        if !is_start && self.hardly_computes() {
            pressure.cpu = Duration::ZERO;
        }
        (pressure, self.psi_window)
    }

    /// Returns whether the container computed for a small part of the time, and was not throttled.
    fn hardly_computes(&self) -> bool {
        let used = self.cpu.filter(|cpu| !is_throttled(cpu)).and_then(|cpu| cpu.used);
        used.is_some_and(|used| used < self.window.mul_f64(MAX_WAITING_CPU))
    }
}

impl PressureStall {
    /// Returns whether the processes were stalled for at least a tenth of the measured time: on
    /// CPU, I/O and memory.
    #[must_use]
    pub fn notable(&self, window: Duration) -> [bool; 3] {
        [self.cpu, self.io, self.memory].map(|stalled| is_notable(stalled, window))
    }
}

fn is_notable(stalled: Duration, window: Duration) -> bool {
    !window.is_zero() && stalled.as_secs_f64() / window.as_secs_f64() >= NOTABLE_STALL
}

fn stalls(pressure: &PressureStall, owner: &str, window: Duration) -> Vec<String> {
    let all = [("CPU", pressure.cpu), ("I/O", pressure.io), ("memory", pressure.memory)];
    let notable = all.into_iter().filter(|(_, stalled)| is_notable(*stalled, window));
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
