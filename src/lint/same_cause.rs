//! One finding for each cause: a finding about a consequence, such as a kill, has the place of
//! those about the failures that led to it.

use super::facts::{PeriodFacts, ProbeFacts};
use super::finding::{LintFinding, LintSubject};
use super::names::{
    FAILURES, FLAPPING, KILLS, MISSING_PROGRAM, NOT_EXECUTABLE, OUT_OF_MEMORY, PIDS_LIMIT, TIMEOUT,
};
use super::programs::cannot_start;
use super::restarts::is_about_memory;
use crate::execsync::Cause;

/// Names of the lints about consequences of failures, the worst first.
const CONSEQUENCES: [&str; 3] = [KILLS, FLAPPING, FAILURES];

/// Names of the lints about commands that cannot be started.
const NOT_STARTED: [&str; 2] = [MISSING_PROGRAM, NOT_EXECUTABLE];

/// Removes each finding whose cause another one has too.
pub(super) fn merge(facts: &PeriodFacts<'_>, findings: &mut Vec<LintFinding>) {
    remove_failures_with_a_known_cause(facts, findings);
    take_over_causes_of_probes(facts, findings);
    take_over_limits(facts, findings);
    remove_second_finding_about_memory(facts, findings);
}

/// Returns the name of the lint about the limit of the container because of which most failed
/// attempts of a probe failed.
pub(super) fn limit_of(probe: &ProbeFacts<'_>) -> Option<&'static str> {
    let total = &probe.attempts.total;
    let failed = total.failures.saturating_add(total.timeouts);
    let limits = [(Cause::OutOfMemory, OUT_OF_MEMORY), (Cause::PidsLimit, PIDS_LIMIT)];
    let is_it = |(cause, _): &(Cause, _)| probe.attempts.with_cause(cause.name()) > failed / 2;
    limits.into_iter().find(is_it).map(|(_, lint)| lint)
}

/// Removes findings about failures whose cause, or worse consequence, has a finding of its own.
fn remove_failures_with_a_known_cause(facts: &PeriodFacts<'_>, findings: &mut Vec<LintFinding>) {
    let explains = |finding: &&LintFinding| match finding.lint {
        KILLS | FLAPPING => true,
        // Other failures of the same probe have other causes.
        lint => NOT_STARTED.contains(&lint) && probes(facts, &finding.subject).any(cannot_start),
    };
    let others: Vec<LintSubject> =
        findings.iter().filter(explains).map(|finding| finding.subject.clone()).collect();
    findings.retain(|finding| {
        let is_limited = || probes(facts, &finding.subject).any(|probe| limit_of(probe).is_some());
        finding.lint != FAILURES || !(others.contains(&finding.subject) || is_limited())
    });
}

/// Lets findings about consequences take over the evidence of those about timeouts, and the
/// evidence and the remedy of those about commands that cannot be started.
fn take_over_causes_of_probes(facts: &PeriodFacts<'_>, findings: &mut Vec<LintFinding>) {
    let mut merged: Vec<LintFinding> = Vec::new();
    for lint in CONSEQUENCES {
        for mut consequence in findings.extract_if(.., |finding| finding.lint == lint).collect::<Vec<_>>() {
            let is_worse =
                |other: &LintFinding| other.lint != consequence.lint && other.subject == consequence.subject;
            if merged.iter().any(is_worse) {
                continue;
            }
            let cannot_start = probes(facts, &consequence.subject).any(cannot_start);
            let is_cause = |finding: &mut LintFinding| {
                let is_cause =
                    finding.lint == TIMEOUT || (cannot_start && NOT_STARTED.contains(&finding.lint));
                is_cause && finding.subject == consequence.subject
            };
            for cause in findings.extract_if(.., is_cause).collect::<Vec<_>>() {
                consequence.evidence.extend(cause.evidence);
                consequence.severity = consequence.severity.max(cause.severity);
                // A consequence has a remedy against timeouts itself.
                if cause.lint != TIMEOUT {
                    consequence.remedy = cause.remedy;
                }
            }
            merged.push(consequence);
        }
    }
    findings.append(&mut merged);
}

/// Lets findings about kills and lost readiness take over those about a limit of the container,
/// because of which most attempts of the probe failed.
fn take_over_limits(facts: &PeriodFacts<'_>, findings: &mut Vec<LintFinding>) {
    let mut taken: Vec<(&str, LintSubject)> = Vec::new();
    let causes: Vec<LintFinding> = findings
        .iter()
        .filter(|finding| [OUT_OF_MEMORY, PIDS_LIMIT].contains(&finding.lint))
        .cloned()
        .collect();
    for consequence in findings.iter_mut().filter(|finding| [KILLS, FLAPPING].contains(&finding.lint)) {
        let Some(limit) = probes(facts, &consequence.subject).find_map(limit_of) else { continue };
        let container = consequence.subject.clone().into_container();
        let is_it = |cause: &&LintFinding| cause.lint == limit && cause.subject == container;
        if let Some(cause) = causes.iter().find(is_it) {
            consequence.evidence.push(cause.sentence.clone());
            consequence.evidence.extend(cause.evidence.clone());
            consequence.remedy.clone_from(&cause.remedy);
            taken.push((limit, container));
        }
    }
    findings.retain(|finding| {
        !taken.iter().any(|(lint, subject)| finding.lint == *lint && finding.subject == *subject)
    });
}

/// Removes one of two findings about the memory of a container: the memory was that of commands, if
/// more of them were killed than the container ended.
fn remove_second_finding_about_memory(facts: &PeriodFacts<'_>, findings: &mut Vec<LintFinding>) {
    let in_attempts = |finding: &LintFinding| {
        let container = facts.containers.iter().find(|container| container.subject == finding.subject);
        container.map_or(0, |container| container.with_cause(Cause::OutOfMemory.name()))
    };
    let is_own_end =
        |finding: &LintFinding| is_about_memory(facts, finding) && finding.affected >= in_attempts(finding);
    let own_ends: Vec<LintSubject> = findings
        .iter()
        .filter(|finding| is_own_end(finding))
        .map(|finding| finding.subject.clone())
        .collect();
    findings.retain(|finding| match finding.lint {
        OUT_OF_MEMORY => !own_ends.contains(&finding.subject),
        _ => !is_about_memory(facts, finding) || is_own_end(finding),
    });
}

/// Returns the probes that a finding is about. A probe whose command was changed is there twice.
fn probes<'a>(
    facts: &'a PeriodFacts<'a>,
    subject: &'a LintSubject,
) -> impl Iterator<Item = &'a ProbeFacts<'a>> + 'a {
    facts.probes.iter().filter(move |probe| probe.attempts.subject == *subject)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use crate::events::reason;

    const KILLED: &str = "Container main failed liveness probe, and the kubelet stopped it (3 failures in a row, 30.0s \
                          after its start)";

    /// Returns the names of the findings about the probe or its container, the worst first.
    fn names(facts: Fixture) -> Vec<&'static str> {
        let found = crate::lint::lint(&facts.build());
        found
            .iter()
            .filter(|found| found.severity > super::super::Severity::Info)
            .map(|found| found.lint)
            .collect()
    }

    #[test]
    fn a_kill_because_of_timeouts_is_one_finding_with_the_remedy_against_timeouts() {
        let facts = Fixture::new().attempts(20, 10).timeouts(6).event(reason::KILLING, KILLED);
        let found = crate::lint::lint(&facts.build());
        assert_eq!(found[0].lint, "kills");
        assert!(
            found[0].sentence.ends_with("6 of 26 attempts failed because of the timeout of 5.00s."),
            "{found:#?}"
        );
        assert!(found[0].remedy.ends_with("raise timeoutSeconds (now 5)."), "{found:#?}");
        assert!(found.iter().all(|found| found.lint != "timeout"), "{found:#?}");
    }

    #[test]
    fn failures_and_timeouts_of_one_probe_are_one_finding() {
        let failed = Fixture::new().attempts(20, 10).timeouts(6).calls(5, 10, |call| call.exit(1));
        assert_eq!(names(failed.row(|row| row.failures_after_success = 11)), ["failures"]);
    }

    #[test]
    fn a_kill_because_of_a_limit_has_the_remedy_against_the_limit() {
        let facts = Fixture::new().calls(6, 10, |call| {
            call.exit(137);
            call.evidence().oom_kills = Some(1);
        });
        let message = KILLED.replace(')', ", no success before)");
        let found = crate::lint::lint(&facts.event(reason::KILLING, &message).build());
        assert_eq!(found.iter().map(|found| found.lint).collect::<Vec<_>>(), ["kills"], "{found:#?}");
        assert!(found[0].remedy.starts_with("Raise the memory limit of the container"), "{found:#?}");
    }

    #[test]
    fn failures_with_another_cause_than_a_program_that_cannot_be_executed_keep_their_finding() {
        let facts = Fixture::new().attempts(20, 10).calls(20, 10, |call| call.exit(1));
        let facts = facts.calls(1, 10, |call| call.exit(126)).row(|row| row.failures_after_success = 21);
        assert_eq!(names(facts), ["failures", "not-executable"]);
    }

    #[test]
    fn a_program_that_is_missing_is_one_finding() {
        let message = "exec: \"check\": executable file not found in $PATH: unknown";
        let errors = Fixture::new().calls(20, 10, |call| call.fail(crate::cri::Code(2), message));
        assert_eq!(names(errors), ["missing-program"]);
        let exits = || {
            Fixture::new().calls(20, 10, |call| {
                call.exit(127);
                call.exec.output = Some("check: line 2: curl: not found".into());
            })
        };
        assert_eq!(names(exits()), ["missing-program"]);
        let killed = exits().event(reason::KILLING, KILLED).build();
        let found = crate::lint::lint(&killed);
        assert_eq!(found.iter().map(|found| found.lint).collect::<Vec<_>>(), ["kills"]);
        assert!(found[0].remedy.starts_with("Correct the command"), "{found:#?}");
    }

    #[test]
    fn a_container_that_ends_for_lack_of_memory_has_one_finding() {
        let started = Fixture::new().attempts(20, 10).event_at(0, reason::CONTAINER_STARTED, "Started");
        let exited = started.event_at(9, reason::CONTAINER_OUT_OF_MEMORY, "The kernel killed a process");
        let exited = exited.event_at(10, reason::CONTAINER_EXITED, "Exited with code 137 (OOMKilled)");
        let ended = exited.event_at(20, reason::CONTAINER_STARTED, "Started");
        assert_eq!(names(ended), ["restarts"]);
        // The commands of the probe use the memory.
        let killed = || {
            Fixture::new().calls(3, 10, |call| {
                call.exit(137);
                call.evidence().oom_kills = Some(1);
            })
        };
        assert_eq!(names(killed()), ["out-of-memory"]);
        let started = killed().event_at(0, reason::CONTAINER_STARTED, "Started");
        let exited = started.event_at(9, reason::CONTAINER_OUT_OF_MEMORY, "The kernel killed a process");
        let exited = exited.event_at(10, reason::CONTAINER_EXITED, "Exited with code 137 (OOMKilled)");
        assert_eq!(names(exited.event_at(20, reason::CONTAINER_STARTED, "Started")), ["out-of-memory"]);
    }
}
