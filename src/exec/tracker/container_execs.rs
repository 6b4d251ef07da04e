//! What goes on in one container: calls, and what is executed.

use std::cell::OnceCell;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{DetachedExec, EndedCall, InFlight};
use super::{EventCoverage, LATE_EVENT_TIMEOUT, MAX_UNMATCHED};
use crate::containerd::TaskEvent;
use crate::exec::exec_instance::{EventTime, ExecInstance, SKEW};
use crate::exec::matching::{CallCandidate, ExecOutcome, ExitEvents, Match, Matching};
use crate::exec::phases::{MissingEvents, Phases, Timeline};

/// Executions that an ambiguous call names.
const CANDIDATES: usize = 8;

/// How long the exit of a command is waited for that no call is known to have asked for, or that has outlived its call.
pub(super) const LATE_EXIT_TTL: Duration = Duration::from_secs(600);

/// What goes on in one container.
#[derive(Debug, Default)]
pub(in crate::exec) struct ContainerExecs {
    pub(in crate::exec) calls: Vec<InFlight>,
    /// Those that no call is known to have had.
    pub(super) executions: Vec<ExecInstance>,
    /// What calls that have been recorded have left running.
    pub(super) outliving: Vec<DetachedExec>,
    /// When the container exited, if it has: what was executed in it goes with it.
    pub(super) closed: Option<Instant>,
}

/// A call that has ended, and all that is known of it.
#[derive(Debug)]
pub(super) struct ResolvedCall {
    pub(super) call: InFlight,
    pub(super) concluding: EndedCall,
    pub(super) phases: Phases,
    /// What was executed for it, if that is known.
    pub(super) execution: Option<ExecInstance>,
}

/// Where the time of a call went, and which execution was its, if that is known.
struct Resolution {
    phases: Phases,
    execution: Option<usize>,
}

/// Which executions were which calls', worked out when it is asked for.
struct LazyMatchings<'a> {
    claims: &'a [CallCandidate<'a>],
    executions: &'a [ExecInstance],
    open: OnceCell<Matching<'a>>,
    closed: OnceCell<Matching<'a>>,
}

impl ContainerExecs {
    pub(super) fn unanswered(&self) -> usize {
        self.calls.iter().filter(|call| call.concluding.is_none()).count()
    }

    pub(super) fn call(&self, id: u64) -> Option<&InFlight> {
        self.calls.iter().find(|call| call.id == id)
    }

    pub(super) fn call_mut(&mut self, id: u64) -> Option<&mut InFlight> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.executions.is_empty() && self.outliving.is_empty()
    }

    pub(super) fn take(&mut self, exec: &str, event: &TaskEvent, moment: EventTime) {
        let known = self.executions.iter_mut().find(|execution| *execution.exec == *exec);
        if let Some(execution) = known {
            execution.apply(event, moment);
        } else {
            let mut execution = ExecInstance::new(exec);
            execution.apply(event, moment);
            self.executions.push(execution);
        }
    }

    /// The next call that can be recorded.
    pub(super) fn next_resolved(&mut self, events: EventCoverage, now: Instant) -> Option<ResolvedCall> {
        let is_ready =
            |call: &InFlight| call.concluding.as_ref().is_some_and(|concluding| concluding.is_ready(now));
        let mut ready = (0..self.calls.len()).filter(|call| is_ready(&self.calls[*call])).peekable();
        ready.peek()?;
        let (call, Resolution { phases, execution }) = {
            let claims: Vec<CallCandidate<'_>> = self.calls.iter().map(InFlight::claim).collect();
            let matchings = LazyMatchings::new(&claims, &self.executions);
            ready.find_map(|call| Some((call, self.conclusion(call, events, now, &matchings)?)))?
        };
        let execution = execution.map(|execution| self.executions.remove(execution));
        let mut call = self.calls.remove(call);
        let concluding = call.concluding.take()?;
        Some(ResolvedCall { call, concluding, phases, execution })
    }

    /// Where the time of a call that has ended went, if nothing that is waited for can tell more.
    fn conclusion(
        &self,
        call: usize,
        events: EventCoverage,
        now: Instant,
        matchings: &LazyMatchings<'_>,
    ) -> Option<Resolution> {
        let in_flight = &self.calls[call];
        let concluding = in_flight.concluding.as_ref()?;
        let timeline = in_flight.timeline(concluding);
        let is_over = now >= concluding.until || in_flight.is_blind;
        match events {
            EventCoverage::NotWatched => {
                Some(Phases::Missing { parts: timeline.parts(), what: MissingEvents::NotWatched }.into())
            }
            EventCoverage::Unsupported => Some(Phases::Unsupported(timeline.parts()).into()),
            EventCoverage::Complete | EventCoverage::Interrupted if is_over => {
                Some(self.resolve_final(call, timeline, concluding, matchings))
            }
            EventCoverage::Complete | EventCoverage::Interrupted => {
                self.resolve_early(call, timeline, concluding, matchings.open())
            }
        }
    }

    /// Where the time of a call went, if nothing that is yet to come can tell more.
    fn resolve_early(
        &self,
        call: usize,
        timeline: Timeline,
        concluding: &EndedCall,
        open: &Matching<'_>,
    ) -> Option<Resolution> {
        // While fewer executions have been heard of than there are calls, one that fits may be another's.
        let first = self.calls.iter().map(|call| call.since).min()?;
        let heard_of = self.executions.iter().filter(|execution| {
            execution.has_cri_exec_id()
                && execution.first_event().is_some_and(|moment| moment.at + SKEW >= first)
        });
        if heard_of.count() < self.calls.len() {
            return None;
        }
        match open.find(call) {
            Match::One(execution) => {
                let phases = timeline.phases(&self.executions[execution], concluding.end.outcome);
                let is_all = matches!(phases, Phases::Complete(_));
                is_all.then_some(Resolution { phases, execution: Some(execution) })
            }
            Match::OneOf(executions) if open.is_settled(call) => {
                Some(self.ambiguous(timeline, &executions).into())
            }
            Match::OneOf(_) | Match::None => None,
        }
    }

    /// Where the time of a call went, as well as it is known.
    fn resolve_final(
        &self,
        call: usize,
        timeline: Timeline,
        concluding: &EndedCall,
        matchings: &LazyMatchings<'_>,
    ) -> Resolution {
        // What has not been heard of by now will hardly be. Where that leaves nothing its exit is late, unless what goes on may be
        // another's.
        let is_blind = self.calls[call].is_blind;
        let found = match matchings.closed().find(call) {
            Match::None if !is_blind && matchings.open().is_uncontested(call) => matchings.open().find(call),
            found => found,
        };
        match found {
            Match::One(execution) => Resolution {
                phases: timeline.phases(&self.executions[execution], concluding.end.outcome),
                execution: Some(execution),
            },
            Match::OneOf(executions) => self.ambiguous(timeline, &executions).into(),
            Match::None => {
                let what = if is_blind { MissingEvents::Interrupted } else { MissingEvents::Everything };
                Phases::Missing { parts: timeline.parts(), what }.into()
            }
        }
    }

    fn ambiguous(&self, timeline: Timeline, executions: &[usize]) -> Phases {
        let candidates = executions
            .iter()
            .take(CANDIDATES)
            .map(|execution| self.executions[*execution].exec.clone())
            .collect();
        Phases::Ambiguous { parts: timeline.parts(), candidates, count: executions.len() }
    }

    /// The first processes of what a call executed; or of what it may have executed, where all of that is over by what was answered. What
    /// has not exited then may still turn out to be another's.
    pub(super) fn pids_of(
        &self,
        outcome: ExecOutcome,
        phases: &Phases,
        execution: Option<&ExecInstance>,
    ) -> Vec<u32> {
        match phases {
            Phases::Ambiguous { .. } if !outcome.has_exited() => Vec::new(),
            _ if outcome.has_exited() && execution.is_some_and(|execution| execution.exited.is_none()) => {
                Vec::new()
            }
            Phases::Ambiguous { candidates, .. } => {
                let is_one = |execution: &&ExecInstance| candidates.contains(&execution.exec);
                self.executions.iter().filter(is_one).filter_map(|execution| execution.pid).collect()
            }
            _ => execution.and_then(|execution| execution.pid).into_iter().collect(),
        }
    }

    /// The calls that have not been answered and whose commands are known to have exited: their process, if it is known which, and since
    /// when.
    pub(in crate::exec) fn exited_unanswered(&self) -> Vec<(&InFlight, Option<u32>, Instant)> {
        let claims: Vec<CallCandidate<'_>> = self.calls.iter().map(InFlight::claim).collect();
        let matching = Matching::new(&claims, &self.executions, ExitEvents::Complete);
        let exited = |execution: &usize| self.executions[*execution].exited.map(|exited| exited.received_at);
        // Of a call whose events were interrupted nothing tells whether an exit was its.
        let is_unanswered = |call: &InFlight| call.concluding.is_none() && !call.is_blind;
        let unanswered = self.calls.iter().enumerate().filter(|(_, call)| is_unanswered(call));
        let found = unanswered.filter_map(|(index, call)| match matching.find(index) {
            Match::One(execution) => Some((call, self.executions[execution].pid, exited(&execution)?)),
            // Whichever it was.
            Match::OneOf(executions) => {
                let all: Option<Vec<Instant>> = executions.iter().map(exited).collect();
                Some((call, None, all?.into_iter().max()?))
            }
            Match::None => None,
        });
        found.collect()
    }

    /// Forgets commands that have ended and that no call can have had which goes on, or which may yet be seen to have been made: events may
    /// be faster than what the relay tells. Forgets the oldest of too many.
    pub(super) fn forget_executions(&mut self, now: Instant) {
        let first = self.calls.iter().map(|call| call.since).min();
        self.executions.retain(|execution| {
            let Some(last) = execution.exited.or(execution.first_event()) else { return false };
            let retention = if execution.exited.is_some() { LATE_EVENT_TIMEOUT } else { LATE_EXIT_TTL };
            first.is_some_and(|first| last.received_at >= first) || now - last.received_at < retention
        });
        while self.executions.len() > MAX_UNMATCHED + self.calls.len() {
            // Rather what is over than what may be a call's that goes on.
            let oldest = self.executions.iter().position(|execution| execution.exited.is_some()).unwrap_or(0);
            self.executions.remove(oldest);
        }
    }

    /// Forgets what was executed in a container that exited a while ago.
    pub(super) fn close(&mut self, now: Instant) {
        if self.closed.is_some_and(|closed| now - closed > 2 * LATE_EVENT_TIMEOUT) {
            self.executions.clear();
            self.outliving.clear();
        }
    }
}

impl<'a> LazyMatchings<'a> {
    fn new(claims: &'a [CallCandidate<'a>], executions: &'a [ExecInstance]) -> Self {
        Self { claims, executions, open: OnceCell::new(), closed: OnceCell::new() }
    }

    /// While exits may come.
    fn open(&self) -> &Matching<'a> {
        self.open.get_or_init(|| Matching::new(self.claims, self.executions, ExitEvents::Pending))
    }

    /// When all have been heard of.
    fn closed(&self) -> &Matching<'a> {
        self.closed.get_or_init(|| Matching::new(self.claims, self.executions, ExitEvents::Complete))
    }
}

impl From<Phases> for Resolution {
    fn from(phases: Phases) -> Self {
        Self { phases, execution: None }
    }
}
