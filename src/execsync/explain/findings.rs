//! Notable facts in the evidence, one sentence each.

use std::time::Duration;

use super::percent;
use crate::execsync::cause::Cause;
use crate::execsync::cause::limits::{
    MAX_STALL_OF_WAITING, cpu_limit, hardly_computes, has_waited, is_throttled,
};
use crate::execsync::evidence::{Evidence, PressureStall};
use crate::terminal::format::{capitalized, duration};

/// Minimum share of stalled time worth reporting.
const NOTABLE_STALL: f64 = 0.1;

/// Share of the time from which stalls explain it.
const MOST: f64 = 0.5;

/// Minimum share of CPU time in the time of a command that computes.
const MIN_COMPUTING_CPU: f64 = 0.5;

/// Minimum load per processor worth reporting.
const NOTABLE_LOAD: f64 = 1.5;

/// Returns a sentence for each notable fact in the evidence that can explain the causes.
pub(super) fn notable(evidence: &Evidence, causes: &[Cause]) -> Vec<String> {
    let mut found = Vec::new();
    let window = duration(evidence.window);
    if evidence.is_frozen == Some(true) {
        found.push("The container was frozen: no process in it could run.".to_owned());
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
    if let Some(pids) = evidence.pids_at_limit()
        && let Some(share) = pids.share()
    {
        found.push(format!("{} has {share}.", capitalized(pids.scope.owner())));
    }
    if causes.contains(&Cause::Run) {
        found.extend(cpu_use(evidence));
    }
    if causes.iter().any(|cause| cause.depends_on_node()) {
        let waits = causes.contains(&Cause::Run) && has_waited(evidence);
        found.extend(load(evidence, waits));
    }
    found
}

/// Returns a sentence about the CPU time of a command that ran long: whether it computed or waited.
fn cpu_use(evidence: &Evidence) -> Option<String> {
    let used = evidence.cpu?.used?;
    let (text, window) = (duration(used), duration(evidence.window));
    let sentence = format!("All processes of the container used {text} of CPU within {window}");
    if has_waited(evidence) {
        Some(sentence + ": the command waited, and did not compute.")
    } else if used >= evidence.window.mul_f64(MIN_COMPUTING_CPU) {
        Some(sentence + ".")
    } else {
        None
    }
}

/// Returns a sentence for each notable fact about the load of the container and the node. `waits`
/// is whether the command waits: then stalls explain the call only if they took most of its time.
fn load(evidence: &Evidence, waits: bool) -> Vec<String> {
    let (owner, pressure, measured) = match evidence.container_pressure {
        Some(pressure) => ("the container", Some(pressure), evidence.window),
        None => ("the node", evidence.node_pressure, evidence.psi_window),
    };
    let least = if waits { MAX_STALL_OF_WAITING } else { NOTABLE_STALL };
    let mut found: Vec<String> =
        pressure.iter().flat_map(|pressure| stalls(pressure, owner, measured, least)).collect();
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
        if !is_start && hardly_computes(self) {
            pressure.cpu = Duration::ZERO;
        }
        (pressure, self.psi_window)
    }
}

impl Evidence {
    /// Returns whether processes of the node were stalled for a notable part of the time: on CPU,
    /// I/O and memory. Without a measurement, they were not.
    #[must_use]
    pub fn notable_of_node(&self) -> [bool; 3] {
        self.node_pressure.unwrap_or_default().notable(self.psi_window)
    }

    /// Returns whether processes of the node were stalled for most of the time: on CPU, I/O and
    /// memory. Without a measurement, they were not.
    #[must_use]
    pub fn mostly_of_node(&self) -> [bool; 3] {
        self.node_pressure.unwrap_or_default().is_share(self.psi_window, MOST)
    }
}

impl PressureStall {
    /// Returns whether the processes were stalled for at least a tenth of the measured time: on
    /// CPU, I/O and memory.
    #[must_use]
    pub fn notable(&self, window: Duration) -> [bool; 3] {
        self.is_share(window, NOTABLE_STALL)
    }

    fn is_share(&self, window: Duration, share: f64) -> [bool; 3] {
        [self.cpu, self.io, self.memory].map(|stalled| has_share(stalled, window, share))
    }
}

fn has_share(stalled: Duration, window: Duration, share: f64) -> bool {
    !window.is_zero() && stalled.as_secs_f64() / window.as_secs_f64() >= share
}

fn stalls(pressure: &PressureStall, owner: &str, window: Duration, least: f64) -> Vec<String> {
    let all = [("CPU", pressure.cpu), ("I/O", pressure.io), ("memory", pressure.memory)];
    let notable = all.into_iter().filter(|(_, stalled)| has_share(*stalled, window, least));
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
