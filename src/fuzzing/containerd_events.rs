//! Events of containerd about the processes in containers, between the calls that they belong to.

use std::time::Duration;

use super::steps::Steps;
use super::text::assert_harmless;
use crate::containerd::decode_event;
use crate::execsync::{CallRecord, TrackerStep, explain, interpret_steps};
use crate::history::json;
use crate::history::timeline::ProbeSeries;
use crate::terminal::sanitize;

/// Maximum number of steps of an input.
const MAX_STEPS: usize = 256;

/// Reads an input as steps: event messages, and calls that are sent and end meanwhile. Each call is
/// recorded once. Its JSON is read as the same record, and its explanation is harmless.
pub(super) fn run(input: &[u8]) {
    let steps = Steps::new(input).take(MAX_STEPS).filter_map(|(kind, content)| step(kind, content));
    for record in interpret_steps(steps) {
        for sentence in explain(&record) {
            assert_harmless(&sanitize(&sentence));
        }
        drop(ProbeSeries::of_call(&record));
        let json = json::Call::from(&record);
        let again = CallRecord::try_from(json.clone()).expect("the JSON of a record is a record");
        assert_eq!(json::Call::from(&again), json);
    }
}

/// Returns the step that a kind and its content stand for.
fn step(kind: u8, content: &[u8]) -> Option<TrackerStep> {
    let number = content.first().copied().unwrap_or_default();
    Some(match kind {
        b'r' => TrackerStep::Request(number),
        b'e' => TrackerStep::End(Some(number.into())),
        b't' => TrackerStep::End(None),
        b'w' => TrackerStep::Wait(Duration::from_millis(u64::from(number) * 50)),
        b'i' => TrackerStep::Coverage(number == 0),
        b'x' => TrackerStep::ContainerExit,
        _ => TrackerStep::Event(decode_event(content)?),
    })
}
