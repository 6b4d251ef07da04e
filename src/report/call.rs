//! A slow or failed call of a report.

use serde::Serialize;

use crate::execsync::{CallRecord, explain};
use crate::history::json;
use crate::history::timeline::Period;

/// Number of calls in a report.
const MAX_CALLS: usize = 12;

/// Maximum number of calls of one container in a report, so that other containers have room.
const MAX_CALLS_PER_CONTAINER: usize = 3;

/// A slow or failed call with its explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowCall {
    /// The call.
    pub call: json::Call,
    /// Sentences that explain the call.
    pub sentences: Vec<String>,
}

impl SlowCall {
    fn of_record(record: &CallRecord) -> Self {
        Self { call: record.into(), sentences: explain(record) }
    }
}

/// Returns the slowest of the ExecSyncs that are kept of a period, the slowest first. Slower ones
/// may not have been kept.
pub(super) fn slowest_calls(period: &Period) -> Vec<SlowCall> {
    let mut calls: Vec<&CallRecord> = period.calls.iter().map(|record| &**record).collect();
    calls.retain(|record| record.call.exec.is_some());
    calls.sort_by_key(|record| std::cmp::Reverse((record.call.duration, record.call.id)));
    let mut shown: Vec<&CallRecord> = Vec::new();
    for record in calls {
        let id = |record: &CallRecord| record.call.container.as_ref().and_then(|it| it.id.clone());
        let others = shown.iter().filter(|other| id(other) == id(record)).count();
        if others < MAX_CALLS_PER_CONTAINER {
            shown.push(record);
        }
        if shown.len() == MAX_CALLS {
            break;
        }
    }
    shown.into_iter().map(SlowCall::of_record).collect()
}
