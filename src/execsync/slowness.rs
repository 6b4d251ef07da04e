//! Which calls are worth a look.

use std::time::Duration;

use crate::cri::Code;
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};

/// Configuration of the analysis.
#[derive(Clone, Copy, Debug)]
pub struct SlownessConfig {
    /// Calls that take longer than this are slow.
    pub slow: Duration,
    /// Whether of commands only the program is told, not its arguments.
    pub redact_commands: bool,
}

impl Default for SlownessConfig {
    fn default() -> Self {
        Self { slow: Duration::from_secs(1), redact_commands: false }
    }
}

/// Whether a call was worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// It was quick and went well.
    Fine,
    /// It was slow, by one of the measures.
    Slow(Slow),
    /// It failed, or its command did.
    Failed,
}

/// By which measure a call was slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// It took more than half of its timeout.
    HalfOfTimeout,
    /// It took longer than what is set for all.
    Threshold,
    /// It took more than three times as long as such a call usually does.
    OverTripleMedian,
}

impl SlownessConfig {
    /// How a call went; `median` is how long such a call takes usually.
    pub(super) fn assessment(&self, call: &Call, median: Option<Duration>) -> Assessment {
        let exec = call.exec.as_deref();
        let exit_code = exec.and_then(|exec| exec.result).map(|result| result.exit_code);
        let timeout = exec.and_then(ExecCall::timeout);
        if call.ending != CallOutcome::Completed(Some(Code::OK)) || exit_code.is_some_and(|code| code != 0) {
            Assessment::Failed
        } else if timeout.is_some_and(|timeout| call.duration > timeout / 2) {
            Assessment::Slow(Slow::HalfOfTimeout)
        } else if call.duration > self.slow {
            Assessment::Slow(Slow::Threshold)
        } else if median.is_some_and(|median| call.duration > median * 3) {
            Assessment::Slow(Slow::OverTripleMedian)
        } else {
            Assessment::Fine
        }
    }
}

impl Assessment {
    /// The one of this name; `slow` is by which measure, of a slow one.
    #[must_use]
    pub fn named(name: &str, slow: Option<Slow>) -> Option<Self> {
        let all = [Some(Self::Fine), slow.map(Self::Slow), Some(Self::Failed)];
        all.into_iter().flatten().find(|assessment| assessment.name() == name)
    }

    /// Its name.
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

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slow| slow.name() == name)
    }

    /// Its name.
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
            let exec = ExecCall { command: Vec::new(), truncated: false, timeout_seconds: timeout, result };
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
            (80, 30, Some(30), Assessment::Fine),
        ] {
            let median = median.map(Duration::from_millis);
            assert_eq!(settings.assessment(&call(millis, timeout), median), assessment, "{millis} {timeout}");
        }
    }
}
