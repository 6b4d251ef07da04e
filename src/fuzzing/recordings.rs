//! Files of captures and of records, which may be copies from another host.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::text::assert_harmless;
use crate::cli::{finding_text, replay_text};
use crate::execsync::{CallRecord, explain};
use crate::history::json;
use crate::history::timeline::{Period, TimelineReader};
use crate::lint::lint;
use crate::replay::interpret_capture;
use crate::report::{self, ReportInput, Selection};
use crate::terminal::sanitize;

/// A time within the period of all records of the corpus, in seconds since 1970.
const BEGIN: u64 = 1_795_842_000;

/// Length of the periods, in seconds.
const LENGTHS: [u64; 2] = [3600, 60 * 86_400];

/// Reads an input as a capture, as lines of results, and as lines of calls. Derives everything that
/// `replay`, `lint`, `report` and `explain` show. Texts are harmless.
pub(super) fn run(input: &[u8]) {
    if let Some(report) = interpret_capture(input) {
        assert_harmless(&replay_text(&report));
        serde_json::to_string(&report).expect("a report is JSON");
    }
    let lines = || input.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    for length in LENGTHS {
        let from = UNIX_EPOCH + Duration::from_secs(BEGIN);
        let mut reader = TimelineReader::new(from, from + Duration::from_secs(length));
        lines().for_each(|line| reader.add_line(line));
        if reader.has_lines() {
            show(reader.finish());
        }
    }
    lines().filter_map(|line| serde_json::from_slice::<json::Call>(line).ok()).for_each(read_call);
}

/// Examines a call that was read. The JSON of its record is read as the same record.
fn read_call(call: json::Call) {
    let Ok(record) = CallRecord::try_from(call) else { return };
    for sentence in explain(&record) {
        assert_harmless(&sanitize(&sentence));
    }
    let json = json::Call::from(&record);
    let text = serde_json::to_string(&json).expect("a call is JSON");
    let again = serde_json::from_str::<json::Call>(&text).expect("the JSON of a call is a call");
    let again = CallRecord::try_from(again).expect("the JSON of a record is a record");
    assert_eq!(json::Call::from(&again), json, "{text}");
}

/// Derives findings and reports of a period.
fn show(period: Period) {
    let findings = lint(&period);
    assert_harmless(&finding_text(&findings));
    let redacted = report::redacted(period.clone());
    assert_eq!(redacted.probes.len(), period.probes.len());
    for period in [period, redacted] {
        let input = ReportInput {
            generated: SystemTime::UNIX_EPOCH,
            source: "records".to_owned(),
            selection: Selection::default(),
            findings: findings.clone(),
        };
        let report = report::report(&period, input);
        serde_json::to_string(&report).expect("a report is JSON");
        assert_harmless(&report::html(&report));
    }
}
