//! Redacts lines that were written without redaction, when they are shown.

use std::collections::HashSet;

use crate::execsync::CallRecord;
use crate::history::json;
use crate::history::timeline::{Line, ProbeSeries, redacted_message};

/// Redacts lines, unless the run that wrote them has done so.
#[derive(Debug)]
pub struct LineRedactor {
    /// Runs whose lines are redacted.
    redacted_runs: HashSet<u32>,
}

impl LineRedactor {
    /// Creates a redactor in a run whose own lines are redacted.
    pub(super) fn new(run: u32) -> Self {
        Self { redacted_runs: HashSet::from([run]) }
    }

    /// Returns a line as it may be shown; `None` if it cannot be read. Lines are passed in the
    /// order in which they were written.
    pub fn redact(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        // Rows have no texts.
        if matches!(Line::peek(line)?.0, "rows" | "tick" | "end") {
            return Some(line.to_vec());
        }
        let shown = match serde_json::from_slice(line).ok()? {
            Line::Run(_, run, node) => {
                if node.settings.get("redact-commands").is_some_and(|value| value == "on") {
                    self.redacted_runs.insert(run);
                }
                return Some(line.to_vec());
            }
            line if self.redacted_runs.contains(&line.run()) => line,
            Line::Series(run, number, series) => {
                Line::Series(run, number, (&ProbeSeries::from(series).redacted()).into())
            }
            Line::Call(time, run, call) => {
                let record = CallRecord::try_from(*call).ok()?.redacted();
                Line::Call(time, run, Box::new(json::Call::from(&record)))
            }
            Line::Event(time, run, mut event) => {
                event.message = redacted_message(&event.message);
                Line::Event(time, run, event)
            }
            other => other,
        };
        serde_json::to_vec(&shown).ok()
    }
}
