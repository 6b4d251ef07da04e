//! Lints about probes that fail without a kill, and about readiness that flaps.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::facts::{MIN_AFFECTED, MIN_ATTEMPTS, PeriodFacts, ProbeFacts, count, part};
use super::failed_attempts::FailedAttempts;
use super::finding::{LintFinding, Severity};
use super::lifetimes::{Lifetimes, span};
use super::names::{FAILURES, FLAPPING, LARGE_OUTPUT};
use crate::execsync::{CallRecord, cause_name};
use crate::history::timeline::{Minute, Prober};
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
    let (large, failed) = (total.large_outputs, total.failures.saturating_add(total.timeouts));
    let bytes = |call: &&CallRecord| {
        let result = call.call.exec.as_deref()?.result?;
        Some(result.stdout_bytes.saturating_add(result.stderr_bytes))
    };
    let largest = probe.attempts.calls.iter().filter_map(bytes).max();
    (probe.is_probe() && large >= MIN_AFFECTED).then(|| LintFinding {
        lint: LARGE_OUTPUT,
        severity: Severity::Info,
        subject: probe.attempts.subject.clone(),
        sentence: format!(
            "The command wrote more than 10 KiB of output in {}: a kubelet reads no more, so its event may lack the \
             reason.",
            part(large, failed, "failed attempts")
        ),
        evidence: largest
            .map(|bytes| {
                let bytes = size(u64::try_from(bytes).unwrap_or(u64::MAX));
                format!("The largest output of the recorded calls had {bytes}; a response of 16 MiB is refused.")
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
    let course = course(probe, failed, later)?;
    let is_startup = probe.series.probe == "startup";
    let (severity, consequence) = match course {
        Course::NeverSucceeded if is_startup => (
            Severity::Error,
            "The startup probe has no success in this period, so the other probes have not begun".to_owned(),
        ),
        Course::NeverSucceeded => (
            if failed >= MIN_ATTEMPTS { Severity::Error } else { Severity::Warning },
            "The probe has no success in this period".to_owned(),
        ),
        Course::FailsSince(ref streak) => (
            if is_startup || streak.failures < MIN_ATTEMPTS { Severity::Warning } else { Severity::Error },
            format!(
                "The probe has failed {} in a row since {}",
                counted(streak.failures, "time"),
                clock(streak.since)
            ),
        ),
        Course::ByTurns => (Severity::Warning, "The probe succeeds and fails by turns".to_owned()),
        Course::Mixed => (Severity::Warning, "The probe has successes and failures".to_owned()),
    };
    let how = FailedAttempts::new(facts, probe)?;
    Some(LintFinding {
        lint: FAILURES,
        severity,
        subject: probe.attempts.subject.clone(),
        sentence: format!("{consequence}; {}.", how.text),
        evidence: matches!(course, Course::ByTurns | Course::Mixed)
            .then(|| format!("{} came after a success.", part(later, failed, "failures")))
            .into_iter()
            .collect(),
        remedy: format!("{}.", how.remedy(probe.series)),
        affected: failed,
        calls: how.calls,
    })
}

/// Results of a probe over a period.
enum Course {
    /// No attempt succeeded.
    NeverSucceeded,
    /// The attempts failed without a success until the end.
    FailsSince(Streak),
    /// Failures came between successes.
    ByTurns,
    /// There are successes and failures, whose order within a minute is not known.
    Mixed,
}

/// Failures after the last success of a probe.
struct Streak {
    /// Number of failures in the minutes after that of the last success.
    failures: u32,
    /// Beginning of the first of these minutes with a failure.
    since: SystemTime,
}

/// Returns how a probe with failures behaved; `None` if too few failed, or only until the
/// application was up.
fn course(probe: &ProbeFacts<'_>, failed: u32, later: u32) -> Option<Course> {
    if probe.attempts.total.successes == 0 {
        // A startup probe is there to fail until the application is up.
        let least = if probe.series.probe == "startup" { MIN_ATTEMPTS } else { MIN_AFFECTED };
        return (failed >= least).then_some(Course::NeverSucceeded);
    }
    let is_notable = failed >= MIN_AFFECTED && later >= MIN_AFFECTED;
    let streak = streak(probe).filter(|streak| {
        let is_most = streak.failures > failed / 2 || streak.failures >= later;
        streak.failures >= MIN_ATTEMPTS || (is_notable && is_most && streak.failures >= MIN_AFFECTED)
    });
    let mixed = is_notable.then(|| if alternates(probe) { Course::ByTurns } else { Course::Mixed });
    streak.map(Course::FailsSince).or(mixed)
}

/// Returns whether failures came in a minute between two with successes.
fn alternates(probe: &ProbeFacts<'_>) -> bool {
    let succeeded = || probe.minutes.iter().filter(|row| row.successes > 0).map(|row| row.minute);
    let Some((first, last)) = succeeded().min().zip(succeeded().max()) else { return false };
    probe.minutes.iter().any(|row| first < row.minute && row.minute < last && own_failures(row) > 0)
}

/// Returns the failures after the last success. Within its minute, the order is not known.
fn streak(probe: &ProbeFacts<'_>) -> Option<Streak> {
    let last = probe.minutes.iter().filter(|row| row.successes > 0).map(|row| row.minute).max()?;
    let later = || probe.minutes.iter().filter(|row| row.minute > last && own_failures(row) > 0);
    let since = later().min_by_key(|row| row.minute)?.start();
    Some(Streak { failures: later().map(|row| own_failures(row)).fold(0, u32::saturating_add), since })
}

/// Returns the number of failures and timeouts, without those that ended with their container.
fn own_failures(row: &Minute) -> u32 {
    let ended = row.causes.get(cause_name::ENDED_FAILURE).copied().unwrap_or_default();
    row.failures.saturating_sub(ended).saturating_add(row.timeouts)
}

/// Returns the time of the day.
fn clock(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).map(|time| time.strftime("%H:%M UTC").to_string());
    time.unwrap_or_else(|_| "an unknown time".to_owned())
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
    if how.is_none() && probe.is_some_and(|probe| probe.attempts.ended_with_container() > 0) {
        return None;
    }
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
        |(probe, how)| format!("{}.", how.remedy(probe.series)),
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

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::events::reason;

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
                "The probe has successes and failures; 3 of 12 attempts exited with 1: \"pool is empty\".",
                "Fix the error that the output reports."
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
        let early = text("The probe has no success in this period; 3 of 3");
        assert_eq!(sentence(3), Some((Severity::Warning, early)));
        let late = text("The probe has no success in this period; 10 of 10");
        assert_eq!(sentence(10), Some((Severity::Error, late)));
    }

    #[test]
    fn a_probe_that_fails_without_a_break_until_the_end_is_an_error() {
        // The fixture makes one attempt per second.
        let found = found(failing(readiness().attempts(62, 10), 70), FAILURES).unwrap();
        assert_eq!(
            (found.severity, found.sentence.as_str()),
            (
                Severity::Error,
                "The probe has failed 13 times in a row since 01:49 UTC; 70 of 132 attempts exited with 1: \"pool is \
                 empty\"."
            )
        );
        assert_eq!(found.evidence, [""; 0]);
        let later = |row: &mut Minute| row.failures_after_success = 8;
        let early = only(super::lint, failing(readiness().attempts(57, 10), 8).row(later), FAILURES);
        let early = early.map(|found| (found.severity, found.sentence.contains("6 times in a row")));
        assert_eq!(early, Some((Severity::Warning, true)));
    }

    #[test]
    fn failures_between_successes_come_by_turns() {
        let facts = failing(readiness().attempts(60, 10), 40).attempts(60, 10);
        let found = found(facts.row(|row| row.failures_after_success = 40), FAILURES).unwrap();
        assert_eq!(
            found.sentence,
            "The probe succeeds and fails by turns; 40 of 160 attempts exited with 1: \"pool is empty\"."
        );
    }

    #[test]
    fn failures_before_the_first_success_are_no_turn() {
        let up = || failing(readiness(), 60).attempts(119, 10);
        let last = failing(up(), 4).row(|row| row.failures_after_success = 4);
        let since = found(last, FAILURES).unwrap();
        assert!(since.sentence.starts_with("The probe has failed 4 times in a row since "), "{since:?}");
        let blip = failing(up(), 4).attempts(9, 10).row(|row| row.failures_after_success = 4);
        let mixed = found(blip, FAILURES).unwrap();
        assert!(mixed.sentence.starts_with("The probe has successes and failures; "), "{mixed:?}");
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
            Fixture::new().attempts(9, 10).slow_with(3, 900, move |call| {
                call.exit(1);
                call.exec.result.as_mut().unwrap().stdout_bytes = bytes;
            })
        };
        assert_eq!(found(large(10 << 10), "large-output"), None);
        let found = found(large(200 << 10), "large-output").unwrap();
        assert_eq!(found.severity, Severity::Info);
        assert!(found.sentence.contains(" in 3 of 3 failed attempts (100 %): "), "{found:?}");
    }
}
