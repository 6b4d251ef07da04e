//! A call, from when it is asked until it is recorded, and beyond where its command goes on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Place;
use crate::cri::Code;
use crate::exec::assessment::Assessment;
use crate::exec::evidence::Evidence;
use crate::exec::execution::Execution;
use crate::exec::habit::Key;
use crate::exec::insight::{Fate, Insight, Margin, Record};
use crate::exec::matching::{Claim, End, Outcome};
use crate::exec::phases::{Missing, Phases, Timeline};
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
    pub(super) place: Place,
    pub(super) key: Key,
    /// The runtime's events were interrupted while it lasted.
    pub(super) is_blind: bool,
    /// What is known of its end, if it has ended.
    pub(super) concluding: Option<Concluding>,
}

/// What is known of a call that has ended.
#[derive(Debug)]
pub(super) struct Concluding {
    pub(super) ended: Box<DecodedCall>,
    pub(super) end: End,
    pub(super) assessment: Assessment,
    /// Until when what is still missing may come.
    pub(super) until: Instant,
    pub(super) evidence: Option<Arc<Evidence>>,
    pub(super) awaits_evidence: bool,
}

/// A command that goes on after its call was recorded, or of whose end nothing had been heard by then.
#[derive(Debug)]
pub(super) struct Outliving {
    pub(super) record: Record,
    pub(super) execution: Execution,
    pub(super) timeline: Timeline,
    pub(super) end: End,
}

impl InFlight {
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim {
            sent: self.since + self.sent,
            command: &self.exec.command,
            is_blind: self.is_blind,
            end: self.concluding.as_ref().map(|concluding| concluding.end),
        }
    }

    pub(super) fn timeline(&self, concluding: &Concluding) -> Timeline {
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
    pub(in crate::exec) fn place(&self) -> &Place {
        &self.place
    }
}

impl Concluding {
    /// Whether everything is known of the call that is waited for.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        !self.awaits_evidence || now >= self.until
    }

    /// The record of the call, and its command if more may be heard of that.
    pub(super) fn into_record(
        self,
        call: InFlight,
        phases: Phases,
        execution: Option<Execution>,
    ) -> (Record, Option<Outliving>) {
        let (timeline, end) = (call.timeline(&self), self.end);
        let InFlight { exec, place, .. } = call;
        let DecodedCall { head, mut call, .. } = *self.ended;
        call.container = place.container.or(call.container);
        call.pod = place.pod.or(call.pod);
        let insight = Insight {
            identity: place.identity,
            phases,
            margin: exec.timeout().map(|timeout| Margin::between(timeout, call.duration)),
            fate: Fate::of(&call, execution.as_ref(), timeline.since),
            assessment: self.assessment,
            evidence: self.evidence,
        };
        let record = Record {
            call: Arc::new(call),
            insight: Some(Arc::new(insight)),
            trace: head.trace.clone(),
            is_amended: false,
            ended: Some(end.at),
        };
        // Of a command that could not be started nothing more is heard.
        let goes_on = |execution: &Execution| {
            execution.exited.is_none() && !(end.outcome == Outcome::Refused && execution.started.is_none())
        };
        let outliving = execution.filter(goes_on).map(|execution| Outliving {
            record: record.clone().without_trace(),
            execution,
            timeline,
            end,
        });
        (record, outliving)
    }
}

impl Outliving {
    /// The record with what has been heard of since; and the execution, if by its end it was not the call's.
    pub(super) fn amended(self) -> (Record, Option<Execution>) {
        let Self { record, execution, timeline, end } = self;
        let mut record = Record { is_amended: true, ..record };
        let exit = execution.exited.zip(execution.status);
        let is_its = exit.is_none_or(|(exited, status)| end.fits(exited.at, status));
        if let Some(insight) = &mut record.insight {
            let insight = Arc::make_mut(insight);
            insight.phases = if is_its {
                timeline.phases(&execution, end.outcome)
            } else {
                Phases::Missing { parts: timeline.parts(), what: Missing::Everything }
            };
            insight.fate = Fate::of(&record.call, Some(&execution).filter(|_| is_its), timeline.since);
        }
        (record, Some(execution).filter(|_| !is_its))
    }
}

/// How a call ended, as far as that tells of its command.
pub(super) fn end_of(call: &Call, since: Instant) -> End {
    let result = call.exec.as_ref().and_then(|exec| exec.result);
    let outcome = match call.ending {
        CallOutcome::Completed(Some(Code::OK)) => {
            Outcome::Exited(result.map(|result| result.exit_code.cast_unsigned()))
        }
        CallOutcome::Completed(Some(Code::DEADLINE_EXCEEDED)) => Outcome::TimedOut,
        CallOutcome::Completed(_) => Outcome::Refused,
        _ => Outcome::Unanswered,
    };
    End { at: since + call.duration, outcome }
}
