//! The ExecSyncs that go on, the commands that are executed for them, and what becomes of both.

mod call;
mod container_execs;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::analysis::CallRecord;
use super::evidence::{Ask, Evidence};
use super::exec_instance::{ClockReading, EventTime};
use super::identity::ProbeMatch;
use super::periodicity::{PatternKey, Periodicity};
use super::slowness::{Assessment, SlownessConfig};
use crate::containerd::{TaskEvent, TimestampedEvent};
use crate::cri::Code;
use crate::relay::{CallInfo, CallOutcome};
use crate::tap::{Call, ContainerRef, DecodedCall, ExecCall, ExecRequest, PodRef, SendTimes};

pub(super) use call::InFlight;

use call::{EndedCall, end_of};
use container_execs::{ContainerExecs, LATE_EXIT_TTL, ResolvedCall};

/// How long what belongs to a call may come after its end: events, and evidence.
const LATE_EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Commands of a container that are remembered at most, of those that nothing is known to have asked for.
const MAX_UNMATCHED: usize = 64;

/// Where a call executes, as far as the world knows.
#[derive(Clone, Debug, Default)]
pub(super) struct CallContext {
    pub(super) container: Option<Arc<ContainerRef>>,
    pub(super) pod: Option<Arc<PodRef>>,
    /// What specs say of the call.
    pub(super) identity: ProbeMatch,
}

/// All ExecSyncs of the node. Decides; what it wants to be done is in `asks`, what it has found out in `records`.
#[derive(Debug)]
pub(super) struct Tracker {
    settings: SlownessConfig,
    events: EventCoverage,
    containers: HashMap<Arc<str>, ContainerExecs>,
    patterns: Periodicity,
    pub(super) sample_requests: Vec<Ask>,
    pub(super) records: Vec<CallRecord>,
    /// Commands that were executed for calls that have been recorded: what they left behind is in their sessions.
    pub(super) sessions: Vec<ExecSession>,
}

/// What is heard of what the runtime executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventCoverage {
    /// All of it.
    Complete,
    /// They may pass unheard: until the runtime is watched, and again whenever it has gone.
    Interrupted,
    /// The runtime does not tell.
    Unsupported,
    /// Nobody asks it to, and nobody will.
    NotWatched,
}

/// What a call executed, once it is over.
#[derive(Debug)]
pub(super) struct ExecSession {
    pub(super) container: Arc<str>,
    pub(super) call: Arc<Call>,
    /// The first process, after which the kernel names the session.
    pub(super) pid: u32,
    /// When the call ended.
    pub(super) ended: Instant,
}

impl Tracker {
    pub(super) fn new(settings: SlownessConfig) -> Self {
        Self {
            settings,
            events: EventCoverage::Interrupted,
            containers: HashMap::new(),
            patterns: Periodicity::default(),
            sample_requests: Vec::new(),
            records: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Each container in which something goes on.
    pub(super) fn containers(&self) -> impl Iterator<Item = (&Arc<str>, &ContainerExecs)> {
        self.containers.iter()
    }

    /// Calls that have been asked and not answered: in a container, and on the node.
    fn in_flight(&self, container: &str) -> (usize, usize) {
        let here = self.containers.get(container).map_or(0, ContainerExecs::unanswered);
        (here, self.containers.values().map(ContainerExecs::unanswered).sum())
    }

    /// Calls that have been asked and not answered: on the node, and in the container that has most of them.
    pub(super) fn in_flight_now(&self) -> (usize, usize) {
        let counts = self.containers.values().map(ContainerExecs::unanswered);
        counts.fold((0, 0), |(all, most), count| (all + count, most.max(count)))
    }

    /// A call is on its way. `container` is the whole id of where it executes.
    pub(super) fn on_request(&mut self, container: &Arc<str>, request: ExecRequest, place: CallContext) {
        let Some(head) = request.head.upgrade() else { return };
        let call = self.begin(container, &head, request.sent, Arc::new(*request.exec), place);
        self.sample_requests.push(Ask::Baseline { call: request.id, container: container.clone() });
        self.containers.entry(container.clone()).or_default().calls.push(call);
    }

    fn begin(
        &mut self,
        container: &Arc<str>,
        head: &Arc<CallInfo>,
        sent: SendTimes,
        exec: Arc<ExecCall>,
        mut place: CallContext,
    ) -> InFlight {
        let key = PatternKey::new(place.pattern_key(container), &exec.command, exec.timeout_seconds);
        let learned = self.patterns.record_start(&key, head.since);
        if place.identity == ProbeMatch::Unknown {
            place.identity = learned;
        }
        let after = |at: Instant| at.saturating_duration_since(head.since);
        InFlight {
            id: head.id,
            head: Arc::downgrade(head),
            since: head.since,
            whole: after(sent.whole),
            sent: after(sent.sent),
            exec,
            place,
            key,
            is_blind: self.events != EventCoverage::Complete,
            concluding: None,
        }
    }

    /// A call has ended. One that was not seen when it was asked is taken up now.
    pub(super) fn on_end(
        &mut self,
        container: &Arc<str>,
        ended: Box<DecodedCall>,
        place: CallContext,
        now: Instant,
    ) {
        let id = ended.call.id;
        let known = self.containers.get_mut(container).and_then(|execs| execs.call_mut(id));
        if let Some(call) = known {
            call.place.learn(place);
        } else {
            let Some(exec) = &ended.call.exec else { return };
            let sent = ended.sent.unwrap_or(SendTimes { whole: ended.head.since, sent: ended.head.since });
            let exec = Arc::new((**exec).clone());
            let call = self.begin(container, &ended.head, sent, exec, place);
            self.containers.entry(container.clone()).or_default().calls.push(call);
        }
        let Some(call) = self.containers.get(container).and_then(|execs| execs.call(id)) else { return };
        let assessment = self.settings.assessment(&ended.call, self.patterns.median(&call.key));
        let awaits_evidence = assessment != Assessment::Fine;
        let ask = if awaits_evidence {
            let in_flight = self.in_flight(container);
            Ask::Evidence { call: id, container: container.clone(), in_flight }
        } else {
            Ask::Forget { call: id }
        };
        self.sample_requests.push(ask);
        if ended.call.ending == CallOutcome::Completed(Some(Code::OK)) {
            self.patterns.record_duration(&call.key, ended.call.duration);
        }
        let end = end_of(&ended.call, call.since);
        let until = now + LATE_EVENT_TIMEOUT;
        let concluding = EndedCall { ended, end, assessment, until, evidence: None, awaits_evidence };
        if let Some(call) = self.containers.get_mut(container).and_then(|execs| execs.call_mut(id)) {
            call.concluding = Some(concluding);
        }
        self.conclude(container, now);
    }

    /// Something has become of a command.
    pub(super) fn on_task_event(&mut self, stamped: &TimestampedEvent, now: ClockReading) {
        let Some(exec) = stamped.event.exec() else { return };
        let container: Arc<str> = stamped.event.container().into();
        let moment = EventTime::new(stamped.at, now);
        let execs = self.containers.entry(container.clone()).or_default();
        if let Some(index) = execs.outliving.iter().position(|one| *one.execution.exec == *exec) {
            execs.outliving[index].execution.apply(&stamped.event, moment);
            if execs.outliving[index].execution.exited.is_some() {
                let outliving = execs.outliving.remove(index);
                let (pid, end) = (outliving.execution.pid, outliving.end);
                let (record, others) = outliving.amend();
                // Until now it might have turned out to be another's; of a call that told of no exit it has been watched since.
                let pid = pid.filter(|_| others.is_none() && end.outcome.has_exited());
                self.sessions
                    .extend(pid.map(|pid| ExecSession::for_record(&record, &container, pid, end.at)));
                self.records.push(record);
                execs.executions.extend(others);
                self.conclude(&container, now.instant);
            }
            return;
        }
        execs.take(exec, &stamped.event, moment);
        if let TaskEvent::ExecStarted { pid, .. } = stamped.event
            && execs.calls.len() > 1
        {
            self.sample_requests.push(Ask::Command { container: container.clone(), exec: exec.into(), pid });
        }
        self.conclude(&container, now.instant);
    }

    /// The container that a call was filed under. By the time it ends the container's id may be known whole, where only its beginning was
    /// when it was asked.
    pub(super) fn container_of(&self, call: u64) -> Option<&Arc<str>> {
        let found = self.containers.iter().find(|(_, execs)| execs.call(call).is_some());
        found.map(|(container, _)| container)
    }

    /// A container has exited: what was executed in it ends, and is heard of now or never.
    pub(super) fn container_exited(&mut self, container: &str, now: Instant) {
        if let Some(execs) = self.containers.get_mut(container) {
            execs.closed.get_or_insert(now);
        }
    }

    /// The runtime is watched from now on, and tells of what it executes or does not.
    pub(super) fn events_available(&mut self, tells_execs: bool, now: Instant) {
        self.events = if tells_execs { EventCoverage::Complete } else { EventCoverage::Unsupported };
        if !tells_execs {
            self.mark_events_lost(now);
        }
    }

    /// The runtime has gone, or its events have.
    pub(super) fn events_interrupted(&mut self, now: Instant) {
        // Of one that tells nothing, nothing is lost.
        if self.events != EventCoverage::Unsupported {
            self.events = EventCoverage::Interrupted;
        }
        self.mark_events_lost(now);
    }

    /// No event tells more of the calls that go on.
    fn mark_events_lost(&mut self, now: Instant) {
        for call in self.containers.values_mut().flat_map(|container| &mut container.calls) {
            call.is_blind = true;
        }
        self.conclude_all(now);
    }

    /// The runtime is not asked for its events.
    pub(super) fn events_disabled(&mut self) {
        self.events = EventCoverage::NotWatched;
    }

    /// What went on during a call.
    pub(super) fn evidence(&mut self, id: u64, evidence: Evidence, now: Instant) {
        let found = self.containers.iter_mut().find_map(|(container, execs)| {
            let concluding = execs.call_mut(id)?.concluding.as_mut()?;
            Some((container.clone(), concluding))
        });
        let Some((container, concluding)) = found else { return };
        concluding.evidence = Some(Arc::new(evidence));
        concluding.awaits_evidence = false;
        self.conclude(&container, now);
    }

    /// The words of a command's process.
    pub(super) fn command(&mut self, container: &Arc<str>, exec: &str, args: Vec<String>) {
        let execs = self.containers.get_mut(container);
        if let Some(execution) =
            execs.and_then(|execs| execs.executions.iter_mut().find(|execution| *execution.exec == *exec))
        {
            execution.command = Some(args);
        }
    }

    /// Records what has been waited for long enough, and forgets what nobody waits for.
    pub(super) fn tick(&mut self, now: Instant) {
        self.conclude_all(now);
        for container in self.containers.values_mut() {
            // Its end has not been seen: there was too much to see.
            let lost = container
                .calls
                .extract_if(.., |call| call.concluding.is_none() && call.head.strong_count() == 0);
            self.sample_requests.extend(lost.map(|call| Ask::Forget { call: call.id }));
            container.outliving.retain(|one| now - one.end.at < LATE_EXIT_TTL);
            container.close(now);
        }
        self.containers.retain(|_, execs| !execs.is_empty());
    }

    /// Records everything that has ended, as it is known.
    pub(super) fn flush(&mut self, now: Instant) {
        self.tick(now + LATE_EVENT_TIMEOUT);
    }

    /// When [`tick`](Self::tick) has something to record.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let calls = self.containers.values().flat_map(|container| &container.calls);
        calls.filter_map(|call| Some(call.concluding.as_ref()?.until)).min()
    }

    fn conclude_all(&mut self, now: Instant) {
        let containers: Vec<Arc<str>> = self.containers.keys().cloned().collect();
        for container in containers {
            self.conclude(&container, now);
        }
    }

    /// Records all calls of a container of which everything is known that will be.
    fn conclude(&mut self, container: &Arc<str>, now: Instant) {
        // Where it is worked on it is not among the others: a fault loses it, and not those that come after it.
        let Some(mut execs) = self.containers.remove(container) else { return };
        while let Some(concluded) = execs.next_resolved(self.events, now) {
            let ResolvedCall { call, concluding, phases, execution } = concluded;
            let end = concluding.end;
            let pids = execs.pids_of(end.outcome, &phases, execution.as_ref());
            let (record, outliving) = concluding.finish(call, phases, execution);
            self.sessions
                .extend(pids.into_iter().map(|pid| ExecSession::for_record(&record, container, pid, end.at)));
            self.records.push(record);
            execs.outliving.extend(outliving);
            if execs.outliving.len() > MAX_UNMATCHED {
                execs.outliving.remove(0);
            }
        }
        execs.forget_executions(now);
        self.containers.insert(container.clone(), execs);
    }
}

impl ExecSession {
    fn for_record(record: &CallRecord, container: &Arc<str>, pid: u32, ended: Instant) -> Self {
        Self { container: container.clone(), call: record.call.clone(), pid, ended }
    }
}

impl CallContext {
    /// Takes what has become known since.
    fn learn(&mut self, now: Self) {
        if self.container.is_none() {
            (self.container, self.pod) = (now.container, now.pod);
            if now.identity != ProbeMatch::Unknown {
                self.identity = now.identity;
            }
        }
    }

    /// What a habit belongs to.
    fn pattern_key(&self, container: &Arc<str>) -> Arc<str> {
        let uid = self.pod.as_ref().and_then(|pod| pod.uid.as_deref());
        let name = self.container.as_ref().and_then(|container| container.name.as_deref());
        uid.zip(name).map_or_else(|| container.clone(), |(uid, name)| format!("{uid}/{name}").into())
    }
}

#[cfg(test)]
mod tests;
