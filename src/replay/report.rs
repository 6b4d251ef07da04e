//! Comparison of recorded and replayed calls.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::file::{CaptureFile, RecordedCall};
use super::targets::Targets;
use crate::bench::percentile_ms;
use crate::capture::CaptureRuntime;
use crate::history::json::{Container, Phases, Pod, milliseconds};
use crate::relay::CallOutcome;
use crate::socket::SocketPath;

/// Report of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// Socket to which the calls were sent.
    pub upstream: String,
    /// The runtime that answered the recorded calls; null if it is unknown.
    pub recorded_runtime: Option<CaptureRuntime>,
    /// The runtime that answered the replayed calls.
    pub replayed_runtime: CaptureRuntime,
    /// Number of calls in the capture.
    pub calls: usize,
    /// Number of calls that are missing in the capture.
    pub missed: u64,
    /// Whether the capture has no last line, because it was cut off.
    pub cut_off: bool,
    /// Number of calls that were sent.
    pub sent: usize,
    /// Longest delay of a call behind its time.
    pub late_ms: f64,
    /// Distances between calls that were shortened.
    pub shortened: ShortenedDistances,
    /// Numbers of calls that were not sent.
    pub skipped: SkippedCalls,
    /// Pods and containers that are not on this node.
    pub not_found: Vec<UnknownTarget>,
    /// Results by method and probe.
    pub groups: Vec<ReplayGroup>,
    /// Calls with another code or exit code than recorded.
    pub differences: Vec<CallDifference>,
}

/// Recorded distances between calls that are longer than a minute, and were shortened to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShortenedDistances {
    /// Number of distances.
    pub count: usize,
    /// Time by which all together were shortened.
    pub total_ms: f64,
}

/// Numbers of calls that were not sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedCalls {
    /// Calls that change the node, streams, and calls of unknown methods.
    pub not_read_only: usize,
    /// ExecSyncs of hooks, or that may be of hooks.
    pub hooks: usize,
    /// Calls whose request is not in the file.
    pub no_request: usize,
    /// ExecSyncs of which arguments of the command were removed.
    pub command_redacted: usize,
    /// Calls about pods and containers that are not on this node.
    pub not_found: usize,
}

/// A pod or container that is not on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownTarget {
    /// `NAMESPACE/POD`, `NAMESPACE/POD CONTAINER`, or the id if the capture has no name.
    pub name: String,
    /// Number of calls about it.
    pub calls: usize,
}

/// Results of the calls with the same method and probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayGroup {
    /// Name of the method.
    pub method: String,
    /// Type of the probe, if the calls are ExecSyncs of a known probe or hook.
    pub probe: Option<String>,
    /// Number of calls.
    pub calls: usize,
    /// Percentiles of the durations.
    pub latency: ReplayLatency,
    /// Number of calls with another code or exit code than recorded.
    pub different: usize,
    /// Means of the phases of ExecSyncs; null if the phases of no call are known on both sides.
    pub phases: Option<PhaseAverages>,
}

/// Percentiles of durations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayLatency {
    /// Median.
    pub p50: LatencyPair,
    /// 99th percentile.
    pub p99: LatencyPair,
}

/// A recorded and a replayed value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyPair {
    /// The recorded value in milliseconds.
    pub recorded_ms: f64,
    /// The replayed value in milliseconds.
    pub replayed_ms: f64,
    /// The replayed value divided by the recorded one; null if that is 0.
    pub ratio: Option<f64>,
}

/// Means of the phases of ExecSyncs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseAverages {
    /// Number of calls whose phases are all known on both sides.
    pub calls: usize,
    /// Phases in their order. A phase that is unknown in all calls is absent.
    pub averages: Vec<PhaseAverage>,
}

/// Mean of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseAverage {
    /// Name of the phase.
    pub phase: String,
    /// The averages.
    #[serde(flatten)]
    pub mean: LatencyPair,
}

/// A call with another result than recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the documentation")]
pub struct CallDifference {
    /// Id of the recorded call.
    pub id: u64,
    pub method: String,
    pub pod: Option<Pod>,
    pub container: Option<Container>,
    pub command: Vec<String>,
    pub recorded_code: String,
    pub replayed_code: String,
    pub recorded_exit_code: Option<i32>,
    pub replayed_exit_code: Option<i32>,
    /// Status message of the replayed call.
    pub message: Option<String>,
    /// Fault rules and policies that affected the recorded call.
    pub affected_by: Vec<String>,
}

/// A call that was sent again.
#[derive(Debug)]
pub(super) struct ReplayedCall<'a> {
    pub(super) recorded: &'a RecordedCall,
    pub(super) outcome: CallOutcome,
    pub(super) message: Option<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) duration: Duration,
    pub(super) phases: Option<Phases>,
}

/// Reason why a recorded call is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SkipReason {
    NotReadOnly,
    Hook,
    NoRequest,
    CommandRedacted,
    /// The object with this id is not on this node.
    NotFound(String),
}

impl ReplayReport {
    pub(super) fn new(recording: &CaptureFile, upstream: &SocketPath, runtime: CaptureRuntime) -> Self {
        Self {
            upstream: upstream.to_string(),
            recorded_runtime: recording.header.runtime.clone(),
            replayed_runtime: runtime,
            calls: recording.calls.len(),
            missed: recording.missed,
            cut_off: recording.end.is_none(),
            sent: 0,
            late_ms: 0.0,
            shortened: ShortenedDistances::default(),
            skipped: SkippedCalls::default(),
            not_found: Vec::new(),
            groups: Vec::new(),
            differences: Vec::new(),
        }
    }

    /// Counts a call that is not sent.
    pub(super) fn skip(&mut self, reason: SkipReason, targets: &Targets) {
        match reason {
            SkipReason::NotReadOnly => self.skipped.not_read_only += 1,
            SkipReason::Hook => self.skipped.hooks += 1,
            SkipReason::NoRequest => self.skipped.no_request += 1,
            SkipReason::CommandRedacted => self.skipped.command_redacted += 1,
            SkipReason::NotFound(id) => {
                self.skipped.not_found += 1;
                let name = targets.name(&id);
                match self.not_found.iter_mut().find(|known| known.name == name) {
                    Some(known) => known.calls += 1,
                    None => self.not_found.push(UnknownTarget { name, calls: 1 }),
                }
            }
        }
    }

    pub(super) fn late(&mut self, late: Duration) {
        self.late_ms = milliseconds(late);
    }

    /// Adds all calls that were sent.
    pub(super) fn add(&mut self, mut calls: Vec<ReplayedCall<'_>>) {
        calls.sort_by_key(|call| (call.recorded.start, call.recorded.id));
        self.sent = calls.len();
        self.differences = calls.iter().filter_map(ReplayedCall::difference).collect();
        let mut groups: BTreeMap<_, Vec<ReplayedCall<'_>>> = BTreeMap::new();
        for call in calls {
            groups.entry((call.recorded.method.label(), call.probe())).or_default().push(call);
        }
        self.groups = groups
            .into_iter()
            .filter_map(|((method, probe), calls)| ReplayGroup::new(method, probe, &calls))
            .collect();
    }
}

impl ReplayedCall<'_> {
    fn probe(&self) -> Option<String> {
        Some(self.recorded.exec.as_ref()?.probe.as_ref()?.r#type.clone())
    }

    /// Returns the difference of the codes. Exit codes are compared if both are known.
    fn difference(&self) -> Option<CallDifference> {
        let recorded = self.recorded;
        let [recorded_code, replayed_code] = [recorded.outcome, self.outcome].map(|code| code.to_string());
        let exits = recorded.exit_code().zip(self.exit_code);
        (recorded_code != replayed_code || exits.is_some_and(|(one, other)| one != other)).then(|| {
            CallDifference {
                id: recorded.id,
                method: recorded.method.to_string(),
                pod: recorded.pod.clone(),
                container: recorded.container.clone(),
                command: recorded.exec.as_ref().map(|exec| exec.command.clone()).unwrap_or_default(),
                recorded_code,
                replayed_code,
                recorded_exit_code: recorded.exit_code(),
                replayed_exit_code: self.exit_code,
                message: self.message.clone(),
                affected_by: recorded.affected_by.clone(),
            }
        })
    }

    /// Returns the recorded and the replayed phases, if all are known.
    fn phases(&self) -> Option<[&Phases; 2]> {
        let replayed = self.phases.as_ref().filter(|phases| phases.state == "complete")?;
        Some([self.recorded.phases()?, replayed])
    }
}

impl ReplayGroup {
    /// Returns the results of a group; `None` if it has no calls.
    fn new(method: &str, probe: Option<String>, calls: &[ReplayedCall<'_>]) -> Option<Self> {
        let sorted = |time: fn(&ReplayedCall<'_>) -> Duration| {
            let mut times: Vec<Duration> = calls.iter().map(time).collect();
            times.sort_unstable();
            times
        };
        let (recorded, replayed) = (sorted(|call| call.recorded.duration), sorted(|call| call.duration));
        let pair = |percent| {
            Some(LatencyPair::new(percentile_ms(&recorded, percent)?, percentile_ms(&replayed, percent)?))
        };
        Some(Self {
            method: method.to_owned(),
            probe,
            calls: calls.len(),
            latency: ReplayLatency { p50: pair(50)?, p99: pair(99)? },
            different: calls.iter().filter_map(ReplayedCall::difference).count(),
            phases: PhaseAverages::new(&calls.iter().filter_map(ReplayedCall::phases).collect::<Vec<_>>()),
        })
    }
}

impl LatencyPair {
    fn new(recorded_ms: f64, replayed_ms: f64) -> Self {
        let ratio = (recorded_ms > 0.0).then(|| replayed_ms / recorded_ms);
        Self { recorded_ms, replayed_ms, ratio }
    }
}

impl PhaseAverages {
    fn new(calls: &[[&Phases; 2]]) -> Option<Self> {
        let names = calls.first()?[0].named().map(|(name, _)| name);
        let mean = |side: usize, name: &str| {
            let times = calls.iter().filter_map(|call| {
                call[side].named().into_iter().find(|(known, _)| *known == name).and_then(|(_, time)| time)
            });
            let times: Vec<f64> = times.collect();
            #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
            let count = times.len() as f64;
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / count)
        };
        let averages = names.into_iter().filter_map(|name| {
            let mean = LatencyPair::new(mean(0, name)?, mean(1, name)?);
            Some(PhaseAverage { phase: name.to_owned(), mean })
        });
        Some(Self { calls: calls.len(), averages: averages.collect() })
    }
}
