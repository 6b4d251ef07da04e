//! The causes and the verdict of an ExecSync. They are decided here, once: `explain`, lints,
//! metrics, traces and pages use these functions.

mod command_end;
mod exec_failure;
pub(super) mod limits;
pub mod name;
pub(crate) mod remedy;
mod verdict;

use std::time::Duration;

pub(crate) use command_end::CRIO_TIMEOUT;
pub use command_end::CommandEnd;
pub use exec_failure::{ExecFailure, FailedProgram};
pub use verdict::ExecVerdict;
pub(super) use verdict::is_kubelet_deadline;

use super::analysis::{CallRecord, ExecAnalysis, TimeoutMargin};
use super::evidence::Evidence;
use super::phases::Phases;
use super::slowness::Assessment;
use crate::cri::{Code, KILLED, LARGE_MESSAGE, NO_WORKING_DIRECTORY, is_container_exited, known_cause};
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};
use command_end::is_drain_timeout;
pub(super) use command_end::is_killed_at_timeout;

/// Text of containerd and runc about a container that is paused
/// (`cmd/containerd-shim-runc-v2/process/init_state.go`; runc: `exec.go`).
const PAUSED_MESSAGE: &str = "cannot exec in a paused ";

/// Minimum duration of a drain phase that is a cause in addition to the exit code of the command.
const NOTABLE_DRAIN: Duration = Duration::from_secs(1);

/// Duration of a call from which it is slow by itself, so that throttling is a cause in addition to
/// the exit code: the command may have a timeout of its own.
const NOTABLE_DURATION: Duration = Duration::from_secs(1);

/// Time after a timeout from which a call without an answer counts as unanswered. A client may have
/// a deadline that equals the timeout.
const NO_ANSWER_AFTER: Duration = Duration::from_secs(1);

/// Cause of a slow or failed ExecSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The runtime rejected the call with this code.
    Rejected(Code),
    /// The runtime, or its connection, ended the call without a status, or was not available.
    RuntimeLost,
    /// The client gave up after the timeout, and the command is not known to have ended.
    NoAnswer,
    /// The container had exited, or exited while the command ran.
    ContainerExited,
    /// The program of the command, or one that it calls, could not be executed.
    ExecFailed(ExecFailure),
    /// The working directory of the container does not exist.
    MissingDirectory,
    /// The response was larger than a message may be, because of the output of the command.
    LargeOutput,
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
    /// So many ExecSyncs were in flight that the node had too little CPU for them.
    Storm,
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rejected(_) => "rejected",
            Self::RuntimeLost => "runtime-lost",
            Self::NoAnswer => name::NO_ANSWER,
            Self::ContainerExited => "container-exited",
            Self::ExecFailed(ExecFailure::NoProgram | ExecFailure::NoProgramOrInterpreter) => {
                name::MISSING_PROGRAM
            }
            Self::ExecFailed(_) => name::NOT_EXECUTABLE,
            Self::MissingDirectory => name::MISSING_DIRECTORY,
            Self::LargeOutput => name::LARGE_OUTPUT,
            Self::ExitCode(_) => "exit-code",
            Self::Frozen => "frozen",
            Self::OutOfMemory => "out-of-memory",
            Self::PidsLimit => "pids-limit",
            Self::Throttled => "throttled",
            Self::Queue => "queue",
            Self::Storm => name::PROBE_STORM,
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
        match record.call.ending {
            CallOutcome::Completed(None)
            | CallOutcome::UpstreamReset(_)
            | CallOutcome::Refused
            | CallOutcome::ConnectionLost
                if exec.result.is_none() =>
            {
                vec![Self::RuntimeLost]
            }
            CallOutcome::Completed(Some(code)) if code != Code::OK && code != Code::DEADLINE_EXCEEDED => {
                vec![Self::from_rejection(record, analysis, code)]
            }
            _ if is_unanswered(&record.call, analysis) => {
                vec![if is_frozen(analysis) { Self::Frozen } else { Self::NoAnswer }]
            }
            _ => Self::from_command_end(record, exec, analysis),
        }
    }

    /// Returns the cause for which the runtime rejected a call with a code. What the message names
    /// comes before what was measured.
    fn from_rejection(record: &CallRecord, analysis: &ExecAnalysis, code: Code) -> Self {
        let message = record.call.message.as_deref().unwrap_or_default();
        if is_drain_timeout(&record.call) {
            return Self::Drain;
        }
        if message.contains(PAUSED_MESSAGE) || is_frozen(analysis) {
            return Self::Frozen;
        }
        if is_container_exited(message) {
            return Self::ContainerExited;
        }
        if let Some(failure) = ExecFailure::from_record(record) {
            return Self::ExecFailed(failure);
        }
        match known_cause(message) {
            Some(NO_WORKING_DIRECTORY) => Self::MissingDirectory,
            Some(LARGE_MESSAGE) => Self::LargeOutput,
            Some("resource temporarily unavailable") => Self::PidsLimit,
            Some("cannot allocate memory") => Self::OutOfMemory,
            _ if analysis.container_exited => Self::ContainerExited,
            _ if is_at_pids_limit(analysis) => Self::PidsLimit,
            _ if code == Code::UNAVAILABLE => Self::RuntimeLost,
            _ => Self::Rejected(code),
        }
    }

    /// Returns the causes for which a call was slow, or failed because of its command.
    fn from_command_end(record: &CallRecord, exec: &ExecCall, analysis: &ExecAnalysis) -> Vec<Self> {
        match CommandEnd::from_call(&record.call, exec, analysis.into()) {
            CommandEnd::Exited(0) | CommandEnd::Unknown
                if record.call.ending == CallOutcome::Completed(Some(Code::OK)) =>
            {
                let is_slow = matches!(analysis.assessment, Assessment::Slow(_));
                is_slow.then(|| Self::from_slow_call(analysis, None)).into_iter().collect()
            }
            // The client gave up while the runtime waited for the end of the output.
            CommandEnd::Exited(0) => vec![Self::Drain],
            CommandEnd::Exited(code) => Self::from_exit_code(record, code, analysis),
            // A child that holds the output after the timeout does not change the result.
            CommandEnd::TimedOut | CommandEnd::Cancelled => {
                // A shell that cannot start a process tries again for seconds.
                let is_full = analysis.evidence.as_deref().is_some_and(limits::has_no_process_left);
                let full = is_full.then_some(Self::PidsLimit);
                full.into_iter().chain([Self::from_slow_call(analysis, Some("run"))]).collect()
            }
            CommandEnd::Unknown => vec![Self::from_slow_call(analysis, None)],
        }
    }

    /// Returns the causes of a command that exited with another code than 0.
    fn from_exit_code(record: &CallRecord, code: i32, analysis: &ExecAnalysis) -> Vec<Self> {
        let output = record.call.exec.as_deref().and_then(|exec| exec.output.as_deref()).unwrap_or_default();
        let own = if has_oom_kills(analysis) && (code == KILLED || says_killed(output)) {
            Self::OutOfMemory
        } else if code == KILLED && analysis.container_exited {
            Self::ContainerExited
        } else if cannot_fork(output) && is_at_pids_limit(analysis) {
            Self::PidsLimit
        } else if let Some(failure) = ExecFailure::from_record(record) {
            Self::ExecFailed(failure)
        } else {
            Self::ExitCode(code)
        };
        let drained = analysis.phases.parts().drain.is_some_and(|drain| drain >= NOTABLE_DRAIN);
        let throttled = record.call.duration >= NOTABLE_DURATION && is_throttled(analysis);
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
        let evidence = analysis.evidence.as_deref();
        let is_storm = evidence.is_some_and(limits::is_in_storm);
        match slowest {
            // The cleanup after a command needs CPU as well.
            Some("drain") if is_storm && is_stalled_for_drain(analysis) => Self::Storm,
            Some("drain") => Self::Drain,
            Some("queue") => Self::Queue,
            _ if is_throttled(analysis) => Self::Throttled,
            _ if has_oom_kills(analysis) => Self::OutOfMemory,
            Some("run") if is_storm && !evidence.is_some_and(limits::has_waited) => Self::Storm,
            Some("run") => Self::Run,
            _ if is_storm => Self::Storm,
            Some("prepare" | "start") => Self::Start,
            _ => Self::UnknownPhase,
        }
    }

    /// Returns whether the time of the container's processes, or of the node, can explain the
    /// cause. Otherwise such measurements mislead.
    pub(in crate::execsync) fn depends_on_node(self) -> bool {
        matches!(self, Self::Storm | Self::Start | Self::Run | Self::UnknownPhase)
    }
}

impl CallRecord {
    /// Returns whether the command of an ExecSync used little CPU although it could have had more,
    /// so that it waited for something else. Only slow and failed calls are measured.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        let evidence = self.analysis.as_deref().and_then(|analysis| analysis.evidence.as_deref());
        evidence.is_some_and(limits::has_waited)
    }
}

/// Returns whether the client gave up after the timeout, and the command is not known to have
/// exited.
fn is_unanswered(call: &Call, analysis: &ExecAnalysis) -> bool {
    let exited = analysis.command_outcome.and_then(|outcome| outcome.exited);
    matches!(call.ending, CallOutcome::ClientReset(_) | CallOutcome::ClientGone)
        && matches!(analysis.margin, Some(TimeoutMargin::Over(late)) if late >= NO_ANSWER_AFTER)
        && !matches!(analysis.phases, Phases::Complete(_))
        && analysis.is_sent()
        && exited.is_none()
}

fn is_frozen(analysis: &ExecAnalysis) -> bool {
    analysis.evidence.as_deref().is_some_and(|evidence| evidence.is_frozen == Some(true))
}

fn has_oom_kills(analysis: &ExecAnalysis) -> bool {
    analysis.evidence.as_deref().and_then(|evidence| evidence.oom_kills).is_some_and(|kills| kills > 0)
}

fn is_at_pids_limit(analysis: &ExecAnalysis) -> bool {
    analysis.evidence.as_deref().and_then(Evidence::pids_at_limit).is_some()
}

/// Returns whether the container was throttled for so much of the time that it explains a slow
/// call.
fn is_throttled(analysis: &ExecAnalysis) -> bool {
    analysis.evidence.as_deref().is_some_and(limits::is_slowed_by_throttling)
}

/// Returns whether processes of the node were stalled on CPU for as long as the drain phase.
fn is_stalled_for_drain(analysis: &ExecAnalysis) -> bool {
    let node = analysis.evidence.as_deref().and_then(|evidence| evidence.node_pressure);
    let drain = analysis.phases.parts().drain.unwrap_or_default();
    node.is_some_and(|node| node.cpu >= drain)
}

/// Returns whether a shell says that SIGKILL ended a program: `Killed`, or in bash `line 1: 12
/// Killed  head -c 1G`.
fn says_killed(output: &str) -> bool {
    output.split_whitespace().any(|word| word == "Killed")
}

/// Returns whether a shell or an interpreter says that it could not start a process or thread.
fn cannot_fork(output: &str) -> bool {
    let output = output.to_ascii_lowercase();
    ["resource temporarily unavailable", "cannot fork", "can't fork", "can't start new thread"]
        .iter()
        .any(|text| output.contains(text))
}

#[cfg(test)]
mod tests;
