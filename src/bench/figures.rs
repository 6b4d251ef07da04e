//! Results of a measurement, with percentiles.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::execsync::{ExecTiming, Phases};

/// Report of a benchmark, with the results of the direct path and of the relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchReport {
    /// Full id of the container.
    pub container: String,
    /// The executed command.
    pub command: Vec<String>,
    /// Number of calls on each path.
    pub calls: usize,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
    /// Results of the paths `direct` and `relay`.
    pub ways: Vec<PathResult>,
}

/// Results of one path to the runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathResult {
    /// Name of the path: `direct` or `relay`.
    pub way: String,
    /// Number of calls that failed.
    pub failed: usize,
    /// Number of commands that exited with another code than 0.
    #[serde(default)]
    pub nonzero_exits: usize,
    /// Number of calls per second.
    pub calls_per_second: f64,
    /// Processor time of the whole node during the measurement, per call, in milliseconds.
    pub cpu_ms_per_call: f64,
    /// Number of calls whose phases are all known.
    pub explained: usize,
    /// Statistics of `total`, and of each phase with a known duration, in the order of the phases.
    pub phases: Vec<PhaseStats>,
}

/// Statistics of the durations of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseStats {
    /// `total`, or the name of a phase.
    pub phase: String,
    /// Number of durations.
    pub count: usize,
    /// Median, in milliseconds.
    pub p50_ms: f64,
    /// 90th percentile, in milliseconds.
    pub p90_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// Maximum, in milliseconds.
    pub max_ms: f64,
}

/// Samples that are collected during a measurement.
#[derive(Debug, Default)]
pub(super) struct Samples {
    total: Vec<Duration>,
    named: Vec<(&'static str, Vec<Duration>)>,
    executions: Vec<ExecTiming>,
    failed: usize,
    nonzero_exits: usize,
    explained: usize,
    lasted: Duration,
    busy: Duration,
}

impl Samples {
    /// Adds a call, with the exit code of its command if the call succeeded.
    pub(super) fn record(&mut self, duration: Duration, exit_code: Option<i32>) {
        self.total.push(duration);
        self.failed += usize::from(exit_code.is_none());
        self.nonzero_exits += usize::from(exit_code.is_some_and(|code| code != 0));
    }

    pub(super) fn elapsed(&mut self, lasted: Duration, busy: Duration) {
        self.lasted += lasted;
        self.busy += busy;
    }

    pub(super) fn executions(&mut self, executions: Vec<ExecTiming>) {
        self.executions.extend(executions);
    }

    /// Adds the phases of a call, if all are known.
    pub(super) fn phases(&mut self, phases: &Phases) {
        let Phases::Complete(phases) = phases else { return };
        self.explained += 1;
        for (name, time) in phases.named() {
            let index = self.named.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                self.named.push((name, Vec::new()));
                self.named.len() - 1
            });
            self.named[index].1.extend(time);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    pub(super) fn into_way(mut self, way: &str) -> PathResult {
        let calls = self.total.len().max(1) as f64;
        // All calls execute the same command. If some calls cannot be matched to their exec
        // instances, the durations of start and run are taken from all exec instances.
        if self.explained < self.total.len() && !self.executions.is_empty() {
            self.named.retain(|(name, _)| !["start", "run"].contains(name));
            let of = |part: fn(&ExecTiming) -> Duration| self.executions.iter().map(part).collect();
            let (start, run) = (of(|execution| execution.start), of(|execution| execution.run));
            let index = self.named.iter().position(|(name, _)| *name == "drain").unwrap_or(self.named.len());
            self.named.splice(index..index, [("start", start), ("run", run)]);
        }
        let named = std::iter::once(("total", self.total)).chain(self.named);
        PathResult {
            way: way.to_owned(),
            failed: self.failed,
            nonzero_exits: self.nonzero_exits,
            calls_per_second: calls / self.lasted.as_secs_f64().max(f64::MIN_POSITIVE),
            cpu_ms_per_call: self.busy.as_secs_f64() * 1e3 / calls,
            explained: self.explained,
            phases: named.filter_map(|(name, times)| PhaseStats::from_times(name, times)).collect(),
        }
    }
}

impl PhaseStats {
    fn from_times(phase: &str, mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let at = |percent| percentile_ms(&times, percent);
        Some(Self {
            phase: phase.to_owned(),
            count: times.len(),
            p50_ms: at(50)?,
            p90_ms: at(90)?,
            p99_ms: at(99)?,
            max_ms: at(100)?,
        })
    }
}

/// Returns a percentile of sorted durations in milliseconds: the smallest duration that is not
/// exceeded by this percentage of the durations. Returns `None` if there are no durations.
pub(crate) fn percentile_ms(sorted: &[Duration], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_percentiles_are_measured_durations() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        let figures = PhaseStats::from_times("total", times).unwrap();
        let shown = |figures: &PhaseStats| {
            format!("{} {} {} {}", figures.p50_ms, figures.p90_ms, figures.p99_ms, figures.max_ms)
        };
        assert_eq!(shown(&figures), "100 180 198 200");
        let one = PhaseStats::from_times("total", vec![Duration::from_millis(7)]).unwrap();
        assert_eq!(shown(&one), "7 7 7 7");
        assert_eq!(PhaseStats::from_times("run", Vec::new()), None);
    }
}
