//! Lints about durations, timeouts and periods.

use std::time::Duration;

use super::facts::{
    Attempts, MIN_AFFECTED, MIN_ATTEMPTS, PeriodFacts, ProbeFacts, count, has_verdict, ids, is_share, part,
};
use super::finding::{LintFinding, Severity};
use crate::execsync::{CallRecord, ExecVerdict, Phases, cause_name};
use crate::history::timeline::Durations;
use crate::terminal::format::{counted, duration};

/// Failure threshold of a probe that does not set one.
const DEFAULT_FAILURE_THRESHOLD: u32 = 3;

/// Timeout of a probe that does not set one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// Share of the timeout from which the margin of an attempt is thin.
const THIN_MARGIN: f64 = 0.8;

/// Minimum share of attempts with a thin margin, or that take longer than the period.
const NOTABLE_SHARE: f64 = 0.01;

/// Returns the findings about durations.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let rules = [timeout, thin_margin, default_timeout, short_period];
    let probes = facts.probes.iter().filter(|probe| probe.is_probe());
    probes.flat_map(|probe| rules.into_iter().filter_map(|rule| rule(probe))).collect()
}

/// Attempts failed because of the timeout.
fn timeout(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let attempts = &probe.attempts;
    let failed = attempts.total.timeouts.saturating_sub(attempts.with_cause(cause_name::OWN_TIMEOUT));
    if failed == 0 {
        return None;
    }
    let threshold = probe.series.failure_threshold.unwrap_or(DEFAULT_FAILURE_THRESHOLD);
    let never = attempts.total.successes == 0;
    let timeout = probe.series.timeout;
    let calls: Vec<&CallRecord> =
        attempts.calls.iter().copied().filter(|call| has_verdict(call, ExecVerdict::TimedOut)).collect();
    let because = timeout.map(|timeout| format!(" of {}", duration(timeout))).unwrap_or_default();
    Some(LintFinding {
        lint: "timeout",
        severity: if failed >= threshold || (never && failed > 1) {
            Severity::Error
        } else {
            Severity::Warning
        },
        subject: attempts.subject.clone(),
        sentence: format!(
            "{} failed because of the timeout{because}.",
            part(failed, attempts.total.attempts(), "attempts")
        ),
        evidence: [percentiles(attempts), slowest_phase(&calls)].into_iter().flatten().collect(),
        remedy: format!(
            "See with `probeshim explain` where the time of a call went; make the handler faster, or {}.",
            raise_timeout(timeout)
        ),
        affected: failed,
        calls: if calls.is_empty() { attempts.total.failed_calls.clone() } else { ids(&calls) },
    })
}

/// Attempts ended shortly before the timeout.
fn thin_margin(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let (attempts, timeout) = (&probe.attempts, probe.series.timeout?);
    let total = &attempts.total;
    let thin = timeout.mul_f64(THIN_MARGIN);
    let close = total.durations.count_from(thin).saturating_sub(total.timeouts);
    // The drain phase does not count for the timeout.
    let is_drained = super::output::is_mostly_drain(total);
    if total.attempts() < MIN_ATTEMPTS || close < MIN_AFFECTED || is_drained {
        return None;
    }
    let is_close =
        |call: &&CallRecord| call.call.duration >= thin && !has_verdict(call, ExecVerdict::TimedOut);
    let calls: Vec<&CallRecord> = attempts.calls.iter().copied().filter(is_close).collect();
    is_share(close, total.attempts(), NOTABLE_SHARE).then(|| LintFinding {
        lint: "thin-margin",
        severity: Severity::Warning,
        subject: attempts.subject.clone(),
        sentence: format!(
            "At least {} took 80 % or more of the timeout of {}, and did not fail because of it.",
            part(close, total.attempts(), "attempts"),
            duration(timeout)
        ),
        evidence: [percentiles(attempts), slowest_phase(&calls)].into_iter().flatten().collect(),
        remedy: format!("Make the handler faster, or {}.", raise_timeout(Some(timeout))),
        affected: close,
        calls: ids(&calls),
    })
}

/// Attempts would have failed with the timeout that a probe has by default.
fn default_timeout(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let attempts = &probe.attempts;
    let total = &attempts.total;
    let late = total.durations.count_from(DEFAULT_TIMEOUT);
    let has_longer = probe.series.timeout.is_none_or(|timeout| timeout > DEFAULT_TIMEOUT);
    if !has_longer || total.attempts() < MIN_ATTEMPTS || late < MIN_AFFECTED {
        return None;
    }
    let is_late = |call: &&CallRecord| call.call.duration >= DEFAULT_TIMEOUT;
    let calls: Vec<&CallRecord> = attempts.calls.iter().copied().filter(is_late).collect();
    let known: Vec<Duration> = calls.iter().filter_map(|call| run(call)).collect();
    let ran_long = known.iter().filter(|run| **run >= DEFAULT_TIMEOUT).count();
    let evidence = (!known.is_empty()).then(|| {
        format!(
            "The timeout covers only the run phase, which took 1 s or longer in {ran_long} of the {} \
             calls that are kept with their phases.",
            known.len()
        )
    });
    Some(LintFinding {
        lint: "default-timeout",
        severity: Severity::Info,
        subject: attempts.subject.clone(),
        sentence: format!(
            "With the default timeout of 1 s, up to {} would have failed: they took 1 s or longer.",
            part(late, total.attempts(), "attempts")
        ),
        evidence: [percentiles(attempts), evidence].into_iter().flatten().collect(),
        remedy: "Keep timeoutSeconds above the durations, and do not leave it out.".to_owned(),
        affected: late,
        calls: ids(&calls),
    })
}

/// Attempts took longer than the period.
fn short_period(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let (attempts, period) = (&probe.attempts, probe.series.period?);
    let total = &attempts.total;
    let late = total.durations.count_from(period);
    let is_notable = late >= MIN_AFFECTED && is_share(late, total.attempts(), NOTABLE_SHARE);
    if total.attempts() < MIN_ATTEMPTS || !is_notable {
        return None;
    }
    let is_late = |call: &&CallRecord| call.call.duration >= period;
    let calls: Vec<&CallRecord> = attempts.calls.iter().copied().filter(is_late).collect();
    Some(LintFinding {
        lint: "short-period",
        severity: Severity::Warning,
        subject: attempts.subject.clone(),
        sentence: format!(
            "The period of {} is shorter than the 99th percentile of the durations: at least {} took that \
             long, and the next attempts were late.",
            duration(period),
            part(late, total.attempts(), "attempts")
        ),
        evidence: percentiles(attempts).into_iter().collect(),
        remedy: "Raise periodSeconds, or make the handler faster.".to_owned(),
        affected: late,
        calls: ids(&calls),
    })
}

/// Number of attempts up to which their shortest and longest duration say more than percentiles.
const FEW_ATTEMPTS: u32 = 20;

/// Returns a sentence with percentiles of the durations, or with the range of a few durations.
fn percentiles(attempts: &Attempts<'_>) -> Option<String> {
    let quantile = |quantile| attempts.total.durations.quantile(quantile).map(duration);
    if attempts.total.durations.count() < FEW_ATTEMPTS {
        let (shortest, longest) = range(attempts)?;
        let (attempts, shortest, longest) =
            (counted(attempts.total.durations.count(), "attempt"), duration(shortest), duration(longest));
        return Some(if shortest == longest {
            format!("{attempts} took {longest}.")
        } else {
            format!("{attempts} took {shortest} to {longest}.")
        });
    }
    Some(format!(
        "Half of the {} took at most {}, and 99 % at most {}.",
        counted(attempts.total.durations.count(), "attempt"),
        quantile(0.5)?,
        quantile(0.99)?
    ))
}

/// Returns bounds of the durations: the exact ones if all calls are kept, and otherwise those of
/// the buckets and of the slowest call.
fn range(attempts: &Attempts<'_>) -> Option<(Duration, Duration)> {
    let (total, durations) = (&attempts.total, || attempts.calls.iter().map(|call| call.call.duration));
    if count(&attempts.calls) == total.durations.count() {
        return durations().min().zip(durations().max());
    }
    let (first, _) = *total.durations.buckets().first()?;
    let shortest = if first == 0 { Duration::ZERO } else { Durations::lower_bound(first) };
    let bound = total.durations.quantile(1.0)?;
    let slowest = total.slowest.map_or(bound, |slowest| slowest.duration);
    // The attempts without ExecSyncs have no slowest call.
    let longest = if slowest < shortest { bound } else { slowest };
    Some((durations().min().map_or(shortest, |known| known.min(shortest)), longest))
}

/// Returns a sentence about the phase in which most of the time of calls was spent.
fn slowest_phase(calls: &[&CallRecord]) -> Option<String> {
    let known: Vec<(&str, Duration)> = calls.iter().filter_map(|call| slowest(call)).collect();
    let most = |(name, _): &&(&str, Duration)| known.iter().filter(|(other, _)| other == name).count();
    let (name, _) = known.iter().max_by_key(most)?;
    let of_it = u32::try_from(most(&&(*name, Duration::ZERO))).unwrap_or(u32::MAX);
    Some(format!(
        "The longest phase was {name} in {}.",
        part(of_it, count(&known), "calls with known phases")
    ))
}

fn slowest(record: &CallRecord) -> Option<(&'static str, Duration)> {
    record.counted_phases()?.slowest()
}

fn run(record: &CallRecord) -> Option<Duration> {
    match &record.analysis.as_deref()?.phases {
        Phases::Complete(parts) => parts.run,
        _ => None,
    }
}

fn raise_timeout(timeout: Option<Duration>) -> String {
    match timeout {
        Some(timeout) => format!("raise timeoutSeconds (now {})", timeout.as_secs()),
        None => "raise timeoutSeconds".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;

    const LIVENESS: &str = "liveness";

    /// Returns the lints that find something, and the sentence of one of them.
    fn sentence(facts: Fixture, lint: &str) -> Option<(Severity, String)> {
        only(super::lint, facts, lint).map(|found| (found.severity, found.sentence))
    }

    #[test]
    fn attempts_that_timed_out_are_an_error_from_the_failure_threshold_on() {
        let timed_out = |count| {
            let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(2)));
            facts.attempts(20 - count, 10).timeouts(count)
        };
        assert_eq!(sentence(timed_out(0), "timeout"), None);
        let (severity, text) = sentence(timed_out(2), "timeout").unwrap();
        let expected = "2 of 20 attempts (10 %) failed because of the timeout of 2.00s.";
        assert_eq!((severity, text.as_str()), (Severity::Warning, expected));
        assert_eq!(sentence(timed_out(3), "timeout").unwrap().0, Severity::Error);
        let found = only(super::lint, timed_out(3), "timeout").unwrap();
        assert_eq!(
            found.evidence,
            [
                "Half of the 20 attempts took at most 11.0ms, and 99 % at most 2.38s.",
                "The longest phase was run in 3 of 3 calls with known phases (100 %).",
            ]
        );
        assert_eq!((found.affected, found.calls.len()), (3, 3));
        assert!(found.remedy.ends_with("raise timeoutSeconds (now 2)."), "{}", found.remedy);
    }

    #[test]
    fn a_few_attempts_have_the_range_of_their_durations_in_place_of_percentiles() {
        let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(2)));
        let found = only(super::lint, facts.timeouts(3), "timeout").unwrap();
        assert!(found.evidence[0].starts_with("3 attempts took 2."), "{:?}", found.evidence);
        assert!(!found.evidence[0].contains("99 %"), "{:?}", found.evidence);
    }

    #[test]
    fn attempts_that_end_shortly_before_their_timeout_have_a_thin_margin() {
        let close = |count, duration| {
            let facts = Fixture::new().probe(LIVENESS, |probe| probe.timeout = Some(Duration::from_secs(1)));
            facts.attempts(20, 10).slow(count, duration)
        };
        assert_eq!(sentence(close(2, 950), "thin-margin"), None, "two may be chance");
        assert_eq!(sentence(close(5, 700), "thin-margin"), None, "the margin is wide");
        let (severity, text) = sentence(close(5, 950), "thin-margin").unwrap();
        let expected = "At least 5 of 25 attempts (20 %) took 80 % or more of the timeout of 1.00s, and did not fail because of it.";
        assert_eq!((severity, text.as_str()), (Severity::Warning, expected));
    }

    #[test]
    fn attempts_that_need_more_than_the_default_timeout_are_counted() {
        let late = |timeout: Option<u64>, duration| {
            let facts =
                Fixture::new().probe(LIVENESS, |probe| probe.timeout = timeout.map(Duration::from_secs));
            facts.attempts(20, 10).slow(5, duration)
        };
        assert_eq!(sentence(late(Some(1), 1200), "default-timeout"), None, "it is the default");
        assert_eq!(sentence(late(Some(9), 900), "default-timeout"), None, "the attempts are in time");
        for timeout in [Some(9), None] {
            let (severity, text) = sentence(late(timeout, 1200), "default-timeout").unwrap();
            let expected = "With the default timeout of 1 s, up to 5 of 25 attempts (20 %) would have failed: they took 1 s or longer.";
            assert_eq!((severity, text.as_str()), (Severity::Info, expected));
        }
    }

    #[test]
    fn a_period_that_is_shorter_than_attempts_is_found() {
        let late = |count, period| {
            let facts = Fixture::new().probe(LIVENESS, |probe| {
                probe.timeout = None;
                probe.period = Some(Duration::from_secs(period));
            });
            facts.attempts(20, 10).slow(count, 2500)
        };
        assert_eq!(sentence(late(5, 10), "short-period"), None);
        assert_eq!(sentence(late(2, 1), "short-period"), None, "two may be chance");
        let (severity, text) = sentence(late(5, 2), "short-period").unwrap();
        let expected = "The period of 2.00s is shorter than the 99th percentile of the durations: at least 5 of 25 attempts \
                        (20 %) took that long, and the next attempts were late.";
        assert_eq!((severity, text.as_str()), (Severity::Warning, expected));
    }
}
