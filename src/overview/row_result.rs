//! The last result of a probe, from the status or from the report.

use crate::admin::api::StatusProbe;
use crate::report::{ProbeReport, ResultKind};

/// The last result of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowResult {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
    /// The result with its numbers explained, if the text has numbers.
    pub(crate) long_text: Option<String>,
}

impl RowResult {
    pub(crate) fn ok() -> Self {
        Self { text: "ok".to_owned(), ..Self::default() }
    }

    /// Returns a result that is not a success.
    pub(crate) fn bad(text: String) -> Self {
        Self { text, is_bad: true, long_text: None }
    }

    /// Returns the result with its numbers explained.
    pub(crate) fn long_text(&self) -> &str {
        self.long_text.as_deref().unwrap_or(&self.text)
    }

    /// Returns the last result of a probe that probeshim runs.
    pub(crate) fn of_status(probe: &StatusProbe) -> Option<Self> {
        // The kubelet keeps the result run when the container is replaced.
        if probe.is_restarted() && !probe.on_hold {
            return Some(Self { text: "not run".to_owned(), ..Self::default() });
        }
        Some(match (probe.result.as_deref()?, probe.on_hold) {
            ("success", _) => Self::ok(),
            ("error", _) => Self {
                long_text: Some(format!("error {}", times_in_a_row(probe.errors))),
                ..Self::bad(format!("error x{}", probe.errors))
            },
            (_, true) => Self::bad("failed".to_owned()),
            (_, false) => Self {
                long_text: Some(format!(
                    "failed {}, threshold {}",
                    times_in_a_row(probe.run),
                    probe.threshold
                )),
                ..Self::bad(format!("fail {}/{}", probe.run, probe.threshold))
            },
        })
    }

    /// Returns the worst result of the last column with an attempt.
    pub(crate) fn of_report(probe: &ProbeReport) -> Option<Self> {
        probe.spans.last().map(|span| Self::of_kind(span.result))
    }

    /// Returns the result, or `late` if it is a success and the last column of the report has a
    /// success after the timeout: the status does not distinguish the two.
    pub(super) fn with_lateness(self, probe: &ProbeReport) -> Self {
        let is_late = probe.spans.last().is_some_and(|span| span.result == ResultKind::Late);
        if is_late && self == Self::ok() { Self::of_kind(ResultKind::Late) } else { self }
    }

    /// Returns a result in the words of the rows.
    pub(crate) fn of_kind(kind: ResultKind) -> Self {
        let text = match kind {
            ResultKind::Success => "ok",
            ResultKind::NotSent => "answered",
            ResultKind::Slow => "slow",
            ResultKind::Late => "late",
            other => other.text(),
        };
        let is_bad = matches!(kind, ResultKind::Error | ResultKind::Failure | ResultKind::Timeout);
        Self { text: text.to_owned(), is_bad, long_text: None }
    }
}

/// Returns a number of equal results as text, such as `3 times in a row`.
fn times_in_a_row(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times in a row") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(more: &serde_json::Value) -> RowResult {
        let mut probe = json!({
            "type": "liveness", "handler": "exec", "source": "manifest", "result": "failure", "run": 2, "threshold": 3,
            "verdict": "success", "onHold": false, "wouldHaveKilled": 0, "timeoutSeconds": 1,
            "since": "2026-11-24T13:00:00Z",
        });
        probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        RowResult::of_status(&serde_json::from_value(probe).unwrap()).unwrap()
    }

    #[test]
    fn a_long_text_has_the_number_of_equal_results_and_the_threshold() {
        for (more, text, long_text) in [
            (json!({"run": 15, "threshold": 1}), "fail 15/1", "failed 15 times in a row, threshold 1"),
            (json!({"run": 1}), "fail 1/3", "failed once, threshold 3"),
            (json!({"result": "error", "errors": 4}), "error x4", "error 4 times in a row"),
            (json!({"result": "success"}), "ok", "ok"),
            (json!({"onHold": true}), "failed", "failed"),
        ] {
            let result = result(&more);
            assert_eq!((result.text.as_str(), result.long_text()), (text, long_text));
        }
    }

    #[test]
    fn a_probe_without_an_attempt_since_a_restart_does_not_fail() {
        let not_run = RowResult { text: "not run".to_owned(), ..RowResult::default() };
        assert!(result(&json!({})).is_bad);
        for restarted in
            [json!({"run": 0, "since": null}), json!({"run": 0}), json!({"result": "success", "since": null})]
        {
            assert_eq!(result(&restarted), not_run, "{restarted}");
        }
        assert!(result(&json!({"run": 0, "onHold": true})).is_bad, "it was killed, and is not restarted yet");
    }
}
