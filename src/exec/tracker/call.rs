//! A call, from when it is asked until it is recorded, and beyond where its command goes on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::CallContext;
use crate::cri::Code;
use crate::exec::analysis::{CallRecord, CommandOutcome, ExecAnalysis, TimeoutMargin};
use crate::exec::evidence::Evidence;
use crate::exec::exec_instance::ExecInstance;
use crate::exec::matching::{CallCandidate, CandidateEnd, ExecOutcome};
use crate::exec::periodicity::PatternKey;
use crate::exec::phases::{MissingEvents, Phases, Timeline};
use crate::exec::slowness::Assessment;
use crate::relay::{CallInfo, CallOutcome};
use crate::tap::{Call, DecodedCall, ExecCall};

/// A call that is not recorded yet.
#[derive(Debug)]
pub(in crate::exec) struct ExecInFlight {
    pub(in crate::exec) id: u64,
    pub(super) info: Weak<CallInfo>,
    pub(super) started_at: Instant,
    pub(super) received: Duration,
    pub(super) sent: Duration,
    pub(in crate::exec) exec: Arc<ExecCall>,
    pub(super) context: CallContext,
    pub(super) pattern_key: PatternKey,
    /// The runtime's events were interrupted while it lasted.
    pub(super) events_lost: bool,
    /// What is known of its end, if it has ended.
    pub(super) ended: Option<EndedCall>,
}

/// What is known of a call that has ended.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) decoded: Box<DecodedCall>,
    pub(super) end: CandidateEnd,
    pub(super) assessment: Assessment,
    /// Until when what is still missing may come.
    pub(super) deadline: Instant,
    pub(super) evidence: Option<Arc<Evidence>>,
    pub(super) evidence_pending: bool,
}

/// A command that goes on after its call was recorded, or of whose end nothing had been heard by then.
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
            events_lost: self.events_lost,
            end: self.ended.as_ref().map(|ended| ended.end),
        }
    }

    pub(super) fn timeline(&self, ended: &EndedCall) -> Timeline {
        let end = ended.decoded.call.duration;
        Timeline { started_at: self.started_at, received: self.received, sent: self.sent, end }
    }

    /// When it was asked.
    pub(in crate::exec) fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Whether it has been answered, or was given up.
    pub(in crate::exec) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Where it executes.
    pub(in crate::exec) fn context(&self) -> &CallContext {
        &self.context
    }
}

impl EndedCall {
    /// Whether everything is known of the call that is waited for.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        !self.evidence_pending || now >= self.deadline
    }

    /// The record of the call, and its command if more may be heard of that.
    pub(super) fn finish(
        self,
        call: ExecInFlight,
        phases: Phases,
        instance: Option<ExecInstance>,
    ) -> (CallRecord, Option<DetachedExec>) {
        let (timeline, end) = (call.timeline(&self), self.end);
        let ExecInFlight { exec, context, .. } = call;
        let DecodedCall { info, mut call, .. } = *self.decoded;
        call.container = context.container.or(call.container);
        call.pod = context.pod.or(call.pod);
        let insight = ExecAnalysis {
            identity: context.probe_match,
            phases,
            margin: exec.timeout().map(|timeout| TimeoutMargin::between(timeout, call.duration)),
            command_outcome: CommandOutcome::from_call(&call, instance.as_ref(), timeline.started_at),
            assessment: self.assessment,
            evidence: self.evidence,
        };
        let record = CallRecord {
            call: Arc::new(call),
            analysis: Some(Arc::new(insight)),
            trace: info.trace.clone(),
            is_amended: false,
            ended: Some(end.at),
        };
        // Of a command that could not be started nothing more is heard.
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
    /// The record with what has been heard of since; and the instance, if by its end it was not the call's.
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

/// How a call ended, as far as that tells of its command.
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
