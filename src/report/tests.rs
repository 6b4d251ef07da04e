//! Tests of reports about damaged and hostile records.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

use super::*;
use crate::history::timeline::TimelineReader;
use crate::lint::lint;

/// Minute since 1970 of the rows.
const MINUTE: u64 = 29_000_000;

/// Time of calls and events, in milliseconds since 1970.
const TIME_MS: u64 = MINUTE * 60_000 + 1000;

/// Names of causes in rows.
const CAUSES: [&str; 12] = [
    "start",
    "run",
    "unknown-phase",
    "drain",
    "throttled",
    "out-of-memory",
    "pids-limit",
    "probe-storm",
    "no-answer",
    "exec-limit",
    "own-timeout",
    "missing-program",
];

/// Returns the JSON of a report about the period that these lines make, and its page.
fn report_of(lines: impl IntoIterator<Item = Vec<u8>>) -> (Value, String) {
    let from = UNIX_EPOCH + Duration::from_secs(60 * (MINUTE - 30));
    let to = from + Duration::from_secs(3600);
    let mut reader = TimelineReader::new(from, to);
    lines.into_iter().for_each(|line| reader.add_line(&line));
    let period = reader.finish();
    let input = ReportInput {
        generated: SystemTime::now(),
        source: "a test".to_owned(),
        selection: Selection::default(),
        findings: lint(&period),
    };
    let report = report(&period, input);
    (serde_json::to_value(&report).unwrap(), html(&report))
}

fn row(series: u32, count: u32, time: u64) -> Value {
    let causes: Map<String, Value> = CAUSES.iter().map(|cause| ((*cause).to_owned(), json!(count))).collect();
    let durations: Vec<u32> = [36].into_iter().chain((0..40).map(|_| count)).collect();
    let phases = json!([count, time, time, time, time, time, time]);
    json!([
        series,
        count,
        durations,
        phases,
        [7, time],
        count,
        count,
        count,
        [7, 8, 9],
        causes,
        [count, count, count],
        count,
        count,
        count,
        count
    ])
}

/// Returns lines of every kind.
fn lines(count: u32, time: u64) -> Vec<Value> {
    let series = |number: u32, probe: &str, container: &str| {
        json!({"series": [1, number, {
            "namespace": "shop", "pod": "web", "container": container, "probe": probe, "prober": "kubelet",
            "command": ["sh", "-c", "check"], "timeoutMs": 1000, "periodMs": 10_000, "failureThreshold": 3,
        }]})
    };
    let node = json!({
        "started": "2025-02-19T21:20:00Z", "host": "node", "version": "1", "processors": 4,
        "memoryBytes": 1 << 30, "kernel": "Linux", "runtime": null, "settings": {"enforce": "off"},
    });
    let event = |reason: &str, message: &str| {
        json!({"event": [TIME_MS, 1, {
            "time": "2025-02-19T21:20:01Z", "type": "Warning", "reason": reason, "namespace": "shop", "pod": "web",
            "container": "main", "message": message, "count": u64::from(count) << 32 | u64::from(count),
            "firstTime": "2025-02-19T21:20:00Z",
        }]})
    };
    let mut lines = vec![
        json!({"run": [TIME_MS - 9000, 1, node]}),
        series(0, "liveness", "main"),
        series(1, "unknown", "main"),
        series(2, "readiness", "other"),
    ];
    let rows = |number: u64| [0, 1, 2].map(|series| row(series, count, time.saturating_sub(number))).to_vec();
    lines.extend((0..3).map(|number| json!({"rows": [MINUTE + number / 2, 1, number, rows(number)]})));
    let calls = include_str!("../history/json/samples.jsonl").lines();
    lines.extend(calls.map(|call| {
        let call: Value = serde_json::from_str(call).unwrap();
        json!({"call": [TIME_MS, 1, call]})
    }));
    for reason in ["Killing", "ContainerExited", "ContainerStarted", "ContainerOutOfMemory"] {
        lines.push(event(reason, "Container main failed liveness probe, will be restarted"));
        lines.push(event(reason, "Container main failed startup probe"));
    }
    for reason in ["RuntimeUnavailable", "ExecProcessLeaked", "ExecSyncUnanswered", "ExecSyncOverdue"] {
        lines.push(event(reason, "Call 7 has not been answered: sh -c check"));
        lines.push(event(reason, "Call 8 has not been answered: sh -c check"));
    }
    let dropped = u64::from(count);
    lines.push(json!({"tick": [TIME_MS, 1, [
        {"dropped": [TIME_MS - 100, TIME_MS, dropped]}, {"step": [TIME_MS, TIME_MS + 60_000, 60_000]},
    ]]}));
    lines.push(json!({"end": [TIME_MS + 60_000, 1]}));
    lines
}

/// Returns a strategy for values in place of those of a line.
fn replacement() -> impl Strategy<Value = Value> {
    select(vec![
        json!(0),
        json!(1),
        json!(-1),
        json!(u8::MAX),
        json!(u32::MAX),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(u64::MAX / 1_000_000),
        json!(1e15),
        json!(1.8e22),
        json!(1e300),
        json!(-0.5),
        json!(""),
        json!("-009999-01-02T01:59:59Z"),
        json!("9999-12-30T22:00:00.999Z"),
        json!("</p>\u{202e}\u{0}: "),
        json!("x".repeat(3000)),
        json!("failed"),
        json!("ambiguous"),
        json!([]),
        json!([u32::MAX, u32::MAX, u32::MAX]),
        json!(null),
        json!(true),
    ])
}

/// Replaces one of the values within a value.
fn replace(value: &mut Value, at: Index, replacement: Value) {
    fn leaves<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
        let is_leaf = match &*value {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => true,
        };
        if is_leaf {
            found.push(value);
            return;
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| leaves(item, found)),
            Value::Object(fields) => fields.values_mut().for_each(|field| leaves(field, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    leaves(value, &mut found);
    let at = at.index(found.len());
    *found.swap_remove(at) = replacement;
}

proptest! {
    #[test]
    fn damaged_and_hostile_records_are_linted_and_reported(
        count in select(vec![0, 3, 1 << 31, u32::MAX]),
        time in select(vec![0, 20_000, u64::MAX / 3, u64::MAX]),
        changes in prop::collection::vec((any::<Index>(), any::<Index>(), replacement()), 0..24),
        torn in prop::collection::vec((any::<Index>(), any::<Index>()), 0..3),
        other in prop::collection::vec(any::<String>(), 0..3),
    ) {
        let mut lines = lines(count, time);
        for (line, at, replacement) in changes {
            let line = line.index(lines.len());
            replace(&mut lines[line], at, replacement);
        }
        let mut lines: Vec<Vec<u8>> = lines.iter().map(|line| line.to_string().into_bytes()).collect();
        for (line, at) in torn {
            let line = line.index(lines.len());
            let length = at.index(lines[line].len());
            lines[line].truncate(length);
        }
        lines.extend(other.into_iter().map(String::into_bytes));
        report_of(lines);
    }
}

#[test]
fn counts_and_times_of_hostile_records_saturate() {
    let lines = lines(u32::MAX, u64::MAX);
    let (json, page) = report_of(lines.iter().map(|line| line.to_string().into_bytes()));
    let [first, .., last] = &json["probes"].as_array().unwrap()[..] else { panic!("{json:#}") };
    assert_eq!((&first["attempts"], &last["type"]), (&json!(u32::MAX), &json!("unknown")));
    assert_eq!(json["totals"]["failures"], json!(u32::MAX));
    assert_eq!(json["totals"]["kills"], json!(u64::MAX));
    assert!(json["findings"].as_array().unwrap().iter().any(|finding| finding["affected"] == u32::MAX));
    assert!(page.ends_with("</html>\n"));
}
