//! Lints about the runtime: calls without an answer, lost connections, leaked processes, zombies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::facts::{PeriodFacts, ids, sum};
use super::finding::{LintFinding, LintSubject, Severity};
use super::names::{HANGING_RUNTIME, LEAKED_PROCESS, RUNTIME_UNAVAILABLE, UNANSWERED_CALL, ZOMBIES};
use crate::events::reason;
use crate::execsync::{CallRecord, Cause, CommandEnd, Phases, StuckExec, cause_name};
use crate::history::json::Event;
use crate::terminal::format::counted;

/// Minimum number of containers whose calls a runtime that hangs does not answer.
const MIN_HANGING_CONTAINERS: usize = 2;

/// Time after a timeout from which a call without an answer is overdue.
const OVERDUE_AFTER: Duration = Duration::from_secs(5);

/// Returns the findings about the runtime.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let unanswered = unanswered(facts);
    let hanging = hanging_runtime(facts, &unanswered);
    let single = if hanging.is_some() { Vec::new() } else { unanswered_calls(unanswered) };
    // A runtime that hangs answers no list.
    let is_other = |found: &LintFinding| hanging.is_none() || found.severity == Severity::Error;
    let unavailable = runtime_unavailable(facts).filter(is_other);
    hanging
        .into_iter()
        .chain(single)
        .chain(unavailable)
        .chain(leaked_processes(facts))
        .chain(zombies(facts))
        .collect()
}

/// Calls of a container that the runtime did not answer in time.
#[derive(Default)]
struct UnansweredCalls {
    ids: BTreeSet<u64>,
    /// Number of calls, of which not all have a known id.
    count: u32,
    last_event: Option<String>,
}

/// Returns the calls of each container that had no answer 5 s after their timeout, and whose
/// command is not known to have ended.
fn unanswered(facts: &PeriodFacts<'_>) -> BTreeMap<LintSubject, UnansweredCalls> {
    let mut containers: BTreeMap<LintSubject, UnansweredCalls> = BTreeMap::new();
    // A call whose command has ended waits for its output.
    let mut ended = stuck_calls(facts, reason::EXEC_SYNC_UNANSWERED);
    ended.extend(stuck_calls(facts, reason::EXEC_SYNC_TIMED_OUT));
    let in_time = facts.period.calls.iter().filter(|record| has_ended_in_time(record));
    ended.extend(in_time.map(|record| record.call.id));
    // Of the calls of a minute, the slowest is kept: a hang is known by it.
    let kept: BTreeSet<u64> = facts.period.calls.iter().map(|record| record.call.id).collect();
    ended.extend(stuck_calls(facts, reason::EXEC_SYNC_ENDED).difference(&kept));
    for event in events(facts, reason::EXEC_SYNC_OVERDUE) {
        if let Some(id) = StuckExec::call_of(&event.message).filter(|id| !ended.contains(id)) {
            let calls = containers.entry(LintSubject::for_event(event)).or_default();
            calls.ids.insert(id);
            calls.last_event = Some(event.message.clone());
        }
    }
    for attempts in &facts.containers {
        let given_up = attempts.with_cause(cause_name::NO_ANSWER);
        if given_up > 0 {
            let calls = containers.entry(attempts.subject.clone()).or_default();
            let kept = attempts.calls_with_cause(cause_name::NO_ANSWER);
            calls.ids.extend(kept.iter().map(|call| call.call.id));
            calls.count = given_up;
        }
    }
    // An overdue call may have ended since, and is then counted twice.
    for calls in containers.values_mut() {
        calls.count = calls.count.max(u32::try_from(calls.ids.len()).unwrap_or(u32::MAX));
    }
    containers
}

/// Returns whether the command of a call had exited, or was killed at its timeout, before the call
/// was overdue: only its output, or the answer, was late.
fn has_ended_in_time(record: &CallRecord) -> bool {
    let (Some(exec), Some(analysis)) = (record.call.exec.as_deref(), record.analysis.as_deref()) else {
        return false;
    };
    let Some(timeout) = exec.timeout() else { return false };
    let end = match &analysis.phases {
        Phases::Complete(parts) if parts.run.is_some() => {
            Some(sum([Some(parts.queue), parts.prepare, parts.start, parts.run].into_iter().flatten()))
        }
        _ => analysis.command_outcome.and_then(|outcome| outcome.exited),
    };
    end.map_or_else(
        || matches!(CommandEnd::from_call(&record.call, exec, Some(analysis)), CommandEnd::TimedOut),
        |end| end < timeout.saturating_add(OVERDUE_AFTER),
    )
}

/// The runtime answered neither ExecSyncs of several containers nor calls of other methods.
fn hanging_runtime(
    facts: &PeriodFacts<'_>,
    unanswered: &BTreeMap<LintSubject, UnansweredCalls>,
) -> Option<LintFinding> {
    let others = events(facts, reason::RUNTIME_UNAVAILABLE).map(|event| event.count);
    let others = u32::try_from(others.fold(0, u64::saturating_add)).unwrap_or(u32::MAX);
    if unanswered.len() < MIN_HANGING_CONTAINERS || others == 0 {
        return None;
    }
    let affected = unanswered.values().map(|calls| calls.count).fold(0, u32::saturating_add);
    let ids: BTreeSet<u64> = unanswered.values().flat_map(|calls| &calls.ids).copied().collect();
    let containers = counted(u32::try_from(unanswered.len()).unwrap_or(u32::MAX), "container");
    Some(LintFinding {
        lint: HANGING_RUNTIME,
        severity: Severity::Error,
        subject: LintSubject::NODE,
        sentence: format!(
            "The runtime answered neither {} of {containers} nor calls of other methods.",
            counted(affected, "ExecSync")
        ),
        evidence: vec![
            "The ExecSyncs had no answer 5 s after their timeout was over.".to_owned(),
            format!("A list of the runtime had no answer within 10 s, or its events ended, {}.", counted(others, "time")),
        ],
        remedy: "Look in the log of the runtime, and for its processes and shims that are stopped or wait in state D; \
                 a restart of the runtime keeps containers running."
            .to_owned(),
        affected,
        calls: last(&ids),
    })
}

/// ExecSyncs of single containers had no answer, which is no evidence against the runtime.
fn unanswered_calls(unanswered: BTreeMap<LintSubject, UnansweredCalls>) -> Vec<LintFinding> {
    let finding = |(subject, calls): (LintSubject, UnansweredCalls)| {
        LintFinding {
        lint: UNANSWERED_CALL,
        severity: Severity::Error,
        subject,
        sentence: format!(
            "{} had no answer 5 s after the timeout was over, and no event shows that the command ended.",
            counted(calls.count, "ExecSync")
        ),
        evidence: calls.last_event.into_iter().map(|message| format!("{message}.")).collect(),
        remedy: "`probeshim explain` of such a call says whether its command has started; look for a container that is \
                 paused, a shim that is stopped, and processes in state D."
            .to_owned(),
        affected: calls.count,
        calls: last(&calls.ids),
    }
    };
    unanswered.into_iter().map(finding).collect()
}

/// The runtime, or its connection, was unavailable.
fn runtime_unavailable(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    let events = events(facts, reason::RUNTIME_UNAVAILABLE);
    let events = events.map(|event| event.count).fold(0, u64::saturating_add);
    let events = u32::try_from(events).unwrap_or(u32::MAX);
    let lost = facts.with_cause(Cause::RuntimeLost.name());
    let calls = facts.calls_with_cause(Cause::RuntimeLost.name());
    (events > 0 || lost > 0).then(|| LintFinding {
        lint: RUNTIME_UNAVAILABLE,
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
    let finding = |(subject, events): (LintSubject, Vec<&Event>)| {
        let calls: BTreeSet<u64> =
            events.iter().filter_map(|event| StuckExec::call_of(&event.message)).collect();
        let affected = events.iter().map(|event| event.count).fold(0, u64::saturating_add);
        let affected = u32::try_from(affected).unwrap_or(u32::MAX);
        LintFinding {
            lint: LEAKED_PROCESS,
            severity: Severity::Warning,
            subject,
            sentence: format!(
                "{} still ran 5 s after an ExecSync that started it had ended.",
                processes(affected)
            ),
            evidence: last_message(&events),
            remedy: "Let the command wait for its child processes, or end them; each of them counts for the limits \
                     of the container."
                .to_owned(),
            affected,
            calls: last(&calls),
        }
    };
    by_container(facts, reason::EXEC_PROCESS_LEAKED).into_iter().map(finding).collect()
}

/// Processes that ExecSyncs started were zombies.
fn zombies(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let finding = |(subject, events): (LintSubject, Vec<&Event>)| {
        let (most, is_first) =
            events.iter().filter_map(|event| StuckExec::zombies_of(&event.message)).max()?;
        let calls: BTreeSet<u64> =
            events.iter().filter_map(|event| StuckExec::call_of(&event.message)).collect();
        let (process, remedy) = if is_first {
            (
                "the first process of the container",
                "Start the container with an init process that waits for orphans, such as tini, set \
                 shareProcessNamespace, or let the command wait for its child processes; each zombie counts for the \
                 limit of processes.",
            )
        } else {
            (
                "a process that an ExecSync left",
                "Let the process wait for its child processes, or end it; each zombie counts for the limit of \
                 processes.",
            )
        };
        let them = if most == 1 { "it" } else { "them" };
        Some(LintFinding {
            lint: ZOMBIES,
            severity: Severity::Warning,
            subject,
            sentence: format!(
                "ExecSyncs left {}: {process} does not wait for {them}.",
                counted(most, "zombie")
            ),
            evidence: last_message(&events),
            remedy: remedy.to_owned(),
            affected: most,
            calls: last(&calls),
        })
    };
    by_container(facts, reason::EXEC_ZOMBIES).into_iter().filter_map(finding).collect()
}

/// Returns the events with a reason by container.
fn by_container<'a>(facts: &PeriodFacts<'a>, reason: &'a str) -> BTreeMap<LintSubject, Vec<&'a Event>> {
    let mut containers: BTreeMap<LintSubject, Vec<&Event>> = BTreeMap::new();
    for event in events(facts, reason) {
        containers.entry(LintSubject::for_event(event)).or_default().push(event);
    }
    containers
}

fn last_message(events: &[&Event]) -> Vec<String> {
    events.last().map(|event| format!("The last of them: {}.", event.message)).into_iter().collect()
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
    use super::super::fixture::{CallDraft, Fixture, only};
    use super::*;
    use crate::cri::Code;
    use crate::execsync::{CommandOutcome, MissingEvents, PhaseDurations};
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
    fn a_runtime_hangs_if_it_answers_neither_several_containers_nor_other_methods() {
        let overdue =
            |container: &str, facts: Fixture| facts.event_of(container, reason::EXEC_SYNC_OVERDUE, OVERDUE);
        let unavailable =
            |facts: Fixture| facts.event(reason::RUNTIME_UNAVAILABLE, "The runtime does not answer");
        let both = || overdue("other", overdue("main", Fixture::new()));
        let hanging = found(unavailable(both()), "hanging-runtime").unwrap();
        assert_eq!(
            hanging.sentence,
            "The runtime answered neither 2 ExecSyncs of 2 containers nor calls of other methods."
        );
        assert_eq!(hanging.severity, Severity::Error);
        assert_eq!(found(unavailable(both()), "runtime-unavailable"), None, "it is the same problem");
        assert_eq!(found(both(), "hanging-runtime"), None, "other methods are answered");
        let one = || unavailable(overdue("main", Fixture::new()));
        assert_eq!(found(one(), "hanging-runtime"), None, "one command runs long");
        let single = found(one(), "unanswered-call").unwrap();
        assert_eq!((single.subject.text(), single.calls), ("shop/web-0 main".to_owned(), vec![7]));
        assert_eq!(found(unavailable(both()), "unanswered-call"), None, "it is the same problem");
    }

    #[test]
    fn a_call_is_answered_if_its_command_ended_or_its_client_cancelled_it() {
        let ended = found(given_up(11_000, false), "unanswered-call").unwrap();
        assert_eq!((ended.affected, ended.calls), (2, vec![1, 2]));
        for reason in [reason::EXEC_SYNC_UNANSWERED, reason::EXEC_SYNC_TIMED_OUT] {
            let facts = Fixture::new().event(reason::EXEC_SYNC_OVERDUE, OVERDUE).event(reason, EXITED);
            assert_eq!(found(facts, "unanswered-call"), None, "the call waits for output");
        }
        assert_eq!(found(given_up(11_000, true), "unanswered-call"), None, "the command had exited");
        assert_eq!(found(given_up(100, false), "unanswered-call"), None, "the client cancelled the call");
    }

    #[test]
    fn a_call_is_answered_if_its_command_was_killed_at_its_timeout_and_only_the_output_was_late() {
        let overdue = "Call 1 has not been answered, 5.00s after its timeout was over: check";
        let killed = |change: &dyn Fn(&mut CallDraft)| {
            Fixture::new().event(reason::EXEC_SYNC_OVERDUE, overdue).calls(1, 10_050, |call| {
                call.fail(Code::DEADLINE_EXCEEDED, "timeout 5s exceeded: context deadline exceeded");
                change(call);
            })
        };
        let drained = |run| {
            move |call: &mut CallDraft| {
                let parts = call.parts();
                parts.run = Some(Duration::from_secs(run));
                parts.drain = Some(Duration::from_millis(10_050 - 1_000 * run));
            }
        };
        assert_eq!(found(killed(&drained(5)), "unanswered-call"), None, "a child held the output");
        assert!(found(killed(&drained(10)), "unanswered-call").is_some(), "the command was not killed");
        let unknown = |call: &mut CallDraft| {
            call.analysis.phases =
                Phases::Missing { parts: PhaseDurations::default(), what: MissingEvents::Everything };
        };
        assert_eq!(found(killed(&unknown), "unanswered-call"), None, "the runtime reports the timeout");
        let other = overdue.replace('1', "9");
        let in_flight = || killed(&unknown).event(reason::EXEC_SYNC_OVERDUE, &other);
        assert_eq!(found(in_flight(), "unanswered-call").unwrap().calls, [9]);
        let ended = in_flight().event(reason::EXEC_SYNC_ENDED, "Call 9 ended after 6.76s");
        assert_eq!(found(ended, "unanswered-call"), None, "it has ended, and is not kept");
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

    #[test]
    fn the_greatest_number_of_zombies_is_found_by_container() {
        let message = |count, parent| {
            format!(
                "{count} processes that ExecSyncs started are zombies, of which call {count} left the youngest (sh): {parent}"
            )
        };
        let first = "the first process of the container (pid 9, sleep) does not wait for them";
        let facts = Fixture::new()
            .event(reason::EXEC_ZOMBIES, &message(5, first))
            .event(reason::EXEC_ZOMBIES, &message(12, first));
        let of_first = found(facts, "zombies").unwrap();
        let expected =
            "ExecSyncs left 12 zombies: the first process of the container does not wait for them.";
        assert_eq!((of_first.sentence.as_str(), of_first.calls), (expected, vec![5, 12]));
        let other = message(5, "process 9 (sh) does not wait for them");
        let of_other = found(Fixture::new().event(reason::EXEC_ZOMBIES, &other), "zombies").unwrap();
        let expected = "ExecSyncs left 5 zombies: a process that an ExecSync left does not wait for them.";
        assert_eq!((of_other.sentence.as_str(), of_other.affected), (expected, 5));
    }
}
