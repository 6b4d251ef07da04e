//! Call records, and the analysis of an ExecSync.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::evidence::Evidence;
use super::exec_instance::{EventTime, ExecInstance};
use super::identity::ProbeMatch;
#[cfg(test)]
use super::phases::PhaseDurations;
use super::phases::{MissingEvents, Phases};
use super::slowness::{Assessment, Slow};
use crate::cri::Code;
use crate::relay::{CallOutcome, TraceContext};
use crate::tap::{Call, ExecCall, is_subscription};

/// A call that has ended, as it is stored, listed, counted and exported.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// The call.
    pub call: Arc<Call>,
    /// The analysis, if the call is an ExecSync.
    pub analysis: Option<Arc<ExecAnalysis>>,
    /// The trace context that the client sent with the call.
    pub trace: Option<TraceContext>,
    /// Whether this record replaces an earlier record of the call, because the command exited after
    /// the call was recorded.
    pub is_amended: bool,
    /// Time at which the call ended; `None` if an earlier probeshim recorded the call.
    pub ended: Option<Instant>,
}

/// Analysis of an ExecSync.
#[derive(Clone, Debug)]
pub struct ExecAnalysis {
    /// The probe or hook to which the ExecSync is attributed.
    pub identity: ProbeMatch,
    /// The phases of the ExecSync.
    pub phases: Phases,
    /// Time between the end of the call and its timeout; `None` without a timeout.
    pub margin: Option<TimeoutMargin>,
    /// The outcome of the command according to events, if the response has no exit code.
    pub command_outcome: Option<CommandOutcome>,
    /// Whether the container exited before the call was recorded. All commands in a container end
    /// with it.
    pub container_exited: bool,
    /// Whether the call was slow or failed, so that evidence was requested.
    pub assessment: Assessment,
    /// Measurements of the container and the node during the call. Only slow and failed calls have
    /// evidence.
    pub evidence: Option<Arc<Evidence>>,
}

impl ExecAnalysis {
    /// Returns an analysis without any information, for tests.
    #[cfg(test)]
    pub(crate) fn unknown() -> Self {
        Self {
            identity: ProbeMatch::Unknown,
            phases: Phases::Unsupported(PhaseDurations::default()),
            margin: None,
            command_outcome: None,
            container_exited: false,
            assessment: Assessment::Failed,
            evidence: None,
        }
    }

    /// Returns whether the call was sent to the runtime.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        !matches!(self.phases, Phases::Missing { what: MissingEvents::NotSent, .. })
    }
}

/// Time between the end of a call and its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutMargin {
    /// Time from the end of the call to its timeout.
    Under(Duration),
    /// Time from the timeout to the end of the call.
    Over(Duration),
}

impl TimeoutMargin {
    pub(super) fn between(timeout: Duration, took: Duration) -> Self {
        timeout.checked_sub(took).map_or_else(|| Self::Over(took.saturating_sub(timeout)), Self::Under)
    }

    /// Converts the margin with `unit`. The result is negative if the call ended after its timeout.
    #[must_use]
    pub fn as_signed_ms(self, unit: impl Fn(Duration) -> f64) -> f64 {
        match self {
            Self::Under(margin) => unit(margin),
            Self::Over(margin) => -unit(margin),
        }
    }
}

/// Outcome of the command of a call that returned no exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandOutcome {
    /// Time from the start of the call to the start of the command.
    pub started: Option<Duration>,
    /// Time from the start of the call to the exit of the command. The command may exit after the
    /// call has ended.
    pub exited: Option<Duration>,
    /// Exit code of the command, or 128 plus the number of the signal that ended it.
    pub status: Option<u32>,
}

impl CommandOutcome {
    /// Returns the outcome of the command according to events; `None` if the response has an exit
    /// code or the exec instance is unknown.
    pub(super) fn from_call(call: &Call, instance: Option<&ExecInstance>, since: Instant) -> Option<Self> {
        if call.exec.as_ref().is_some_and(|exec| exec.result.is_some()) {
            return None;
        }
        let instance = instance?;
        let after = |moment: Option<EventTime>| moment.map(|moment| moment.after(since));
        Some(Self {
            started: after(instance.started),
            exited: after(instance.exited),
            status: instance.status,
        })
    }

    /// Returns whether the status of the command is that of SIGKILL, 137; `None` if the status is
    /// unknown.
    #[must_use]
    pub fn is_killed(&self) -> Option<bool> {
        self.status.map(|status| status == 128 + 9)
    }
}

impl CallRecord {
    /// Returns whether an ExecSync took long as usual, and less than half of its timeout, so that
    /// the load of the node did it no harm.
    #[must_use]
    pub fn is_usual_duration(&self) -> bool {
        let timeout = self.call.exec.as_deref().and_then(ExecCall::timeout);
        let assessment = self.analysis.as_deref().map(|analysis| analysis.assessment);
        timeout.is_some() && assessment == Some(Assessment::Slow(Slow::Threshold))
    }

    /// Returns whether the call failed: it has a code other than OK, or its command has an exit
    /// code other than 0. A late exit code 0 is a success, as for a kubelet. A subscription that
    /// its client ended did not fail.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        let result = self.call.exec.as_ref().and_then(|exec| exec.result);
        (self.call.ending != CallOutcome::Completed(Some(Code::OK)) && !self.is_ended_subscription())
            || result.is_some_and(|result| result.exit_code != 0)
    }

    /// Returns whether the call is a subscription that its client ended, which is no failure.
    #[must_use]
    pub fn is_ended_subscription(&self) -> bool {
        matches!(self.call.ending, CallOutcome::ClientReset(_) | CallOutcome::ClientGone)
            && is_subscription(&self.call.method)
    }

    /// Returns whether the command exited with code 0, and the call ended after its timeout. Such a
    /// call is slow, and a success.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let result = self.call.exec.as_ref().and_then(|exec| exec.result);
        let margin = self.analysis.as_ref().and_then(|analysis| analysis.margin);
        result.is_some_and(|result| result.exit_code == 0) && matches!(margin, Some(TimeoutMargin::Over(_)))
    }

    /// Returns the record without its trace context, which only the span needs.
    #[must_use]
    pub fn strip_trace(self) -> Self {
        Self { trace: None, ..self }
    }

    /// Returns the record with commands reduced to their program, and without output, status
    /// message, arguments of faults, and messages of failed probe attempts, each of which may
    /// contain arguments.
    pub(crate) fn redacted(mut self) -> Self {
        let Call { exec, kill, message, marks, .. } = &*self.call;
        if exec.is_some() || kill.is_some() || message.is_some() || marks.is_some() {
            let mut call = (*self.call).clone();
            call.message = None;
            call.marks = call.marks.map(|marks| Box::new(marks.redacted()));
            call.exec = call.exec.map(|exec| Box::new(exec.redacted()));
            call.kill = call.kill.map(|kill| Box::new(kill.redacted()));
            self.call = Arc::new(call);
        }
        self
    }

    /// Returns the record of a call without an analysis.
    #[must_use]
    pub fn unanalyzed(call: Call, trace: Option<TraceContext>, ended: Option<Instant>) -> Self {
        Self { call: Arc::new(call), analysis: None, trace, is_amended: false, ended }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_redacted_record_has_no_arguments_output_or_status_message() {
        let path = "/runtime.v1.RuntimeService/ExecSync";
        let mut call = Call::sample(1, path, SystemTime::UNIX_EPOCH, Duration::ZERO);
        call.message = Some("s3cret".into());
        let command = ["sh", "s3cret"].map(str::to_owned).into();
        let exec = ExecCall { command, output: Some("s3cret".into()), ..ExecCall::default() };
        for exec in [None, Some(Box::new(exec))] {
            let record = CallRecord::unanalyzed(Call { exec, ..call.clone() }, None, None);
            assert!(format!("{record:?}").contains("s3cret"));
            assert!(!format!("{:?}", record.redacted()).contains("s3cret"));
        }
    }
}
