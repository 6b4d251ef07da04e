//! Lints about containers that end without a failed exec probe: by themselves, by a kubelet for
//! another reason, and after a preStop hook that takes too long.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{PeriodFacts, count};
use super::finding::{LintFinding, Severity};
use super::lifetimes::{Lifetimes, OwnExit, how_often, span};
use super::names::{KUBELET_STOPS, LONG_PRE_STOP, RESTARTS};
use crate::cri::{KILLED, signal_name};
use crate::terminal::format::{counted, duration};

/// Minimum number of exits that are an error, or of exits with code 0 that are a finding.
const MIN_EXITS: usize = 2;

/// Maximum number of back-offs that are named.
const MAX_BACK_OFFS: usize = 4;

/// Minimum back-off that is worth a sentence.
const MIN_BACK_OFF: Duration = Duration::from_secs(5);

/// Returns the findings about restarts.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let findings = |container: &Lifetimes| {
        [own_exits(container), other_stops(facts, container), unfinished_hook(container)]
    };
    facts.lifetimes.iter().flat_map(findings).flatten().collect()
}

/// The container exited by itself, and was restarted.
fn own_exits(container: &Lifetimes) -> Option<LintFinding> {
    let exits = &container.exits;
    let restarts = exits.iter().filter(|exit| exit.back_off.is_some()).count();
    let failed = exits.iter().any(|exit| exit.code != Some(0));
    let last_back_off = exits.len() > restarts && exits.len() >= MIN_EXITS;
    if exits.is_empty() || (restarts == 0 && !last_back_off) || (!failed && exits.len() < MIN_EXITS) {
        return None;
    }
    let number = count(exits);
    let cause = cause(exits);
    let how = match cause {
        ExitCause::Memory => "because its memory was used up".to_owned(),
        ExitCause::Killed | ExitCause::Own => codes(exits),
    };
    let times = how_often(exits.iter().map(|exit| exit.time));
    let severity = if failed && exits.len() >= MIN_EXITS { Severity::Error } else { Severity::Warning };
    let ended = match cause {
        ExitCause::Killed => "was killed",
        ExitCause::Memory | ExitCause::Own => "ended by itself",
    };
    Some(LintFinding {
        lint: RESTARTS,
        severity,
        subject: container.subject.clone(),
        sentence: format!(
            "The container {ended} {times}, {how}, and was restarted: no failed exec probe and no StopContainer that \
             passed probeshim explains it."
        ),
        evidence: [lifetimes(exits), back_offs(exits)].into_iter().flatten().collect(),
        remedy: match cause {
            ExitCause::Memory => {
                "Raise the memory limit of the container, or find out what uses its memory.".to_owned()
            }
            ExitCause::Killed => {
                "Find out what sent SIGKILL: the kernel if the node had no memory left (see `dmesg`), an operator, or an \
                 agent. The log of the container does not name it."
                    .to_owned()
            }
            ExitCause::Own if failed => {
                "Look for the reason in the log of the container that ended (`kubectl logs --previous`); settings of \
                 probes change nothing."
                    .to_owned()
            }
            ExitCause::Own => {
                "Let the main process of the container run on, or run it as a Job, which is not restarted after exit \
                 code 0."
                    .to_owned()
            }
        },
        affected: number,
        calls: Vec::new(),
    })
}

/// Cause of most of the exits of a container.
#[derive(Clone, Copy, PartialEq)]
enum ExitCause {
    /// The memory of the container was used up.
    Memory,
    /// Its main process received SIGKILL, for another reason.
    Killed,
    /// Its main process exited.
    Own,
}

fn cause(exits: &[OwnExit]) -> ExitCause {
    let most =
        |is_it: fn(&OwnExit) -> bool| 2 * exits.iter().filter(|exit| is_it(exit)).count() > exits.len();
    if most(|exit| exit.is_out_of_memory) {
        ExitCause::Memory
    } else if most(|exit| exit.code == Some(KILLED) && !exit.is_out_of_memory) {
        ExitCause::Killed
    } else {
        ExitCause::Own
    }
}

/// A kubelet stopped the container for a reason that no exec probe explains, and kept the pod.
fn other_stops(facts: &PeriodFacts<'_>, container: &Lifetimes) -> Option<LintFinding> {
    let stops = &container.other_stops;
    // A changed definition of the container is one stop.
    if stops.len() < MIN_EXITS {
        return None;
    }
    let is_exec = facts.probes.iter().any(|probe| {
        probe.is_probe() && probe.attempts.subject.clone().into_container() == container.subject
    });
    let seen = if is_exec {
        "no exec liveness or startup probe had failed often enough"
    } else {
        "no exec probe of it was observed"
    };
    let in_time = duration(span(stops.iter().copied()));
    Some(LintFinding {
        lint: KUBELET_STOPS,
        severity: Severity::Error,
        subject: container.subject.clone(),
        sentence: format!(
            "The kubelet stopped the container {} in {in_time} and kept its pod, although {seen}: the usual reason is a \
             liveness or startup probe with httpGet, tcpSocket or grpc, whose attempts do not pass the runtime.",
            counted(count(stops), "time")
        ),
        evidence: Vec::new(),
        remedy: "See the reason in `kubectl describe pod`; with `--enforce dry-run`, probeshim makes the same attempts and \
                 shows their errors."
            .to_owned(),
        affected: count(stops),
        calls: Vec::new(),
    })
}

/// A preStop hook ran until the grace period was over.
fn unfinished_hook(container: &Lifetimes) -> Option<LintFinding> {
    let hooks = &container.unfinished_hooks;
    let last = hooks.last()?;
    Some(LintFinding {
        lint: LONG_PRE_STOP,
        severity: Severity::Warning,
        subject: container.subject.clone(),
        sentence: format!(
            "The preStop hook took longer than the grace period {}: the container had 2 s left after SIGTERM, and was \
             then killed with SIGKILL.",
            counted(count(hooks), "time")
        ),
        evidence: vec![format!("{last}.")],
        remedy: "Raise terminationGracePeriodSeconds above the duration of the hook and of the end of the application \
                 together, or shorten the hook."
            .to_owned(),
        affected: count(hooks),
        calls: Vec::new(),
    })
}

/// Returns the exit codes as part of a sentence.
fn codes(exits: &[OwnExit]) -> String {
    let mut codes: BTreeMap<i32, u32> = BTreeMap::new();
    for code in exits.iter().filter_map(|exit| exit.code) {
        *codes.entry(code).or_default() += 1;
    }
    let named: Vec<String> = codes
        .iter()
        .map(|(code, times)| {
            let signal = signal_name(*code).map(|name| format!(" ({name})")).unwrap_or_default();
            let times = if codes.len() > 1 { format!(" {}", counted(*times, "time")) } else { String::new() };
            format!("{code}{signal}{times}")
        })
        .collect();
    if named.is_empty() {
        "with an unknown exit code".to_owned()
    } else {
        format!("with exit code {}", named.join(", "))
    }
}

fn lifetimes(exits: &[OwnExit]) -> Option<String> {
    let known = || exits.iter().filter_map(|exit| exit.lifetime);
    let (shortest, longest) = (duration(known().min()?), duration(known().max()?));
    let time = if shortest == longest { longest } else { format!("{shortest} to {longest}") };
    Some(format!("It had run for {time} each time."))
}

fn back_offs(exits: &[OwnExit]) -> Option<String> {
    let known: Vec<Duration> = exits.iter().filter_map(|exit| exit.back_off).collect();
    if known.iter().all(|back_off| *back_off < MIN_BACK_OFF) {
        return None;
    }
    let skipped = known.len().saturating_sub(MAX_BACK_OFFS);
    let last: Vec<String> = known.iter().skip(skipped).map(|back_off| duration(*back_off)).collect();
    Some(format!("The last restarts came after {} (CrashLoopBackOff).", last.join(", ")))
}

/// Returns whether a finding is about exits for lack of memory.
pub(super) fn is_about_memory(facts: &PeriodFacts<'_>, finding: &LintFinding) -> bool {
    let is_it = |container: &&Lifetimes| container.subject == finding.subject;
    let container = facts.lifetimes.iter().find(is_it).filter(|_| finding.lint == RESTARTS);
    container.is_some_and(|container| cause(&container.exits) == ExitCause::Memory)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::events::reason;
    use crate::kill::ObservedKill;

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    fn exits(times: u64, message: &str) -> Fixture {
        (0..times).fold(Fixture::new().event_at(0, reason::CONTAINER_STARTED, "Started"), |facts, cycle| {
            facts.event_at(30 * cycle + 20, reason::CONTAINER_EXITED, message).event_at(
                30 * cycle + 30,
                reason::CONTAINER_STARTED,
                "Started",
            )
        })
    }

    #[test]
    fn a_container_that_exits_by_itself_is_found_with_its_back_off() {
        assert_eq!(found(exits(1, "Exited with code 0 (Completed)"), RESTARTS), None, "once may be intended");
        let found = found(exits(5, "Exited with code 1 (Error)"), RESTARTS).unwrap();
        assert_eq!(
            found.sentence,
            "The container ended by itself 5 times in 2m00s, with exit code 1, and was restarted: no failed exec probe and \
             no StopContainer that passed probeshim explains it."
        );
        assert_eq!(
            found.evidence,
            [
                "It had run for 20.0s each time.",
                "The last restarts came after 10.0s, 10.0s, 10.0s, 10.0s (CrashLoopBackOff)."
            ]
        );
        assert_eq!((found.severity, found.affected), (Severity::Error, 5));
    }

    #[test]
    fn a_container_that_ends_for_lack_of_memory_has_a_remedy_about_memory() {
        let found = found(exits(2, "Exited with code 137 (OOMKilled)"), RESTARTS).unwrap();
        assert!(found.sentence.contains(", because its memory was used up, "), "{found:?}");
        assert!(found.remedy.starts_with("Raise the memory limit"), "{found:?}");
    }

    #[test]
    fn a_container_that_something_killed_has_no_reason_in_its_log() {
        let found = found(exits(3, "Exited with code 137 (Error)"), RESTARTS).unwrap();
        assert!(
            found
                .sentence
                .starts_with("The container was killed 3 times in 60.0s, with exit code 137 (SIGKILL), "),
            "{found:?}"
        );
        assert!(found.remedy.contains("dmesg") && !found.remedy.contains("kubectl logs"), "{found:?}");
    }

    #[test]
    fn restarts_are_those_of_the_last_pod_of_the_name() {
        let cycle = |facts: Fixture, second, message: &str| {
            facts
                .event_at(second, reason::CONTAINER_STARTED, "Started")
                .event_at(second + 20, reason::CONTAINER_EXITED, message)
                .event_at(second + 30, reason::CONTAINER_STARTED, "Started")
        };
        let first = cycle(Fixture::new().of_pod("one"), 0, "Exited with code 1 (Error)");
        let again = cycle(first.of_pod("two"), 700, "Exited with code 2 (Error)");
        let found = found(again, RESTARTS).unwrap();
        assert!(
            found.sentence.starts_with("The container ended by itself once, with exit code 2"),
            "{found:?}"
        );
        assert_eq!(found.evidence[1], "The last restarts came after 10.0s (CrashLoopBackOff).");
    }

    #[test]
    fn a_container_that_a_client_stopped_did_not_exit_by_itself() {
        let facts = Fixture::new().event_at(0, reason::CONTAINER_STARTED, "Started");
        let facts = facts.event_at(5, reason::KILLING, "Stopping container main");
        let facts = facts.event_at(6, reason::CONTAINER_EXITED, "Exited with code 137 (Error)");
        let period = facts.event_at(8, reason::CONTAINER_STARTED, "Started").build();
        assert_eq!(super::lint(&PeriodFacts::new(&period)), []);
    }

    #[test]
    fn repeated_stops_by_a_kubelet_without_a_failed_exec_probe_name_other_probes() {
        let message = ObservedKill::without_failure("main");
        let stops = |times: u64| {
            (0..times).fold(Fixture::new(), |facts, nth| facts.event_at(60 * nth, reason::KILLING, &message))
        };
        assert_eq!(found(stops(1), "kubelet-stops"), None, "the definition may have changed");
        let found = found(stops(3), "kubelet-stops").unwrap();
        assert!(
            found.sentence.contains("3 times in 2m00s") && found.sentence.contains("httpGet"),
            "{found:?}"
        );
        assert!(found.sentence.contains("although no exec probe of it was observed: "), "{found:?}");
    }

    #[test]
    fn a_hook_that_takes_the_whole_grace_period_is_found() {
        let message = "PreStop hook not completed in grace period, after 3.0s";
        let found = found(Fixture::new().event_at(3, reason::FAILED_PRE_STOP_HOOK, message), "long-pre-stop")
            .unwrap();
        assert!(found.sentence.contains("longer than the grace period 1 time: "), "{found:?}");
    }
}
