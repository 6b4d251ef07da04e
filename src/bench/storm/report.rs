//! The report of a storm.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::StormSpec;
use super::calls::StormCalls;
use crate::bench::figures::percentile_ms;
use crate::bench::node_cpu::NodeCpu;

/// Percentage of the offered calls below which a step is saturated.
const MIN_SERVED_PERCENT: usize = 99;

/// Report of a storm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StormReport {
    /// Socket to which the calls were sent.
    pub endpoint: String,
    /// Full ids of the containers.
    pub containers: Vec<String>,
    /// The executed command.
    pub command: Vec<String>,
    /// Timeout of each call, in milliseconds.
    pub timeout_ms: u64,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
    /// Time for which the calls of a step were offered, in milliseconds.
    pub duration_per_step_ms: u64,
    /// The steps, in the order of their rates.
    pub steps: Vec<StormStep>,
    /// The first saturated step; `None` if no step is saturated.
    pub saturation: Option<Saturation>,
}

/// Results of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StormStep {
    /// Offered calls per second.
    pub rate: u32,
    /// Number of offered calls: the served and the failed ones.
    pub offered: usize,
    /// Number of calls whose command was executed to its end, whatever its exit code is.
    pub served: usize,
    /// Number of failed calls.
    pub failed: usize,
    /// Number of failed calls by kind.
    pub failures: Vec<FailureCount>,
    /// Number of served calls whose command exited with another code than 0.
    pub nonzero_exits: usize,
    /// Time from the first offer to the end of the last call, in milliseconds.
    pub lasted_ms: f64,
    /// Processor time of the node during the step, in percent of all cores.
    pub cpu_percent: Option<f64>,
    /// Processor time of the node during the step, in milliseconds per served call.
    pub cpu_ms_per_served: Option<f64>,
    /// Median latency of the served calls, in milliseconds.
    pub p50_ms: Option<f64>,
    /// 90th percentile of the latency, in milliseconds.
    pub p90_ms: Option<f64>,
    /// 99th percentile of the latency, in milliseconds.
    pub p99_ms: Option<f64>,
    /// Maximum latency, in milliseconds.
    pub max_ms: Option<f64>,
}

/// Number of failed calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureCount {
    /// `timeout`, `not-sent` or the name of a gRPC code.
    pub kind: String,
    /// Number of calls.
    pub count: usize,
}

/// The rate at which the endpoint saturates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saturation {
    /// Offered calls per second.
    pub rate: u32,
    /// All criteria that the step meets.
    pub reasons: Vec<SaturationReason>,
}

/// Criterion by which a step is saturated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaturationReason {
    /// Less than 99 % of the offered calls were served.
    Served,
    /// The 99th percentile of the latency exceeds the timeout.
    Latency,
}

impl StormReport {
    /// Returns the report of these steps. `containers` are the full ids.
    pub(super) fn new(spec: &StormSpec, containers: Vec<String>, steps: Vec<StormStep>) -> Self {
        let saturation = steps.iter().find_map(|step| step.saturation(spec.timeout()));
        Self {
            endpoint: spec.endpoint.to_string(),
            containers,
            command: spec.command.clone(),
            timeout_ms: milliseconds(spec.timeout()),
            concurrency: spec.concurrency,
            duration_per_step_ms: milliseconds(spec.step_duration),
            steps,
            saturation,
        }
    }
}

impl StormStep {
    /// Returns the results of a step that lasted so long, with the processor time of the node.
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    pub(super) fn new(rate: u32, calls: StormCalls, lasted: Duration, cpu: NodeCpu) -> Self {
        let StormCalls { mut latencies, nonzero_exits, failures } = calls;
        latencies.sort_unstable();
        let (served, failed) = (latencies.len(), failures.values().sum());
        let failures = failures.into_iter().map(|(kind, count)| FailureCount { kind, count });
        Self {
            rate,
            offered: served + failed,
            served,
            failed,
            failures: failures.collect(),
            nonzero_exits,
            lasted_ms: lasted.as_secs_f64() * 1e3,
            cpu_percent: cpu.busy_percent(),
            cpu_ms_per_served: (served > 0).then(|| cpu.busy.as_secs_f64() * 1e3 / served as f64),
            p50_ms: percentile_ms(&latencies, 50),
            p90_ms: percentile_ms(&latencies, 90),
            p99_ms: percentile_ms(&latencies, 99),
            max_ms: percentile_ms(&latencies, 100),
        }
    }

    /// Returns the rate with the criteria by which the step is saturated, if there are any.
    fn saturation(&self, timeout: Duration) -> Option<Saturation> {
        let too_few = self.served * 100 < self.offered * MIN_SERVED_PERCENT;
        let too_slow = self.p99_ms.is_some_and(|p99| p99 > timeout.as_secs_f64() * 1e3);
        let reasons = [(too_few, SaturationReason::Served), (too_slow, SaturationReason::Latency)];
        let reasons: Vec<_> = reasons.into_iter().filter(|(met, _)| *met).map(|(_, reason)| reason).collect();
        (!reasons.is_empty()).then_some(Saturation { rate: self.rate, reasons })
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::SocketPath;

    /// Returns a step of 100 calls, of which all but `failed` took this time.
    fn step(rate: u32, failed: usize, latency_ms: u64) -> StormStep {
        let calls = StormCalls {
            latencies: vec![Duration::from_millis(latency_ms); 100 - failed],
            nonzero_exits: 0,
            failures: [("timeout".to_owned(), failed)].into(),
        };
        StormStep::new(rate, calls, Duration::from_secs(1), NodeCpu::default())
    }

    fn saturation(steps: Vec<StormStep>) -> Option<Saturation> {
        let spec = StormSpec {
            endpoint: SocketPath::parse("/run/runtime.sock").unwrap(),
            containers: vec!["c0ffee".to_owned()],
            command: vec!["true".to_owned()],
            timeout_seconds: 1,
            concurrency: 200,
            rates: steps.iter().map(|step| step.rate).collect(),
            step_duration: Duration::from_secs(10),
        };
        StormReport::new(&spec, spec.containers.clone(), steps).saturation
    }

    #[test]
    fn a_storm_saturates_at_the_first_rate_with_too_few_served_or_too_slow_calls() {
        let at = |rate, reasons: &[SaturationReason]| Some(Saturation { rate, reasons: reasons.to_vec() });
        let (served, latency) = (SaturationReason::Served, SaturationReason::Latency);
        assert_eq!(saturation(vec![step(1, 0, 30), step(2, 1, 1000)]), None, "both limits are included");
        assert_eq!(saturation(vec![step(1, 0, 30), step(2, 2, 30), step(5, 50, 30)]), at(2, &[served]));
        assert_eq!(saturation(vec![step(1, 0, 1001), step(2, 2, 30)]), at(1, &[latency]));
        assert_eq!(saturation(vec![step(5, 2, 1001)]), at(5, &[served, latency]));
        assert_eq!(saturation(vec![step(5, 100, 0)]), at(5, &[served]), "no call is served");
        assert_eq!(saturation(Vec::new()), None);
    }

    #[test]
    fn a_step_of_a_storm_has_percentiles_and_processor_time_per_served_call() {
        let calls = StormCalls {
            latencies: (1..=100).rev().map(Duration::from_millis).collect(),
            nonzero_exits: 3,
            failures: [("timeout".to_owned(), 4), ("UNAVAILABLE".to_owned(), 2)].into(),
        };
        let cpu = NodeCpu { busy: Duration::from_secs(3), ..NodeCpu::default() };
        let step = StormStep::new(50, calls, Duration::from_millis(2500), cpu);
        assert_eq!((step.offered, step.served, step.failed, step.nonzero_exits), (106, 100, 6, 3));
        let failures: Vec<_> = step.failures.iter().map(|it| (it.kind.as_str(), it.count)).collect();
        assert_eq!(failures, [("UNAVAILABLE", 2), ("timeout", 4)]);
        let shown = [step.cpu_ms_per_served, step.p50_ms, step.p90_ms, step.p99_ms, step.max_ms]
            .map(|value| format!("{:.0}", value.unwrap()));
        assert_eq!(shown, ["30", "50", "90", "99", "100"]);
    }

    #[test]
    fn a_step_of_a_storm_without_served_calls_has_no_latency() {
        let step = step(5, 100, 0);
        assert_eq!([step.cpu_percent, step.cpu_ms_per_served, step.p50_ms, step.p99_ms], [None; 4]);
    }
}
