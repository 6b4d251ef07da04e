//! Columns of the table of probes, by which it can be sorted.

use std::cmp::Ordering;

use crate::overview::ProbeRow;

/// A column of the table, or the order from the worst probe to the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortColumn {
    #[default]
    Worst,
    Pod,
    Container,
    Type,
    Result,
    Attempts,
    Failed,
    Median,
    Percentile99,
    Margin,
    Kills,
    Restarts,
    Prober,
}

impl SortColumn {
    pub(super) const ALL: [Self; 13] = [
        Self::Worst,
        Self::Pod,
        Self::Container,
        Self::Type,
        Self::Result,
        Self::Attempts,
        Self::Failed,
        Self::Median,
        Self::Percentile99,
        Self::Margin,
        Self::Kills,
        Self::Restarts,
        Self::Prober,
    ];

    /// Returns the key that sorts by the column, and the name of the column.
    pub(super) fn key_and_name(self) -> (char, &'static str) {
        match self {
            Self::Worst => ('W', "worst first"),
            Self::Pod => ('N', "POD"),
            Self::Container => ('C', "CONTAINER"),
            Self::Type => ('T', "PROBE"),
            Self::Result => ('R', "RESULT"),
            Self::Attempts => ('A', "TRIES"),
            Self::Failed => ('F', "FAIL"),
            Self::Median => ('5', "P50"),
            Self::Percentile99 => ('9', "P99"),
            Self::Margin => ('M', "MARGIN"),
            Self::Kills => ('K', "KILL"),
            Self::Restarts => ('X', "RST"),
            Self::Prober => ('B', "PROBER"),
        }
    }

    /// Returns the column that a key sorts by.
    pub(super) fn for_key(key: char) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.key_and_name().0 == key)
    }

    /// Returns the column after this one; the first after the last.
    pub(super) fn next(self) -> Self {
        let place = Self::ALL.iter().position(|column| *column == self).unwrap_or_default();
        Self::ALL[(place + 1) % Self::ALL.len()]
    }

    /// Compares two rows. Numbers that matter most when they are large are in descending order, and
    /// unknown ones are last.
    pub(super) fn compare(self, one: &ProbeRow, other: &ProbeRow) -> Ordering {
        let worst = || (other.result.is_bad, one.rank).cmp(&(one.result.is_bad, other.rank));
        let by = match self {
            Self::Worst => Ordering::Equal,
            Self::Pod => (&one.key.namespace, &one.key.pod).cmp(&(&other.key.namespace, &other.key.pod)),
            Self::Container => one.key.container.cmp(&other.key.container),
            Self::Type => one.key.probe.cmp(&other.key.probe),
            Self::Result => {
                (other.result.is_bad, &one.result.text).cmp(&(one.result.is_bad, &other.result.text))
            }
            Self::Attempts => other.attempts.cmp(&one.attempts),
            Self::Failed => other.failed.cmp(&one.failed),
            Self::Median => other.p50.cmp(&one.p50),
            Self::Percentile99 => other.p99.cmp(&one.p99),
            Self::Margin => {
                let key = |row: &ProbeRow| row.margin_ms.unwrap_or(f64::INFINITY);
                key(one).total_cmp(&key(other))
            }
            Self::Kills => other.kills.cmp(&one.kills),
            Self::Restarts => other.restarts.cmp(&one.restarts),
            Self::Prober => one.key.prober.cmp(&other.key.prober),
        };
        by.then_with(worst)
    }
}
