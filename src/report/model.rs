//! The report as a value. Its JSON is what `probeshim report -o FILE.json` writes: fields may be
//! added, never renamed.

use std::time::SystemTime;

use serde::Serialize;

use super::axis::Axis;
use super::call::SlowCall;
use super::latency::LatencyMap;
use super::lifecycle::LifecycleEvent;
use super::pods::PodReport;
use super::probe::ProbeReport;
use super::selection::Selection;
use super::serialize::rfc3339;
use super::totals::Totals;
use crate::history::timeline::NodeFacts;
use crate::lint::LintFinding;

/// A report about the probes of a period.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of the probeshim that wrote the report, with commit and date.
    pub version: String,
    /// Time at which the report was written.
    #[serde(serialize_with = "rfc3339")]
    pub generated: SystemTime,
    /// Origin of the data: a running probeshim, or a directory of records.
    pub source: String,
    /// Beginning of the period.
    #[serde(serialize_with = "rfc3339")]
    pub from: SystemTime,
    /// End of the period.
    #[serde(serialize_with = "rfc3339")]
    pub to: SystemTime,
    /// Columns of time of the results.
    pub axis: Axis,
    /// Pods to which the report is limited.
    pub selection: Selection,
    /// Reason why the report has no probes; null if it has some.
    pub empty_because: Option<String>,
    /// Numbers over all probes.
    pub totals: Totals,
    /// Findings of the lints, the worst first.
    pub findings: Vec<LintFinding>,
    /// Probes, the worst first, and at the end other ExecSyncs, whose type is `unknown`.
    pub probes: Vec<ProbeReport>,
    /// Pods, the worst first.
    pub pods: Vec<PodReport>,
    /// Starts, exits and kills of containers, in order of time.
    pub lifecycle: Vec<LifecycleEvent>,
    /// Latencies of all probes over time.
    pub latency: LatencyMap,
    /// The slowest of the ExecSyncs that were kept, the slowest first: at most 12, and at most 3 of
    /// a container. Only some slow and failed ones are kept, at most 16 each time results are
    /// written, so there may have been slower ones.
    pub slowest_calls: Vec<SlowCall>,
    /// Times of which nothing, or not everything, is known.
    pub gaps: Vec<Gap>,
    /// Facts about the node and about the last probeshim of the period; null if they are unknown.
    pub node: Option<NodeFacts>,
}

/// A time of which nothing, or not everything, is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// Beginning of the gap.
    #[serde(serialize_with = "rfc3339")]
    pub from: SystemTime,
    /// End of the gap.
    #[serde(serialize_with = "rfc3339")]
    pub to: SystemTime,
    /// `not-running`, `not-recorded`, `dropped` or `clock-step`.
    pub kind: String,
    /// Cause of the gap in words.
    pub cause: String,
}
