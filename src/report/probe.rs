//! A probe of a report.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::attempt_counts::{AttemptCounts, LatencyPercentiles};
use super::axis::Axis;
use super::lifecycle::{LifecycleEvent, LifecycleKind};
use super::serialize::{milliseconds, name, optional_milliseconds};
use super::spans::{ResultSpan, spans};
use crate::execsync::{ProbeMatch, cause_name};
use crate::history::timeline::{LearnedExec, Minute, ProbeHistory};
use crate::object_ref::pod_name;

/// A probe, its results over time, and its numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReport {
    /// Namespace of the pod; empty, and null in JSON, if it is unknown.
    #[serde(serialize_with = "name")]
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Type of the probe; `unknown` for ExecSyncs that belong to no known probe.
    #[serde(rename = "type")]
    pub kind: String,
    /// Program that makes the attempts.
    pub prober: String,
    /// Handler as text.
    pub handler: String,
    /// Timeout of an attempt; null without one.
    #[serde(rename = "timeoutMs", serialize_with = "optional_milliseconds")]
    pub timeout: Option<Duration>,
    /// Period; null if it is unknown.
    #[serde(rename = "periodMs", serialize_with = "optional_milliseconds")]
    pub period: Option<Duration>,
    /// Failure threshold; null if it is unknown.
    pub failure_threshold: Option<u32>,
    /// Numbers of attempts.
    #[serde(flatten, serialize_with = "counts")]
    pub results: Minute,
    /// Kills of the container because of this probe.
    pub kills: u64,
    /// Kills of the container because of this probe that were not made.
    pub would_be_kills: u64,
    /// Percentiles of the latency.
    #[serde(flatten)]
    pub latency: LatencyPercentiles,
    /// Mean of each phase of the ExecSyncs; null if no phases are known.
    pub mean_phases: Option<MeanPhases>,
    /// Causes of slow and failed ExecSyncs, the most frequent first.
    pub causes: Vec<CauseCount>,
    /// Results over time. A time without an attempt is in no span.
    pub spans: Vec<ResultSpan>,
}

/// Mean of each phase of ExecSyncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct MeanPhases {
    /// Number of ExecSyncs with known phases.
    pub calls: u32,
    #[serde(rename = "queueMs", serialize_with = "milliseconds")]
    pub queue: Duration,
    #[serde(rename = "prepareMs", serialize_with = "milliseconds")]
    pub prepare: Duration,
    #[serde(rename = "startMs", serialize_with = "milliseconds")]
    pub start: Duration,
    #[serde(rename = "runMs", serialize_with = "milliseconds")]
    pub run: Duration,
    #[serde(rename = "drainMs", serialize_with = "milliseconds")]
    pub drain: Duration,
    #[serde(rename = "otherMs", serialize_with = "milliseconds")]
    pub other: Duration,
}

/// Number of slow and failed ExecSyncs with a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CauseCount {
    /// Name of the cause.
    pub cause: String,
    /// Number of ExecSyncs.
    pub count: u32,
}

impl ProbeReport {
    /// Returns the report of a probe.
    pub(super) fn new(history: &ProbeHistory, axis: &Axis, lifecycle: &[LifecycleEvent]) -> Self {
        let (series, results) = (&history.series, history.total());
        let kills = |kind: LifecycleKind| {
            let its = lifecycle.iter().filter(|event| {
                event.kind == kind
                    && event.is_about(&series.namespace, &series.pod, &series.container)
                    && event.is_because_of_series(series)
            });
            its.map(|event| event.count).fold(0, u64::saturating_add)
        };
        let mut causes: Vec<CauseCount> = results
            .causes
            .iter()
            .filter(|(cause, _)| !cause_name::LEFT_OUT.contains(&cause.as_str()))
            .map(|(cause, count)| CauseCount { cause: cause.clone(), count: *count })
            .collect();
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
        Self {
            namespace: series.namespace.clone(),
            pod: series.pod.clone(),
            container: series.container.clone(),
            kind: series.probe.clone(),
            prober: series.prober.name().to_owned(),
            handler: series.handler.clone(),
            timeout: series.timeout,
            period: series.period,
            failure_threshold: series.failure_threshold,
            kills: kills(LifecycleKind::Killed),
            would_be_kills: kills(LifecycleKind::WouldBeKilled),
            latency: LatencyPercentiles::from(&results),
            mean_phases: MeanPhases::of_results(&results),
            causes,
            spans: spans(&history.minutes, axis, series.period),
            results,
        }
    }

    /// Returns the number of failures, timeouts and errors.
    #[must_use]
    pub fn failed(&self) -> u32 {
        self.results.failed()
    }

    /// Returns whether the probe has no failures, no kills, and few slow attempts: less than 5 %.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let is_slow = u64::from(self.results.slow) * 20 >= u64::from(self.results.attempts().max(1));
        self.failed() == 0 && self.kills == 0 && self.would_be_kills == 0 && !is_slow
    }

    /// Returns `NAMESPACE/POD`, or the pod without a namespace.
    #[must_use]
    pub fn pod_name(&self) -> String {
        pod_name(&self.namespace, &self.pod)
    }

    /// Returns the command and the timeout that identify attempts which belong to no known probe;
    /// `None` for those of a known one.
    #[must_use]
    pub fn learned(&self) -> Option<LearnedExec> {
        LearnedExec::new(&self.kind, &self.handler, self.timeout)
    }

    /// Returns whether the ExecSyncs belong to a probe. Others may be commands of people.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.kind != ProbeMatch::UNKNOWN
    }

    /// Returns a key by which probes are ordered from the best to the worst. ExecSyncs that belong
    /// to no probe are the best.
    pub(super) fn badness(&self) -> impl Ord + use<> {
        let results = &self.results;
        let failed = results.failures.saturating_add(results.timeouts);
        // Share of the timeout, or the time itself, that the slowest attempts take.
        let slowness = self.latency.p99.unwrap_or_default().as_millis() * 1000
            / self.timeout.unwrap_or(Duration::from_secs(1)).as_millis().max(1);
        (self.is_probe(), self.kills, self.would_be_kills, failed, results.errors, results.slow, slowness)
    }
}

impl MeanPhases {
    fn of_results(results: &Minute) -> Option<Self> {
        let calls = results.phases.calls;
        let [queue, prepare, start, run, drain, other] =
            results.phases.sums.map(|sum| sum.checked_div(calls).unwrap_or_default());
        (calls > 0).then_some(Self { calls, queue, prepare, start, run, drain, other })
    }

    /// Returns the phases with their names, in order.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Duration); 6] {
        [
            ("queue", self.queue),
            ("prepare", self.prepare),
            ("start", self.start),
            ("run", self.run),
            ("drain", self.drain),
            ("other", self.other),
        ]
    }
}

fn counts<S: Serializer>(results: &Minute, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ResultCounts<'a> {
        #[serde(flatten)]
        counts: AttemptCounts,
        failed_calls: &'a [u64],
    }
    ResultCounts { counts: results.into(), failed_calls: &results.failed_calls }.serialize(serializer)
}
