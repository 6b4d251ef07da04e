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
pub(in crate::exec) struct InFlight {
    pub(in crate::exec) id: u64,
    pub(super) head: Weak<CallInfo>,
    pub(super) since: Instant,
    pub(super) whole: Duration,
    pub(super) sent: Duration,
    pub(in crate::exec) exec: Arc<ExecCall>,
    pub(super) place: CallContext,
    pub(super) key: PatternKey,
    /// The runtime's events were interrupted while it lasted.
    pub(super) is_blind: bool,
    /// What is known of its end, if it has ended.
    pub(super) concluding: Option<EndedCall>,
}

/// What is known of a call that has ended.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) ended: Box<DecodedCall>,
    pub(super) end: CandidateEnd,
    pub(super) assessment: Assessment,
    /// Until when what is still missing may come.
    pub(super) until: Instant,
    pub(super) evidence: Option<Arc<Evidence>>,
    pub(super) awaits_evidence: bool,
}

/// A command that goes on after its call was recorded, or of whose end nothing had been heard by then.
#[derive(Debug)]
pub(super) struct DetachedExec {
    pub(super) record: CallRecord,
    pub(super) execution: ExecInstance,
    pub(super) timeline: Timeline,
    pub(super) end: CandidateEnd,
}

impl InFlight {
    pub(super) fn claim(&self) -> CallCandidate<'_> {
        CallCandidate {
            sent: self.since + self.sent,
            command: &self.exec.command,
            events_lost: self.is_blind,
            end: self.concluding.as_ref().map(|concluding| concluding.end),
        }
    }

    pub(super) fn timeline(&self, concluding: &EndedCall) -> Timeline {
        let end = concluding.ended.call.duration;
        Timeline { since: self.since, whole: self.whole, sent: self.sent, end }
    }

    /// When it was asked.
    pub(in crate::exec) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it has been answered, or was given up.
    pub(in crate::exec) fn has_ended(&self) -> bool {
        self.concluding.is_some()
    }

    /// Where it executes.
    pub(in crate::exec) fn place(&self) -> &CallContext {
        &self.place
    }
}

impl EndedCall {
    /// Whether everything is known of the call that is waited for.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        !self.awaits_evidence || now >= self.until
    }

    /// The record of the call, and its command if more may be heard of that.
    pub(super) fn finish(
        self,
        call: InFlight,
        phases: Phases,
        execution: Option<ExecInstance>,
    ) -> (CallRecord, Option<DetachedExec>) {
        let (timeline, end) = (call.timeline(&self), self.end);
        let InFlight { exec, place, .. } = call;
        let DecodedCall { head, mut call, .. } = *self.ended;
        call.container = place.container.or(call.container);
        call.pod = place.pod.or(call.pod);
        let insight = ExecAnalysis {
            identity: place.identity,
            phases,
            margin: exec.timeout().map(|timeout| TimeoutMargin::between(timeout, call.duration)),
            command_outcome: CommandOutcome::from_call(&call, execution.as_ref(), timeline.since),
            assessment: self.assessment,
            evidence: self.evidence,
        };
        let record = CallRecord {
            call: Arc::new(call),
            insight: Some(Arc::new(insight)),
            trace: head.trace.clone(),
            is_amended: false,
            ended: Some(end.at),
        };
        // Of a command that could not be started nothing more is heard.
        let goes_on = |execution: &ExecInstance| {
            execution.exited.is_none()
                && !(end.outcome == ExecOutcome::Refused && execution.started.is_none())
        };
        let outliving = execution.filter(goes_on).map(|execution| DetachedExec {
            record: record.clone().strip_trace(),
            execution,
            timeline,
            end,
        });
        (record, outliving)
    }
}

impl DetachedExec {
    /// The record with what has been heard of since; and the execution, if by its end it was not the call's.
    pub(super) fn amend(self) -> (CallRecord, Option<ExecInstance>) {
        let Self { record, execution, timeline, end } = self;
        let mut record = CallRecord { is_amended: true, ..record };
        let exit = execution.exited.zip(execution.status);
        let is_its = exit.is_none_or(|(exited, status)| end.fits(exited.at, status));
        if let Some(insight) = &mut record.insight {
            let insight = Arc::make_mut(insight);
            insight.phases = if is_its {
                timeline.phases(&execution, end.outcome)
            } else {
                Phases::Missing { parts: timeline.parts(), what: MissingEvents::Everything }
            };
            insight.command_outcome =
                CommandOutcome::from_call(&record.call, Some(&execution).filter(|_| is_its), timeline.since);
        }
        (record, Some(execution).filter(|_| !is_its))
    }
}

/// How a call ended, as far as that tells of its command.
pub(super) fn end_of(call: &Call, since: Instant) -> CandidateEnd {
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
