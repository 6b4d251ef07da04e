//! One finding for each cause: a finding about a kill has the place of those about the failures
//! that led to it.

use super::facts::{PeriodFacts, ProbeFacts};
use super::finding::{LintFinding, LintSubject};
use super::names::{FAILURES, FLAPPING, KILLS};
use super::programs::cannot_start;
use super::restarts::is_about_memory;
use crate::execsync::Cause;

/// Names of the lints about consequences of failures, the worst first.
const CONSEQUENCES: [&str; 2] = [KILLS, FLAPPING];

/// Names of the lints about commands that cannot be started.
const NOT_STARTED: [&str; 2] = ["missing-program", "not-executable"];

/// Name of the lint about timeouts.
const TIMEOUT: &str = "timeout";

/// Name of the lint about memory.
const OUT_OF_MEMORY: &str = "out-of-memory";

/// Removes each finding whose cause another one has too. A finding about a consequence takes over
/// the evidence and the remedy of the one about its cause.
pub(super) fn merge(facts: &PeriodFacts<'_>, findings: &mut Vec<LintFinding>) {
    let mut merged: Vec<LintFinding> = Vec::new();
    for lint in CONSEQUENCES {
        let is_it = |finding: &mut LintFinding| finding.lint == lint;
        for mut consequence in findings.extract_if(.., is_it).collect::<Vec<_>>() {
            let is_worse =
                |other: &LintFinding| other.lint != consequence.lint && other.subject == consequence.subject;
            if merged.iter().any(is_worse) {
                continue;
            }
            let probe = facts.probes.iter().find(|probe| probe.attempts.subject == consequence.subject);
            let is_cause = |finding: &mut LintFinding| {
                finding.subject == consequence.subject
                    && probe.is_some_and(|probe| causes(probe).contains(&finding.lint))
            };
            for cause in findings.extract_if(.., is_cause).collect::<Vec<_>>() {
                consequence.evidence.extend(cause.evidence);
                consequence.remedy = cause.remedy;
            }
            merged.push(consequence);
        }
    }
    let with = |is_it: &dyn Fn(&LintFinding) -> bool| -> Vec<LintSubject> {
        let found = findings.iter().chain(&merged).filter(|finding| is_it(finding));
        found.map(|finding| finding.subject.clone()).collect()
    };
    let explained =
        with(&|finding| CONSEQUENCES.contains(&finding.lint) || NOT_STARTED.contains(&finding.lint));
    let in_attempts = |finding: &LintFinding| {
        let container = facts.containers.iter().find(|container| container.subject == finding.subject);
        container.map_or(0, |container| container.with_cause(Cause::OutOfMemory.name()))
    };
    // The memory was that of commands, if more of them were killed than the container ended.
    let is_own_end =
        |finding: &LintFinding| is_about_memory(finding) && finding.affected >= in_attempts(finding);
    let without_memory = with(&is_own_end);
    findings.retain(|finding| match finding.lint {
        FAILURES => !explained.contains(&finding.subject) && !is_for_lack_of_memory(facts, &finding.subject),
        OUT_OF_MEMORY => !without_memory.contains(&finding.subject),
        _ => !is_about_memory(finding) || is_own_end(finding),
    });
    findings.append(&mut merged);
}

/// Returns whether most failed attempts of a probe were killed for lack of memory.
fn is_for_lack_of_memory(facts: &PeriodFacts<'_>, subject: &LintSubject) -> bool {
    let probe = facts.probes.iter().find(|probe| probe.attempts.subject == *subject);
    probe.is_some_and(|probe| {
        let killed = probe.attempts.with_cause(Cause::OutOfMemory.name());
        killed > probe.attempts.total.failures / 2
    })
}

/// Returns the lints about the cause of most failures of a probe.
fn causes(probe: &ProbeFacts<'_>) -> &'static [&'static str] {
    let total = &probe.attempts.total;
    if cannot_start(probe) {
        &NOT_STARTED
    } else if total.timeouts > total.failures {
        &[TIMEOUT]
    } else {
        &[]
    }
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
    fn a_program_that_is_missing_is_one_finding() {
        let message = "exec: \"check\": executable file not found in $PATH: unknown";
        let errors = Fixture::new().calls(20, 10, |call| call.fail(crate::cri::Code(2), message));
        assert_eq!(names(errors), ["missing-program"]);
        let exits = || Fixture::new().calls(20, 10, |call| call.exit(127));
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
