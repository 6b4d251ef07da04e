//! Lints about the limits of containers: CPU, memory, processes, and the freezer.

use super::facts::{Attempts, MIN_AFFECTED, PeriodFacts, count, evidence, ids, is_share, part, sum};
use super::finding::{LintFinding, LintSubject, Severity, as_sentence};
use super::names::{FROZEN, OUT_OF_MEMORY, PIDS_LIMIT, THROTTLED};
use crate::events::reason;
use crate::execsync::{CallRecord, Cause, CpuUsage, Evidence, cpu_limit, remedy};
use crate::history::json::Event;
use crate::terminal::format::{counted, duration};

/// Name of the container in remedies.
const CONTAINER: &str = "the container";

/// Minimum share of throttled calls.
const NOTABLE_SHARE: f64 = 0.2;

/// Returns the findings about limits.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let findings = |container: &Attempts<'_>| {
        [throttled(container), out_of_memory(facts, container), pids_limit(container), frozen(container)]
    };
    facts.containers.iter().flat_map(findings).flatten().collect()
}

/// The container reached its CPU limit.
fn throttled(container: &Attempts<'_>) -> Option<LintFinding> {
    let affected = container.with_cause(Cause::Throttled.name());
    if affected < MIN_AFFECTED || !is_share(affected, container.slow_or_failed(), NOTABLE_SHARE) {
        return None;
    }
    let calls = container.calls_with_cause(Cause::Throttled.name());
    let cpu: Vec<CpuUsage> = calls.iter().filter_map(|call| evidence(call)?.cpu).collect();
    let limit = cpu.iter().rev().find_map(|cpu| cpu.quota);
    let all = |value: fn(&CpuUsage) -> u64| cpu.iter().map(value).fold(0, u64::saturating_add);
    let measured = (!cpu.is_empty()).then(|| {
        format!(
            "In {}, it was throttled in {} of {} CFS periods, for {} summed over its processors.",
            counted(count(&cpu), "call"),
            all(|cpu| cpu.throttled_periods),
            all(|cpu| cpu.periods),
            duration(sum(cpu.iter().map(|cpu| cpu.throttled)))
        )
    });
    let by = limit.map(|limit| format!(" by its limit of {}", cpu_limit(limit))).unwrap_or_default();
    Some(LintFinding {
        lint: THROTTLED,
        severity: Severity::Warning,
        subject: container.subject.clone(),
        sentence: format!(
            "The container was throttled{by} in {}.",
            part(affected, container.slow_or_failed(), "slow or failed attempts")
        ),
        evidence: measured.into_iter().collect(),
        remedy: as_sentence(&format!(
            "{}; the command of a probe shares it with the application",
            remedy::throttled(CONTAINER, limit)
        )),
        affected,
        calls: ids(&calls),
    })
}

/// The kernel killed processes of the container for lack of memory.
fn out_of_memory(facts: &PeriodFacts<'_>, container: &Attempts<'_>) -> Option<LintFinding> {
    let killed = |call: &&CallRecord| {
        evidence(call).and_then(|evidence| evidence.oom_kills).is_some_and(|kills| kills > 0)
    };
    let calls: Vec<&CallRecord> = container.calls.iter().copied().filter(killed).collect();
    let in_calls = container.with_cause(Cause::OutOfMemory.name()).max(count(&calls));
    let is_event = |event: &&Event| {
        event.reason == reason::CONTAINER_OUT_OF_MEMORY && LintSubject::for_event(event) == container.subject
    };
    let events = facts.period.events.iter().filter(is_event).map(|event| event.count);
    let events = events.fold(0, u64::saturating_add);
    let events = u32::try_from(events).unwrap_or(u32::MAX);
    (in_calls > 0 || events > 0).then(|| LintFinding {
        lint: OUT_OF_MEMORY,
        severity: Severity::Error,
        subject: container.subject.clone(),
        sentence: "The kernel killed processes of the container, because its memory was used up.".to_owned(),
        evidence: vec![format!(
            "It did during {}, and the runtime reported it {}.",
            counted(in_calls, "slow or failed attempt"),
            counted(events, "time")
        )],
        remedy: as_sentence(&remedy::out_of_memory(CONTAINER)),
        affected: in_calls.max(events),
        calls: ids(&calls),
    })
}

/// The container, its pod or a group of pods has almost as many processes as it may have.
fn pids_limit(container: &Attempts<'_>) -> Option<LintFinding> {
    let affected = container.with_cause(Cause::PidsLimit.name());
    let calls = container.calls_with_cause(Cause::PidsLimit.name());
    let pids = calls.iter().rev().find_map(|call| evidence(call).and_then(Evidence::pids_at_limit));
    let reached = pids.and_then(|pids| Some(format!("{} had {}", pids.scope.owner(), pids.share()?)));
    (affected > 0).then(|| LintFinding {
        lint: PIDS_LIMIT,
        severity: Severity::Error,
        subject: container.subject.clone(),
        sentence: format!(
            "{} could not start a process: {}.",
            counted(affected, "attempt"),
            reached.as_deref().unwrap_or("a limit of processes was reached")
        ),
        evidence: Vec::new(),
        remedy: as_sentence(&remedy::pids_limit(CONTAINER, pids.map(|pids| pids.scope))),
        affected,
        calls: ids(&calls),
    })
}

/// The container was frozen.
fn frozen(container: &Attempts<'_>) -> Option<LintFinding> {
    let affected = container.with_cause(Cause::Frozen.name());
    let calls = container.calls_with_cause(Cause::Frozen.name());
    (affected > 0).then(|| LintFinding {
        lint: FROZEN,
        severity: Severity::Error,
        subject: container.subject.clone(),
        sentence: format!(
            "The container was frozen during {}: no process in it can run.",
            counted(affected, "slow or failed attempt")
        ),
        evidence: Vec::new(),
        remedy: as_sentence(&remedy::frozen(CONTAINER)),
        affected,
        calls: ids(&calls),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture::{CallDraft, Fixture, only};
    use super::*;
    use crate::cri::Code;
    use crate::execsync::{Pids, PidsScope};

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    fn throttle(call: &mut CallDraft) {
        call.evidence().cpu = Some(CpuUsage {
            quota: Some(0.05),
            used: None,
            periods: 10,
            throttled_periods: 8,
            throttled: Duration::from_millis(700),
        });
    }

    #[test]
    fn a_container_that_its_cpu_limit_throttles_in_slow_calls_is_found_once() {
        let facts = || Fixture::new().attempts(20, 10);
        assert_eq!(found(facts().slow_with(2, 3000, throttle), "throttled"), None, "two may be chance");
        let rarely = facts().slow_with(3, 3000, throttle).slow(20, 3000);
        assert_eq!(found(rarely, "throttled"), None, "other causes prevail");
        let both = facts().slow_with(3, 3000, throttle).slow(1, 3000).probe("readiness", |_| {});
        let found = found(both.slow_with(1, 3000, throttle), "throttled").unwrap();
        let expected =
            "The container was throttled by its limit of 50m CPU in 4 of 5 slow or failed attempts (80 %).";
        assert_eq!((found.severity, found.sentence.as_str()), (Severity::Warning, expected));
        assert_eq!(
            found.evidence,
            ["In 4 calls, it was throttled in 32 of 40 CFS periods, for 2.80s summed over its processors."]
        );
        assert_eq!((found.subject.text().as_str(), found.affected), ("shop/web-0 main", 4));
    }

    #[test]
    fn killed_processes_are_found_in_calls_and_in_events() {
        let killed = |kills| {
            Fixture::new().calls(1, 100, move |call| {
                call.exit(137);
                call.evidence().oom_kills = Some(kills);
            })
        };
        assert_eq!(found(killed(0), "out-of-memory"), None);
        let event = |facts: Fixture| facts.event(reason::CONTAINER_OUT_OF_MEMORY, "killed");
        for (facts, evidence) in [
            (killed(1), "It did during 1 slow or failed attempt, and the runtime reported it 0 times."),
            (
                event(killed(0)),
                "It did during 0 slow or failed attempts, and the runtime reported it 1 time.",
            ),
        ] {
            let found = found(facts, "out-of-memory").unwrap();
            assert_eq!((found.severity, found.evidence), (Severity::Error, vec![evidence.to_owned()]));
        }
    }

    #[test]
    fn a_container_without_room_for_processes_is_found() {
        let refused = |current, scope, message: &'static str| {
            Fixture::new().calls(2, 100, move |call| {
                call.fail(Code(2), message);
                call.evidence().pids = Some(Pids { current, max: Some(100), scope });
            })
        };
        assert_eq!(found(refused(50, PidsScope::Container, "something odd"), "pids-limit"), None);
        let unknown = refused(50, PidsScope::Pod, "fork: resource temporarily unavailable");
        for (facts, reached, remedy) in [
            (
                refused(99, PidsScope::Container, "something odd"),
                "the container had 99 of at most 100 processes and threads",
                "Find out which processes the container leaves behind",
            ),
            (
                refused(99, PidsScope::Pod, "something odd"),
                "the pod had 99 of at most 100 processes and threads",
                "Look for the container of the pod that leaves processes behind",
            ),
            (
                refused(99, PidsScope::Pods, "something odd"),
                "a group of pods that includes this one had 99 of at most 100 processes and threads",
                "Look in all pods of the group",
            ),
            (
                unknown,
                "a limit of processes was reached",
                "Find out which processes the container leaves behind",
            ),
        ] {
            let found = found(facts, "pids-limit").unwrap();
            assert_eq!((found.severity, found.affected), (Severity::Error, 2));
            assert_eq!(found.sentence, format!("2 attempts could not start a process: {reached}."));
            assert!(found.remedy.starts_with(remedy), "{found:?}");
        }
    }

    #[test]
    fn a_frozen_container_is_found() {
        let frozen = |is_frozen| {
            Fixture::new().slow_with(1, 3000, move |call| call.evidence().is_frozen = Some(is_frozen))
        };
        assert_eq!(found(frozen(false), "frozen"), None);
        assert_eq!(found(frozen(true), "frozen").unwrap().severity, Severity::Error);
    }
}
