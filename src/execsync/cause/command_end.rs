//! The way in which the command of an ExecSync ended.

use std::time::Duration;

use crate::cri::Code;
use crate::execsync::analysis::{CallRecord, CommandOutcome, ExecAnalysis};
use crate::execsync::phases::{PhaseDurations, Phases};
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};

/// Exit code with which CRI-O reports a command that timed out.
pub(crate) const CRIO_TIMEOUT: i32 = -1;

/// Status of a command that SIGKILL ended.
const KILLED: u32 = crate::cri::KILLED.cast_unsigned();

/// Difference between the clocks of the runtime's timer and of the events, up to which a command
/// that was killed before its timeout may have been killed at its timeout.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);

/// Text of containerd if `drain_exec_sync_io_timeout` is over while a process holds the output of a
/// command that has exited (`internal/cri/server/container_execsync.go`: `drainExecSyncIO`).
const DRAIN_TIMEOUT_MESSAGE: &str = "failed to drain exec process";

/// The way in which the command of an ExecSync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// The command exited with this code, or a signal ended it: 128 plus the signal's number.
    Exited(i32),
    /// The command was still running at its timeout, and the runtime killed it.
    TimedOut,
    /// The command was still running when the client gave up, and the runtime killed it.
    Cancelled,
    /// The command was not started, or no event shows its end.
    Unknown,
}

impl CommandEnd {
    /// Returns the end of the command of a call. `analysis` has the events of the runtime, which
    /// decide if the response has no exit code.
    #[must_use]
    pub fn from_call(call: &Call, exec: &ExecCall, analysis: Option<&ExecAnalysis>) -> Self {
        if let Some(result) = exec.result {
            return match result.exit_code {
                CRIO_TIMEOUT => Self::TimedOut,
                code => Self::Exited(code),
            };
        }
        let outcome = analysis.and_then(|analysis| analysis.command_outcome);
        match call.ending {
            CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)) => {
                Self::from_deadline(call, exec, analysis)
            }
            CallOutcome::Completed(Some(code)) if code != Code::OK && !is_drain_timeout(call) => {
                Self::Unknown
            }
            _ => outcome.map_or(Self::Unknown, |outcome| Self::from_events(call, exec, outcome)),
        }
    }

    /// Returns the end of a command whose runtime returned `DEADLINE_EXCEEDED`. containerd does so
    /// if the command had not exited when its timeout was over (`container_execsync.go`:
    /// `execInternal`), but also if the deadline of the call was over, whether the command had
    /// started or not: then its message does not name a timeout.
    fn from_deadline(call: &Call, exec: &ExecCall, analysis: Option<&ExecAnalysis>) -> Self {
        let outcome = analysis.and_then(|analysis| analysis.command_outcome);
        let phases = analysis.map(|analysis| &analysis.phases);
        let has_started = outcome.and_then(|outcome| outcome.started).is_some()
            || phases.is_some_and(|phases| phases.parts().run.is_some());
        let has_not_started = matches!(phases, Some(Phases::Complete(_))) && !has_started;
        let is_of_call = call.message.as_deref().is_some_and(|message| !names_timeout(message));
        let is_sent = analysis.is_none_or(ExecAnalysis::is_sent);
        let has_run = has_started || !(has_not_started || is_of_call);
        if exec.timeout().is_some() && is_sent && has_run { Self::TimedOut } else { Self::Unknown }
    }

    /// Returns the end of a command whose exit code only the events of the runtime have.
    fn from_events(call: &Call, exec: &ExecCall, outcome: CommandOutcome) -> Self {
        let CommandOutcome { started, exited: Some(exited), status: Some(status) } = outcome else {
            return Self::Unknown;
        };
        let ran = exited.saturating_sub(started.unwrap_or_default());
        match status {
            KILLED
                if exec
                    .timeout()
                    .is_some_and(|timeout| is_killed_at_timeout(Some(status), Some(ran), timeout)) =>
            {
                Self::TimedOut
            }
            KILLED if exited + CLOCK_TOLERANCE >= call.duration => Self::Cancelled,
            status => Self::Exited(status.cast_signed()),
        }
    }
}

impl CallRecord {
    /// Returns the phases of an ExecSync as they are summed up and measured, if all are known. The
    /// drain phase of a command that was killed at its timeout does not count: it does not change
    /// the result.
    #[must_use]
    pub fn counted_phases(&self) -> Option<PhaseDurations> {
        let (exec, analysis) = (self.call.exec.as_deref()?, self.analysis.as_deref()?);
        let Phases::Complete(parts) = analysis.phases else { return None };
        let command_end = CommandEnd::from_call(&self.call, exec, Some(analysis));
        let drain = parts.drain.filter(|_| command_end != CommandEnd::TimedOut);
        Some(PhaseDurations { drain, ..parts })
    }
}

/// Returns whether the status of a command is that of SIGKILL, and the command ran until its
/// timeout.
pub(in crate::execsync) fn is_killed_at_timeout(
    status: Option<u32>,
    ran: Option<Duration>,
    timeout: Duration,
) -> bool {
    status == Some(KILLED) && ran.is_some_and(|ran| ran + CLOCK_TOLERANCE >= timeout)
}

/// Returns whether a message is that of a command whose timeout was over: `timeout 1s exceeded`.
fn names_timeout(message: &str) -> bool {
    message.split_once("timeout ").is_some_and(|(_, rest)| rest.contains(" exceeded"))
}

/// Returns whether the runtime gave up to wait for the output of a command that had exited.
pub(in crate::execsync) fn is_drain_timeout(call: &Call) -> bool {
    call.message.as_deref().is_some_and(|message| message.contains(DRAIN_TIMEOUT_MESSAGE))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::tap::ExecResult;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the end of a command with a timeout of three seconds, whose call took five.
    fn end(ending: CallOutcome, code: Option<i32>, events: Option<(u64, u32)>) -> CommandEnd {
        let call = Call { ending, ..Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, 5 * SECOND) };
        let result = code.map(|exit_code| ExecResult { exit_code, stdout_bytes: 0, stderr_bytes: 0 });
        let exec = ExecCall { timeout_seconds: 3, result, ..ExecCall::default() };
        let analysis = ExecAnalysis {
            command_outcome: events.map(|(exited, status)| CommandOutcome {
                started: Some(Duration::ZERO),
                exited: Some(Duration::from_millis(exited)),
                status: Some(status),
            }),
            ..ExecAnalysis::unknown()
        };
        CommandEnd::from_call(&call, &exec, Some(&analysis))
    }

    #[test]
    fn the_exit_code_of_the_response_decides() {
        let ok = CallOutcome::Completed(Some(Code::OK));
        assert_eq!(end(ok, Some(3), None), CommandEnd::Exited(3));
        assert_eq!(end(ok, Some(-1), None), CommandEnd::TimedOut, "CRI-O");
        assert_eq!(end(ok, None, Some((100, 7))), CommandEnd::Exited(7), "the response was too long");
    }

    #[test]
    fn a_command_that_ran_until_its_deadline_timed_out() {
        let deadline = CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED));
        assert_eq!(end(deadline, None, Some((3000, 137))), CommandEnd::TimedOut);
        assert_eq!(end(deadline, None, Some((3000, 0))), CommandEnd::TimedOut, "it exited at that moment");
        assert_eq!(end(deadline, None, None), CommandEnd::TimedOut, "without events");
    }

    #[test]
    fn the_deadline_of_the_call_is_no_timeout_of_a_command_that_did_not_start() {
        let ended = |message: &str| {
            let ending = CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED));
            let call = Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, 121 * SECOND);
            let call = Call { ending, message: Some(message.into()), ..call };
            let exec = ExecCall { timeout_seconds: 1, ..ExecCall::default() };
            CommandEnd::from_call(&call, &exec, Some(&ExecAnalysis::unknown()))
        };
        assert_eq!(ended("context deadline exceeded"), CommandEnd::Unknown);
        let timeout = "failed to exec in container: timeout 1s exceeded: context deadline exceeded";
        assert_eq!(ended(timeout), CommandEnd::TimedOut);
    }

    #[test]
    fn the_events_decide_if_the_client_gave_up() {
        let gave_up = CallOutcome::ClientReset(h2::Reason::CANCEL);
        for (events, expected) in [
            (Some((2950, 137)), CommandEnd::TimedOut),
            (Some((5010, 137)), CommandEnd::TimedOut),
            (Some((10, 0)), CommandEnd::Exited(0)),
            (Some((10, 137)), CommandEnd::Exited(137)),
            (None, CommandEnd::Unknown),
        ] {
            assert_eq!(end(gave_up, None, events), expected, "{events:?}");
        }
    }

    #[test]
    fn a_command_that_was_killed_when_its_client_gave_up_has_not_timed_out() {
        let ending = CallOutcome::ClientGone;
        let call = Call { ending, ..Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, SECOND) };
        let exec = ExecCall { timeout_seconds: 3, ..ExecCall::default() };
        let outcome =
            CommandOutcome { started: Some(Duration::ZERO), exited: Some(SECOND), status: Some(KILLED) };
        let analysis = ExecAnalysis { command_outcome: Some(outcome), ..ExecAnalysis::unknown() };
        assert_eq!(CommandEnd::from_call(&call, &exec, Some(&analysis)), CommandEnd::Cancelled);
    }
}
