//! The result that an ExecSync has for its probe.

use super::{CRIO_TIMEOUT, ExecAnalysis, ProbeMatch, TimeoutMargin};
use crate::cri::Code;
use crate::relay::CallOutcome;
use crate::tap::{Call, ExecCall};

/// Result that an ExecSync has for its probe, by the kubelet's rules (`pkg/probe/exec/exec.go`:
/// `Probe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecVerdict {
    /// The command exited with code 0. Its duration does not count.
    Success,
    /// The command exited with another code.
    Failure,
    /// The runtime reported a timeout, which counts as a failure.
    TimedOut,
    /// The runtime returned an error. The kubelet tries three times, and ignores the attempt if
    /// each try errors.
    Error,
    /// The client gave up, or its response was not read.
    Unknown,
}

impl ExecVerdict {
    /// Returns the result of a call.
    #[must_use]
    pub fn of(call: &Call, exec: &ExecCall) -> Self {
        match (exec.result.map(|result| result.exit_code), call.ending) {
            (Some(0), _) => Self::Success,
            // The client alone knows whether it cancelled the call or its deadline was over.
            (
                None,
                CallOutcome::Completed(Some(Code::OK))
                | CallOutcome::ClientGone
                | CallOutcome::ClientReset(_),
            ) => Self::Unknown,
            (Some(CRIO_TIMEOUT), _) | (None, CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED))) => {
                Self::TimedOut
            }
            (Some(_), _) => Self::Failure,
            (None, _) => Self::Error,
        }
    }
}

/// Describes the result for the probe, by the kubelet's rules (`pkg/probe/exec/exec.go`: `Probe`).
/// Returns `None` for a hook, for an unknown purpose, and for a success in time.
///
/// A late exit code 0 is a success: neither the kubelet nor the runtime compares the duration of
/// the call with the timeout. The runtime kills the command if it has not exited when the timeout
/// is over (containerd: `execInternal`), and the time before the start of the command and after its
/// exit does not count.
pub(super) fn verdict(call: &Call, exec: &ExecCall, insight: &ExecAnalysis) -> Option<String> {
    let ProbeMatch::Matched { uses, .. } = &insight.identity else { return None };
    if !uses.iter().all(|used| used.is_probe()) {
        return None;
    }
    let probe = match uses[..] {
        [only] => format!("the {} probe", only.name()),
        _ => "the probe".to_owned(),
    };
    let is_late = matches!(insight.margin, Some(TimeoutMargin::Over(_)));
    match ExecVerdict::of(call, exec) {
        ExecVerdict::Success if is_late => Some(format!(
            "It counts as a success of {probe}, although it was late: the runtime applies the timeout only to \
             the time between the start of the command and its exit, and the kubelet looks only at the exit \
             code."
        )),
        ExecVerdict::Success | ExecVerdict::Unknown => None,
        ExecVerdict::TimedOut => Some(format!("It counts as a failure of {probe}, because of the timeout.")),
        ExecVerdict::Failure => Some(format!("It counts as a failure of {probe}.")),
        ExecVerdict::Error => Some(format!(
            "It counts neither as a success nor as a failure of {probe}: the kubelet tries three times, and \
             ignores the attempt if each try errors."
        )),
    }
}
