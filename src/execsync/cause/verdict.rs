//! The result that an ExecSync has for its probe.

use std::time::Duration;

use super::command_end::CommandEnd;
use crate::cri::Code;
use crate::execsync::analysis::{CallRecord, ExecAnalysis, TimeoutMargin};
use crate::relay::{CallOutcome, Peer};
use crate::tap::{Call, ExecCall};

/// Time for which a kubelet waits for an answer beyond the timeout of the command
/// (`pkg/kubelet/apis/config`: `RuntimeRequestTimeout`), less a second for its own delay.
const KUBELET_EXTRA_TIMEOUT: Duration = Duration::from_secs(119);

/// Result that an ExecSync has for its probe, by the kubelet's rules (`pkg/probe/exec/exec.go`:
/// `Probe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecVerdict {
    /// The command exited with code 0. Its duration does not count.
    Success,
    /// The command exited with another code.
    Failure,
    /// The command was killed at its timeout, or a kubelet's own deadline was over. Both count as a
    /// failure.
    TimedOut,
    /// The runtime returned an error. The kubelet tries three times, and ignores the attempt if
    /// each try errors.
    Error,
    /// The client gave up, or its response was not read, and no event shows how the command ended.
    Unknown,
}

impl ExecVerdict {
    /// Returns the result of an ExecSync; `None` for a call of another method.
    #[must_use]
    pub fn from_record(record: &CallRecord) -> Option<Self> {
        let exec = record.call.exec.as_deref()?;
        Some(Self::from_call(&record.call, exec, record.analysis.as_deref()))
    }

    /// Returns the result of an ExecSync. If a client other than a kubelet gave up, the end of the
    /// command decides, as it would have for a kubelet, which waits two minutes longer than the
    /// timeout.
    pub(in crate::execsync) fn from_call(
        call: &Call,
        exec: &ExecCall,
        analysis: Option<&ExecAnalysis>,
    ) -> Self {
        let has_answer = match call.ending {
            CallOutcome::ClientGone | CallOutcome::ClientReset(_) if is_kubelet(call) => {
                let is_over = is_kubelet_deadline(call, analysis);
                return if is_over { Self::TimedOut } else { Self::Unknown };
            }
            CallOutcome::Completed(Some(Code::OK))
            | CallOutcome::ClientGone
            | CallOutcome::ClientReset(_) => true,
            CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)) => return Self::TimedOut,
            _ => false,
        };
        match CommandEnd::from_call(call, exec, analysis) {
            CommandEnd::TimedOut => Self::TimedOut,
            CommandEnd::Exited(code) if has_answer || exec.result.is_some() => {
                if code == 0 {
                    Self::Success
                } else {
                    Self::Failure
                }
            }
            CommandEnd::Unknown | CommandEnd::Cancelled if has_answer => Self::Unknown,
            _ => Self::Error,
        }
    }
}

/// Returns whether a kubelet ended the call because its own deadline was over, which it interprets
/// as a timeout of the command (`cri-client/pkg/remote_runtime.go`: `ExecSync`).
pub(in crate::execsync) fn is_kubelet_deadline(call: &Call, analysis: Option<&ExecAnalysis>) -> bool {
    let margin = analysis.and_then(|analysis| analysis.margin);
    is_kubelet(call)
        && matches!(call.ending, CallOutcome::ClientReset(_) | CallOutcome::ClientGone)
        && matches!(margin, Some(TimeoutMargin::Over(late)) if late >= KUBELET_EXTRA_TIMEOUT)
}

fn is_kubelet(call: &Call) -> bool {
    call.peer.as_deref().is_some_and(Peer::is_kubelet)
}
