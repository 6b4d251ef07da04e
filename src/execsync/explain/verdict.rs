//! Sentence about the result that an ExecSync has for its probe.

use crate::execsync::analysis::{CallRecord, TimeoutMargin};
use crate::execsync::cause::{Cause, ExecVerdict};
use crate::execsync::identity::ProbeMatch;
use crate::relay::{CallOutcome, Peer};

/// Describes the result for the probe, by the kubelet's rules (`pkg/probe/exec/exec.go`: `Probe`).
/// Returns `None` for a hook, for an unknown purpose, and for a success in time.
///
/// A late exit code 0 is a success: neither the kubelet nor the runtime compares the duration of
/// the call with the timeout. The runtime kills the command if it has not exited when the timeout
/// is over (containerd: `execInternal`), and the time before the start of the command and after its
/// exit does not count.
pub(super) fn verdict(record: &CallRecord) -> Option<String> {
    let analysis = record.analysis.as_deref()?;
    let ProbeMatch::Matched { uses, .. } = &analysis.identity else { return None };
    if !uses.iter().all(|used| used.is_probe()) {
        return None;
    }
    let probe = match uses[..] {
        [only] => format!("the {} probe", only.name()),
        _ => "the probe".to_owned(),
    };
    let is_late = matches!(analysis.margin, Some(TimeoutMargin::Over(_)));
    match ExecVerdict::from_record(record)? {
        ExecVerdict::Success if is_late => Some(format!(
            "It counts as a success of {probe}, although it was late: the runtime applies the timeout only to \
             the time between the start of the command and its exit, and the kubelet looks only at the exit \
             code."
        )),
        ExecVerdict::Success => None,
        ExecVerdict::Unknown => unknown(record, &probe),
        ExecVerdict::TimedOut => Some(format!("It counts as a failure of {probe}, because of the timeout.")),
        ExecVerdict::Failure => Some(format!("It counts as a failure of {probe}.")),
        ExecVerdict::Error if Cause::all(record).contains(&Cause::ContainerExited) => Some(format!(
            "It counts neither as a success nor as a failure of {probe}: the container had exited, which is usual \
             between the end of a container and its restart."
        )),
        ExecVerdict::Error => Some(format!(
            "It counts neither as a success nor as a failure of {probe}: the kubelet tries three times, and \
             ignores the attempt if each try errors."
        )),
    }
}

/// Describes the result of an attempt whose end is unknown.
fn unknown(record: &CallRecord, probe: &str) -> Option<String> {
    let is_kubelet = record.call.peer.as_deref().is_some_and(Peer::is_kubelet);
    match record.call.ending {
        CallOutcome::ClientReset(_) | CallOutcome::ClientGone if is_kubelet => Some(format!(
            "It counts neither as a success nor as a failure of {probe}: the kubelet ended the call before its \
             deadline, for example because it was stopped."
        )),
        CallOutcome::ClientReset(_) | CallOutcome::ClientGone => {
            Some(format!("Its result for {probe} is unknown: no event shows how the command ended."))
        }
        _ => None,
    }
}
