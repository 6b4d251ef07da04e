//! The causes and the verdict of an ExecSync. They are decided here, once: `explain`, lints,
//! metrics, traces and pages use these functions.

mod command_end;
pub(super) mod limits;
pub mod name;
mod not_executable;
mod verdict;

use std::time::Duration;

pub(crate) use command_end::CRIO_TIMEOUT;
pub use command_end::CommandEnd;
pub(crate) use not_executable::ExecFailure;
pub use verdict::ExecVerdict;
pub(super) use verdict::is_kubelet_deadline;

use super::analysis::{CallRecord, ExecAnalysis};
use super::phases::Phases;
use super::slowness::Assessment;
use crate::cri::{Code, is_container_exited};
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};
use command_end::is_drain_timeout;
pub(super) use command_end::is_killed_at_timeout;

/// Exit code of a command that SIGKILL ended.
pub(super) const KILLED: i32 = 128 + 9;

/// Text of containerd and runc about a container that is paused
/// (`cmd/containerd-shim-runc-v2/process/init_state.go`; runc: `exec.go`).
const PAUSED_MESSAGE: &str = "cannot exec in a paused ";

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
    /// The container had exited, or exited while the command ran.
    ContainerExited,
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
            Self::ContainerExited => "container-exited",
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

    /// Returns the causes of a slow or failed ExecSync, the most important first; none for a call
    /// that was quick and succeeded, and for other calls.
    #[must_use]
    pub fn all(record: &CallRecord) -> Vec<Self> {
        let (Some(exec), Some(analysis)) = (record.call.exec.as_deref(), record.analysis.as_deref()) else {
            return Vec::new();
        };
        let call = &*record.call;
        match call.ending {
            CallOutcome::Completed(None)
            | CallOutcome::UpstreamReset(_)
            | CallOutcome::Refused
            | CallOutcome::ConnectionLost
                if exec.result.is_none() =>
            {
                vec![Self::RuntimeLost]
            }
            CallOutcome::Completed(Some(code)) if code != Code::OK && code != Code::DEADLINE_EXCEEDED => {
                vec![Self::from_rejection(call, analysis, code)]
            }
            _ => Self::from_command_end(call, exec, analysis),
        }
    }

    /// Returns the cause for which the runtime rejected a call with a code.
    fn from_rejection(call: &Call, analysis: &ExecAnalysis, code: Code) -> Self {
        let message = call.message.as_deref().unwrap_or_default();
        if is_drain_timeout(call) {
            Self::Drain
        } else if message.contains(PAUSED_MESSAGE) || is_frozen(analysis) {
            Self::Frozen
        } else if is_container_exited(message) {
            Self::ContainerExited
        } else if analysis.evidence.as_deref().is_some_and(limits::is_at_pids_limit) {
            Self::PidsLimit
        } else {
            Self::Rejected(code)
        }
    }

    /// Returns the causes for which a call was slow, or failed because of its command.
    fn from_command_end(call: &Call, exec: &ExecCall, analysis: &ExecAnalysis) -> Vec<Self> {
        match CommandEnd::from_call(call, exec, analysis.into()) {
            CommandEnd::Exited(0) | CommandEnd::Unknown
                if call.ending == CallOutcome::Completed(Some(Code::OK)) =>
            {
                let is_slow = matches!(analysis.assessment, Assessment::Slow(_));
                is_slow.then(|| Self::from_slow_call(analysis, None)).into_iter().collect()
            }
            // The client gave up while the runtime waited for the end of the output.
            CommandEnd::Exited(0) => vec![Self::Drain],
            CommandEnd::Exited(code) => Self::from_exit_code(code, exec, analysis),
            // A child that holds the output after the timeout does not change the result.
            CommandEnd::TimedOut | CommandEnd::Cancelled => {
                vec![Self::from_slow_call(analysis, Some("run"))]
            }
            CommandEnd::Unknown => vec![Self::from_slow_call(analysis, None)],
        }
    }

    /// Returns the causes of a command that exited with another code than 0.
    fn from_exit_code(code: i32, exec: &ExecCall, analysis: &ExecAnalysis) -> Vec<Self> {
        let cannot_fork = exec
            .output
            .as_deref()
            .is_some_and(|output| output.to_ascii_lowercase().contains("resource temporarily unavailable"));
        let is_full = analysis.evidence.as_deref().is_some_and(limits::is_at_pids_limit);
        let says_killed = exec.output.as_deref().is_some_and(|output| output.trim_end().ends_with("Killed"));
        let own = if has_oom_kills(analysis) && (code == KILLED || says_killed) {
            Self::OutOfMemory
        } else if code == KILLED && analysis.container_exited {
            Self::ContainerExited
        } else if cannot_fork && is_full {
            Self::PidsLimit
        } else {
            Self::ExitCode(code)
        };
        let drained = analysis.phases.parts().drain.is_some_and(|drain| drain >= NOTABLE_DRAIN);
        let throttled = throttled_periods(analysis) >= MIN_THROTTLED_PERIODS;
        let also = [throttled.then_some(Self::Throttled), drained.then_some(Self::Drain)];
        std::iter::once(own).chain(also.into_iter().flatten()).collect()
    }

    /// Returns the cause of a slow call. `phase` is the phase that decides; `None` is the longest.
    fn from_slow_call(analysis: &ExecAnalysis, phase: Option<&'static str>) -> Self {
        if is_frozen(analysis) {
            return Self::Frozen;
        }
        let slowest = phase.or_else(|| match analysis.phases {
            Phases::Complete(parts) => parts.slowest().map(|(name, _)| name),
            _ if !analysis.is_sent() => Some("queue"),
            _ => None,
        });
        match slowest {
            Some("drain") => Self::Drain,
            Some("queue") => Self::Queue,
            _ if throttled_periods(analysis) > 0 => Self::Throttled,
            _ if has_oom_kills(analysis) => Self::OutOfMemory,
            Some("prepare" | "start") => Self::Start,
            Some("run") => Self::Run,
            _ => Self::UnknownPhase,
        }
    }

    /// Returns whether the time of the container's processes, or of the node, can explain the
    /// cause. Otherwise such measurements mislead.
    pub(in crate::execsync) fn depends_on_node(self) -> bool {
        matches!(self, Self::Frozen | Self::OutOfMemory | Self::Start | Self::Run | Self::UnknownPhase)
    }
}

fn is_frozen(analysis: &ExecAnalysis) -> bool {
    analysis.evidence.as_deref().is_some_and(|evidence| evidence.is_frozen == Some(true))
}

fn has_oom_kills(analysis: &ExecAnalysis) -> bool {
    analysis.evidence.as_deref().and_then(|evidence| evidence.oom_kills).is_some_and(|kills| kills > 0)
}

/// Returns the number of throttled CFS periods, if their share is notable; otherwise 0.
fn throttled_periods(analysis: &ExecAnalysis) -> u64 {
    let cpu = analysis.evidence.as_deref().and_then(|evidence| evidence.cpu.as_ref());
    cpu.filter(|cpu| limits::is_throttled(cpu)).map_or(0, |cpu| cpu.throttled_periods)
}
