//! Lints about probes that fail without a kill, and about readiness that flaps.

use std::time::Duration;

use super::facts::{MIN_AFFECTED, MIN_ATTEMPTS, PeriodFacts, ProbeFacts, count, part};
use super::failed_attempts::{FailedAttempts, handler_remedy, too_slow};
use super::finding::{LintFinding, Severity};
use super::lifetimes::{Lifetimes, span};
use super::names::{FAILURES, FLAPPING};
use crate::execsync::CallRecord;
use crate::history::timeline::Prober;
use crate::terminal::format::{counted, duration, size};

/// Minimum number of losses of readiness.
const MIN_LOSSES: usize = 2;

/// Returns the findings about failures.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let failures = facts.probes.iter().filter_map(|probe| failures(facts, probe));
    let flapping = facts.lifetimes.iter().filter_map(|container| flapping(facts, container));
    flapping.chain(failures).chain(facts.probes.iter().filter_map(large_output)).collect()
}

/// Commands write more output than a kubelet keeps.
fn large_output(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let total = &probe.attempts.total;
    let (large, all) = (total.large_outputs, total.attempts());
    let bytes = |call: &&CallRecord| {
        let result = call.call.exec.as_deref()?.result?;
        Some(result.stdout_bytes.saturating_add(result.stderr_bytes))
    };
    let largest = probe.attempts.calls.iter().filter_map(bytes).max();
    (probe.is_probe() && large >= MIN_AFFECTED).then(|| LintFinding {
        lint: "large-output",
        severity: Severity::Info,
        subject: probe.attempts.subject.clone(),
        sentence: format!(
            "The command wrote more than 10 KiB of output in {}: a kubelet reads no more, and the runtime moves all of it \
             each time.",
            part(large, all, "attempts")
        ),
        evidence: largest
            .map(|bytes| {
                let bytes = size(u64::try_from(bytes).unwrap_or(u64::MAX));
                format!("The largest output of the calls that are kept had {bytes}; a response of 16 MiB is refused.")
            })
            .into_iter()
            .collect(),
        remedy: "Redirect the output of the command to /dev/null, or let it print one line.".to_owned(),
        affected: large,
        calls: Vec::new(),
    })
}

/// Attempts failed, not only until the application was up.
fn failures(facts: &PeriodFacts<'_>, probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let total = &probe.attempts.total;
    let own = probe.attempts.own_failures();
    if !probe.has_kubelet_rules() || own == 0 {
        return None;
    }
    let failed = own.saturating_add(total.timeouts);
    let later = total.failures_after_success.saturating_sub(probe.attempts.ended_with_container());
    let never = total.successes == 0;
    // A startup probe is there to fail until the application is up.
    let is_startup = probe.series.probe == "startup";
    let least = if never && is_startup { MIN_ATTEMPTS } else { MIN_AFFECTED };
    if failed < least || (!never && later < MIN_AFFECTED) {
        return None;
    }
    let is_long = never && failed >= MIN_ATTEMPTS;
    let how = FailedAttempts::new(facts, probe)?;
    let consequence = match probe.series.probe.as_str() {
        "readiness" if is_long => "The container has never been ready",
        "startup" if is_long => "The startup probe has never succeeded, so the other probes have not begun",
        _ if is_long => "The probe has never succeeded",
        _ if never => "The probe has not succeeded yet",
        _ => "The probe succeeds and fails by turns",
    };
    let sentence = format!("{consequence}; {}.", how.text);
    Some(LintFinding {
        lint: FAILURES,
        severity: if is_long { Severity::Error } else { Severity::Warning },
        subject: probe.attempts.subject.clone(),
        sentence,
        evidence: (!never)
            .then(|| format!("{} came after a success.", part(later, failed, "failures")))
            .into_iter()
            .collect(),
        remedy: remedy(probe, &how),
        affected: failed,
        calls: how.calls,
    })
}

/// The container changed between ready and not ready.
fn flapping(facts: &PeriodFacts<'_>, container: &Lifetimes) -> Option<LintFinding> {
    let losses = &container.not_ready;
    if losses.len() < MIN_LOSSES {
        return None;
    }
    let is_it = |probe: &&ProbeFacts<'_>| {
        probe.series.probe.split(" or ").any(|probe| probe == "readiness")
            && probe.attempts.subject.clone().into_container() == container.subject
    };
    let rank =
        |probe: &&ProbeFacts<'_>| (probe.series.prober == Prober::Kubelet, probe.attempts.total.failed());
    let probe = facts.probes.iter().filter(is_it).max_by_key(rank);
    let how = probe.and_then(|probe| FailedAttempts::new(facts, probe));
    let length = span(losses.iter().copied());
    let hours = length.max(Duration::from_secs(1)).as_secs_f64() / 3600.0;
    let rate = f64::from(count(losses) - 1) / hours;
    let attempts = how.as_ref().map(|how| format!("; {}", how.text)).unwrap_or_default();
    let sentence = format!(
        "The container lost its readiness {} in {} (about {rate:.0} per hour){attempts}.",
        counted(count(losses), "time"),
        duration(length)
    );
    let threshold = probe.and_then(|probe| probe.series.failure_threshold);
    let raise = threshold.map(|now| format!(" (now {now})")).unwrap_or_default();
    let fix = probe.zip(how.as_ref()).map_or_else(
        || "Find out why the readiness probe fails.".to_owned(),
        |(probe, how)| remedy(probe, how),
    );
    Some(LintFinding {
        lint: FLAPPING,
        severity: Severity::Warning,
        subject: probe.map_or_else(|| container.subject.clone(), |probe| probe.attempts.subject.clone()),
        sentence,
        evidence: vec!["A container gets no traffic while it is not ready.".to_owned()],
        remedy: format!("{fix} A higher failureThreshold{raise} hides short failures from the traffic."),
        affected: count(losses),
        calls: how.map(|how| how.calls).unwrap_or_default(),
    })
}

fn remedy(probe: &ProbeFacts<'_>, how: &FailedAttempts) -> String {
    if how.is_timeout {
        return format!("{}.", too_slow(probe.series.timeout));
    }
    format!("{}.", handler_remedy(&probe.series.handler, how.output.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::events::reason;
    use crate::history::timeline::Minute;

    fn found(facts: Fixture, lint: &str) -> Option<LintFinding> {
        only(super::lint, facts, lint)
    }

    fn readiness() -> Fixture {
        Fixture::new().probe("readiness", |_| {})
    }

    fn failing(facts: Fixture, count: u32) -> Fixture {
        facts.calls(count, 10, |call| {
            call.exit(1);
            call.exec.output = Some("\npool is empty\n".into());
        })
    }

    #[test]
    fn failures_until_the_application_is_up_are_no_finding() {
        assert_eq!(found(failing(readiness(), 9).attempts(9, 10), FAILURES), None);
        let startup = Fixture::new().probe("startup", |_| {});
        assert_eq!(found(failing(startup, 9), FAILURES), None, "a startup probe waits for the application");
    }

    #[test]
    fn failures_after_a_success_are_found_with_their_output() {
        let later = |count| {
            let facts = failing(readiness().attempts(9, 10), 3);
            facts.row(|row: &mut Minute| row.failures_after_success = count)
        };
        assert_eq!(found(later(2), FAILURES), None);
        let found = found(later(3), FAILURES).unwrap();
        assert_eq!(
            (found.severity, found.sentence.as_str(), found.remedy.as_str()),
            (
                Severity::Warning,
                "The probe succeeds and fails by turns; 3 of 12 attempts exited with 1: \"pool is empty\".",
                "Correct what the output names."
            )
        );
    }

    #[test]
    fn attempts_that_ended_with_their_container_are_no_failures() {
        let ended = |facts: Fixture, count| {
            facts.calls(count, 10, |call| {
                call.exit(137);
                call.analysis.container_exited = true;
            })
        };
        let later = |row: &mut Minute| row.failures_after_success = 6;
        assert_eq!(found(ended(readiness().attempts(9, 10), 6).row(later), FAILURES), None);
        let mixed = failing(ended(readiness().attempts(9, 10), 3), 3).row(later);
        let found = found(mixed, FAILURES).unwrap();
        assert!(found.sentence.ends_with("3 of 15 attempts exited with 1: \"pool is empty\"."), "{found:?}");
        assert_eq!((found.affected, found.calls.len()), (3, 3));
    }

    #[test]
    fn a_probe_that_never_succeeds_is_an_error_after_ten_attempts() {
        let sentence = |count| {
            let found = found(failing(readiness(), count), FAILURES);
            found.map(|found| (found.severity, found.sentence))
        };
        assert_eq!(sentence(2), None);
        let text = |text: &str| format!("{text} attempts exited with 1: \"pool is empty\".");
        let early = text("The probe has not succeeded yet; 3 of 3");
        assert_eq!(sentence(3), Some((Severity::Warning, early)));
        let late = text("The container has never been ready; 10 of 10");
        assert_eq!(sentence(10), Some((Severity::Error, late)));
    }

    #[test]
    fn readiness_that_is_lost_twice_flaps() {
        let lost = |times: u64| {
            (0..times).fold(failing(readiness().attempts(9, 10), 3), |facts, nth| {
                facts.event_at(60 * nth, reason::CONTAINER_NOT_READY, "Container main is no longer ready")
            })
        };
        assert_eq!(found(lost(1), FLAPPING), None);
        let found = found(lost(3), FLAPPING).unwrap();
        assert_eq!(
            found.sentence,
            "The container lost its readiness 3 times in 2m00s (about 60 per hour); 3 of 12 attempts exited with 1: \
             \"pool is empty\"."
        );
        assert_eq!((found.severity, found.subject.probe.as_deref()), (Severity::Warning, Some("readiness")));
    }

    #[test]
    fn output_that_no_kubelet_reads_is_an_information() {
        let large = |bytes| {
            Fixture::new().slow_with(3, 900, move |call| {
                call.exit(1);
                call.exec.result.as_mut().unwrap().stdout_bytes = bytes;
            })
        };
        assert_eq!(found(large(10 << 10), "large-output"), None);
        let found = found(large(200 << 10), "large-output").unwrap();
        assert_eq!(found.severity, Severity::Info);
        assert!(found.sentence.contains(" in 3 of 3 attempts (100 %): "), "{found:?}");
    }
}
