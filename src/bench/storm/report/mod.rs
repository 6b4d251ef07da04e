//! The report of a storm.

use std::slice;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calls::StormCalls;
use super::{StormEndpoint, StormSpec};
use crate::bench::figures::percentile_ms;
use crate::bench::node_cpu::NodeCpu;

/// Percentage of the offered calls below which a step is saturated.
const MIN_SERVED_PERCENT: usize = 99;

/// Report of a storm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StormReport {
    /// The executed command.
    pub command: Vec<String>,
    /// Timeout of each call, in milliseconds.
    pub timeout_ms: u64,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
    /// Number of calls to each container before the first step.
    pub warm_up: usize,
    /// Time for which the calls of a step were offered, in milliseconds.
    pub duration_per_step_ms: u64,
    /// Processor time of the node in its quietest second before the first step, in percent of all
    /// cores.
    pub idle_cpu_percent: Option<f64>,
    /// Results of the endpoints.
    #[serde(flatten)]
    pub results: StormResults,
}

/// Results of the endpoints of a storm. The fields of a single one are fields of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StormResults {
    /// Results of several endpoints, in the order in which each step measured them.
    Several {
        /// The results.
        endpoints: Vec<StormResult>,
    },
    /// Results of the only endpoint.
    One(StormResult),
}

/// Results of one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StormResult {
    /// Name of the endpoint.
    pub name: String,
    /// Socket to which the calls were sent.
    pub endpoint: String,
    /// Full ids of the containers.
    pub containers: Vec<String>,
    /// The steps, in the order of their rates.
    pub steps: Vec<StormStep>,
    /// The first saturated step; `None` if no step is saturated.
    pub saturation: Option<Saturation>,
    /// Maximum number of calls that were served per second of a step, until its last call ended.
    pub max_served_per_second: f64,
    /// Comparison with the first endpoint. `None` for the first, and if there is no rate at which
    /// neither is saturated.
    pub comparison: Option<StormComparison>,
}

/// Comparison of an endpoint with the first one, at the highest rate before the first saturated
/// step of the first endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StormComparison {
    /// Offered calls per second.
    pub rate: u32,
    /// Processor time per served call, divided by that of the first endpoint. `None` if that is
    /// too short to be measured.
    pub cpu_ratio: Option<f64>,
    /// Median latency, divided by that of the first endpoint.
    pub p50_ratio: Option<f64>,
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
    /// Processor time of the node during the step beyond that of the idle node, in milliseconds per
    /// served call. `None` if the idle node used as much.
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
    /// Returns the report of these results, of which there is at least one. Compares all with the
    /// first.
    pub(super) fn new(spec: &StormSpec, idle_node: NodeCpu, mut results: Vec<StormResult>) -> Self {
        let results = if results.len() == 1 {
            StormResults::One(results.remove(0))
        } else {
            let comparisons: Vec<_> =
                results.iter().skip(1).map(|result| StormComparison::new(&results[0], result)).collect();
            for (result, comparison) in results.iter_mut().skip(1).zip(comparisons) {
                result.comparison = comparison;
            }
            StormResults::Several { endpoints: results }
        };
        Self {
            command: spec.command.clone(),
            timeout_ms: milliseconds(spec.timeout()),
            concurrency: spec.concurrency,
            warm_up: spec.warm_up,
            duration_per_step_ms: milliseconds(spec.step_duration),
            idle_cpu_percent: idle_node.busy_percent(),
            results,
        }
    }

    /// Returns the results of all endpoints.
    #[must_use]
    pub fn endpoints(&self) -> &[StormResult] {
        match &self.results {
            StormResults::Several { endpoints } => endpoints,
            StormResults::One(result) => slice::from_ref(result),
        }
    }
}

impl StormResult {
    /// Returns the result of these steps, without a comparison. `containers` are the full ids.
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    pub(super) fn new(
        spec: &StormSpec,
        endpoint: &StormEndpoint,
        containers: Vec<String>,
        steps: Vec<StormStep>,
    ) -> Self {
        // The last call is offered before the end of the step, and may also end before it.
        let seconds = |step: &StormStep| spec.step_duration.as_secs_f64().max(step.lasted_ms / 1e3);
        let served_per_second = steps.iter().map(|step| step.served as f64 / seconds(step));
        Self {
            name: endpoint.name.clone(),
            endpoint: endpoint.socket.to_string(),
            containers,
            max_served_per_second: served_per_second.fold(0.0, f64::max),
            saturation: steps.iter().find_map(|step| step.saturation(spec.timeout())),
            steps,
            comparison: None,
        }
    }

    /// Returns the highest rate before the first saturated step; `None` if that is the first step.
    #[must_use]
    pub fn max_unsaturated_rate(&self) -> Option<u32> {
        self.unsaturated_steps().last().map(|step| step.rate)
    }

    /// Returns the steps before the first saturated one.
    fn unsaturated_steps(&self) -> impl Iterator<Item = &StormStep> {
        let saturated = self.saturation.as_ref().map(|saturation| saturation.rate);
        self.steps.iter().take_while(move |step| Some(step.rate) != saturated)
    }
}

impl StormComparison {
    /// Compares an endpoint with the first one.
    fn new(first: &StormResult, other: &StormResult) -> Option<Self> {
        let base = first.unsaturated_steps().last()?;
        let step = other.unsaturated_steps().find(|step| step.rate == base.rate)?;
        let ratio = |value: fn(&StormStep) -> Option<f64>| {
            let (base, value) = (value(base)?, value(step)?);
            (base > 0.0).then(|| value / base)
        };
        Some(Self {
            rate: base.rate,
            cpu_ratio: ratio(|step| step.cpu_ms_per_served),
            p50_ratio: ratio(|step| step.p50_ms),
        })
    }
}

impl StormStep {
    /// Returns the results of a step that lasted so long. `cpu` is the processor time of the node
    /// during the step, and `idle_node` that before the first step.
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    pub(super) fn new(
        rate: u32,
        calls: StormCalls,
        lasted: Duration,
        cpu: NodeCpu,
        idle_node: NodeCpu,
    ) -> Self {
        let StormCalls { mut latencies, nonzero_exits, failures } = calls;
        latencies.sort_unstable();
        let (served, failed) = (latencies.len(), failures.values().sum());
        let failures = failures.into_iter().map(|(kind, count)| FailureCount { kind, count });
        // The node may have been busier before the first step than during this one.
        let busy = Some(cpu.busy_beyond(idle_node)).filter(|busy| served > 0 && !busy.is_zero());
        let cpu_ms_per_served = busy.map(|busy| busy.as_secs_f64() * 1e3 / served as f64);
        Self {
            rate,
            offered: served + failed,
            served,
            failed,
            failures: failures.collect(),
            nonzero_exits,
            lasted_ms: lasted.as_secs_f64() * 1e3,
            cpu_percent: cpu.busy_percent(),
            cpu_ms_per_served,
            p50_ms: percentile_ms(&latencies, 50),
            p90_ms: percentile_ms(&latencies, 90),
            p99_ms: percentile_ms(&latencies, 99),
            max_ms: percentile_ms(&latencies, 100),
        }
    }

    /// Returns the rate with the criteria by which the step is saturated, if there are any.
    pub(super) fn saturation(&self, timeout: Duration) -> Option<Saturation> {
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
mod tests;
