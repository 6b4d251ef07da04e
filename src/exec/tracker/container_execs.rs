//! What goes on in one container: calls, and what is executed.

use std::cell::OnceCell;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{DetachedExec, EndedCall, ExecInFlight};
use super::{EventCoverage, LATE_EVENT_TIMEOUT, MAX_UNMATCHED};
use crate::containerd::TaskEvent;
use crate::exec::exec_instance::{EventTime, ExecInstance, SKEW};
use crate::exec::matching::{CallCandidate, ExecOutcome, ExitEvents, Match, Matching};
use crate::exec::phases::{MissingEvents, Phases, Timeline};

/// Executions that an ambiguous call names.
const MAX_CANDIDATES: usize = 8;

/// How long the exit of a command is waited for that no call is known to have asked for, or that has outlived its call.
pub(super) const LATE_EXIT_TTL: Duration = Duration::from_secs(600);

/// What goes on in one container.
#[derive(Debug, Default)]
pub(in crate::exec) struct ContainerExecs {
    pub(in crate::exec) calls: Vec<ExecInFlight>,
    /// Those that no call is known to have had.
    pub(super) instances: Vec<ExecInstance>,
    /// What calls that have been recorded have left running.
    pub(super) detached: Vec<DetachedExec>,
    /// When the container exited, if it has: what was executed in it goes with it.
    pub(super) exited_at: Option<Instant>,
}

/// A call that has ended, and all that is known of it.
#[derive(Debug)]
pub(super) struct ResolvedCall {
    pub(super) call: ExecInFlight,
    pub(super) ended: EndedCall,
    pub(super) phases: Phases,
    /// What was executed for it, if that is known.
    pub(super) instance: Option<ExecInstance>,
}

/// Where the time of a call went, and which execution was its, if that is known.
struct Resolution {
    phases: Phases,
    instance: Option<usize>,
}

/// Which executions were which calls', worked out when it is asked for.
struct LazyMatchings<'a> {
    candidates: &'a [CallCandidate<'a>],
    instances: &'a [ExecInstance],
    open: OnceCell<Matching<'a>>,
    closed: OnceCell<Matching<'a>>,
}

impl ContainerExecs {
    pub(super) fn unanswered(&self) -> usize {
        self.calls.iter().filter(|call| call.ended.is_none()).count()
    }

    pub(super) fn call(&self, id: u64) -> Option<&ExecInFlight> {
        self.calls.iter().find(|call| call.id == id)
    }

    pub(super) fn call_mut(&mut self, id: u64) -> Option<&mut ExecInFlight> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.instances.is_empty() && self.detached.is_empty()
    }

    pub(super) fn apply(&mut self, exec: &str, event: &TaskEvent, event_time: EventTime) {
        let known = self.instances.iter_mut().find(|instance| *instance.exec == *exec);
        if let Some(instance) = known {
            instance.apply(event, event_time);
        } else {
            let mut instance = ExecInstance::new(exec);
            instance.apply(event, event_time);
            self.instances.push(instance);
        }
    }

    /// The next call that can be recorded.
    pub(super) fn next_resolved(&mut self, events: EventCoverage, now: Instant) -> Option<ResolvedCall> {
        let is_ready = |call: &ExecInFlight| call.ended.as_ref().is_some_and(|ended| ended.is_ready(now));
        let mut ready = (0..self.calls.len()).filter(|call| is_ready(&self.calls[*call])).peekable();
        ready.peek()?;
        let (call, Resolution { phases, instance }) = {
            let candidates: Vec<CallCandidate<'_>> = self.calls.iter().map(ExecInFlight::candidate).collect();
            let matchings = LazyMatchings::new(&candidates, &self.instances);
            ready.find_map(|call| Some((call, self.resolve(call, events, now, &matchings)?)))?
        };
        let instance = instance.map(|instance| self.instances.remove(instance));
        let mut call = self.calls.remove(call);
        let ended = call.ended.take()?;
        Some(ResolvedCall { call, ended, phases, instance })
    }

    /// Where the time of a call that has ended went, if nothing that is waited for can tell more.
    fn resolve(
        &self,
        call: usize,
        events: EventCoverage,
        now: Instant,
        matchings: &LazyMatchings<'_>,
    ) -> Option<Resolution> {
        let in_flight = &self.calls[call];
        let ended = in_flight.ended.as_ref()?;
        let timeline = in_flight.timeline(ended);
        let all_events_known = now >= ended.deadline || in_flight.events_lost;
        match events {
            EventCoverage::NotWatched => {
                Some(Phases::Missing { parts: timeline.parts(), what: MissingEvents::NotWatched }.into())
            }
            EventCoverage::Unsupported => Some(Phases::Unsupported(timeline.parts()).into()),
            EventCoverage::Complete | EventCoverage::Interrupted if all_events_known => {
                Some(self.resolve_final(call, timeline, ended, matchings))
            }
            EventCoverage::Complete | EventCoverage::Interrupted => {
                self.resolve_early(call, timeline, ended, matchings.open())
            }
        }
    }

    /// Where the time of a call went, if nothing that is yet to come can tell more.
    fn resolve_early(
        &self,
        call: usize,
        timeline: Timeline,
        ended: &EndedCall,
        open: &Matching<'_>,
    ) -> Option<Resolution> {
        // While fewer executions have been heard of than there are calls, one that fits may be another's.
        let first = self.calls.iter().map(|call| call.started_at).min()?;
        let heard_of = self.instances.iter().filter(|instance| {
            instance.has_cri_exec_id()
                && instance.first_event().is_some_and(|event_time| event_time.at + SKEW >= first)
        });
        if heard_of.count() < self.calls.len() {
            return None;
        }
        match open.find(call) {
            Match::One(instance) => {
                let phases = timeline.phases(&self.instances[instance], ended.end.outcome);
                let is_all = matches!(phases, Phases::Complete(_));
                is_all.then_some(Resolution { phases, instance: Some(instance) })
            }
            Match::OneOf(instances) if open.is_settled(call) => {
                Some(self.ambiguous(timeline, &instances).into())
            }
            Match::OneOf(_) | Match::None => None,
        }
    }

    /// Where the time of a call went, as well as it is known.
    fn resolve_final(
        &self,
        call: usize,
        timeline: Timeline,
        ended: &EndedCall,
        matchings: &LazyMatchings<'_>,
    ) -> Resolution {
        // What has not been heard of by now will hardly be. Where that leaves nothing its exit is late, unless what goes on may be
        // another's.
        let is_blind = self.calls[call].events_lost;
        let found = match matchings.closed().find(call) {
            Match::None if !is_blind && matchings.open().is_uncontested(call) => matchings.open().find(call),
            found => found,
        };
        match found {
            Match::One(instance) => Resolution {
                phases: timeline.phases(&self.instances[instance], ended.end.outcome),
                instance: Some(instance),
            },
            Match::OneOf(instances) => self.ambiguous(timeline, &instances).into(),
            Match::None => {
                let what = if is_blind { MissingEvents::Interrupted } else { MissingEvents::Everything };
                Phases::Missing { parts: timeline.parts(), what }.into()
            }
        }
    }

    fn ambiguous(&self, timeline: Timeline, instances: &[usize]) -> Phases {
        let candidates = instances
            .iter()
            .take(MAX_CANDIDATES)
            .map(|instance| self.instances[*instance].exec.clone())
            .collect();
        Phases::Ambiguous { parts: timeline.parts(), candidates, count: instances.len() }
    }

    /// The first processes of what a call executed; or of what it may have executed, where all of that is over by what was answered. What
    /// has not exited then may still turn out to be another's.
    pub(super) fn pids_of(
        &self,
        outcome: ExecOutcome,
        phases: &Phases,
        instance: Option<&ExecInstance>,
    ) -> Vec<u32> {
        match phases {
            Phases::Ambiguous { .. } if !outcome.has_exited() => Vec::new(),
            _ if outcome.has_exited() && instance.is_some_and(|instance| instance.exited.is_none()) => {
                Vec::new()
            }
            Phases::Ambiguous { candidates, .. } => {
                let is_one = |instance: &&ExecInstance| candidates.contains(&instance.exec);
                self.instances.iter().filter(is_one).filter_map(|instance| instance.pid).collect()
            }
            _ => instance.and_then(|instance| instance.pid).into_iter().collect(),
        }
    }

    /// The calls that have not been answered and whose commands are known to have exited: their process, if it is known which, and since
    /// when.
    pub(in crate::exec) fn exited_unanswered(&self) -> Vec<(&ExecInFlight, Option<u32>, Instant)> {
        let candidates: Vec<CallCandidate<'_>> = self.calls.iter().map(ExecInFlight::candidate).collect();
        let matching = Matching::new(&candidates, &self.instances, ExitEvents::Complete);
        let exited = |instance: &usize| self.instances[*instance].exited.map(|exited| exited.received_at);
        // Of a call whose events were interrupted nothing tells whether an exit was its.
        let is_unanswered = |call: &ExecInFlight| call.ended.is_none() && !call.events_lost;
        let unanswered = self.calls.iter().enumerate().filter(|(_, call)| is_unanswered(call));
        let found = unanswered.filter_map(|(index, call)| match matching.find(index) {
            Match::One(instance) => Some((call, self.instances[instance].pid, exited(&instance)?)),
            // Whichever it was.
            Match::OneOf(instances) => {
                let all: Option<Vec<Instant>> = instances.iter().map(exited).collect();
                Some((call, None, all?.into_iter().max()?))
            }
            Match::None => None,
        });
        found.collect()
    }

    /// Forgets commands that have ended and that no call can have had which goes on, or which may yet be seen to have been made: events may
    /// be faster than what the relay tells. Forgets the oldest of too many.
    pub(super) fn forget_instances(&mut self, now: Instant) {
        let first = self.calls.iter().map(|call| call.started_at).min();
        self.instances.retain(|instance| {
            let Some(last) = instance.exited.or(instance.first_event()) else { return false };
            let retention = if instance.exited.is_some() { LATE_EVENT_TIMEOUT } else { LATE_EXIT_TTL };
            first.is_some_and(|first| last.received_at >= first) || now - last.received_at < retention
        });
        while self.instances.len() > MAX_UNMATCHED + self.calls.len() {
            // Rather what is over than what may be a call's that goes on.
            let oldest = self.instances.iter().position(|instance| instance.exited.is_some()).unwrap_or(0);
            self.instances.remove(oldest);
        }
    }

    /// Forgets what was executed in a container that exited a while ago.
    pub(super) fn forget_if_exited(&mut self, now: Instant) {
        if self.exited_at.is_some_and(|closed| now - closed > 2 * LATE_EVENT_TIMEOUT) {
            self.instances.clear();
            self.detached.clear();
        }
    }
}

impl<'a> LazyMatchings<'a> {
    fn new(candidates: &'a [CallCandidate<'a>], instances: &'a [ExecInstance]) -> Self {
        Self { candidates, instances, open: OnceCell::new(), closed: OnceCell::new() }
    }

    /// While exits may come.
    fn open(&self) -> &Matching<'a> {
        self.open.get_or_init(|| Matching::new(self.candidates, self.instances, ExitEvents::Pending))
    }

    /// When all have been heard of.
    fn closed(&self) -> &Matching<'a> {
        self.closed.get_or_init(|| Matching::new(self.candidates, self.instances, ExitEvents::Complete))
    }
}

impl From<Phases> for Resolution {
    fn from(phases: Phases) -> Self {
        Self { phases, instance: None }
    }
}
