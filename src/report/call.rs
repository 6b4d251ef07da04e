//! A slow or failed call of a report.

use std::time::Duration;

use serde::Serialize;

use crate::execsync::{CallRecord, explain};
use crate::history::json;
use crate::history::timeline::{Period, ProbeSeries};

/// Number of calls in a report.
const MAX_CALLS: usize = 12;

/// A slow or failed call with its explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowCall {
    /// The call, the slowest of its probe.
    pub call: json::Call,
    /// Sentences that explain the call.
    pub sentences: Vec<String>,
    /// Number of other calls of the same probe that are kept.
    pub similar: usize,
}

/// Properties that the calls of a probe have in common, also before its type is known.
#[derive(PartialEq)]
struct ProbeCalls {
    pod: String,
    container: String,
    handler: String,
    timeout: Option<Duration>,
}

impl ProbeCalls {
    fn of_record(record: &CallRecord) -> Option<Self> {
        let series = ProbeSeries::of_call(record)?;
        let pod = series.pod_name();
        let ProbeSeries { container, handler, timeout, .. } = series;
        Some(Self { pod, container, handler, timeout })
    }
}

/// Returns the slowest of the ExecSyncs that are kept of each probe in a period, the slowest first.
/// Slower ones may not have been kept.
pub(super) fn slowest_calls(period: &Period) -> Vec<SlowCall> {
    let mut calls: Vec<&CallRecord> = period.calls.iter().map(|record| &**record).collect();
    calls.retain(|record| record.call.exec.is_some());
    calls.sort_by_key(|record| std::cmp::Reverse((record.call.duration, record.call.id)));
    let mut shown: Vec<(Option<ProbeCalls>, &CallRecord, usize)> = Vec::new();
    for record in calls {
        let probe = ProbeCalls::of_record(record);
        match shown.iter_mut().find(|(known, ..)| probe.is_some() && *known == probe) {
            Some((.., similar)) => *similar += 1,
            None => shown.push((probe, record, 0)),
        }
    }
    let slow_call = |(_, record, similar): (_, &CallRecord, usize)| SlowCall {
        call: record.into(),
        sentences: explain(record),
        similar,
    };
    shown.into_iter().take(MAX_CALLS).map(slow_call).collect()
}
