//! Calls from their request to their record, and their exec instances until the exit.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::CallContext;
use crate::cri::{Code, KILLED};
use crate::execsync::analysis::{CallRecord, CommandOutcome, ExecAnalysis, TimeoutMargin};
use crate::execsync::evidence::Evidence;
use crate::execsync::exec_instance::ExecInstance;
use crate::execsync::identity::ProbeMatch;
use crate::execsync::matching::{CallCandidate, CandidateEnd, ExecOutcome};
use crate::execsync::periodicity::PatternKey;
use crate::execsync::phases::{MissingEvents, Phases, Timeline};
use crate::execsync::slowness::Assessment;
use crate::relay::{CallInfo, CallOutcome, Peer};
use crate::tap::{Call, DecodedCall, ExecCall};

/// A call that is not recorded yet.
#[derive(Debug)]
pub(in crate::execsync) struct ExecInFlight {
    pub(in crate::execsync) id: u64,
    pub(super) info: Weak<CallInfo>,
    pub(super) started_at: Instant,
    pub(super) received: Duration,
    pub(super) sent: Duration,
    pub(in crate::execsync) exec: Arc<ExecCall>,
    pub(super) context: CallContext,
    pub(super) pattern_key: PatternKey,
    /// Whether the call was sent to the runtime. A policy may have answered or held it.
    pub(super) is_sent: bool,
    /// Whether the runtime's events were interrupted during the call.
    pub(super) events_lost: bool,
    /// Set once the call has ended.
    pub(super) ended: Option<EndedCall>,
}

/// State of a container when one of its calls is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContainerState {
    /// Whether the container has exited.
    pub(super) has_exited: bool,
    /// Time at which its memory was last used up, as the event says.
    pub(super) last_oom: Option<Instant>,
}

/// The end of a call that is not recorded yet.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) decoded: Box<DecodedCall>,
    pub(super) end: CandidateEnd,
    pub(super) assessment: Assessment,
    /// The time until which missing events and evidence may arrive.
    pub(super) deadline: Instant,
    pub(super) evidence: Option<Arc<Evidence>>,
    pub(super) evidence_pending: bool,
}

/// The exec instance of a recorded call whose exit was not seen before the call was recorded.
#[derive(Debug)]
pub(super) struct DetachedExec {
    pub(super) record: CallRecord,
    pub(super) instance: ExecInstance,
    pub(super) timeline: Timeline,
    pub(super) end: CandidateEnd,
}

impl ExecInFlight {
    pub(super) fn candidate(&self) -> CallCandidate<'_> {
        CallCandidate {
            sent: self.started_at + self.sent,
            command: &self.exec.command,
            is_sent: self.is_sent,
            events_lost: self.events_lost,
            end: self.ended.as_ref().map(|ended| ended.end),
        }
    }

    pub(super) fn timeline(&self, ended: &EndedCall) -> Timeline {
        let end = ended.decoded.call.duration;
        Timeline { started_at: self.started_at, received: self.received, sent: self.sent, end }
    }

    /// Returns the time of the request.
    pub(in crate::execsync) fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Returns whether the call has ended.
    pub(in crate::execsync) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the container and pod of the call.
    pub(in crate::execsync) fn context(&self) -> &CallContext {
        &self.context
    }
}

impl EndedCall {
    /// Returns whether the call need not wait for evidence.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        !self.evidence_pending || now >= self.deadline
    }

    /// Returns whether SIGKILL ended the command. The exit of the container may be the reason, and
    /// its event may arrive later.
    pub(super) fn is_killed(&self) -> bool {
        let exec = self.decoded.call.exec.as_deref();
        exec.and_then(|exec| exec.result).is_some_and(|result| result.exit_code == KILLED)
    }

    /// Returns the record of the call, and its exec instance if that may still exit.
    pub(super) fn finish(
        self,
        call: ExecInFlight,
        phases: Phases,
        instance: Option<ExecInstance>,
        container: ContainerState,
    ) -> (CallRecord, Option<DetachedExec>) {
        let (timeline, end) = (call.timeline(&self), self.end);
        let ExecInFlight { exec, context, is_sent, .. } = call;
        let DecodedCall { info, mut call, .. } = *self.decoded;
        let is_internal = call.peer.as_deref().is_some_and(Peer::is_this_process);
        call.container = context.container.or(call.container);
        call.pod = context.pod.or(call.pod);
        if let Some(exec) = call.exec.as_deref_mut()
            && !may_keep_output(&context.probe_match, is_internal)
        {
            exec.output = None;
        }
        // The runtime applies the timeout, from the time at which it received the request.
        let held = if call.is_affected() { phases.parts().queue } else { Duration::ZERO };
        let timeout = exec.timeout().filter(|_| is_sent || call.is_direct());
        let insight = ExecAnalysis {
            identity: context.probe_match,
            phases,
            margin: timeout
                .map(|timeout| TimeoutMargin::between(timeout, call.duration.saturating_sub(held))),
            command_outcome: CommandOutcome::from_call(&call, instance.as_ref(), timeline.started_at),
            container_exited: container.has_exited,
            assessment: self.assessment,
            evidence: self.evidence.map(|evidence| with_oom_event(evidence, container, timeline.started_at)),
        };
        let record = CallRecord {
            call: Arc::new(call),
            analysis: Some(Arc::new(insight)),
            trace: info.trace.clone(),
            is_amended: false,
            ended: Some(end.at),
        };
        // A command that could not be started has no more events.
        let goes_on = |instance: &ExecInstance| {
            instance.exited.is_none() && !(end.outcome == ExecOutcome::Refused && instance.started.is_none())
        };
        let detached = instance.filter(goes_on).map(|instance| DetachedExec {
            record: record.clone().strip_trace(),
            instance,
            timeline,
            end,
        });
        (record, detached)
    }
}

impl DetachedExec {
    /// Returns the amended record, and the exec instance if its exit shows that it belongs to
    /// another call.
    pub(super) fn amend(self) -> (CallRecord, Option<ExecInstance>) {
        let Self { record, instance, timeline, end } = self;
        let mut record = CallRecord { is_amended: true, ..record };
        let exit = instance.exited.zip(instance.status);
        let is_its = exit.is_none_or(|(exited, status)| end.fits(exited.at, status));
        if let Some(insight) = &mut record.analysis {
            let insight = Arc::make_mut(insight);
            insight.phases = if is_its {
                timeline.phases(&instance, end.outcome)
            } else {
                Phases::Missing { parts: timeline.parts(), what: MissingEvents::Everything }
            };
            insight.command_outcome = CommandOutcome::from_call(
                &record.call,
                Some(&instance).filter(|_| is_its),
                timeline.started_at,
            );
        }
        (record, Some(instance).filter(|_| !is_its))
    }
}

/// Returns whether the output of a command is kept: that of an internal call, and that of a known
/// probe, which a kubelet publishes as well. The output of other commands of clients is private.
fn may_keep_output(probe_match: &ProbeMatch, is_internal: bool) -> bool {
    let ProbeMatch::Matched { uses, .. } = probe_match else { return is_internal };
    is_internal || uses.iter().any(|used| used.is_probe())
}

/// Returns the end of a call as a constraint on its exec instance.
pub(super) fn candidate_end(call: &Call, since: Instant) -> CandidateEnd {
    let result = call.exec.as_ref().and_then(|exec| exec.result);
    let outcome = match call.ending {
        CallOutcome::Completed(Some(Code::OK)) => {
            ExecOutcome::Exited(result.map(|result| result.exit_code.cast_unsigned()))
        }
        CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)) => ExecOutcome::TimedOut,
        CallOutcome::Completed(_) => ExecOutcome::Refused,
        _ => ExecOutcome::Unanswered,
    };
    CandidateEnd { at: since + call.duration, outcome }
}

/// Adds a kill by the kernel that only the runtime reported. The control group of a container that
/// has exited has no counters any more.
fn with_oom_event(evidence: Arc<Evidence>, container: ContainerState, since: Instant) -> Arc<Evidence> {
    let is_reported = container.last_oom.is_some_and(|at| at >= since);
    if !is_reported || evidence.oom_kills.is_some_and(|kills| kills > 0) {
        return evidence;
    }
    Arc::new(Evidence { oom_kills: Some(1), ..(*evidence).clone() })
}
