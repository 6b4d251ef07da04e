//! Thresholds of probes: a pure function from result runs to probe results.

use crate::manifest::{Probe, ProbeType};

/// Result of a probe (kubelet: `results.Result`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeResult {
    /// The probe has succeeded.
    #[default]
    Success,
    /// The probe has failed.
    Failure,
    /// No result is known yet. Only a startup probe has this value, before its first result.
    Unknown,
}

/// The last result of a probe and the number of times that it came in a row (kubelet: `lastResult`,
/// `resultRun`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultRun {
    /// Last result, once there has been one.
    pub last: Option<ProbeResult>,
    /// Number of times that the last result came in a row, since the last result that put the probe
    /// on hold.
    pub length: u32,
}

/// Outcome of [`apply_threshold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdOutcome {
    /// Result run that includes the new result.
    pub run: ResultRun,
    /// New probe result; `None` if the probe result does not change.
    pub result: Option<ProbeResult>,
    /// Whether no attempts are made until the container is replaced.
    pub on_hold: bool,
}

/// Adds a result to a run, as the kubelet does (`prober/worker.go`: `doProbe`). A run that is
/// shorter than its threshold changes nothing. A liveness probe that has failed, and a startup
/// probe with any result, are put on hold.
#[must_use]
pub fn apply_threshold(
    probe_type: ProbeType,
    probe: &Probe,
    run: ResultRun,
    result: ProbeResult,
) -> ThresholdOutcome {
    let length = if run.last == Some(result) { run.length.saturating_add(1) } else { 1 };
    let run = ResultRun { last: Some(result), length };
    let threshold = match result {
        ProbeResult::Success => probe.success_threshold,
        ProbeResult::Failure => probe.failure_threshold,
        ProbeResult::Unknown => 0,
    };
    if length < threshold {
        return ThresholdOutcome { run, result: None, on_hold: false };
    }
    let on_hold = match probe_type {
        ProbeType::Startup => true,
        ProbeType::Liveness => result == ProbeResult::Failure,
        ProbeType::Readiness => false,
    };
    let run = if on_hold { ResultRun { length: 0, ..run } } else { run };
    ThresholdOutcome { run, result: Some(result), on_hold }
}

impl ProbeResult {
    /// Returns the result of a new container: success for liveness, failure for readiness, unknown
    /// for startup (`prober/worker.go`: `newWorker`).
    #[must_use]
    pub fn initial_value(probe_type: ProbeType) -> Self {
        match probe_type {
            ProbeType::Liveness => Self::Success,
            ProbeType::Readiness => Self::Failure,
            ProbeType::Startup => Self::Unknown,
        }
    }

    /// Returns the name of the result.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::prober::probe_state::tests::probe;

    /// Returns the result by the kubelet's rules, searched from the end of the sequence: the last
    /// result that came as many times in a row as its threshold.
    fn model(results: &[ProbeResult], success: usize, failure: usize) -> Option<ProbeResult> {
        (1..=results.len()).rev().find_map(|end| {
            let last = results[end - 1];
            let same = results[..end].iter().rev().take_while(|result| **result == last).count();
            let threshold = if last == ProbeResult::Success { success } else { failure };
            (same >= threshold).then_some(last)
        })
    }

    proptest! {
        #[test]
        fn the_readiness_result_is_the_last_result_that_reached_its_threshold(
            results in vec(prop_oneof![Just(ProbeResult::Success), Just(ProbeResult::Failure)], 0..40),
            success in 1_u32..5,
            failure in 1_u32..5,
        ) {
            let probe = Probe { success_threshold: success, failure_threshold: failure, ..probe() };
            let (mut run, mut held) = (ResultRun::default(), None);
            for (count, result) in results.iter().enumerate() {
                let verdict = apply_threshold(ProbeType::Readiness, &probe, run, *result);
                prop_assert!(!verdict.on_hold);
                run = verdict.run;
                held = verdict.result.or(held);
                prop_assert_eq!(held, model(&results[..=count], success as usize, failure as usize));
            }
        }

        #[test]
        fn a_result_that_puts_a_probe_on_hold_resets_its_run(
            results in vec(prop_oneof![Just(ProbeResult::Success), Just(ProbeResult::Failure)], 1..40),
            failure in 1_u32..5,
            is_startup in any::<bool>(),
        ) {
            let probe_type = if is_startup { ProbeType::Startup } else { ProbeType::Liveness };
            let probe = Probe { failure_threshold: failure, ..probe() };
            let mut run = ResultRun::default();
            for result in results {
                let verdict = apply_threshold(probe_type, &probe, run, result);
                let is_final = result == ProbeResult::Failure || is_startup;
                prop_assert_eq!(verdict.on_hold, verdict.result.is_some() && is_final);
                prop_assert_eq!(verdict.run.length == 0, verdict.on_hold);
                run = verdict.run;
            }
        }
    }
}
