//! A call, from when it is asked until it is recorded, and beyond where its command goes on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Place;
use crate::cri::Code;
use crate::exec::assessment::Assessment;
use crate::exec::evidence::Evidence;
use crate::exec::habit::Key;
use crate::exec::insight::{Fate, Insight, Record};
use crate::exec::life::Life;
use crate::exec::matching::{self, Claim};
use crate::exec::phases::{Phases, Timeline};
use crate::relay::{Ending, Head};
use crate::tap::{Call, Ended, Exec};

/// A call that is not recorded yet.
#[derive(Debug)]
pub(in crate::exec) struct InFlight {
    pub(in crate::exec) id: u64,
    pub(super) head: Weak<Head>,
    pub(super) since: Instant,
    pub(super) whole: Duration,
    pub(super) sent: Duration,
    pub(in crate::exec) exec: Arc<Exec>,
    pub(super) place: Place,
    pub(super) key: Key,
    /// The runtime's events were interrupted while it lasted.
    pub(super) is_blind: bool,
    pub(super) end: Option<Concluding>,
}

/// What is known of a call that has ended.
#[derive(Debug)]
pub(super) struct Concluding {
    pub(super) ended: Box<Ended>,
    pub(super) end: matching::End,
    pub(super) assessment: Assessment,
    /// Until when what is still missing may come.
    pub(super) until: Instant,
    pub(super) evidence: Option<Arc<Evidence>>,
    pub(super) awaits_evidence: bool,
}

/// A call that was recorded while its command went on, or before its end was heard of.
#[derive(Debug)]
pub(super) struct LateCall {
    pub(super) record: Record,
    pub(super) life: Life,
    pub(super) timeline: Timeline,
    pub(super) has_failed: bool,
}

impl Concluding {
    /// Whether the runtime answered with an error that is not a timeout: perhaps before anything was executed.
    pub(super) fn is_refused(&self) -> bool {
        self.end.is_answered && !self.end.is_exited
    }
}

impl InFlight {
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim {
            sent: self.since + self.sent,
            command: &self.exec.command,
            end: self.end.as_ref().map(|end| end.end),
        }
    }

    pub(super) fn timeline(&self, end: &Concluding) -> Timeline {
        Timeline { since: self.since, whole: self.whole, sent: self.sent, end: end.ended.call.duration }
    }

    /// When it had ended, of a call that has.
    pub(super) fn ended_at(&self) -> Instant {
        self.end.as_ref().map_or(self.since, |end| end.end.at)
    }

    /// When it was asked.
    pub(in crate::exec) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it has been answered, or was given up.
    pub(in crate::exec) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Where it executes.
    pub(in crate::exec) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn into_record(self, phases: Phases, life: Option<Life>) -> (Record, Option<LateCall>) {
        let Some(end) = &self.end else { unreachable!("only calls that have ended are recorded") };
        let timeline = self.timeline(end);
        let has_failed = end.is_refused();
        let Some(end) = self.end else { unreachable!("only calls that have ended are recorded") };
        let Ended { head, mut call, .. } = *end.ended;
        call.container = self.place.container.or(call.container);
        call.pod = self.place.pod.or(call.pod);
        let fate = Fate::of(&call, life.as_ref(), timeline.since);
        let margin = self.exec.timeout().map(|timeout| microseconds(timeout) - microseconds(call.duration));
        let insight = Insight {
            identity: self.place.identity,
            phases,
            margin_us: margin,
            fate,
            assessment: end.assessment,
            evidence: end.evidence,
        };
        let record = Record {
            call: Arc::new(call),
            insight: Some(Arc::new(insight)),
            trace: head.trace.clone(),
            is_amended: false,
            ended: Some(timeline.since + timeline.end),
        };
        // Of a command that could not be started nothing more is heard.
        let is_late = |life: &Life| life.exited.is_none() && !(has_failed && life.started.is_none());
        let late = life.filter(is_late).map(|life| LateCall {
            record: record.clone().without_trace(),
            life,
            timeline,
            has_failed,
        });
        (record, late)
    }
}

impl LateCall {
    /// When the call ended.
    pub(super) fn ended(&self) -> Instant {
        self.timeline.since + self.timeline.end
    }

    /// The record with what has been heard of since.
    pub(super) fn amended(&self) -> Record {
        let mut record = Record { is_amended: true, ..self.record.clone() };
        if let Some(insight) = &mut record.insight {
            let insight = Arc::make_mut(insight);
            insight.phases = self.timeline.phases(&self.life, self.has_failed);
            insight.fate = Fate::of(&record.call, Some(&self.life), self.timeline.since);
        }
        record
    }
}

/// How a call ended, as far as that tells of its command.
pub(super) fn end_of(call: &Call, since: Instant) -> matching::End {
    let exit_code = call.exec.as_ref().and_then(|exec| exec.result).map(|result| result.exit_code);
    let is_timeout = call.ending == Ending::Answered(Some(Code::DEADLINE_EXCEEDED));
    let is_answered = matches!(call.ending, Ending::Answered(_));
    let is_exited = exit_code.is_some() || is_timeout;
    matching::End { at: since + call.duration, exit_code, is_exited, is_answered }
}

fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
