//! Lints about attempts that say little: late, answered by probeshim, or not observed.

use super::facts::{MIN_AFFECTED, PeriodFacts, ProbeFacts, count, ids, part};
use super::finding::{LintFinding, LintSubject, Severity};
use super::names::{AFFECTED_ATTEMPTS, EXEC_LIMIT, INCOMPLETE, LATE_PROBER};
use crate::execsync::cause_name;
use crate::history::timeline::{Gap, GapCause, Minute};
use crate::terminal::format::{counted, milliseconds};

/// Causes of probeshim, with their names in a sentence.
const MARKS: [(&str, &str); 4] = [
    (cause_name::FAULT, "faults"),
    (cause_name::EXEC_LIMIT, "limits"),
    (cause_name::COALESCED, "coalescing"),
    (cause_name::PAUSED, "pauses"),
];

/// Returns the findings about attempts that say little.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let probes =
        facts.probes.iter().flat_map(|probe| [late_prober(probe), exec_limit(probe), affected(probe)]);
    probes.flatten().chain(incomplete(facts)).collect()
}

/// The prober of probeshim discarded attempts, because it was late.
fn late_prober(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let total = &probe.attempts.total;
    (total.discarded >= MIN_AFFECTED).then(|| LintFinding {
        lint: LATE_PROBER,
        severity: Severity::Warning,
        subject: probe.attempts.subject.clone(),
        sentence: format!(
            "probeshim discarded {}, because its prober was too late to measure them.",
            part(total.discarded, total.attempts(), "attempts")
        ),
        evidence: vec!["Such attempts count neither as success nor as failure.".to_owned()],
        remedy: "See whether the node has CPU time left for probeshim, or raise its CPU limit.".to_owned(),
        affected: total.discarded,
        calls: Vec::new(),
    })
}

/// A limit of probeshim held or refused calls.
fn exec_limit(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let limited = probe.attempts.with_cause(cause_name::EXEC_LIMIT);
    (limited >= MIN_AFFECTED).then(|| LintFinding {
        lint: EXEC_LIMIT,
        severity: Severity::Warning,
        subject: probe.attempts.subject.clone(),
        sentence: format!(
            "A limit of concurrent ExecSyncs made {} slow or fail.",
            part(limited, probe.attempts.total.attempts(), "attempts")
        ),
        evidence: vec![not_sent(probe)],
        remedy: "Raise periodSeconds of exec probes, or --max-exec-syncs or --max-exec-syncs-per-container."
            .to_owned(),
        affected: limited,
        calls: ids(&probe.attempts.calls_with_cause(cause_name::EXEC_LIMIT)),
    })
}

/// A fault, a limit, coalescing or a pause of probeshim affected attempts.
fn affected(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let attempts = &probe.attempts;
    let counts = MARKS.map(|(cause, name)| (attempts.with_cause(cause), name));
    let affected =
        attempts.total.not_sent.max(counts.iter().map(|(count, _)| *count).fold(0, u32::saturating_add));
    let named: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{name} {count}"))
        .collect();
    (affected > 0).then(|| LintFinding {
        lint: AFFECTED_ATTEMPTS,
        severity: Severity::Info,
        subject: attempts.subject.clone(),
        sentence: format!("probeshim itself affected {}.", part(affected, attempts.total.attempts(), "attempts")),
        evidence: vec![format!("Attempts by what affected them: {}.", named.join(", ")), not_sent(probe)],
        remedy: "Do not conclude from other findings about this probe before these have ended: see `probeshim fault \
                 list` and `probeshim pause`."
            .to_owned(),
        affected,
        calls: MARKS.iter().flat_map(|(cause, _)| ids(&attempts.calls_with_cause(cause))).collect(),
    })
}

fn not_sent(probe: &ProbeFacts<'_>) -> String {
    format!("Attempts that were not sent to the runtime: {}.", probe.attempts.total.not_sent)
}

/// Times of the period were not, or not completely, observed. The time before the first observation
/// does not count: the period is then shorter. Without an observation, only a gap that is as long
/// as the period counts.
fn incomplete(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    let period = facts.period;
    let first = period.probes.iter().flat_map(|probe| &probe.minutes).map(Minute::start).min();
    let is_within = |gap: &&Gap| match first {
        Some(first) => gap.from > period.from && gap.to > first,
        None => gap.from <= period.from && gap.to >= period.to,
    };
    let gaps: Vec<&Gap> = period.gaps.iter().filter(is_within).collect();
    let length: f64 =
        gaps.iter().filter_map(|gap| gap.to.duration_since(gap.from).ok()).map(|gap| gap.as_secs_f64()).sum();
    let with = |is_it: fn(&GapCause) -> bool| {
        u32::try_from(gaps.iter().filter(|gap| is_it(&gap.cause)).count()).unwrap_or(u32::MAX)
    };
    let dropped = gaps
        .iter()
        .filter_map(|gap| if let GapCause::Dropped(count) = gap.cause { Some(count) } else { None });
    let dropped = dropped.fold(0, u64::saturating_add);
    (!gaps.is_empty()).then(|| LintFinding {
        lint: INCOMPLETE,
        severity: if first.is_none() { Severity::Warning } else { Severity::Info },
        subject: LintSubject::NODE,
        sentence: format!(
            "The period has {}, {} together, in which not all attempts were observed.",
            counted(count(&gaps), "gap"),
            milliseconds(length * 1e3)
        ),
        evidence: vec![format!(
            "probeshim did not run: {}; there are no records: {}; observations were dropped: {}, {dropped} in all; the \
             clock was set: {}.",
            counted(with(|cause| matches!(cause, GapCause::NotRunning)), "time"),
            counted(with(|cause| matches!(cause, GapCause::NotRecorded)), "time"),
            counted(with(|cause| matches!(cause, GapCause::Dropped(_))), "time"),
            counted(with(|cause| matches!(cause, GapCause::ClockStep(_))), "time"),
        )],
        remedy: "Expect more attempts with problems than are counted here, and none of them in these times.".to_owned(),
        affected: count(&gaps),
        calls: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::execsync::{MissingEvents, PhaseDurations, Phases};
    use crate::relay::{CallMarks, FaultMark};

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    #[test]
    fn attempts_that_probeshim_discarded_are_found() {
        let discarded = |count| Fixture::new().attempts(7, 10).row(|row| row.discarded = count);
        assert_eq!(found(discarded(2), "late-prober"), None);
        let expected =
            "probeshim discarded 3 of 10 attempts (30 %), because its prober was too late to measure them.";
        assert_eq!(found(discarded(3), "late-prober").unwrap().sentence, expected);
    }

    #[test]
    fn calls_that_a_limit_held_or_refused_are_found() {
        let limited = |count, policy: &'static str| {
            Fixture::new().attempts(7, 10).slow_with(count, 3000, move |call| {
                call.call.marks =
                    Some(Box::new(CallMarks { policies: vec![Arc::from(policy)], ..CallMarks::default() }));
                call.analysis.phases =
                    Phases::Missing { parts: PhaseDurations::default(), what: MissingEvents::NotSent };
            })
        };
        assert_eq!(found(limited(2, "limit"), "exec-limit"), None);
        assert_eq!(found(limited(3, "coalesce"), "exec-limit"), None);
        let found = found(limited(3, "limit"), "exec-limit").unwrap();
        let expected = "A limit of concurrent ExecSyncs made 3 of 10 attempts (30 %) slow or fail.";
        assert_eq!((found.sentence.as_str(), found.affected), (expected, 3));
        assert_eq!(found.evidence, ["Attempts that were not sent to the runtime: 3."]);
    }

    #[test]
    fn a_fault_makes_its_calls_no_evidence_and_is_reported_itself() {
        assert_eq!(found(Fixture::new().attempts(9, 10).slow(3, 3000), "affected-attempts"), None);
        let fault = FaultMark { name: "f".into(), action: "delay".into() };
        let facts = || {
            Fixture::new().slow_with(5, 3000, |call| {
                call.call.marks =
                    Some(Box::new(CallMarks { faults: vec![fault.clone()], ..CallMarks::default() }));
                let parts = call.parts();
                std::mem::swap(&mut parts.drain, &mut parts.run);
            })
        };
        let found = found(facts(), "affected-attempts").unwrap();
        assert_eq!((found.severity, found.affected), (Severity::Info, 5));
        let period = facts().build();
        assert!(crate::lint::lint(&period).iter().all(|finding| finding.lint != "held-output"));
    }

    #[test]
    fn gaps_between_observations_make_a_period_incomplete() {
        let gap = |from: u64, to: u64, cause: GapCause| {
            let at = Duration::from_secs;
            Fixture::new().attempts(9, 10).gap(move |start| Gap {
                from: start + at(from),
                to: start + at(to),
                cause,
            })
        };
        assert_eq!(found(gap(0, 60, GapCause::NotRunning), "incomplete"), None, "the period begins later");
        let found = found(gap(60, 120, GapCause::Dropped(7)), "incomplete").unwrap();
        assert_eq!(
            (found.sentence.as_str(), found.evidence[0].as_str()),
            (
                "The period has 1 gap, 60.0s together, in which not all attempts were observed.",
                "probeshim did not run: 0 times; there are no records: 0 times; observations were dropped: 1 time, 7 in \
                 all; the clock was set: 0 times."
            )
        );
    }
}
