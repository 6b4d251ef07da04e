//! Findings about a node: what was checked, and with which result.

use serde::Serialize;

/// Remedy of an incomplete or outdated installation.
pub(super) const REINSTALL: &str = "run: probeshim install";

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Subject of the check.
    pub check: &'static str,
    /// State of the subject.
    pub state: FindingState,
    /// Facts that led to the state.
    pub detail: String,
    /// Action that helps; `None` if none is needed.
    pub remedy: Option<String>,
}

/// State of the subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// Nothing is wrong.
    Ok,
    /// The installation works, with a restriction.
    Warning,
    /// The installation does not work.
    Failed,
}

impl Finding {
    /// Returns whether any check failed.
    #[must_use]
    pub fn any_failed(findings: &[Self]) -> bool {
        findings.iter().any(|finding| finding.state == FindingState::Failed)
    }

    pub(super) fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: FindingState::Ok, detail: detail.into(), remedy: None }
    }

    pub(super) fn warning(check: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (detail, remedy) = (detail.into(), Some(remedy.into()));
        Self { check, state: FindingState::Warning, detail, remedy }
    }

    pub(super) fn failed(check: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (detail, remedy) = (detail.into(), Some(remedy.into()));
        Self { check, state: FindingState::Failed, detail, remedy }
    }
}
