//! The axis of time, in columns.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::serialize::{milliseconds, rfc3339};
use crate::history::timeline::Period;

/// Maximum number of columns. Rows that begin in the middle of a column need one more.
const MAX_COLUMNS: u64 = 289;

/// Columns of equal width that cover a period. The first one may begin before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Axis {
    /// Beginning of the first column.
    #[serde(serialize_with = "rfc3339")]
    pub start: SystemTime,
    /// Width of a column.
    #[serde(rename = "columnMs", serialize_with = "milliseconds")]
    pub width: Duration,
    /// Number of columns.
    pub columns: usize,
}

impl Axis {
    /// Returns the axis of a period. A column has one or more of its rows.
    #[must_use]
    pub fn of_period(period: &Period) -> Self {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (from, to) = (seconds(period.from), seconds(period.to));
        let covering = |width: u64| {
            let start = from - from % width;
            (start, (to.max(from + 1) - start).div_ceil(width))
        };
        let row = 60 * period.resolution.max(1);
        let width = row * covering(row).1.div_ceil(MAX_COLUMNS);
        let (start, columns) = covering(width);
        Self {
            start: UNIX_EPOCH + Duration::from_secs(start),
            width: Duration::from_secs(width),
            columns: usize::try_from(columns).unwrap_or(usize::MAX),
        }
    }

    /// Returns the column of a time. Times outside are in the first or the last column.
    #[must_use]
    pub fn column(&self, time: SystemTime) -> usize {
        let after = time.duration_since(self.start).unwrap_or_default().as_secs();
        let column = usize::try_from(after / self.width.as_secs().max(1)).unwrap_or(usize::MAX);
        column.min(self.columns.saturating_sub(1))
    }

    /// Returns the columns of a time span, of which there is at least one.
    #[must_use]
    pub fn columns_of(&self, from: SystemTime, to: SystemTime) -> Range<usize> {
        let last = self.column(to.checked_sub(Duration::from_millis(1)).unwrap_or(to));
        let first = self.column(from);
        first..last.max(first) + 1
    }

    /// Returns the beginning of a column.
    #[must_use]
    pub fn start_of(&self, column: usize) -> SystemTime {
        self.start + self.width * u32::try_from(column).unwrap_or(u32::MAX)
    }

    /// Returns the axis with columns that are `factor` times as wide.
    #[must_use]
    pub fn coarser(&self, factor: usize) -> Self {
        Self {
            start: self.start,
            width: self.width * u32::try_from(factor).unwrap_or(u32::MAX),
            columns: self.columns.div_ceil(factor),
        }
    }

    /// Returns the share of a time on the axis, from 0 to 1.
    #[must_use]
    pub fn share(&self, time: SystemTime) -> f64 {
        let whole = self.start_of(self.columns).duration_since(self.start).unwrap_or_default();
        let after = time.duration_since(self.start).unwrap_or_default();
        (after.as_secs_f64() / whole.as_secs_f64().max(1.0)).clamp(0.0, 1.0)
    }
}
