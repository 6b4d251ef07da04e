//! Lines of the segments of results, as JSON.
//!
//! A line is an object with one field, the kind of the line. Its value is an array. Except for a
//! series, the array begins with a time, so that a reader can skip a line without parsing it. Lines
//! of several processes may be mixed, so each has the number of its run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::minute::Minute;
use super::node_facts::NodeFacts;
use super::row::ResultRow;
use super::series::{ProbeSeries, Prober};
use crate::history::json;
use crate::terminal::format;

/// A line of a segment of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// Start of a process, in milliseconds since 1970, its run, and the node. A later line of the
    /// same run replaces an earlier one.
    Run(u64, u32, NodeFacts),
    /// Run and number of a series in this segment, and the series. It is before the rows of the
    /// series.
    Series(u32, u32, SeriesLine),
    /// Number of a minute since 1970, run, number of this line, and rows. A line that a failure of
    /// the disk repeats has the same number.
    Rows(u64, u32, u64, Vec<ResultRow>),
    /// End of a call, in milliseconds since 1970, the run, and the call.
    Call(u64, u32, Box<json::Call>),
    /// Time of an event, in milliseconds since 1970, the run, and the event.
    Event(u64, u32, Box<json::Event>),
    /// Time in milliseconds since 1970 until which the lines of a run are complete, the run, and
    /// irregularities since the tick before.
    Tick(u64, u32, #[serde(default)] Vec<Irregularity>),
    /// Regular end of a run, in milliseconds since 1970, and the run.
    End(u64, u32),
}

/// An irregularity of the observation. Times are in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Irregularity {
    /// From one time to another, this number of observations was dropped.
    Dropped(u64, u64, u64),
    /// The clock was set from one time to another, by these milliseconds.
    Step(u64, u64, i64),
}

/// A series. Durations are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeriesLine {
    namespace: String,
    pod: String,
    container: String,
    probe: String,
    prober: String,
    /// The handler; empty if it is the command.
    #[serde(skip_serializing_if = "String::is_empty")]
    handler: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    period_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_threshold: Option<u32>,
}

impl Line {
    /// Returns the number of the run that wrote the line.
    pub(in crate::history) fn run(&self) -> u32 {
        match self {
            Self::Run(_, run, _)
            | Self::Series(run, ..)
            | Self::Rows(_, run, ..)
            | Self::Call(_, run, _)
            | Self::Event(_, run, _)
            | Self::Tick(_, run, _)
            | Self::End(_, run) => *run,
        }
    }

    /// Returns whether a line is needed for a period. Lines about runs are needed also if they are
    /// outside of it, for its gaps. Bytes that are no line are not needed.
    #[must_use]
    pub fn is_needed(line: &[u8], from: SystemTime, to: SystemTime) -> bool {
        match Self::peek(line) {
            Some(("rows", minute)) => (Minute::number(from)..=Minute::number(to)).contains(&minute),
            Some(("call" | "event", time)) => (unix_ms(from)..=unix_ms(to)).contains(&time),
            Some(_) => true,
            None => false,
        }
    }

    /// Returns the kind of a line and the number with which its array begins, without parsing the
    /// rest; `None` if the bytes are no line.
    #[must_use]
    pub fn peek(line: &[u8]) -> Option<(&str, u64)> {
        let line = line.strip_prefix(b"{\"")?;
        let kind = line.iter().position(|byte| *byte == b'"')?;
        let number = line[kind..].strip_prefix(b"\":[")?;
        let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&number[..digits]).ok()?;
        Some((std::str::from_utf8(&line[..kind]).ok()?, number.parse().ok()?))
    }
}

impl From<&ProbeSeries> for SeriesLine {
    fn from(series: &ProbeSeries) -> Self {
        let ProbeSeries {
            namespace,
            pod,
            container,
            probe,
            prober,
            handler,
            command,
            timeout,
            period,
            failure_threshold,
        } = series.clone();
        let is_command = !command.is_empty() && format::command(&command) == handler;
        Self {
            namespace,
            pod,
            container,
            probe,
            prober: prober.name().to_owned(),
            handler: if is_command { String::new() } else { handler },
            command,
            timeout_ms: timeout.map(milliseconds),
            period_ms: period.map(milliseconds),
            failure_threshold,
        }
    }
}

impl From<SeriesLine> for ProbeSeries {
    fn from(line: SeriesLine) -> Self {
        let SeriesLine {
            namespace,
            pod,
            container,
            probe,
            prober,
            handler,
            command,
            timeout_ms,
            period_ms,
            failure_threshold,
        } = line;
        let handler = if handler.is_empty() { format::command(&command) } else { handler };
        Self {
            namespace,
            pod,
            container,
            probe,
            prober: Prober::named(&prober),
            handler,
            command,
            timeout: timeout_ms.map(Duration::from_millis),
            period: period_ms.map(Duration::from_millis),
            failure_threshold,
        }
    }
}

/// Returns a time in milliseconds since 1970.
pub(in crate::history) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, milliseconds)
}

/// Returns the time at these milliseconds since 1970. A time beyond the range of the system is
/// 1970.
pub(super) fn time_at(unix_ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).unwrap_or(UNIX_EPOCH)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns any series, with texts that JSON escapes.
    pub(in crate::history::timeline) fn any_series() -> impl Strategy<Value = ProbeSeries> {
        let text = || "[a-z\"\\\\\u{202e}\n]{0,6}";
        let names = (text(), text(), text(), text(), text(), text());
        let durations = (prop::option::of(0..1u64 << 40), prop::option::of(0..1u64 << 40));
        let command = prop::collection::vec(text(), 0..3);
        (names, command, any::<bool>(), durations, prop::option::of(any::<u32>())).prop_map(
            |(names, command, is_command, (timeout, period), failure_threshold)| {
                let (namespace, pod, container, probe, prober, handler) = names;
                let has_handler = !is_command && !handler.is_empty();
                ProbeSeries {
                    namespace,
                    pod,
                    container,
                    probe,
                    prober: Prober::named(&prober),
                    handler: if has_handler { handler } else { format::command(&command) },
                    command,
                    timeout: timeout.map(Duration::from_millis),
                    period: period.map(Duration::from_millis),
                    failure_threshold,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn every_value_of_a_series_survives_a_round_trip(series in any_series()) {
            let line = Line::Series(1, 2, (&series).into());
            let json = serde_json::to_string(&line).unwrap();
            let Line::Series(1, 2, read) = serde_json::from_str(&json).unwrap() else { panic!("{json}") };
            prop_assert_eq!(ProbeSeries::from(read), series, "{}", json);
        }
    }

    #[test]
    fn the_kind_and_the_time_of_a_line_are_read_without_the_rest() {
        for (line, expected) in [
            ("{\"rows\":[29,1,2,[", Some(("rows", 29))),
            ("{\"end\":[1700000000000,7]}", Some(("end", 1_700_000_000_000))),
            ("{\"rows\":29", None),
            ("{\"rows", None),
            ("{\"rows\":[]}", None),
            ("", None),
            ("{\"rows\":[99999999999999999999999]}", None),
        ] {
            assert_eq!(Line::peek(line.as_bytes()), expected, "{line}");
        }
    }
}
