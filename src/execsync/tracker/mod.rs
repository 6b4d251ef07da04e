//! Tracks ExecSyncs in flight and the exec instances that containerd starts for them.

mod call;
mod container_execs;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::analysis::CallRecord;
use super::evidence::{Evidence, SampleRequest};
use super::exec_instance::{ClockReading, EventTime};
use super::identity::ProbeMatch;
use super::periodicity::{PatternKey, Periodicity};
use super::slowness::{Assessment, SlownessConfig};
use crate::containerd::{TaskEvent, TimestampedEvent};
use crate::cri::Code;
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallInfo, CallOutcome};
use crate::tap::{Call, DecodedCall, ExecCall, ExecRequest, SendTimes};

pub(super) use call::ExecInFlight;
pub(super) use container_execs::UnansweredExec;

use call::{EndedCall, candidate_end};
use container_execs::{ContainerExecs, LATE_EXIT_TTL, ResolvedCall};

/// Time after the end of a call for which its events and evidence may arrive.
const LATE_EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of exec instances of a container that are kept without a call.
const MAX_UNMATCHED: usize = 64;

/// The container and pod of a call, as far as the inventory knows them.
#[derive(Clone, Debug, Default)]
pub(super) struct CallContext {
    pub(super) container: Option<Arc<ContainerRef>>,
    pub(super) pod: Option<Arc<PodRef>>,
    /// The probe or hook to which the call is attributed.
    pub(super) probe_match: ProbeMatch,
}

/// All ExecSyncs of the node. The tracker does no I/O: its requests to the sampler are in
/// `sample_requests`, its results in `records`.
#[derive(Debug)]
pub(super) struct Tracker {
    config: SlownessConfig,
    event_coverage: EventCoverage,
    containers: HashMap<Arc<str>, ContainerExecs>,
    periodicity: Periodicity,
    pub(super) sample_requests: Vec<SampleRequest>,
    pub(super) records: Vec<CallRecord>,
    /// Sessions of recorded calls, in which the watchdog looks for leaked processes.
    pub(super) sessions: Vec<ExecSession>,
}

/// Completeness of the runtime's events about exec instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventCoverage {
    /// The runtime reports all exec instances.
    Complete,
    /// Events may have been missed: before the first connection to the runtime, and after its loss.
    Interrupted,
    /// The runtime has no events about exec instances.
    Unsupported,
    /// probeshim does not subscribe to the events of the runtime.
    NotWatched,
}

/// The session of the command of a call that has ended.
#[derive(Debug)]
pub(super) struct ExecSession {
    pub(super) container: Arc<str>,
    pub(super) call: Arc<Call>,
    /// The pid of the session's first process, which is also the session's id.
    pub(super) pid: u32,
    /// Time at which the call ended.
    pub(super) ended_at: Instant,
}

impl Tracker {
    pub(super) fn new(config: SlownessConfig) -> Self {
        Self {
            config,
            event_coverage: EventCoverage::Interrupted,
            containers: HashMap::new(),
            periodicity: Periodicity::default(),
            sample_requests: Vec::new(),
            records: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Returns the containers with calls or exec instances.
    pub(super) fn containers(&self) -> impl Iterator<Item = (&Arc<str>, &ContainerExecs)> {
        self.containers.iter()
    }

    /// Returns the ids of the calls that have ended and wait for events or evidence.
    pub(super) fn unrecorded(&self) -> impl Iterator<Item = u64> {
        let calls = self.containers.values().flat_map(|execs| &execs.calls);
        calls.filter(|call| call.has_ended()).map(|call| call.id)
    }

    /// Returns the number of unanswered calls: in a container, and on the node.
    fn in_flight_counts(&self, container: &str) -> (usize, usize) {
        let here = self.containers.get(container).map_or(0, ContainerExecs::unanswered);
        (here, self.containers.values().map(ContainerExecs::unanswered).sum())
    }

    /// Returns the number of unanswered calls: on the node, and in the container that has the most.
    pub(super) fn in_flight_peaks(&self) -> (usize, usize) {
        let counts = self.containers.values().map(ContainerExecs::unanswered);
        counts.fold((0, 0), |(all, most), count| (all + count, most.max(count)))
    }

    /// Starts to track a call. `container` is the full id of its container.
    pub(super) fn on_request(&mut self, container: &Arc<str>, request: ExecRequest, context: CallContext) {
        let Some(info) = request.info.upgrade() else { return };
        let call = self.start_call(container, &info, request.times, Arc::new(*request.exec), context);
        self.sample_requests.push(SampleRequest::Baseline { call: request.id, container: container.clone() });
        self.containers.entry(container.clone()).or_default().calls.push(call);
    }

    fn start_call(
        &mut self,
        container: &Arc<str>,
        info: &Arc<CallInfo>,
        times: SendTimes,
        exec: Arc<ExecCall>,
        mut context: CallContext,
    ) -> ExecInFlight {
        let pattern_key =
            PatternKey::new(context.pattern_key(container), &exec.command, exec.timeout_seconds);
        let inferred = self.periodicity.record_start(&pattern_key, info.since);
        if context.probe_match == ProbeMatch::Unknown {
            context.probe_match = inferred;
        }
        let after = |at: Instant| at.saturating_duration_since(info.since);
        ExecInFlight {
            id: info.id,
            info: Arc::downgrade(info),
            started_at: info.since,
            received: after(times.received),
            sent: after(times.sent),
            exec,
            context,
            pattern_key,
            is_sent: true,
            events_lost: self.event_coverage != EventCoverage::Complete,
            ended: None,
        }
    }

    /// Handles the end of a call. A call whose request was not seen is added now.
    pub(super) fn on_end(
        &mut self,
        container: &Arc<str>,
        decoded: Box<DecodedCall>,
        context: CallContext,
        now: Instant,
    ) {
        let id = decoded.call.id;
        let known = self.containers.get_mut(container).and_then(|execs| execs.call_mut(id));
        if let Some(call) = known {
            call.context.fill_from(context);
        } else {
            let Some(exec) = &decoded.call.exec else { return };
            // A call that a policy affected and that was not sent was held until its end.
            let is_sent = decoded.times.is_some() || decoded.call.marks.is_none();
            let received = decoded.received.unwrap_or(decoded.info.since);
            let is_direct = decoded.call.is_direct();
            let held_until = decoded.info.since + decoded.call.duration;
            let sent = if is_sent || is_direct { received } else { held_until };
            let times = decoded.times.unwrap_or(SendTimes { received, sent });
            let exec = Arc::new((**exec).clone());
            let call = self.start_call(container, &decoded.info, times, exec, context);
            let call = ExecInFlight { is_sent, ..call };
            self.containers.entry(container.clone()).or_default().calls.push(call);
        }
        let Some(call) = self.containers.get(container).and_then(|execs| execs.call(id)) else { return };
        let held =
            if decoded.call.is_affected() { call.sent.saturating_sub(call.received) } else { Duration::ZERO };
        let median = self.periodicity.median(&call.pattern_key);
        let assessment = self.config.assessment(&decoded.call, held, median);
        let evidence_pending = assessment != Assessment::Fine;
        let sample_request = if evidence_pending {
            let in_flight = self.in_flight_counts(container);
            SampleRequest::Evidence { call: id, container: container.clone(), in_flight }
        } else {
            SampleRequest::DiscardBaseline { call: id }
        };
        self.sample_requests.push(sample_request);
        if decoded.call.ending == CallOutcome::Completed(Some(Code::OK))
            && (call.is_sent || decoded.call.is_direct())
        {
            let duration = decoded.call.duration.saturating_sub(held);
            self.periodicity.record_duration(&call.pattern_key, duration);
        }
        let end = candidate_end(&decoded.call, call.started_at);
        let deadline = now + LATE_EVENT_TIMEOUT;
        let ended = EndedCall { decoded, end, assessment, deadline, evidence: None, evidence_pending };
        if let Some(call) = self.containers.get_mut(container).and_then(|execs| execs.call_mut(id)) {
            call.ended = Some(ended);
        }
        self.record_resolved(container, now);
    }

    /// Applies an event of containerd about an exec instance, or about the memory of a container.
    pub(super) fn on_task_event(&mut self, timestamped: &TimestampedEvent, now: ClockReading) {
        let event_time = EventTime::new(timestamped.at, now);
        if let TaskEvent::OutOfMemory { container } = &timestamped.event
            && let Some(execs) = self.containers.get_mut(container.as_str())
        {
            // The event may arrive during a later call than the one that it is about.
            execs.last_oom = execs.last_oom.max(Some(event_time.at));
        }
        let Some(exec) = timestamped.event.exec() else { return };
        let container: Arc<str> = timestamped.event.container().into();
        let execs = self.containers.entry(container.clone()).or_default();
        if let Some(index) = execs.detached.iter().position(|detached| *detached.instance.exec == *exec) {
            execs.detached[index].instance.apply(&timestamped.event, event_time);
            if execs.detached[index].instance.exited.is_some() {
                let detached = execs.detached.remove(index);
                let (pid, end) = (detached.instance.pid, detached.end);
                let (record, unmatched) = detached.amend();
                // Before its exit, the exec instance might have belonged to another call, so that
                // its session was not watched. If the end of the call showed no exit, the session
                // has been watched since the call was recorded.
                let pid = pid.filter(|_| unmatched.is_none() && end.outcome.has_exited());
                self.sessions
                    .extend(pid.map(|pid| ExecSession::for_record(&record, &container, pid, end.at)));
                self.records.push(record);
                execs.instances.extend(unmatched);
                self.record_resolved(&container, now.instant);
            }
            return;
        }
        execs.apply(exec, &timestamped.event, event_time);
        if let TaskEvent::ExecStarted { pid, .. } = timestamped.event
            && execs.calls.len() > 1
        {
            self.sample_requests.push(SampleRequest::Cmdline {
                container: container.clone(),
                exec: exec.into(),
                pid,
            });
        }
        self.record_resolved(&container, now.instant);
    }

    /// Returns the id under which the container of a call is stored. The id may be a prefix, even
    /// if the full id has become known since the request.
    pub(super) fn container_of(&self, call: u64) -> Option<&Arc<str>> {
        let found = self.containers.iter().find(|(_, execs)| execs.call(call).is_some());
        found.map(|(container, _)| container)
    }

    /// Called when a container has exited. Its exec instances have ended with it, and their exit
    /// events arrive soon or never.
    pub(super) fn container_exited(&mut self, container: &str, now: Instant) {
        if let Some(execs) = self.containers.get_mut(container) {
            execs.exited_at.get_or_insert(now);
        }
    }

    /// Called when the runtime is connected. `has_exec_events` is whether the runtime reports exec
    /// instances.
    pub(super) fn events_available(&mut self, has_exec_events: bool, now: Instant) {
        self.event_coverage =
            if has_exec_events { EventCoverage::Complete } else { EventCoverage::Unsupported };
        if !has_exec_events {
            self.mark_events_lost(now);
        }
    }

    /// Called when the runtime or its event stream is lost.
    pub(super) fn events_interrupted(&mut self, now: Instant) {
        // A runtime without such events loses none.
        if self.event_coverage != EventCoverage::Unsupported {
            self.event_coverage = EventCoverage::Interrupted;
        }
        self.mark_events_lost(now);
    }

    /// Marks all calls in flight, because events about them have been lost.
    fn mark_events_lost(&mut self, now: Instant) {
        for call in self.containers.values_mut().flat_map(|execs| &mut execs.calls) {
            call.events_lost = true;
        }
        self.record_all_resolved(now);
    }

    /// Called when probeshim does not subscribe to the events of the runtime.
    pub(super) fn events_disabled(&mut self) {
        self.event_coverage = EventCoverage::NotWatched;
    }

    /// Stores the evidence of a call.
    pub(super) fn on_evidence(&mut self, id: u64, evidence: Evidence, now: Instant) {
        let found = self.containers.iter_mut().find_map(|(container, execs)| {
            let ended = execs.call_mut(id)?.ended.as_mut()?;
            Some((container.clone(), ended))
        });
        let Some((container, ended)) = found else { return };
        ended.evidence = Some(Arc::new(evidence));
        ended.evidence_pending = false;
        self.record_resolved(&container, now);
    }

    /// Stores the command line of the process of an exec instance.
    pub(super) fn on_cmdline(&mut self, container: &Arc<str>, exec: &str, args: Vec<String>) {
        let execs = self.containers.get_mut(container);
        if let Some(instance) =
            execs.and_then(|execs| execs.instances.iter_mut().find(|instance| *instance.exec == *exec))
        {
            instance.command = Some(args);
        }
    }

    /// Records calls whose deadline is over, and forgets state without a call.
    pub(super) fn tick(&mut self, now: Instant) {
        self.record_all_resolved(now);
        for execs in self.containers.values_mut() {
            // The tap's queue was full: the end of the call was not seen.
            let lost =
                execs.calls.extract_if(.., |call| call.ended.is_none() && call.info.strong_count() == 0);
            self.sample_requests.extend(lost.map(|call| SampleRequest::DiscardBaseline { call: call.id }));
            execs.detached.retain(|detached| now - detached.end.at < LATE_EXIT_TTL);
            execs.forget_if_exited(now);
        }
        self.containers.retain(|_, execs| !execs.is_empty());
    }

    /// Records all calls that have ended, without waiting for more events.
    pub(super) fn flush(&mut self, now: Instant) {
        self.tick(now + LATE_EVENT_TIMEOUT);
    }

    /// Returns the time at which [`tick`](Self::tick) has something to record.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let calls = self.containers.values().flat_map(|execs| &execs.calls);
        calls.filter_map(|call| Some(call.ended.as_ref()?.deadline)).min()
    }

    fn record_all_resolved(&mut self, now: Instant) {
        let containers: Vec<Arc<str>> = self.containers.keys().cloned().collect();
        for container in containers {
            self.record_resolved(&container, now);
        }
    }

    /// Records all calls of a container for which no more events are expected.
    fn record_resolved(&mut self, container: &Arc<str>, now: Instant) {
        // The container is removed from the map meanwhile: a panic then loses only this container.
        let Some(mut execs) = self.containers.remove(container) else { return };
        while let Some(resolved) = execs.next_resolved(self.event_coverage, now) {
            let ResolvedCall { call, ended, phases, instance } = resolved;
            let end = ended.end;
            let pids = execs.pids_of(end.outcome, &phases, instance.as_ref());
            let (record, detached) = ended.finish(call, phases, instance, execs.state());
            self.sessions
                .extend(pids.into_iter().map(|pid| ExecSession::for_record(&record, container, pid, end.at)));
            self.records.push(record);
            execs.detached.extend(detached);
            if execs.detached.len() > MAX_UNMATCHED {
                execs.detached.remove(0);
            }
        }
        execs.forget_instances(now);
        self.containers.insert(container.clone(), execs);
    }
}

impl ExecSession {
    fn for_record(record: &CallRecord, container: &Arc<str>, pid: u32, ended_at: Instant) -> Self {
        Self { container: container.clone(), call: record.call.clone(), pid, ended_at }
    }
}

impl CallContext {
    /// Fills in what has become known since the request.
    fn fill_from(&mut self, newer: Self) {
        if self.container.is_none() {
            (self.container, self.pod) = (newer.container, newer.pod);
            if newer.probe_match != ProbeMatch::Unknown {
                self.probe_match = newer.probe_match;
            }
        }
    }

    /// Returns the key of call patterns: pod uid and container name, or the container id.
    fn pattern_key(&self, container: &Arc<str>) -> Arc<str> {
        let uid = self.pod.as_ref().and_then(|pod| pod.uid.as_deref());
        let name = self.container.as_ref().and_then(|container| container.name.as_deref());
        uid.zip(name).map_or_else(|| container.clone(), |(uid, name)| format!("{uid}/{name}").into())
    }
}

#[cfg(test)]
mod tests;
