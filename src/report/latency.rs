//! Latencies of all probes over time: the data of a heat map, and percentiles.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::axis::Axis;
use super::serialize::{milliseconds, optional_milliseconds, rfc3339};
use crate::history::timeline::{Durations, Minute, Period};

/// Maximum number of columns of the heat map.
const MAX_COLUMNS: usize = 96;

/// Maximum number of rows of the heat map.
const MAX_ROWS: usize = 16;

/// First and last bucket that the heat map has at least: from about 1 ms to 1 s, so that maps can
/// be compared.
const ALWAYS_SHOWN: (u8, u8) = (0, 39);

/// Maximum number of times with percentiles.
const MAX_SUMMARIES: usize = 13;

/// Numbers of attempts by time and duration, and percentiles by time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyMap {
    /// Columns of time.
    pub axis: Axis,
    /// Ranges of durations, the shortest first.
    pub rows: Vec<LatencyRow>,
    /// Percentiles by time. A time without attempts is left out.
    pub summaries: Vec<LatencySummary>,
}

/// Numbers of attempts with a duration in a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyRow {
    /// Lower bound of the range.
    #[serde(rename = "fromMs", serialize_with = "milliseconds")]
    pub from: Duration,
    /// Upper bound of the range; null if it has none.
    #[serde(rename = "toMs", serialize_with = "optional_milliseconds")]
    pub to: Option<Duration>,
    /// Number of attempts in each column of time.
    pub counts: Vec<u32>,
}

/// Attempts and percentiles in a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencySummary {
    /// Beginning of the time.
    #[serde(serialize_with = "rfc3339")]
    pub from: SystemTime,
    /// End of the time.
    #[serde(serialize_with = "rfc3339")]
    pub to: SystemTime,
    /// Number of attempts.
    pub attempts: u32,
    /// Number of failures, timeouts and errors.
    pub failed: u32,
    /// Median.
    #[serde(rename = "p50Ms", serialize_with = "milliseconds")]
    pub p50: Duration,
    /// 90th percentile.
    #[serde(rename = "p90Ms", serialize_with = "milliseconds")]
    pub p90: Duration,
    /// 99th percentile.
    #[serde(rename = "p99Ms", serialize_with = "milliseconds")]
    pub p99: Duration,
    /// Upper bound of the bucket of the longest duration.
    #[serde(rename = "maxMs", serialize_with = "milliseconds")]
    pub max: Duration,
}

impl LatencyMap {
    /// Returns the latencies of all probes of a period.
    pub(super) fn of_period(period: &Period, axis: &Axis) -> Self {
        let axis_of_map = axis.coarser(axis.columns.div_ceil(MAX_COLUMNS));
        let columns = merged(period, &axis_of_map);
        Self { rows: rows(&columns), summaries: summaries(period, axis), axis: axis_of_map }
    }
}

/// Returns the results of all probes in each column.
fn merged(period: &Period, axis: &Axis) -> Vec<Minute> {
    let mut columns = vec![Minute::default(); axis.columns];
    for minute in period.probes.iter().flat_map(|probe| &probe.minutes) {
        columns[axis.column(minute.start())].merge(minute);
    }
    columns
}

fn rows(columns: &[Minute]) -> Vec<LatencyRow> {
    let buckets = || columns.iter().flat_map(|column| column.durations.buckets()).map(|(bucket, _)| *bucket);
    let (Some(first), Some(last)) = (buckets().min(), buckets().max()) else { return Vec::new() };
    let (first, last) = (first.min(ALWAYS_SHOWN.0), last.max(ALWAYS_SHOWN.1));
    // Buckets of a row: a quarter, half or whole doubling of the duration, or several.
    let width = [1, 2, 4, 8].into_iter().find(|width| usize::from((last - first) / width) + 2 <= MAX_ROWS);
    let width = width.unwrap_or(8);
    let (first, last) = (first - first % width, last);
    (first..=last)
        .step_by(width.into())
        .map(|from| {
            let to = from + width;
            let counts = columns.iter().map(|column| {
                let has = |bucket: &&(u8, u32)| (from..to).contains(&bucket.0);
                column
                    .durations
                    .buckets()
                    .iter()
                    .filter(has)
                    .fold(0_u32, |sum, (_, count)| sum.saturating_add(*count))
            });
            LatencyRow {
                from: if from == 0 { Duration::ZERO } else { Durations::lower_bound(from) },
                to: (to <= Durations::LAST_BUCKET).then(|| Durations::lower_bound(to)),
                counts: counts.collect(),
            }
        })
        .collect()
}

fn summaries(period: &Period, axis: &Axis) -> Vec<LatencySummary> {
    let axis = axis.coarser(axis.columns.div_ceil(MAX_SUMMARIES - 1));
    let columns = merged(period, &axis);
    let summary = |(column, results): (usize, &Minute)| {
        let quantile = |quantile| results.quantile(quantile);
        Some(LatencySummary {
            from: axis.start_of(column).max(period.from),
            to: axis.start_of(column + 1).min(period.to),
            attempts: results.durations.count(),
            failed: results.failed(),
            p50: quantile(0.5)?,
            p90: quantile(0.9)?,
            p99: quantile(0.99)?,
            max: quantile(1.0)?,
        })
    };
    columns.iter().enumerate().filter_map(summary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heat_map_shows_durations_from_a_millisecond_to_a_second_and_those_of_all_attempts() {
        let rows_of = |durations: &[Duration]| {
            let mut column = Minute::default();
            for duration in durations {
                column.durations.add(*duration);
            }
            rows(&[column])
        };
        let quick = rows_of(&[Duration::from_millis(12)]);
        assert!(quick[0].from <= Duration::from_millis(1), "{quick:?}");
        assert_eq!(quick.last().unwrap().to, Some(Duration::from_secs(1)));
        assert_eq!(quick.iter().flat_map(|row| &row.counts).sum::<u32>(), 1);
        let slow = rows_of(&[Duration::from_secs(30)]);
        assert!(
            slow.len() <= MAX_ROWS && slow.last().unwrap().to > Some(Duration::from_secs(30)),
            "{slow:?}"
        );
        assert_eq!(rows_of(&[]), []);
    }
}
