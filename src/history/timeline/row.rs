//! A row as a short JSON array, without the values at its end that are zero or empty.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::durations::Durations;
use super::minute::{CallSample, Minute, PhaseSums};

/// Unit of durations in a row.
const UNIT: Duration = Duration::from_micros(100);

/// A row of a series, without its minute.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    /// Number of the series.
    pub series: u32,
    /// The results; the minute is zero.
    pub minute: Minute,
}

/// Durations of the phases, with the number of calls first.
type PhaseUnits = (u32, u64, u64, u64, u64, u64, u64);

impl Serialize for ResultRow {
    /// Writes the values in the order of [`ResultRow::deserialize`]. The last ones are mostly zero.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Minute {
            minute: _,
            successes,
            failures,
            timeouts,
            errors,
            discarded,
            unknown,
            not_sent,
            slow,
            late,
            failures_after_success,
            large_outputs,
            durations,
            phases: PhaseSums { calls, sums },
            causes,
            stalls,
            slowest,
            failed_calls,
        } = &self.minute;
        let [queue, prepare, start, run, drain, other] = sums.map(units);
        let phases: PhaseUnits = (*calls, queue, prepare, start, run, drain, other);
        let has_phases = *calls > 0 || sums.iter().any(|sum| !sum.is_zero());
        let slowest = slowest.map(|CallSample { id, duration }| (id, units(duration)));
        let values = [
            true,
            *successes > 0,
            !durations.buckets().is_empty(),
            has_phases,
            slowest.is_some(),
            *slow > 0,
            *failures > 0,
            *timeouts > 0,
            !failed_calls.is_empty(),
            !causes.is_empty(),
            *stalls != [0; 3],
            *errors > 0,
            *unknown > 0,
            *not_sent > 0,
            *discarded > 0,
            *late > 0,
            *failures_after_success > 0,
            *large_outputs > 0,
        ];
        let length = values.iter().rposition(|has_value| *has_value).map_or(0, |last| last + 1);
        let mut row = serializer.serialize_seq(Some(length))?;
        for index in 0..length {
            match index {
                0 => row.serialize_element(&self.series),
                1 => row.serialize_element(successes),
                2 => row.serialize_element(&durations.to_counts()),
                3 => row.serialize_element(&has_phases.then_some(phases)),
                4 => row.serialize_element(&slowest),
                5 => row.serialize_element(slow),
                6 => row.serialize_element(failures),
                7 => row.serialize_element(timeouts),
                8 => row.serialize_element(failed_calls),
                9 => row.serialize_element(causes),
                10 => row.serialize_element(stalls),
                11 => row.serialize_element(errors),
                12 => row.serialize_element(unknown),
                13 => row.serialize_element(not_sent),
                14 => row.serialize_element(discarded),
                15 => row.serialize_element(late),
                16 => row.serialize_element(failures_after_success),
                _ => row.serialize_element(large_outputs),
            }?;
        }
        row.end()
    }
}

impl<'de> Deserialize<'de> for ResultRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = ResultRow;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the array of a row")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<ResultRow, A::Error> {
        let series = row.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let mut minute = Minute { successes: row.next_element()?.unwrap_or_default(), ..Minute::default() };
        minute.durations = Durations::from_counts(&row.next_element::<Vec<u32>>()?.unwrap_or_default());
        if let Some((calls, queue, prepare, start, run, drain, other)) =
            row.next_element::<Option<PhaseUnits>>()?.flatten()
        {
            minute.phases =
                PhaseSums { calls, sums: [queue, prepare, start, run, drain, other].map(duration) };
        }
        let slowest: Option<(u64, u64)> = row.next_element::<Option<_>>()?.flatten();
        minute.slowest = slowest.map(|(id, units)| CallSample { id, duration: duration(units) });
        minute.slow = row.next_element()?.unwrap_or_default();
        minute.failures = row.next_element()?.unwrap_or_default();
        minute.timeouts = row.next_element()?.unwrap_or_default();
        minute.failed_calls = row.next_element()?.unwrap_or_default();
        minute.causes = row.next_element::<BTreeMap<_, _>>()?.unwrap_or_default();
        minute.stalls = row.next_element()?.unwrap_or_default();
        minute.errors = row.next_element()?.unwrap_or_default();
        minute.unknown = row.next_element()?.unwrap_or_default();
        minute.not_sent = row.next_element()?.unwrap_or_default();
        minute.discarded = row.next_element()?.unwrap_or_default();
        minute.late = row.next_element()?.unwrap_or_default();
        minute.failures_after_success = row.next_element()?.unwrap_or_default();
        minute.large_outputs = row.next_element()?.unwrap_or_default();
        // A later probeshim may write more values.
        while row.next_element::<de::IgnoredAny>()?.is_some() {}
        Ok(ResultRow { series, minute })
    }
}

/// Returns a duration in units, rounded to the nearest.
fn units(duration: Duration) -> u64 {
    u64::try_from(duration.saturating_add(UNIT / 2).as_nanos() / UNIT.as_nanos()).unwrap_or(u64::MAX)
}

fn duration(units: u64) -> Duration {
    Duration::from_micros(units.saturating_mul(100))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns any row of minute 0, with durations in whole units.
    pub(in crate::history::timeline) fn any_minute() -> impl Strategy<Value = Minute> {
        let counts = prop::array::uniform11(0..4_u32);
        let units = || (0..100_000_u64).prop_map(duration);
        let phases = (0..9_u32, prop::array::uniform6(units()));
        let causes = prop::collection::btree_map("[a-z-]{1,9}", 1..9_u32, 0..3);
        let slowest = prop::option::of((any::<u64>(), units()));
        let failed = prop::collection::vec(any::<u64>(), 0..4);
        let durations = prop::collection::vec(units(), 0..9);
        (counts, phases, causes, prop::array::uniform3(0..3_u32), slowest, failed, durations).prop_map(
            |(counts, (calls, sums), causes, stalls, slowest, failed_calls, added)| {
                let [
                    successes,
                    failures,
                    timeouts,
                    errors,
                    discarded,
                    unknown,
                    not_sent,
                    slow,
                    late,
                    failures_after_success,
                    large_outputs,
                ] = counts;
                let mut durations = Durations::default();
                for duration in added {
                    durations.add(duration);
                }
                let slowest = slowest.map(|(id, duration)| CallSample { id, duration });
                let phases = PhaseSums { calls, sums };
                Minute {
                    minute: 0,
                    successes,
                    failures,
                    timeouts,
                    errors,
                    discarded,
                    unknown,
                    not_sent,
                    slow,
                    late,
                    failures_after_success,
                    large_outputs,
                    durations,
                    phases,
                    causes,
                    stalls,
                    slowest,
                    failed_calls,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn every_value_of_a_row_survives_a_round_trip(minute in any_minute(), series in any::<u32>()) {
            let row = ResultRow { series, minute };
            let json = serde_json::to_string(&row).unwrap();
            prop_assert_eq!(serde_json::from_str::<ResultRow>(&json).unwrap(), row, "{}", json);
        }
    }

    #[test]
    fn a_row_of_successes_is_short() {
        let mut minute = Minute { successes: 6, ..Minute::default() };
        minute.durations.add(Duration::from_millis(90));
        assert_eq!(serde_json::to_string(&ResultRow { series: 7, minute }).unwrap(), "[7,6,[26,1]]");
        let longer: ResultRow =
            serde_json::from_str("[7,6,[],null,null,0,0,0,[],{},[0,0,0],0,0,0,2,1,1,1,\"new\"]").unwrap();
        assert_eq!((longer.series, longer.minute.successes, longer.minute.discarded), (7, 6, 2));
    }
}
