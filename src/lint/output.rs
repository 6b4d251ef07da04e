//! Lint about output that a child process holds open.

use std::time::Duration;

use super::facts::{Attempts, MIN_AFFECTED, PeriodFacts, count, ids, is_share, number, part};
use super::finding::{LintFinding, LintSubject, Severity};
use super::load::is_in_storm;
use crate::events::reason;
use crate::execsync::{CallRecord, Cause, DRAIN_ADVICE, StuckExec};
use crate::history::json::Event;
use crate::history::timeline::Minute;
use crate::terminal::format;

/// Minimum share of drain in the time of calls.
const NOTABLE_DRAIN: f64 = 0.5;

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
            lint: "held-output",
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
    let time: Duration = total.phases.sums.iter().sum();
    !time.is_zero() && total.phases.sums[DRAIN] >= time.mul_f64(NOTABLE_DRAIN)
}

/// The runtime waited for the end of the output. `stuck` has calls that it did not answer.
fn held_output(attempts: &Attempts<'_>, stuck: &[u64]) -> Option<LintFinding> {
    let drained = attempts.calls_with_cause(Cause::Drain).into_iter().filter(|call| !is_in_storm(call));
    let drained: Vec<&CallRecord> = drained.collect();
    let is_usual = is_share(count(&drained), attempts.slow_or_failed(), NOTABLE_DRAIN);
    let is_notable = (count(&drained) >= MIN_AFFECTED && is_usual)
        || (!drained.is_empty() && is_mostly_drain(&attempts.total));
    if !is_notable && stuck.is_empty() {
        return None;
    }
    let phase =
        |call: &CallRecord| call.analysis.as_deref().and_then(|analysis| analysis.phases.parts().drain);
    let drain: Duration = drained.iter().copied().filter_map(phase).sum();
    let time: Duration = drained.iter().map(|call| call.call.duration).sum();
    let sentence = if drained.is_empty() {
        format!(
            "{} not answered after the command had exited: a process that the command started probably holds \
             stdout or stderr open.",
            if stuck.len() == 1 { "1 call was".to_owned() } else { format!("{} calls were", stuck.len()) }
        )
    } else {
        format!(
            "{:.0} % of the time of {} was drain: a process that the command started holds stdout or stderr \
             open.",
            (100.0 * drain.as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE)).floor(),
            number(count(&drained), "slow or failed call")
        )
    };
    let mut evidence = Vec::new();
    if !drained.is_empty() {
        let of_all = part(count(&drained), attempts.slow_or_failed(), "slow or failed attempts");
        let (drain, time) = (format::duration(drain), format::duration(time));
        evidence.push(format!("The drain phase was the cause in {of_all}: {drain} of {time}."));
    }
    if !stuck.is_empty() {
        let calls = number(count(stuck), "call");
        evidence.push(format!("{calls} had no answer 5 s after the command had exited."));
    }
    evidence.extend(attempts.not_kept());
    let mut calls = ids(&drained);
    calls.extend(stuck.iter().filter(|id| !drained.iter().any(|call| call.call.id == **id)));
    Some(LintFinding {
        lint: "held-output",
        severity: if stuck.is_empty() { Severity::Warning } else { Severity::Error },
        subject: attempts.subject.clone(),
        sentence,
        evidence,
        remedy: remedy(),
        affected: u32::try_from(calls.len()).unwrap_or(u32::MAX).max(count(&drained)),
        calls,
    })
}

fn remedy() -> String {
    let (first, rest) = DRAIN_ADVICE.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;

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
            "100 % of the time of 5 slow or failed calls was drain: a process that the command started holds \
             stdout or stderr open."
        );
        assert_eq!((found.severity, found.affected, found.calls.len()), (Severity::Warning, 5, 5));
    }

    #[test]
    fn slow_cleanup_in_a_probe_storm_is_no_held_output() {
        let storm = Fixture::new().attempts(20, 10).slow_with(5, 3000, |call| {
            let parts = call.parts();
            parts.drain = parts.run.take();
            call.evidence().in_flight = (1, 64);
        });
        assert_eq!(found(storm), None);
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
