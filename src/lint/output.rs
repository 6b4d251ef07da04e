//! Lint about output that a child process holds open.

use std::time::Duration;

use super::facts::{Attempts, MIN_AFFECTED, PeriodFacts, count, ids, is_share, part, sum};
use super::finding::{LintFinding, LintSubject, Severity, as_sentence};
use super::names::HELD_OUTPUT;
use crate::events::reason;
use crate::execsync::{CallRecord, Cause, DRAIN_ADVICE, StuckExec};
use crate::history::json::Event;
use crate::history::timeline::Minute;
use crate::terminal::format::{self, counted};

/// Minimum share of drain in the time of calls.
const NOTABLE_DRAIN: f64 = 0.5;

/// Minimum of the longest drain. A shorter one may be the work of the runtime alone.
const MIN_DRAIN: Duration = Duration::from_millis(100);

/// Index of the drain phase in sums of phases.
const DRAIN: usize = 4;

/// Calls that were not answered after their commands had exited.
struct Unanswered<'a> {
    event: &'a Event,
    subject: LintSubject,
    is_found: bool,
}

/// Returns the findings about output that is held open.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let events = facts.period.events.iter().filter(|event| event.reason == reason::EXEC_SYNC_UNANSWERED);
    let unanswered = |event| Unanswered { event, subject: LintSubject::for_event(event), is_found: false };
    let mut unanswered: Vec<Unanswered<'_>> = events.map(unanswered).collect();
    let mut found: Vec<LintFinding> = Vec::new();
    for probe in &facts.probes {
        let container = probe.attempts.subject.clone().into_container();
        let command = format!(": {}", probe.series.handler);
        let mut stuck = Vec::new();
        for event in &mut unanswered {
            if !event.is_found && event.subject == container && event.event.message.ends_with(&command) {
                event.is_found = true;
                stuck.extend(StuckExec::call_of(&event.event.message));
            }
        }
        found.extend(held_output(&probe.attempts, &stuck));
    }
    // Calls in flight belong to no attempt yet.
    let rest = unanswered.iter().filter(|event| !event.is_found);
    found.extend(rest.map(|Unanswered { event, subject, .. }| {
        LintFinding {
            lint: HELD_OUTPUT,
            severity: Severity::Error,
            subject: subject.clone(),
            sentence:
                "An ExecSync was not answered after its command had exited: a process that the command \
                   started probably holds stdout or stderr open."
                    .to_owned(),
            evidence: vec![format!("{}.", event.message)],
            remedy: remedy(),
            affected: 1,
            calls: StuckExec::call_of(&event.message).into_iter().collect(),
        }
    }));
    found
}

/// Returns whether most of the time of calls was drain.
pub(super) fn is_mostly_drain(total: &Minute) -> bool {
    let time = sum(total.phases.sums.into_iter());
    !time.is_zero() && total.phases.sums[DRAIN] >= time.mul_f64(NOTABLE_DRAIN)
}

/// The runtime waited for the end of the output. `stuck` has calls that it did not answer.
fn held_output(attempts: &Attempts<'_>, stuck: &[u64]) -> Option<LintFinding> {
    let (total, all) = (&attempts.total, attempts.slow_or_failed());
    let drained = attempts.with_cause(Cause::Drain.name());
    let is_most = is_mostly_drain(total);
    let is_usual = drained >= MIN_AFFECTED && is_share(drained, all, NOTABLE_DRAIN);
    if !(is_usual || (drained > 0 && is_most)) && stuck.is_empty() {
        return None;
    }
    let kept = attempts.calls_with_cause(Cause::Drain.name());
    let phase = |call: &&CallRecord| call.analysis.as_deref()?.phases.parts().drain;
    let slowest = kept.iter().filter_map(|call| Some((call, phase(call)?))).max_by_key(|it| it.1);
    if stuck.is_empty() && slowest.is_some_and(|(_, drain)| drain < MIN_DRAIN) {
        return None;
    }
    let holds = "a process that the command started holds stdout or stderr open";
    let share = format!(
        "{} % of the time of {} was drain",
        percent(total.phases.sums[DRAIN], sum(total.phases.sums.into_iter())),
        counted(total.phases.calls, "attempt")
    );
    let longest = format!("drain was the longest phase of {}", part(drained, all, "slow or failed attempts"));
    let mut evidence = Vec::new();
    let sentence = if drained == 0 {
        let calls = counted(count(stuck), "call");
        format!("The runtime did not answer {calls} after the command had exited: {holds}, probably.")
    } else if is_most {
        evidence.push(format!("{}.", format::capitalized(&longest)));
        format!("{share}: {holds}.")
    } else {
        evidence.push(format!("{share}."));
        format!("{}: {holds}.", format::capitalized(&longest))
    };
    if let Some((call, drain)) = slowest {
        let (drain, time) = (format::duration(drain), format::duration(call.call.duration));
        evidence.push(format!("The longest drain was {drain} of {time}, in call {}.", call.call.id));
    }
    if !stuck.is_empty() {
        let calls = counted(count(stuck), "call");
        evidence.push(format!("{calls} had no answer 5 s after the command had exited."));
    }
    let mut calls = ids(&kept);
    calls.extend(stuck.iter().filter(|id| !kept.iter().any(|call| call.call.id == **id)));
    Some(LintFinding {
        lint: HELD_OUTPUT,
        severity: if stuck.is_empty() { Severity::Warning } else { Severity::Error },
        subject: attempts.subject.clone(),
        sentence,
        evidence,
        remedy: remedy(),
        affected: drained.max(count(stuck)),
        calls,
    })
}

fn percent(part: Duration, whole: Duration) -> String {
    format!("{:.0}", (100.0 * part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE)).floor())
}

fn remedy() -> String {
    as_sentence(DRAIN_ADVICE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::execsync::PressureStall;

    fn found(facts: Fixture) -> Option<LintFinding> {
        only(super::lint, facts, "held-output")
    }

    fn held(count: u32) -> Fixture {
        Fixture::new().attempts(20, 10).slow_with(count, 3000, |call| {
            let parts = call.parts();
            parts.drain = parts.run;
            parts.run = Some(Duration::from_millis(30));
        })
    }

    #[test]
    fn calls_that_wait_for_their_output_are_found_with_the_share_of_drain() {
        assert_eq!(found(Fixture::new().attempts(20, 10).slow(5, 3000)), None, "the command ran long");
        let found = found(held(5)).unwrap();
        assert_eq!(
            found.sentence,
            "97 % of the time of 25 attempts was drain: a process that the command started holds stdout or stderr open."
        );
        assert_eq!(
            found.evidence,
            [
                "Drain was the longest phase of 5 of 5 slow or failed attempts (100 %).",
                "The longest drain was 3.00s of 3.00s, in call 25.",
            ]
        );
        assert_eq!((found.severity, found.affected, found.calls.len()), (Severity::Warning, 5, 5));
    }

    #[test]
    fn an_output_that_is_held_in_few_attempts_is_found_by_their_causes() {
        assert_eq!(found(held(2).slow(90, 100)), None, "two may be chance");
        let rarely = held(3).slow(3, 9000);
        assert_eq!(
            found(rarely).unwrap().sentence,
            "Drain was the longest phase of 3 of 6 slow or failed attempts (50 %): a process that the command started \
             holds stdout or stderr open."
        );
    }

    #[test]
    fn a_drain_of_a_few_milliseconds_is_no_held_output() {
        let drained = |took| {
            Fixture::new().attempts(20, 10).slow_with(5, took, move |call| {
                let parts = call.parts();
                parts.drain = parts.run.take();
            })
        };
        assert_eq!(found(drained(99)), None);
        assert!(found(drained(100)).is_some());
    }

    #[test]
    fn slow_cleanup_in_a_probe_storm_is_no_held_output() {
        let in_storm = |stalled| {
            Fixture::new().attempts(20, 10).slow_with(5, 3000, move |call| {
                let parts = call.parts();
                parts.drain = parts.run.take();
                call.evidence().in_flight = (1, 64);
                let cpu = Duration::from_millis(stalled);
                call.evidence().node_pressure = Some(PressureStall { cpu, ..PressureStall::default() });
            })
        };
        assert_eq!(found(in_storm(3000)), None, "the node lacked CPU all the time");
        assert!(found(in_storm(1000)).is_some(), "lack of CPU does not explain the drain phase");
    }

    #[test]
    fn a_call_without_an_answer_is_found_while_it_is_in_flight() {
        let message = "Call 7 has not been answered, 5.00s after its command exited (pid 9): sleep 1";
        let event = |message| Fixture::new().event(reason::EXEC_SYNC_UNANSWERED, message);
        let in_flight = found(event(message)).unwrap();
        assert_eq!((in_flight.severity, in_flight.calls), (Severity::Error, vec![7]));
        assert_eq!(in_flight.subject.text(), "shop/web-0 main");
        let ended = found(
            event("Call 7 has not been answered, 5.00s after its command exited: check").attempts(1, 10),
        );
        assert_eq!(ended.unwrap().subject.text(), "shop/web-0 main liveness (kubelet)");
    }
}
