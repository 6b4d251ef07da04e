//! Lints about the runtime: calls without an answer, lost connections, leaked processes.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{PeriodFacts, ids};
use super::finding::{LintFinding, LintSubject, Severity};
use crate::events::reason;
use crate::execsync::{Cause, StuckExec, cause_name};
use crate::history::json::Event;
use crate::terminal::format::counted;

/// Returns the findings about the runtime.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let node = [hanging_runtime(facts), runtime_unavailable(facts)];
    node.into_iter().flatten().chain(leaked_processes(facts)).collect()
}

/// The runtime did not answer calls.
fn hanging_runtime(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    // A call whose command has exited waits for its output.
    let exited = stuck_calls(facts, reason::EXEC_SYNC_UNANSWERED);
    let overdue = stuck_calls(facts, reason::EXEC_SYNC_OVERDUE);
    let overdue: BTreeSet<u64> = overdue.difference(&exited).copied().collect();
    let given_up = facts.with_cause(cause_name::NO_ANSWER);
    let mut calls: BTreeSet<u64> = overdue.clone();
    let kept = facts.calls_with_cause(cause_name::NO_ANSWER);
    calls.extend(kept.iter().map(|call| call.call.id));
    // An overdue call may have ended since, and is then counted twice.
    let affected = u32::try_from(calls.len()).unwrap_or(u32::MAX).max(given_up);
    (affected > 0).then(|| LintFinding {
        lint: "hanging-runtime",
        severity: Severity::Error,
        subject: LintSubject::NODE,
        sentence: format!(
            "The runtime did not answer {} in time.",
            counted(affected, "ExecSync")
        ),
        evidence: vec![
            format!(
                "{} had no answer 5 s after the timeout was over.",
                counted(u32::try_from(overdue.len()).unwrap_or(u32::MAX), "ExecSync")
            ),
            format!("{} ended without an answer, because the client gave up.", counted(given_up, "ExecSync")),
        ],
        remedy: "Look in the log of the runtime, and for its processes and shims that are stopped or wait in state D; \
                 a restart of the runtime keeps containers running."
            .to_owned(),
        affected,
        calls: last(&calls),
    })
}

/// The runtime, or its connection, was unavailable.
fn runtime_unavailable(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    let events = events(facts, reason::RUNTIME_UNAVAILABLE);
    let events = events.map(|event| event.count).fold(0, u64::saturating_add);
    let events = u32::try_from(events).unwrap_or(u32::MAX);
    let lost = facts.with_cause(Cause::RuntimeLost.name());
    let calls = facts.calls_with_cause(Cause::RuntimeLost.name());
    (events > 0 || lost > 0).then(|| LintFinding {
        lint: "runtime-unavailable",
        severity: if lost == 0 { Severity::Warning } else { Severity::Error },
        subject: LintSubject::NODE,
        sentence: format!(
            "The runtime was unavailable: {} ended without a result of the runtime.",
            counted(lost, "ExecSync")
        ),
        evidence: vec![
            format!("probeshim lost the runtime {}.", counted(events, "time")),
            "A restart of the runtime has the same effects.".to_owned(),
        ],
        remedy:
            "Look in the log of the runtime for the reason of its end, unless it was restarted on purpose."
                .to_owned(),
        affected: lost.max(events),
        calls: ids(&calls),
    })
}

/// Processes that ExecSyncs started still ran after the calls had ended.
fn leaked_processes(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let mut containers: BTreeMap<LintSubject, Vec<&Event>> = BTreeMap::new();
    for event in events(facts, reason::EXEC_PROCESS_LEAKED) {
        containers.entry(LintSubject::for_event(event)).or_default().push(event);
    }
    let finding = |(subject, events): (LintSubject, Vec<&Event>)| {
        let calls: BTreeSet<u64> =
            events.iter().filter_map(|event| StuckExec::call_of(&event.message)).collect();
        let affected = events.iter().map(|event| event.count).fold(0, u64::saturating_add);
        let affected = u32::try_from(affected).unwrap_or(u32::MAX);
        LintFinding {
            lint: "leaked-process",
            severity: Severity::Warning,
            subject,
            sentence: format!("{} still ran 5 s after an ExecSync that started it had ended.", processes(affected)),
            evidence: events.last().map(|event| format!("The last of them: {}.", event.message)).into_iter().collect(),
            remedy: "Let the command wait for its child processes, or end them; each of them counts for the limits of \
                     the container."
                .to_owned(),
            affected,
            calls: last(&calls),
        }
    };
    containers.into_iter().map(finding).collect()
}

fn processes(count: u32) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

fn events<'a>(facts: &PeriodFacts<'a>, reason: &'a str) -> impl Iterator<Item = &'a Event> {
    facts.period.events.iter().filter(move |event| event.reason == reason)
}

fn stuck_calls(facts: &PeriodFacts<'_>, reason: &str) -> BTreeSet<u64> {
    events(facts, reason).filter_map(|event| StuckExec::call_of(&event.message)).collect()
}

/// Returns the last ids, if there are many.
fn last(calls: &BTreeSet<u64>) -> Vec<u64> {
    let skipped = calls.len().saturating_sub(super::facts::MAX_IDS);
    calls.iter().skip(skipped).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::cri::Code;
    use crate::execsync::{CommandOutcome, MissingEvents, PhaseDurations, Phases};
    use crate::relay::CallOutcome;

    const OVERDUE: &str = "Call 7 has not been answered, 5.00s after its timeout was over: check";
    const EXITED: &str = "Call 7 has not been answered, 5.00s after its command exited: check";

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    /// Returns calls that their client gave up.
    fn given_up(duration: u64, has_exited: bool) -> Fixture {
        Fixture::new().calls(2, duration, move |call| {
            call.end(CallOutcome::ClientReset(h2::Reason::CANCEL));
            call.analysis.phases =
                Phases::Missing { parts: PhaseDurations::default(), what: MissingEvents::Everything };
            let exited = has_exited.then_some(Duration::from_millis(10));
            call.analysis.command_outcome = Some(CommandOutcome { exited, ..CommandOutcome::default() });
        })
    }

    #[test]
    fn calls_without_an_answer_after_their_timeout_are_a_hanging_runtime() {
        let overdue = Fixture::new().event(reason::EXEC_SYNC_OVERDUE, OVERDUE);
        let in_flight = found(overdue, "hanging-runtime").unwrap();
        assert_eq!(in_flight.sentence, "The runtime did not answer 1 ExecSync in time.");
        assert_eq!((in_flight.severity, in_flight.calls), (Severity::Error, vec![7]));
        let ended = found(given_up(11_000, false), "hanging-runtime").unwrap();
        assert_eq!((ended.affected, ended.calls), (2, vec![1, 2]));
        let held = Fixture::new().event(reason::EXEC_SYNC_OVERDUE, OVERDUE);
        let held = held.event(reason::EXEC_SYNC_UNANSWERED, EXITED);
        assert_eq!(found(held, "hanging-runtime"), None, "the call waits for output");
        assert_eq!(found(given_up(11_000, true), "hanging-runtime"), None, "the command had exited");
        assert_eq!(found(given_up(100, false), "hanging-runtime"), None, "the client cancelled the call");
    }

    #[test]
    fn a_runtime_that_ended_is_unavailable() {
        assert_eq!(found(Fixture::new().timeouts(9), "runtime-unavailable"), None);
        let event = Fixture::new().event(reason::RUNTIME_UNAVAILABLE, "The runtime does not answer");
        let found_event = found(event, "runtime-unavailable").unwrap();
        assert_eq!((found_event.affected, found_event.severity), (1, Severity::Warning));
        let lost = Fixture::new().calls(2, 10, |call| call.end(CallOutcome::ConnectionLost));
        let unavailable = lost.calls(1, 10, |call| call.fail(Code::UNAVAILABLE, "gone"));
        let found = found(unavailable, "runtime-unavailable").unwrap();
        let expected = "The runtime was unavailable: 3 ExecSyncs ended without a result of the runtime.";
        assert_eq!((found.sentence.as_str(), found.severity), (expected, Severity::Error));
    }

    #[test]
    fn processes_that_outlast_their_calls_are_found_by_container() {
        assert_eq!(found(Fixture::new().attempts(9, 10), "leaked-process"), None);
        let leaked =
            |pid, call| format!("A process (pid {pid}) still runs 5.00s after call {call} ended: sleep 1");
        let facts = Fixture::new().event(reason::EXEC_PROCESS_LEAKED, &leaked(1, 7));
        let found = found(facts.event(reason::EXEC_PROCESS_LEAKED, &leaked(2, 8)), "leaked-process").unwrap();
        assert_eq!(found.sentence, "2 processes still ran 5 s after an ExecSync that started it had ended.");
        assert_eq!((found.calls, found.subject.text()), (vec![7, 8], "shop/web-0 main".to_owned()));
    }
}
