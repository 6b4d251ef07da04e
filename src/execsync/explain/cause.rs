//! The cause of a slow or failed ExecSync.

use std::time::Duration;

use super::limits;
use super::{CRIO_TIMEOUT, ExecAnalysis};
use crate::cri::Code;
use crate::execsync::phases::Phases;
use crate::execsync::slowness::Assessment;
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};

/// Minimum duration of a drain phase that is a cause in addition to the exit code of the command.
const NOTABLE_DRAIN: Duration = Duration::from_secs(1);

/// Minimum number of throttled CFS periods that are a cause in addition to the exit code: the
/// command may have a timeout of its own.
const MIN_THROTTLED_PERIODS: u64 = 2;

/// Cause of a slow or failed ExecSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The runtime rejected the call with this code.
    Rejected(Code),
    /// The runtime, or its connection, ended the call without a status.
    RuntimeLost,
    /// The command exited with this code.
    ExitCode(i32),
    /// The container was frozen.
    Frozen,
    /// The kernel killed processes of the container for lack of memory.
    OutOfMemory,
    /// The container has almost as many processes as it may have.
    PidsLimit,
    /// The container reached its CPU limit.
    Throttled,
    /// probeshim held the request.
    Queue,
    /// The runtime took long to start the command.
    Start,
    /// The command ran long.
    Run,
    /// The output was held open after the command had exited.
    Drain,
    /// The phases are unknown.
    UnknownPhase,
}

impl Cause {
    /// Returns the name of the cause.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rejected(_) => "rejected",
            Self::RuntimeLost => "runtime-lost",
            Self::ExitCode(_) => "exit-code",
            Self::Frozen => "frozen",
            Self::OutOfMemory => "out-of-memory",
            Self::PidsLimit => "pids-limit",
            Self::Throttled => "throttled",
            Self::Queue => "queue",
            Self::Start => "start",
            Self::Run => "run",
            Self::Drain => "drain",
            Self::UnknownPhase => "unknown-phase",
        }
    }

    /// Returns the causes, the most important first; none if the call was quick and succeeded.
    pub(super) fn all(call: &Call, exec: &ExecCall, insight: &ExecAnalysis) -> Vec<Self> {
        match (exec.result.map(|result| result.exit_code), call.ending) {
            (Some(CRIO_TIMEOUT), _) => vec![Self::from_slow_call(insight)],
            (None | Some(0), CallOutcome::Completed(Some(Code::OK))) => {
                let is_slow = matches!(insight.assessment, Assessment::Slow(_));
                is_slow.then(|| Self::from_slow_call(insight)).into_iter().collect()
            }
            (Some(code), _) => {
                let own = if code == 137 && has_oom_kills(insight) {
                    Self::OutOfMemory
                } else {
                    Self::ExitCode(code)
                };
                let drained = insight.phases.parts().drain.is_some_and(|drain| drain >= NOTABLE_DRAIN);
                let throttled = throttled_periods(insight) >= MIN_THROTTLED_PERIODS;
                let also = [throttled.then_some(Self::Throttled), drained.then_some(Self::Drain)];
                std::iter::once(own).chain(also.into_iter().flatten()).collect()
            }
            (None, CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)) | CallOutcome::ClientReset(_)) => {
                vec![Self::from_slow_call(insight)]
            }
            (None, CallOutcome::Completed(Some(code))) => {
                let is_full = insight.evidence.as_deref().is_some_and(limits::is_at_pids_limit);
                vec![if is_full { Self::PidsLimit } else { Self::Rejected(code) }]
            }
            (None, CallOutcome::ClientGone) => Vec::new(),
            (
                None,
                CallOutcome::Completed(None)
                | CallOutcome::UpstreamReset(_)
                | CallOutcome::Refused
                | CallOutcome::ConnectionLost,
            ) => vec![Self::RuntimeLost],
        }
    }

    /// Returns the cause of a slow call.
    fn from_slow_call(insight: &ExecAnalysis) -> Self {
        let evidence = insight.evidence.as_deref();
        if evidence.is_some_and(|evidence| evidence.is_frozen == Some(true)) {
            return Self::Frozen;
        }
        let slowest = match insight.phases {
            Phases::Complete(parts) => parts.slowest().map(|(name, _)| name),
            _ if !insight.is_sent() => Some("queue"),
            _ => None,
        };
        match slowest {
            Some("drain") => Self::Drain,
            Some("queue") => Self::Queue,
            _ if throttled_periods(insight) > 0 => Self::Throttled,
            _ if has_oom_kills(insight) => Self::OutOfMemory,
            Some("prepare" | "start") => Self::Start,
            Some("run") => Self::Run,
            _ => Self::UnknownPhase,
        }
    }

    /// Returns whether the time of the container's processes, or of the node, can explain the
    /// cause. Otherwise such measurements mislead.
    pub(super) fn depends_on_node(self) -> bool {
        matches!(self, Self::Frozen | Self::OutOfMemory | Self::Start | Self::Run | Self::UnknownPhase)
    }
}

fn has_oom_kills(insight: &ExecAnalysis) -> bool {
    insight.evidence.as_deref().and_then(|evidence| evidence.oom_kills).is_some_and(|kills| kills > 0)
}

/// Returns the number of throttled CFS periods, if their share is notable; otherwise 0.
fn throttled_periods(insight: &ExecAnalysis) -> u64 {
    let cpu = insight.evidence.as_deref().and_then(|evidence| evidence.cpu.as_ref());
    cpu.filter(|cpu| limits::is_throttled(cpu)).map_or(0, |cpu| cpu.throttled_periods)
}
