//! A finding: what is wrong, how it is known, and what to do about it.

use std::cmp::Reverse;

use clap::ValueEnum;
use serde::Serialize;

use super::names::{FAILED_POST_START, KILLS, KUBELET_STOPS, RESTARTS, START_ERRORS};
use crate::history::json::Event;
use crate::history::timeline::LearnedExec;
use crate::terminal::format;

/// Severity of a finding, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing fails. The finding has a price, or makes other findings less certain.
    Info,
    /// Attempts are slow, fail now and then, or would fail with a little more load.
    Warning,
    /// Attempts fail, or have no result.
    Error,
}

/// Object that a finding is about: a probe, a container, a pod, or the node if all names are
/// `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LintSubject {
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Name of the pod.
    pub pod: Option<String>,
    /// Name of the container.
    pub container: Option<String>,
    /// Type of the probe.
    pub probe: Option<String>,
    /// Program that makes the attempts.
    pub prober: Option<String>,
    /// Command and timeout, if they belong to no known probe. They identify it.
    pub learned: Option<LearnedExec>,
}

/// A problem of a probe, a container or the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    /// Name of the lint, one of [`LINTS`](super::LINTS).
    pub lint: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Object that the finding is about.
    #[serde(flatten)]
    pub subject: LintSubject,
    /// Describes the problem in a sentence.
    pub sentence: String,
    /// Numbers on which the sentence is based, one sentence each.
    pub evidence: Vec<String>,
    /// Names a remedy in a sentence.
    pub remedy: String,
    /// Number of attempts, or of events, with the problem.
    pub affected: u32,
    /// Ids of some of the calls with the problem, the last of them.
    pub calls: Vec<u64>,
}

impl Severity {
    /// Returns the name of the severity.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl LintSubject {
    /// The node.
    pub const NODE: Self =
        Self { namespace: None, pod: None, container: None, probe: None, prober: None, learned: None };

    /// Returns the container or the pod of an event.
    #[must_use]
    pub fn for_event(event: &Event) -> Self {
        let Event { namespace, pod, container, .. } = event.clone();
        Self { namespace, pod, container, ..Self::NODE }
    }

    /// Returns the container of the subject.
    #[must_use]
    pub fn into_container(self) -> Self {
        Self { probe: None, prober: None, learned: None, ..self }
    }

    /// Returns the type of the probe; of a command that belongs to no known probe its program, with
    /// its arguments as far as there is room.
    #[must_use]
    pub fn probe_label(&self) -> Option<String> {
        self.learned.as_ref().map(LearnedExec::label).or_else(|| self.probe.clone())
    }

    /// Returns the subject as text: `shop/web-0 main liveness (kubelet)`, or `node`.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { namespace, pod, container, prober, .. } = self;
        let probe = self.probe_label();
        let pod: Vec<&str> = namespace.iter().chain(pod).map(String::as_str).collect();
        let pod = (!pod.is_empty()).then(|| pod.join("/"));
        let prober = prober.as_ref().map(|prober| format!("({prober})"));
        let parts = [pod.as_ref(), container.as_ref(), probe.as_ref(), prober.as_ref()];
        let text: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        if text.is_empty() { "node".to_owned() } else { text.join(" ") }
    }
}

/// Returns a remedy as a sentence: with a capital letter, and a full stop.
pub(super) fn as_sentence(remedy: &str) -> String {
    format!("{}.", format::capitalized(remedy))
}

impl LintFinding {
    /// Returns the rank of what happens to the container, the worst first.
    fn harm(&self) -> u8 {
        match (self.severity, self.lint) {
            (Severity::Error, KILLS) => 0,
            (_, RESTARTS) | (Severity::Error, KUBELET_STOPS | START_ERRORS | FAILED_POST_START) => 1,
            _ => 2,
        }
    }

    /// Sorts findings, the worst first: kills, other restarts, then by severity and by the number
    /// of affected attempts.
    pub(super) fn sort(findings: &mut [Self]) {
        findings.sort_by(|one, other| {
            let key = |finding: &Self| {
                (finding.harm(), Reverse(finding.severity), Reverse(finding.affected), finding.lint)
            };
            key(one).cmp(&key(other)).then_with(|| one.subject.cmp(&other.subject))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_named_from_the_pod_to_the_prober() {
        let text = |text: &str| Some(text.to_owned());
        let probe = LintSubject {
            namespace: text("shop"),
            pod: text("web-0"),
            container: text("main"),
            probe: text("liveness"),
            prober: text("kubelet"),
            learned: None,
        };
        assert_eq!(probe.text(), "shop/web-0 main liveness (kubelet)");
        let command = "sh -c 'test -e /tmp/ready'".to_owned();
        let learned = Some(LearnedExec { command, timeout_ms: Some(1000) });
        let of_command = LintSubject { probe: text("unknown"), learned, ..probe.clone() };
        assert_eq!(of_command.text(), "shop/web-0 main sh -c 'test -e /tmp/ready' (kubelet)");
        assert_eq!(probe.into_container().text(), "shop/web-0 main");
        assert_eq!(LintSubject::NODE.text(), "node");
    }

    #[test]
    fn findings_are_sorted_by_severity_and_then_by_the_number_of_attempts() {
        let finding = |lint, severity, affected| LintFinding {
            lint,
            severity,
            subject: LintSubject::NODE,
            sentence: String::new(),
            evidence: Vec::new(),
            remedy: String::new(),
            affected,
            calls: Vec::new(),
        };
        let mut findings = [
            finding("b", Severity::Info, 9),
            finding("b", Severity::Error, 1),
            finding("a", Severity::Error, 1),
            finding("c", Severity::Error, 2),
            finding("d", Severity::Warning, 3),
        ];
        LintFinding::sort(&mut findings);
        let order = findings.map(|finding| (finding.lint, finding.affected));
        assert_eq!(order, [("c", 2), ("a", 1), ("b", 1), ("d", 3), ("b", 9)]);
        let mut harmful = [
            finding("a", Severity::Error, 9),
            finding(RESTARTS, Severity::Warning, 1),
            finding(KILLS, Severity::Warning, 1),
            finding(KILLS, Severity::Error, 1),
        ];
        LintFinding::sort(&mut harmful);
        let order = harmful.map(|finding| (finding.lint, finding.severity));
        let [error, warning] = [Severity::Error, Severity::Warning];
        assert_eq!(order, [(KILLS, error), (RESTARTS, warning), ("a", error), (KILLS, warning)]);
    }
}
