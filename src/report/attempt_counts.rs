//! Numbers of attempts by result, and percentiles of their latency.

use std::time::Duration;

use serde::Serialize;

use super::serialize::optional_milliseconds;
use crate::history::timeline::Minute;

/// Numbers of attempts by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptCounts {
    /// Number of attempts.
    pub attempts: u64,
    /// Number of successes.
    pub successes: u64,
    /// Number of failures without timeouts.
    pub failures: u64,
    /// Number of timeouts.
    pub timeouts: u64,
    /// Number of errors.
    pub errors: u64,
    /// Number of attempts without a result: discarded, or given up by their client.
    pub no_result: u64,
    /// Number of attempts that probeshim answered itself.
    pub not_sent: u64,
    /// Number of attempts that were slow and did not fail.
    pub slow: u64,
    /// Number of slow attempts that succeeded after their timeout.
    pub late: u64,
}

/// Percentiles of the latency. A percentile is the upper bound of a bucket that is 19 % wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyPercentiles {
    /// Median.
    #[serde(rename = "p50Ms", serialize_with = "optional_milliseconds")]
    pub p50: Option<Duration>,
    /// 90th percentile.
    #[serde(rename = "p90Ms", serialize_with = "optional_milliseconds")]
    pub p90: Option<Duration>,
    /// 99th percentile.
    #[serde(rename = "p99Ms", serialize_with = "optional_milliseconds")]
    pub p99: Option<Duration>,
}

impl From<&Minute> for AttemptCounts {
    fn from(results: &Minute) -> Self {
        Self {
            attempts: results.attempts().into(),
            successes: results.successes.into(),
            failures: results.failures.into(),
            timeouts: results.timeouts.into(),
            errors: results.errors.into(),
            no_result: u64::from(results.discarded) + u64::from(results.unknown),
            not_sent: results.not_sent.into(),
            slow: results.slow.into(),
            late: results.late.into(),
        }
    }
}

impl From<&Minute> for LatencyPercentiles {
    fn from(results: &Minute) -> Self {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|quantile| results.quantile(quantile));
        Self { p50, p90, p99 }
    }
}
