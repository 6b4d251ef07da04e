//! What the results of a probe amount to: a pure function of how long they have been the same.

use crate::manifest::{Probe, ProbeType};

/// What is held to be so of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeResult {
    /// It is as it should be.
    #[default]
    Success,
    /// It is not.
    Failure,
    /// Nobody knows yet: only before a startup probe has come to its first verdict.
    Unknown,
}

/// How often the last result has come in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultRun {
    /// The last result, once there has been one.
    pub last: Option<ProbeResult>,
    /// How often it has come in a row, since the last verdict that put the probe on hold.
    pub length: u32,
}

/// What a result amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdOutcome {
    /// The run, with it.
    pub run: ResultRun,
    /// What is held to be so from now on; `None` where that stays.
    pub result: Option<ProbeResult>,
    /// Nothing is probed any more until there is another container.
    pub on_hold: bool,
}

/// Takes one more result, as the kubelet does: below its threshold it changes nothing; a liveness probe that has failed, and a startup probe
/// that has come to a verdict, have done what they are for.
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
    /// What is held to be so of a container that is new (as the kubelet: alive, not ready, not known to have started).
    #[must_use]
    pub fn initial_value(probe_type: ProbeType) -> Self {
        match probe_type {
            ProbeType::Liveness => Self::Success,
            ProbeType::Readiness => Self::Failure,
            ProbeType::Startup => Self::Unknown,
        }
    }

    /// Its name.
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

    /// What the kubelet's rules say of a sequence of results, looked up from its end: the last result with as many of its kind behind it as
    /// its threshold asks for.
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
        fn readiness_is_what_came_last_as_often_as_its_threshold_asks(
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
