//! The calls and exec instances of one container.

use std::cell::OnceCell;
use std::time::Duration;

use tokio::time::Instant;

use super::call::{ContainerState, DetachedExec, EndedCall, ExecInFlight};
use super::{EventCoverage, LATE_EVENT_TIMEOUT, MAX_UNMATCHED};
use crate::containerd::TaskEvent;
use crate::execsync::cause::is_killed_at_timeout;
use crate::execsync::exec_instance::{EventTime, ExecInstance, SKEW};
use crate::execsync::matching::{CallCandidate, ExecOutcome, ExitEvents, Match, Matching};
use crate::execsync::phases::{MissingEvents, Phases, Timeline};

/// Maximum number of candidates that an ambiguous call names.
const MAX_CANDIDATES: usize = 8;

/// Maximum number of unrecorded calls of a container that are matched with regard to each other.
/// [`Matching`] would find most of more calls ambiguous, and would take long for each event.
const MAX_MATCHED: usize = 32;

/// Time for which an exec instance without a call, or of a recorded call, waits for its exit.
pub(super) const LATE_EXIT_TTL: Duration = Duration::from_secs(600);

/// The calls and exec instances of one container.
#[derive(Debug, Default)]
pub(in crate::execsync) struct ContainerExecs {
    pub(in crate::execsync) calls: Vec<ExecInFlight>,
    /// Exec instances that are not matched to a recorded call.
    pub(super) instances: Vec<ExecInstance>,
    /// Exec instances of recorded calls that have not exited.
    pub(super) detached: Vec<DetachedExec>,
    /// The time at which the container exited. Its exec instances end with it.
    pub(super) exited_at: Option<Instant>,
    /// The time at which the memory of the container was last used up, as the event says.
    pub(super) last_oom: Option<Instant>,
}

/// A call that is unanswered although its command has exited.
#[derive(Debug)]
pub(in crate::execsync) struct UnansweredExec<'a> {
    pub(in crate::execsync) call: &'a ExecInFlight,
    /// The process of the command, if it is known.
    pub(in crate::execsync) pid: Option<u32>,
    /// Time of the exit.
    pub(in crate::execsync) exited: Instant,
    /// Whether the command was killed at its timeout.
    pub(in crate::execsync) has_timed_out: bool,
}

/// A call that can be recorded.
#[derive(Debug)]
pub(super) struct ResolvedCall {
    pub(super) call: ExecInFlight,
    pub(super) ended: EndedCall,
    pub(super) phases: Phases,
    /// The exec instance of the call, if it is known.
    pub(super) instance: Option<ExecInstance>,
}

/// The phases of a call, and the index of its exec instance if it is known.
struct Resolution {
    phases: Phases,
    instance: Option<usize>,
}

/// Matchings of calls and exec instances, computed on first use.
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

    /// Removes and returns the next call that can be recorded.
    pub(super) fn next_resolved(&mut self, events: EventCoverage, now: Instant) -> Option<ResolvedCall> {
        let is_ready = |call: &ExecInFlight| {
            call.ended.as_ref().is_some_and(|ended| {
                let awaits_exit = ended.is_killed() && self.exited_at.is_none() && now < ended.deadline;
                ended.is_ready(now) && !awaits_exit
            })
        };
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

    /// Resolves a call that has ended, unless pending events may change the result.
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
            _ if !in_flight.is_sent => {
                let call = &ended.decoded.call;
                Some(timeline.phases_without_runtime(call.start, call.direct()).into())
            }
            EventCoverage::NotWatched => {
                Some(Phases::Missing { parts: timeline.parts(), what: MissingEvents::NotWatched }.into())
            }
            EventCoverage::Unsupported => Some(Phases::Unsupported(timeline.parts()).into()),
            EventCoverage::Complete | EventCoverage::Interrupted if self.calls.len() > MAX_MATCHED => {
                self.resolve_crowded(in_flight, timeline, all_events_known)
            }
            EventCoverage::Complete | EventCoverage::Interrupted if all_events_known => {
                Some(self.resolve_final(call, timeline, ended, matchings))
            }
            EventCoverage::Complete | EventCoverage::Interrupted => {
                self.resolve_early(call, timeline, ended, matchings.open())
            }
        }
    }

    /// Resolves one of too many calls: it is ambiguous if any exec instance may belong to it.
    fn resolve_crowded(
        &self,
        call: &ExecInFlight,
        timeline: Timeline,
        all_events_known: bool,
    ) -> Option<Resolution> {
        let instances = call.candidate().candidates(&self.instances, ExitEvents::Pending);
        if !instances.is_empty() {
            return Some(self.ambiguous(timeline, &instances).into());
        }
        all_events_known.then(|| Self::without_events(call, timeline))
    }

    /// Resolves a call before its deadline, if no later event can change the result.
    fn resolve_early(
        &self,
        call: usize,
        timeline: Timeline,
        ended: &EndedCall,
        open: &Matching<'_>,
    ) -> Option<Resolution> {
        // While there are fewer exec instances than calls, an instance that fits may belong to
        // another call.
        let first = self.calls.iter().map(|call| call.started_at).min()?;
        let heard_of = self.instances.iter().filter(|instance| {
            instance.has_cri_exec_id
                && instance.first_event().is_some_and(|event_time| event_time.at + SKEW >= first)
        });
        if heard_of.count() < self.calls.iter().filter(|call| call.is_sent).count() {
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

    /// Resolves a call after its deadline, from the events that have arrived.
    fn resolve_final(
        &self,
        call: usize,
        timeline: Timeline,
        ended: &EndedCall,
        matchings: &LazyMatchings<'_>,
    ) -> Resolution {
        // Events that are still missing are unlikely to arrive. If that leaves no candidate, assume
        // that the exit event is late, unless the running exec instance may belong to another call.
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
            Match::None => Self::without_events(&self.calls[call], timeline),
        }
    }

    /// Resolves a call of which no event has arrived.
    fn without_events(call: &ExecInFlight, timeline: Timeline) -> Resolution {
        let what = if call.events_lost { MissingEvents::Interrupted } else { MissingEvents::Everything };
        Phases::Missing { parts: timeline.parts(), what }.into()
    }

    fn ambiguous(&self, timeline: Timeline, instances: &[usize]) -> Phases {
        let candidates = instances
            .iter()
            .take(MAX_CANDIDATES)
            .map(|instance| self.instances[*instance].exec.clone())
            .collect();
        Phases::Ambiguous { parts: timeline.parts(), candidates, count: instances.len() }
    }

    /// Returns the pid of a call's exec instance, or the pids of all candidates of an ambiguous
    /// call whose end shows that its command has exited. Omits an exec instance that has not exited
    /// then, because it may belong to another call.
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

    /// Returns the unanswered calls, each with its exec instance if that is known.
    pub(in crate::execsync) fn in_flight(&self) -> Vec<(&ExecInFlight, Option<&ExecInstance>)> {
        let candidates: Vec<CallCandidate<'_>> = self.calls.iter().map(ExecInFlight::candidate).collect();
        let matching = Matching::new(&candidates, &self.instances, ExitEvents::Pending);
        let unanswered = self.calls.iter().enumerate().filter(|(_, call)| call.ended.is_none());
        let with_instance = unanswered.map(|(index, call)| match matching.find(index) {
            Match::One(instance) => (call, Some(&self.instances[instance])),
            Match::OneOf(_) | Match::None => (call, None),
        });
        with_instance.collect()
    }

    /// Returns the unanswered calls whose commands have exited.
    pub(in crate::execsync) fn exited_unanswered(&self) -> Vec<UnansweredExec<'_>> {
        let candidates: Vec<CallCandidate<'_>> = self.calls.iter().map(ExecInFlight::candidate).collect();
        let matching = Matching::new(&candidates, &self.instances, ExitEvents::Complete);
        let exited = |instance: &usize| self.instances[*instance].exited.map(|exited| exited.received_at);
        // After an interruption of events an exit cannot be attributed to a call.
        let is_unanswered = |call: &ExecInFlight| call.ended.is_none() && !call.events_lost;
        let unanswered = self.calls.iter().enumerate().filter(|(_, call)| is_unanswered(call));
        let found = unanswered.filter_map(|(index, call)| match matching.find(index) {
            Match::One(index) => {
                let instance = &self.instances[index];
                let has_timed_out = call.exec.timeout().is_some_and(|timeout| {
                    let ran = instance
                        .started
                        .zip(instance.exited)
                        .map(|(started, exited)| exited.after(started.at));
                    is_killed_at_timeout(instance.status, ran, timeout)
                });
                Some(UnansweredExec { call, pid: instance.pid, exited: exited(&index)?, has_timed_out })
            }
            // All candidates have exited.
            Match::OneOf(instances) => {
                let all: Option<Vec<Instant>> = instances.iter().map(exited).collect();
                Some(UnansweredExec {
                    call,
                    pid: None,
                    exited: all?.into_iter().max()?,
                    has_timed_out: false,
                })
            }
            Match::None => None,
        });
        found.collect()
    }

    /// Forgets exec instances that have ended and can belong to no call in flight. Recent exec
    /// instances are kept, because events may arrive before their call. Beyond the maximum, the
    /// oldest are forgotten.
    pub(super) fn forget_instances(&mut self, now: Instant) {
        let first = self.calls.iter().map(|call| call.started_at).min();
        self.instances.retain(|instance| {
            let Some(last) = instance.exited.or(instance.first_event()) else { return false };
            let retention = if instance.exited.is_some() { LATE_EVENT_TIMEOUT } else { LATE_EXIT_TTL };
            first.is_some_and(|first| last.received_at >= first) || now - last.received_at < retention
        });
        while self.instances.len() > MAX_UNMATCHED + self.calls.len() {
            // An exec instance that has exited goes first: a running one may belong to a call in
            // flight.
            let oldest = self.instances.iter().position(|instance| instance.exited.is_some()).unwrap_or(0);
            self.instances.remove(oldest);
        }
    }

    /// Returns the state of the container.
    pub(super) fn state(&self) -> ContainerState {
        ContainerState { has_exited: self.exited_at.is_some(), last_oom: self.last_oom }
    }

    /// Forgets the exec instances if the container exited a while ago.
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

    /// Returns the matching that assumes that exit events may still arrive.
    fn open(&self) -> &Matching<'a> {
        self.open.get_or_init(|| Matching::new(self.candidates, self.instances, ExitEvents::Pending))
    }

    /// Returns the matching that assumes that all exit events have arrived.
    fn closed(&self) -> &Matching<'a> {
        self.closed.get_or_init(|| Matching::new(self.candidates, self.instances, ExitEvents::Complete))
    }
}

impl From<Phases> for Resolution {
    fn from(phases: Phases) -> Self {
        Self { phases, instance: None }
    }
}
