//! Assessment of calls as fine, slow or failed.

use std::time::Duration;

use crate::cri::Code;
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};

/// Configuration of the ExecSync analysis.
#[derive(Clone, Copy, Debug)]
pub struct SlownessConfig {
    /// Duration above which a call is slow.
    pub slow: Duration,
    /// Whether commands are reduced to their programs.
    pub redact_commands: bool,
}

impl Default for SlownessConfig {
    fn default() -> Self {
        Self { slow: Duration::from_secs(1), redact_commands: false }
    }
}

/// Assessment of a call. Calls that are not fine get evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// The call was quick and succeeded.
    Fine,
    /// The call was slow by this measure.
    Slow(Slow),
    /// The call or its command failed.
    Failed,
}

/// The measure by which a call was slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The call took more than half of its timeout.
    HalfOfTimeout,
    /// The call took longer than the configured threshold.
    Threshold,
    /// The call took more than three times the median of such calls.
    OverTripleMedian,
}

impl SlownessConfig {
    /// Assesses a call. `median` is the median duration of such calls. The time for which a policy
    /// `held` the call does not count.
    pub(super) fn assessment(&self, call: &Call, held: Duration, median: Option<Duration>) -> Assessment {
        let duration = call.duration.saturating_sub(held);
        let exec = call.exec.as_deref();
        let exit_code = exec.and_then(|exec| exec.result).map(|result| result.exit_code);
        let timeout = exec.and_then(ExecCall::timeout);
        if call.ending != CallOutcome::Completed(Some(Code::OK)) || exit_code.is_some_and(|code| code != 0) {
            Assessment::Failed
        } else if timeout.is_some_and(|timeout| duration > timeout / 2) {
            Assessment::Slow(Slow::HalfOfTimeout)
        } else if median.is_some_and(|median| duration > median * 3) {
            Assessment::Slow(Slow::OverTripleMedian)
        } else if duration > self.slow {
            Assessment::Slow(Slow::Threshold)
        } else {
            Assessment::Fine
        }
    }
}

impl Assessment {
    /// Returns the assessment with this name. `slow` is the measure of a slow call.
    #[must_use]
    pub fn named(name: &str, slow: Option<Slow>) -> Option<Self> {
        let all = [Some(Self::Fine), slow.map(Self::Slow), Some(Self::Failed)];
        all.into_iter().flatten().find(|assessment| assessment.name() == name)
    }

    /// Returns the name of the assessment.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Slow(_) => "slow",
            Self::Failed => "failed",
        }
    }
}

impl Slow {
    const ALL: [Self; 3] = [Self::HalfOfTimeout, Self::Threshold, Self::OverTripleMedian];

    /// Returns the measure with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slow| slow.name() == name)
    }

    /// Returns the name of the measure.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HalfOfTimeout => "half-of-timeout",
            Self::Threshold => "threshold",
            Self::OverTripleMedian => "three-medians",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::tap::ExecResult;

    #[test]
    fn a_call_is_slow_by_timeout_threshold_or_triple_median() {
        let settings = SlownessConfig::default();
        let call = |millis, timeout| {
            let mut call = Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::from_millis(millis));
            call.ending = CallOutcome::Completed(Some(Code::OK));
            let result = Some(ExecResult { exit_code: 0, stdout_bytes: 0, stderr_bytes: 0 });
            let exec = ExecCall { timeout_seconds: timeout, result, ..ExecCall::default() };
            call.exec = Some(Box::new(exec));
            call
        };
        let slow = |why| Assessment::Slow(why);
        for (millis, timeout, median, assessment) in [
            (400, 1, None, Assessment::Fine),
            (600, 1, None, slow(Slow::HalfOfTimeout)),
            (1100, 0, None, slow(Slow::Threshold)),
            (1100, 30, None, slow(Slow::Threshold)),
            (100, 30, Some(30), slow(Slow::OverTripleMedian)),
            (1100, 30, Some(30), slow(Slow::OverTripleMedian)),
            (1100, 30, Some(1000), slow(Slow::Threshold)),
            (80, 30, Some(30), Assessment::Fine),
        ] {
            let median = median.map(Duration::from_millis);
            assert_eq!(
                settings.assessment(&call(millis, timeout), Duration::ZERO, median),
                assessment,
                "{millis} {timeout}"
            );
        }
    }
}
