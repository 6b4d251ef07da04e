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
