//! Results of a probe over time, as spans of equal results.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::axis::Axis;
use super::serialize::rfc3339;
use crate::history::timeline::Minute;

/// Columns in a row with the same worst result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResultSpan {
    /// Beginning of the first column.
    #[serde(serialize_with = "rfc3339")]
    pub from: SystemTime,
    /// End of the last column.
    #[serde(serialize_with = "rfc3339")]
    pub to: SystemTime,
    /// The worst result in each column.
    pub result: ResultKind,
    /// Number of attempts.
    pub attempts: u32,
    /// Number of attempts with the worst result.
    pub count: u32,
}

/// Result of attempts, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultKind {
    /// The attempt succeeded, and was not slow.
    Success,
    /// The attempt succeeded, and was slow.
    Slow,
    /// The attempt succeeded after its timeout.
    Late,
    /// probeshim answered the attempt itself: a pause, a fault or a limit.
    NotSent,
    /// The attempt has no result: it was discarded, or its client gave up.
    NoResult,
    /// The attempt ended with an error, which a kubelet does not count.
    Error,
    /// The attempt failed.
    Failure,
    /// The attempt failed because of its timeout.
    Timeout,
}

impl ResultKind {
    /// All results, from the best to the worst.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::Slow,
        Self::Late,
        Self::NotSent,
        Self::NoResult,
        Self::Error,
        Self::Failure,
        Self::Timeout,
    ];

    /// Returns the result in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Slow => "slow success",
            Self::Late => "late success",
            Self::NotSent => "answered by probeshim",
            Self::NoResult => "no result",
            Self::Error => "error",
            Self::Failure => "failure",
            Self::Timeout => "timeout",
        }
    }

    /// Returns the number of attempts with this result.
    #[must_use]
    pub fn count(self, results: &Minute) -> u32 {
        match self {
            Self::Success => results.successes,
            Self::Slow => results.slow.saturating_sub(results.late),
            Self::Late => results.late,
            Self::NotSent => results.not_sent,
            Self::NoResult => results.without_result(),
            Self::Error => results.errors,
            Self::Failure => results.failures,
            Self::Timeout => results.timeouts,
        }
    }

    /// Returns the worst result of attempts; `None` without an attempt.
    #[must_use]
    pub fn worst(results: &Minute) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|kind| kind.count(results) > 0)
    }
}

impl ResultSpan {
    /// Returns the columns of the span.
    #[must_use]
    pub fn columns(&self, axis: &Axis) -> Range<usize> {
        axis.columns_of(self.from, self.to)
    }
}

/// Returns the results of a probe as spans. A column without an attempt is in no span, unless the
/// probe is run less often than once per column: then it extends the span before it.
pub(super) fn spans(minutes: &[Minute], axis: &Axis, period: Option<Duration>) -> Vec<ResultSpan> {
    let mut columns: Vec<(usize, Minute)> = Vec::new();
    for minute in minutes {
        let column = axis.column(minute.start());
        match columns.last_mut() {
            Some((last, results)) if *last == column => results.merge(minute),
            _ => columns.push((column, minute.clone())),
        }
    }
    // The results of a probe with a period of two columns are in every second one.
    let periods = period.map_or(0, |period| period.as_secs() / axis.width.as_secs().max(1));
    let reach = 1 + usize::try_from(periods).unwrap_or(usize::MAX - 1);
    let mut spans: Vec<ResultSpan> = Vec::new();
    let mut end = 0;
    for (at, (column, results)) in columns.iter().enumerate() {
        let Some(result) = ResultKind::worst(results) else { continue };
        let next = columns.get(at + 1).map(|(next, _)| *next);
        let is_followed = next.is_some_and(|next| next - column <= reach);
        let until = next.filter(|_| is_followed).unwrap_or(column + 1);
        let (attempts, count) = (results.attempts(), result.count(results));
        match spans.last_mut() {
            Some(last) if last.result == result && end == *column => {
                last.to = axis.start_of(until);
                last.attempts = last.attempts.saturating_add(attempts);
                last.count = last.count.saturating_add(count);
            }
            _ => {
                let (from, to) = (axis.start_of(*column), axis.start_of(until));
                spans.push(ResultSpan { from, to, result, attempts, count });
            }
        }
        end = until;
    }
    spans
}
