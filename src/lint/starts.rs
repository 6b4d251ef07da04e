//! Lints about containers that do not get as far as to run.

use super::facts::{PeriodFacts, count};
use super::finding::{LintFinding, Severity};
use super::lifetimes::{Lifetimes, how_often};
use super::names::{FAILED_POST_START, START_ERRORS};

/// Text before the error of the program in messages of runc and crun.
const BEFORE_ERROR: [&str; 3] =
    ["unable to start container process: ", "error during container init: ", "container create failed: "];

/// Returns the findings about starts.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    facts
        .lifetimes
        .iter()
        .flat_map(|container| [start_errors(container), failed_hook(container)])
        .flatten()
        .collect()
}

/// The runtime could not start the container.
fn start_errors(container: &Lifetimes) -> Option<LintFinding> {
    let failed = &container.failed_starts;
    if failed.is_empty() {
        return None;
    }
    let error = container.start_error.as_deref().map(shortened);
    let times = how_often(failed.iter().copied());
    let because = error.map_or_else(String::new, |error| format!(": {error}"));
    Some(LintFinding {
        lint: START_ERRORS,
        severity: if failed.len() > 1 { Severity::Error } else { Severity::Warning },
        subject: container.subject.clone(),
        sentence: format!("The runtime could not start the container {times}{because}."),
        evidence: vec!["A container that was not started has no log, and no probe.".to_owned()],
        remedy: remedy(error).to_owned(),
        affected: count(failed),
        calls: Vec::new(),
    })
}

/// The postStart hook failed, for which a kubelet stops the container.
fn failed_hook(container: &Lifetimes) -> Option<LintFinding> {
    let failed = &container.failed_hooks;
    if failed.is_empty() {
        return None;
    }
    let times = how_often(failed.iter().copied());
    Some(LintFinding {
        lint: FAILED_POST_START,
        severity: Severity::Error,
        subject: container.subject.clone(),
        sentence: format!(
            "The postStart hook of the container failed {times}: a kubelet stops the container then, and restarts it as \
             restartPolicy says."
        ),
        evidence: container.hook_error.iter().map(|message| format!("{message}.")).collect(),
        remedy: "Run the command of the hook in the container to see its output; `probeshim explain` describes its \
                 ExecSync."
            .to_owned(),
        affected: count(failed),
        calls: Vec::new(),
    })
}

/// Returns the part of the runtime's message that names the reason.
fn shortened(message: &str) -> &str {
    let cut = |text: &'static str| message.rfind(text).map(|at| at + text.len());
    let begin = BEFORE_ERROR.into_iter().filter_map(cut).max().unwrap_or_default();
    message[begin..].trim_end().trim_end_matches(": unknown").trim_end_matches('.')
}

/// Returns the remedy against an error.
fn remedy(error: Option<&str>) -> &'static str {
    let error = error.unwrap_or_default();
    let is_program = error.contains("exec: \"") || error.contains("executable file");
    match () {
        () if error.is_empty() => "See the reason in `kubectl describe pod`.",
        () if is_program && error.contains("permission denied") => {
            "Make the program of the container executable for its user, or correct the command of the container."
        }
        () if is_program && (error.contains("not found") || error.contains("no such file")) => {
            "Correct the command of the container, or add the program to its image."
        }
        () => "Fix the cause that the error names.",
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::events::reason;

    const NO_PROGRAM: &str = "failed to start containerd task \"1f\": failed to create shim task: OCI runtime create failed: \
                              runc create failed: unable to start container process: error during container init: exec: \
                              \"flock\": executable file not found in $PATH: unknown";

    fn failing(times: u64) -> Fixture {
        (0..times).fold(Fixture::new(), |facts, nth| {
            facts
                .event_at(20 * nth, reason::CONTAINER_CREATED, "Created")
                .event_at(20 * nth + 1, reason::CONTAINER_EXITED, "Exited")
                .event_at(20 * nth + 1, reason::CONTAINER_START_FAILED, NO_PROGRAM)
                .event_at(20 * nth + 2, reason::CONTAINER_EXITED, "Exited with code 128 (StartError)")
        })
    }

    #[test]
    fn a_container_that_was_never_started_did_not_end_by_itself() {
        let found = crate::lint::lint(&failing(3).build());
        let [found] = &found[..] else { panic!("{found:#?}") };
        assert_eq!(
            (found.lint, found.severity, found.sentence.as_str(), found.remedy.as_str()),
            (
                START_ERRORS,
                Severity::Error,
                "The runtime could not start the container 3 times in 40.0s: exec: \"flock\": executable file not found in \
                 $PATH.",
                "Correct the command of the container, or add the program to its image."
            )
        );
        assert_eq!(only(lint, failing(1), START_ERRORS).unwrap().severity, Severity::Warning);
    }

    #[test]
    fn a_post_start_hook_that_fails_is_named() {
        let message = "The postStart hook of the container main exited with 1, and the kubelet stopped it";
        let facts = (0..3).fold(Fixture::new(), |facts, nth| {
            facts
                .event_at(20 * nth, reason::CONTAINER_STARTED, "Started")
                .event_at(20 * nth + 1, reason::FAILED_POST_START_HOOK, message)
                .event_at(20 * nth + 2, reason::CONTAINER_EXITED, "Exited with code 137 (Error)")
        });
        let found = crate::lint::lint(&facts.build());
        let [found] = &found[..] else { panic!("{found:#?}") };
        assert!(found.sentence.starts_with("The postStart hook of the container failed 3 times in 40.0s"));
        assert!(found.sentence.ends_with("and restarts it as restartPolicy says."), "{found:?}");
        assert_eq!(
            (found.lint, found.evidence[0].as_str()),
            (FAILED_POST_START, format!("{message}.").as_str())
        );
    }

    #[test]
    fn a_start_error_that_only_its_exit_reports_has_no_log_either() {
        let exited = |facts: Fixture, second| {
            facts.event_at(second, reason::CONTAINER_EXITED, "Exited with code 128 (StartError)")
        };
        let found = crate::lint::lint(&exited(exited(Fixture::new(), 1), 20).build());
        let [found] = &found[..] else { panic!("{found:#?}") };
        assert_eq!(found.sentence, "The runtime could not start the container 2 times in 19.0s.");
        assert!(found.remedy.contains("kubectl describe pod"), "{found:#?}");
    }
}
