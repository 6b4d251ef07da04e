//! The last result of a probe, from the status or from the report.

use crate::admin::api::StatusProbe;
use crate::report::{ProbeReport, ResultKind};

/// The last result of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowResult {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
}

impl RowResult {
    pub(crate) fn ok() -> Self {
        Self { text: "ok".to_owned(), is_bad: false }
    }

    /// Returns the last result of a probe that probeshim runs.
    pub(crate) fn of_status(probe: &StatusProbe) -> Option<Self> {
        let bad = |text: String| Self { text, is_bad: true };
        // The kubelet keeps the result run when the container is replaced.
        if probe.is_restarted() && !probe.on_hold {
            return Some(Self { text: "not run".to_owned(), is_bad: false });
        }
        Some(match (probe.result.as_deref()?, probe.on_hold) {
            ("success", _) => Self::ok(),
            ("error", _) => bad(format!("error x{}", probe.errors)),
            (_, true) => bad("failed".to_owned()),
            (_, false) => bad(format!("fail {}/{}", probe.run, probe.threshold)),
        })
    }

    /// Returns the worst result of the last column with an attempt.
    pub(crate) fn of_report(probe: &ProbeReport) -> Option<Self> {
        probe.spans.last().map(|span| Self::of_kind(span.result))
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
        Self { text: text.to_owned(), is_bad }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_probe_without_an_attempt_since_a_restart_does_not_fail() {
        let probe = |more: serde_json::Value| {
            let mut probe = json!({
                "type": "liveness", "handler": "exec", "source": "manifest", "result": "failure", "run": 2, "threshold": 3,
                "verdict": "success", "onHold": false, "wouldHaveKilled": 0, "timeoutSeconds": 1,
                "since": "2026-11-24T13:00:00Z",
            });
            probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            RowResult::of_status(&serde_json::from_value(probe).unwrap()).unwrap()
        };
        assert_eq!(probe(json!({})), RowResult { text: "fail 2/3".to_owned(), is_bad: true });
        let not_run = RowResult { text: "not run".to_owned(), is_bad: false };
        assert_eq!(probe(json!({"run": 0, "since": null})), not_run);
        assert_eq!(probe(json!({"run": 0})), not_run);
        assert_eq!(probe(json!({"result": "success", "since": null})), not_run);
        assert!(probe(json!({"run": 0, "onHold": true})).is_bad, "it was killed, and is not restarted yet");
    }
}
