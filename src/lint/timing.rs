//! Lints about durations, timeouts and periods.

use std::time::Duration;

use super::facts::{
    Attempts, MIN_AFFECTED, MIN_ATTEMPTS, PeriodFacts, ProbeFacts, count, has_verdict, ids, is_share, part,
};
use super::finding::{LintFinding, Severity};
use super::names;
use crate::execsync::{CallRecord, Cause, ExecVerdict, Phases, cause_name};
use crate::history::timeline::Durations;
use crate::manifest::Probe;
use crate::terminal::format::{counted, duration};

/// Timeout of a probe that does not set one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// Share of the timeout from which the margin of an attempt is thin.
const THIN_MARGIN: f64 = 0.8;

/// Minimum share of attempts with a thin margin, or that take longer than the period.
const NOTABLE_SHARE: f64 = 0.01;

/// Minimum time that the runtime took to start a command, if it is slow.
const SLOW_START: Duration = Duration::from_secs(1);

/// Returns the findings about durations.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    let rules = [timeout, thin_margin, default_timeout, short_period, slow_start];
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
    let threshold = probe.series.failure_threshold.unwrap_or(Probe::DEFAULT_FAILURE_THRESHOLD);
    let never = attempts.total.successes == 0;
    let timeout = probe.series.timeout;
    let calls: Vec<&CallRecord> =
        attempts.calls.iter().copied().filter(|call| has_verdict(call, ExecVerdict::TimedOut)).collect();
    let waiting = waiting(&calls);
    let cure = if waiting.is_some() {
        "Find out what the command waits for, such as a server, a name, a lock or its input"
    } else {
        "See with `probeshim explain` where the time of a call went; make the handler faster"
    };
    let because = timeout.map(|timeout| format!(" of {}", duration(timeout))).unwrap_or_default();
    Some(LintFinding {
        lint: names::TIMEOUT,
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
        evidence: [percentiles(attempts), waiting].into_iter().flatten().collect(),
        remedy: format!("{cure}, or {}.", raise_timeout(timeout)),
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
    // The timeout covers neither the start of the command nor the drain phase.
    let is_drained = super::output::is_mostly_drain(total);
    if total.attempts() < MIN_ATTEMPTS || close < MIN_AFFECTED || is_drained {
        return None;
    }
    let is_close =
        |call: &&CallRecord| call.call.duration >= thin && !has_verdict(call, ExecVerdict::TimedOut);
    let calls: Vec<&CallRecord> = attempts.calls.iter().copied().filter(is_close).collect();
    let known: Vec<Duration> = calls.iter().filter_map(|call| run(call)).collect();
    let ran_long = known.iter().filter(|run| **run >= thin).count();
    if 2 * ran_long < known.len() {
        return None;
    }
    is_share(close, total.attempts(), NOTABLE_SHARE).then(|| LintFinding {
        lint: names::THIN_MARGIN,
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
    let from = |duration| total.durations.count_from(duration).saturating_sub(total.timeouts);
    let late = from(DEFAULT_TIMEOUT);
    // Attempts that are far from their own timeout need no advice about it.
    let is_near = |timeout: Duration| timeout > DEFAULT_TIMEOUT && from(timeout / 2) >= MIN_AFFECTED;
    let is_advised = probe.series.timeout.is_none_or(is_near) && thin_margin(probe).is_none();
    if !is_advised || total.attempts() < MIN_ATTEMPTS || late < MIN_AFFECTED {
        return None;
    }
    let is_late = |call: &&CallRecord| {
        call.call.duration >= DEFAULT_TIMEOUT && !has_verdict(call, ExecVerdict::TimedOut)
    };
    let calls: Vec<&CallRecord> = attempts.calls.iter().copied().filter(is_late).collect();
    let known: Vec<Duration> = calls.iter().filter_map(|call| run(call)).collect();
    let ran_long = known.iter().filter(|run| **run >= DEFAULT_TIMEOUT).count();
    let evidence = (!known.is_empty()).then(|| {
        format!(
            "The timeout covers only the run phase, which took 1 s or longer in {ran_long} of the {} \
             recorded calls with known phases.",
            known.len()
        )
    });
    Some(LintFinding {
        lint: names::DEFAULT_TIMEOUT,
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
    // Attempts that timed out have a finding of their own. Of several probes with one command, the
    // attempts of each are not known.
    let late = total.durations.count_from(period).saturating_sub(total.timeouts);
    let is_joint = probe.series.probe.contains(" or ");
    let is_notable = late >= MIN_AFFECTED && is_share(late, total.attempts(), NOTABLE_SHARE);
    if total.attempts() < MIN_ATTEMPTS || !is_notable || is_joint {
        return None;
    }
    let is_late =
        |call: &&CallRecord| call.call.duration >= period && !has_verdict(call, ExecVerdict::TimedOut);
    let calls: Vec<&CallRecord> = attempts.calls.iter().copied().filter(is_late).collect();
    Some(LintFinding {
        lint: names::SHORT_PERIOD,
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

/// The runtime took long to start commands, for another reason than a lack of CPU.
fn slow_start(probe: &ProbeFacts<'_>) -> Option<LintFinding> {
    let attempts = &probe.attempts;
    let start = |call: &CallRecord| {
        let parts = call.counted_phases()?;
        Some(parts.prepare.unwrap_or_default() + parts.start.unwrap_or_default())
    };
    let is_slow = |call: &&CallRecord| start(call).is_some_and(|start| start >= SLOW_START);
    let affected = attempts.with_cause(Cause::Start.name());
    let kept = attempts.calls_with_cause(Cause::Start.name());
    let calls: Vec<&CallRecord> =
        kept.iter().copied().filter(is_slow).filter(|call| lacks_cpu(call) != Some(true)).collect();
    let measured = count(&calls.iter().filter_map(|call| lacks_cpu(call)).collect::<Vec<_>>());
    if affected < MIN_AFFECTED || 2 * calls.len() < kept.len() {
        return None;
    }
    let longest = calls.iter().filter_map(|call| start(call)).max()?;
    let had_cpu = (measured > 0).then(|| {
        format!(
            "Processes of the node waited for a processor for less than half of the time in {}.",
            part(measured, count(&kept), "recorded slow calls")
        )
    });
    Some(LintFinding {
        lint: names::SLOW_START,
        severity: Severity::Warning,
        subject: attempts.subject.clone(),
        sentence: format!(
            "The runtime was slow to start the command in {}: the start took up to {}.",
            part(affected, attempts.total.attempts(), "attempts"),
            duration(longest)
        ),
        evidence: [slowest_phase(&calls), had_cpu].into_iter().flatten().collect(),
        remedy: "Look in the log of the runtime, and at the disk of the node. The timeout does not cover this time, \
                 so timeoutSeconds does not help; httpGet, tcpSocket and grpc probes start no process."
            .to_owned(),
        affected,
        calls: ids(&calls),
    })
}

/// Returns whether processes of the node were stalled on CPU for most of the time of a call;
/// `None` if that was not measured.
fn lacks_cpu(record: &CallRecord) -> Option<bool> {
    let evidence = record.analysis.as_deref()?.evidence.as_deref()?;
    evidence.node_pressure.is_some().then(|| evidence.mostly_of_node()[0])
}

/// Returns a sentence about commands that waited, if most calls that are kept did.
fn waiting(calls: &[&CallRecord]) -> Option<String> {
    let waited = calls.iter().filter(|call| call.has_waited()).count();
    (2 * waited > calls.len()).then(|| {
        format!(
            "The command waited, and did not compute, in {}.",
            part(u32::try_from(waited).unwrap_or(u32::MAX), count(calls), "recorded calls")
        )
    })
}

/// Number of attempts up to which their shortest and longest duration say more than percentiles.
const FEW_ATTEMPTS: u32 = 20;

/// Returns a sentence with percentiles of the durations, or with the range of a few durations.
fn percentiles(attempts: &Attempts<'_>) -> Option<String> {
    let quantile = |quantile| attempts.total.quantile(quantile).map(duration);
    if attempts.total.durations.count() < FEW_ATTEMPTS {
        let (shortest, longest) = range(attempts)?;
        let is_exact = count(&attempts.calls) == attempts.total.durations.count();
        let (attempts, shortest, longest) =
            (counted(attempts.total.durations.count(), "attempt"), duration(shortest), duration(longest));
        return Some(if shortest == longest {
            format!("{attempts} took {longest}.")
        } else {
            let about = if is_exact { "" } else { "about " };
            format!("{attempts} took {about}{shortest} to {longest}.")
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
    let bound = total.quantile(1.0)?;
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
mod tests;
