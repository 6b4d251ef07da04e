//! Lint about the elapsed time for which exec probes occupy the runtime.

use std::time::Duration;

use super::facts::{PeriodFacts, count, evidence, sum};
use super::finding::{LintFinding, LintSubject, Severity};
use super::names::EXEC_COST;
use crate::history::timeline::{GapCause, Minute, PhaseSums};
use crate::terminal::format::{counted, duration};

/// Minimum seconds of preparation and start per second.
const NOTABLE_COST: f64 = 0.1;

/// Seconds of preparation and start per second and processor from which the cost is a warning.
const HIGH_COST: f64 = 0.25;

/// Minimum number of ExecSyncs with known phases.
const MIN_CALLS: u32 = 100;

/// Indices of the phases in sums.
const PREPARE: usize = 1;
const START: usize = 2;

/// Returns the finding about the cost of exec probes.
pub(super) fn lint(facts: &PeriodFacts<'_>) -> Vec<LintFinding> {
    exec_cost(facts).into_iter().collect()
}

/// The runtime and the OCI runtime spend much time on starting the commands of probes.
fn exec_cost(facts: &PeriodFacts<'_>) -> Option<LintFinding> {
    let mut phases = PhaseSums::default();
    for probe in facts.probes.iter().filter(|probe| probe.is_probe()) {
        let PhaseSums { calls, sums } = probe.attempts.total.phases;
        phases.calls = phases.calls.saturating_add(calls);
        phases.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
    let time = observed(facts);
    if phases.calls < MIN_CALLS || time.is_zero() {
        return None;
    }
    let started = phases.sums[PREPARE].saturating_add(phases.sums[START]);
    let cost = started.as_secs_f64() / time.as_secs_f64();
    let processors = facts.processors();
    let all = processors.map(|processors| f64::from(u32::try_from(processors).unwrap_or(u32::MAX)));
    let is_high = cost >= HIGH_COST * all.unwrap_or(1.0);
    let of = processors.map(|processors| format!(", on {processors} processors")).unwrap_or_default();
    (cost >= NOTABLE_COST).then(|| LintFinding {
        lint: EXEC_COST,
        severity: if is_high { Severity::Warning } else { Severity::Info },
        subject: LintSubject::NODE,
        sentence: format!(
            "Exec probes occupied the runtime for {cost:.2} s of each second{of}: the elapsed time in which it \
             prepared and started their commands, summed over the calls."
        ),
        evidence: vec![
            format!(
                "The phases prepare and start of {} took {} within {}, {} per call.",
                counted(phases.calls, "call"),
                duration(started),
                duration(time),
                duration(started / phases.calls)
            ),
            "The phase run, and calls without known phases, are not included.".to_owned(),
            cpu(facts),
        ],
        remedy: "Raise periodSeconds, or use httpGet, tcpSocket or grpc probes, for which the runtime starts no process."
            .to_owned(),
        affected: phases.calls,
        calls: Vec::new(),
    })
}

/// Returns a sentence about the CPU time that was measured.
fn cpu(facts: &PeriodFacts<'_>) -> String {
    let probes = facts.probes.iter().filter(|probe| probe.is_probe());
    let measured: Vec<(Duration, Duration)> = probes
        .flat_map(|probe| &probe.attempts.calls)
        .filter_map(|call| evidence(call).and_then(|it| Some((it.cpu?.used?, it.window))))
        .collect();
    if measured.is_empty() {
        return "It is no CPU time, which was not measured.".to_owned();
    }
    let used = sum(measured.iter().map(|(used, _)| *used));
    let window = sum(measured.iter().map(|(_, window)| *window));
    format!(
        "It is no CPU time: in {}, the containers used {} of CPU within {}, with their applications.",
        counted(count(&measured), "recorded call"),
        duration(used),
        duration(window)
    )
}

/// Returns the time from the first attempt to the last one, without times in which probeshim did
/// not run.
fn observed(facts: &PeriodFacts<'_>) -> Duration {
    let rows = || facts.period.probes.iter().flat_map(|probe| &probe.minutes);
    let (Some(first), Some(last)) = (rows().map(Minute::start).min(), rows().map(Minute::start).max()) else {
        return Duration::ZERO;
    };
    let from = first.max(facts.period.from);
    let row = Duration::from_secs(60 * facts.period.resolution.max(1));
    let to = (last + row).min(facts.period.to);
    let gaps = facts
        .period
        .gaps
        .iter()
        .filter(|gap| matches!(gap.cause, GapCause::NotRunning | GapCause::NotRecorded));
    let missing: Duration =
        sum(gaps.filter_map(|gap| gap.to.min(to).duration_since(gap.from.max(from)).ok()));
    to.duration_since(from).unwrap_or_default().saturating_sub(missing)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, only};
    use super::*;
    use crate::execsync::CpuUsage;

    /// Returns the finding about a minute in which commands took this time to start.
    fn found(probe: &str, milliseconds: u64) -> Option<LintFinding> {
        let facts = Fixture::new().probe(probe, |_| {}).row(|row| {
            row.successes = 600;
            row.phases.calls = 600;
            row.phases.sums[START] = Duration::from_millis(milliseconds);
        });
        only(super::lint, facts, "exec-cost")
    }

    #[test]
    fn the_time_that_commands_need_to_start_is_found_per_second() {
        assert_eq!(found("liveness", 1000), None);
        assert_eq!(found("unknown", 12_000), None, "only probes count");
        let some = found("liveness", 12_000).unwrap();
        assert_eq!(
            some.sentence,
            "Exec probes occupied the runtime for 0.20 s of each second: the elapsed time in which it prepared and \
             started their commands, summed over the calls."
        );
        assert_eq!(
            some.evidence,
            [
                "The phases prepare and start of 600 calls took 12.0s within 60.0s, 20.0ms per call.",
                "The phase run, and calls without known phases, are not included.",
                "It is no CPU time, which was not measured.",
            ]
        );
        assert_eq!(some.severity, Severity::Info);
        assert_eq!(found("liveness", 24_000).unwrap().severity, Severity::Warning);
    }

    #[test]
    fn cpu_time_that_was_measured_is_named_beside_the_elapsed_time() {
        let facts = Fixture::new().probe("liveness", |_| {}).row(|row| {
            row.phases.calls = 600;
            row.phases.sums[START] = Duration::from_secs(60);
        });
        let measured = facts.slow_with(2, 3000, |call| {
            call.evidence().cpu = Some(CpuUsage {
                quota: None,
                used: Some(Duration::from_millis(450)),
                periods: 0,
                throttled_periods: 0,
                throttled: Duration::ZERO,
            });
        });
        assert_eq!(
            only(super::lint, measured, "exec-cost").unwrap().evidence[2],
            "It is no CPU time: in 2 recorded calls, the containers used 900ms of CPU within 6.00s, with their \
             applications."
        );
    }

    #[test]
    fn the_cost_of_a_few_attempts_says_nothing() {
        let facts = Fixture::new().row(|row| {
            row.phases.calls = 99;
            row.phases.sums[START] = Duration::from_secs(60);
        });
        assert_eq!(only(super::lint, facts, "exec-cost"), None);
    }
}
