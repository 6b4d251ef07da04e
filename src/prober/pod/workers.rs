//! The probe workers of a pod: their next actions, and the effects of their attempts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::PodState;
use super::attempt_run::{AttemptInFlight, AttemptOutcome, AttemptRun};
use super::container::ProbedContainer;
use super::kill_request::KillRequest;
use crate::events::Event;
use crate::manifest::{ContainerSpec, Handler, Probe, ProbeType};
use crate::object_ref::{ContainerRef, PodRef};
use crate::prober::probe_state::{NextAction, ProbeState, ResultUpdate};
use crate::prober::threshold::ProbeResult;
use crate::tap;

/// Maximum number of failures that are reported with a kill.
const MAX_FAILURES: usize = 5;
/// Maximum number of characters of each reported failure.
const MAX_MESSAGE_BYTES: usize = 200;

/// A probe worker, with the state of its probe.
#[derive(Debug)]
pub(in crate::prober) struct ProbeWorker {
    pub(in crate::prober) container: String,
    pub(in crate::prober) state: ProbeState,
    pub(in crate::prober) handle: Arc<ProbeWorkerHandle>,
    /// Last failures in a row, at most as many as are reported.
    pub(super) failures: VecDeque<tap::ProbeFailure>,
    /// The duration of the last attempt.
    pub(super) last_duration: Duration,
    /// Number of kills of the container by probeshim for this probe.
    pub(in crate::prober) kill_count: u32,
    /// Last attempts with equal outcomes, once there has been one.
    pub(in crate::prober) attempts: Option<AttemptRun>,
    /// The attempt that is being made, if there is one.
    pub(in crate::prober) attempt_in_flight: Option<AttemptInFlight>,
    /// Outcome of the last attempt of the kubelet that was seen.
    pub(super) last_kubelet_attempt: Option<String>,
    /// Number of failed attempts since the last success that were discarded because the prober was
    /// late. The kubelet counts its own attempts.
    pub(super) discarded_failures: u32,
}

/// The result of an attempt.
#[derive(Clone, Debug)]
pub(in crate::prober) struct AttemptResult {
    pub(in crate::prober) result: ProbeResult,
    /// The duration of the attempt.
    pub(in crate::prober) duration: Duration,
    /// The message of a failure.
    pub(in crate::prober) message: String,
}

/// Signals to a worker while it waits.
#[derive(Debug, Default)]
pub(in crate::prober) struct ProbeWorkerHandle {
    /// Ends the worker.
    pub(in crate::prober) stop: Notify,
    /// Triggers an attempt immediately.
    pub(in crate::prober) manual_trigger: Notify,
}

/// Inputs of an attempt.
#[derive(Clone, Debug)]
pub(in crate::prober) struct AttemptContext {
    pub(in crate::prober) pod: Arc<PodRef>,
    pub(in crate::prober) container: Arc<ContainerRef>,
    pub(in crate::prober) container_id: Arc<str>,
    pub(in crate::prober) spec: Arc<ContainerSpec>,
    pub(in crate::prober) probe: Arc<Probe>,
    pub(in crate::prober) probe_type: ProbeType,
    pub(in crate::prober) address: Arc<str>,
}

/// Effects of a change of a pod's state, to be executed once its lock is released.
#[derive(Debug, Default)]
pub(in crate::prober) struct Effects {
    /// Workers to start.
    pub(in crate::prober) workers_to_start: Vec<(Arc<ProbeWorkerHandle>, Arc<Probe>)>,
    pub(in crate::prober) events: Vec<Event>,
    /// Events that are about no single pod.
    pub(in crate::prober) global_events: Vec<Event>,
    /// Types of the probes for which the container would be killed.
    pub(in crate::prober) would_kill: Vec<ProbeType>,
    /// Containers to kill.
    pub(in crate::prober) kill_requests: Vec<KillRequest>,
    /// Whether the workers start at random times within their periods.
    pub(in crate::prober) jitter: bool,
    /// Whether the result of a probe has changed.
    pub(in crate::prober) result_changed: bool,
}

impl ProbeWorker {
    fn new(container: &str, state: ProbeState, handle: Arc<ProbeWorkerHandle>) -> Self {
        Self {
            container: container.to_owned(),
            state,
            handle,
            failures: VecDeque::new(),
            last_duration: Duration::ZERO,
            kill_count: 0,
            attempts: None,
            attempt_in_flight: None,
            last_kubelet_attempt: None,
            discarded_failures: 0,
        }
    }

    /// Returns whether the probe executes this command.
    pub(super) fn matches_command(&self, command: &[String]) -> bool {
        matches!(&self.state.probe.handler, Handler::Exec(args) if args == command)
    }

    /// Returns the last failures, at most as many as the threshold.
    pub(in crate::prober) fn last_failures(&self, threshold: u32) -> Vec<tap::ProbeFailure> {
        let count = usize::try_from(threshold).unwrap_or(usize::MAX).min(self.failures.len());
        self.failures.iter().skip(self.failures.len() - count).cloned().collect()
    }

    fn record_outcome(&mut self, container_id: &Arc<str>, outcome: AttemptOutcome) {
        let last = self.attempts.take();
        self.attempts = Some(AttemptRun::after(last, container_id, outcome, SystemTime::now()));
    }

    fn record_attempt(&mut self, attempt: AttemptResult) {
        let AttemptResult { result, duration, message } = attempt;
        self.last_duration = duration;
        if result != ProbeResult::Failure {
            self.failures.clear();
            return;
        }
        if self.failures.len() == MAX_FAILURES {
            self.failures.pop_front();
        }
        let message = message.chars().take(MAX_MESSAGE_BYTES).collect();
        self.failures.push_back(tap::ProbeFailure { at: SystemTime::now(), message });
    }
}

impl PodState {
    /// Starts the workers of all probes, those of regular containers first. As in the kubelet
    /// (`prober_manager.go`: `AddPod`), a probe that has had a worker gets another one only if no
    /// probe before it has a worker.
    pub(super) fn start_workers(&mut self, effects: &mut Effects) {
        if self.is_finished() {
            return;
        }
        let spec = self.spec.clone();
        let mut is_blocked = false;
        for container in spec.containers.iter().filter(|container| container.role.is_probed()) {
            for (probe_type, probe) in container.all_probes() {
                let key = (container.name.clone(), probe_type);
                if self.worker_index(&key.0, probe_type).is_some() {
                    is_blocked = true;
                } else if !is_blocked || !self.launched.contains(&key) {
                    let handle = Arc::new(ProbeWorkerHandle::default());
                    let state = ProbeState::new(probe_type, probe.clone());
                    self.workers.push(ProbeWorker::new(&key.0, state, handle.clone()));
                    self.launched.insert(key);
                    effects.workers_to_start.push((handle, probe.clone()));
                }
            }
        }
    }

    /// Returns the next action of a worker. An attempt begins now.
    pub(in crate::prober) fn next_action(
        &mut self,
        handle: &Arc<ProbeWorkerHandle>,
        now: Instant,
        effects: &mut Effects,
    ) -> (NextAction, Option<AttemptContext>) {
        let Some(index) = self.index_of(handle) else { return (NextAction::Exit, None) };
        let (name, probe_type) =
            (self.workers[index].container.clone(), self.workers[index].state.probe_type);
        let view = self.view(&name, probe_type);
        let mut updates = Vec::new();
        let mut next = self.workers[index].state.next_action(&view, now, &mut updates);
        let context = (next == NextAction::Attempt).then(|| self.attempt_context(index)).flatten();
        if next == NextAction::Attempt && context.is_none() {
            // The kubelet probes its own host while the address of the pod is unknown. The prober
            // waits for the address.
            next = NextAction::Wait;
        }
        if let Some(context) = &context {
            let attempt = AttemptInFlight::new(&context.container_id, SystemTime::now());
            self.workers[index].attempt_in_flight = Some(attempt);
        }
        self.apply_updates(&name, probe_type, updates, now, effects);
        (next, context)
    }

    /// Called when the attempt of a worker has ended, with or without an outcome.
    pub(in crate::prober) fn on_attempt_end(&mut self, handle: &Arc<ProbeWorkerHandle>) {
        if let Some(index) = self.index_of(handle) {
            self.workers[index].attempt_in_flight = None;
        }
    }

    /// Records the result of a worker's attempt.
    pub(in crate::prober) fn record_attempt(
        &mut self,
        handle: &Arc<ProbeWorkerHandle>,
        container_id: &Arc<str>,
        attempt: AttemptResult,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(index) = self.index_of(handle) else { return };
        let mut updates = Vec::new();
        let worker = &self.workers[index];
        let container = self.index_by_name(&worker.container).map(|index| &self.containers[index]);
        if container.is_some_and(ProbedContainer::stopped_by_kubelet)
            && ProbeType::KILLING.contains(&worker.state.probe_type)
        {
            // The kubelet has stopped the container for its probe, and resets its counters.
            return;
        }
        let worker = &mut self.workers[index];
        worker.state.record_result(attempt.result, &mut updates);
        if worker.consecutive_failures() == 0 {
            worker.discarded_failures = 0;
        }
        worker.record_outcome(container_id, AttemptOutcome::Result(attempt.result));
        worker.record_attempt(attempt);
        let (name, probe_type) = (worker.container.clone(), worker.state.probe_type);
        self.apply_updates(&name, probe_type, updates, now, effects);
    }

    /// Records an attempt that errored. It changes no result, as in the kubelet
    /// (`prober/worker.go`: `doProbe`).
    pub(in crate::prober) fn record_error(
        &mut self,
        handle: &Arc<ProbeWorkerHandle>,
        container_id: &Arc<str>,
        message: String,
    ) {
        if let Some(index) = self.index_of(handle) {
            self.workers[index].record_outcome(container_id, AttemptOutcome::Error(message));
        }
    }

    /// Counts a failed attempt that was discarded.
    pub(in crate::prober) fn discard_failure(&mut self, handle: &Arc<ProbeWorkerHandle>) {
        if let Some(index) = self.index_of(handle) {
            self.workers[index].discarded_failures += 1;
        }
    }

    /// Removes a worker that has exited. Starts another one if the specification of its probe has
    /// changed.
    pub(in crate::prober) fn on_worker_exit(
        &mut self,
        handle: &Arc<ProbeWorkerHandle>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(index) = self.index_of(handle) else { return };
        let mut worker = self.workers.remove(index);
        let probe_type = worker.state.probe_type;
        if let Some(ResultUpdate::Remove(run)) = worker.state.end() {
            self.set_result(&worker.container, probe_type, &run, None);
        }
        if !self.launched.contains(&(worker.container, probe_type)) && !self.workers_stopped {
            self.sync(now, effects);
        }
    }

    /// Stops all workers permanently.
    pub(in crate::prober) fn stop_workers(&mut self) {
        self.workers_stopped = true;
        for worker in &self.workers {
            worker.handle.stop.notify_one();
        }
    }

    pub(super) fn apply_updates(
        &mut self,
        name: &str,
        probe_type: ProbeType,
        updates: Vec<ResultUpdate>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let mut changed = None;
        for update in updates {
            let (run, result) = match update {
                ResultUpdate::Remove(run) => (run, None),
                ResultUpdate::Set(run, result) => (run, Some(result)),
            };
            if self.set_result(name, probe_type, &run, result) {
                changed = result.or(changed);
            }
        }
        // The success of a liveness probe causes no sync, as in the kubelet's `syncLoopIteration`.
        let is_news = |result| probe_type != ProbeType::Liveness || result == ProbeResult::Failure;
        if changed.is_some_and(is_news) {
            effects.result_changed = true;
            self.sync(now, effects);
        }
    }

    pub(super) fn attempt_context(&self, index: usize) -> Option<AttemptContext> {
        let worker = &self.workers[index];
        let container = &self.containers[self.index_by_name(&worker.container)?];
        let probe = &worker.state.probe;
        let address = self.address.clone().or_else(|| (!probe.handler.needs_address()).then(|| "".into()))?;
        Some(AttemptContext {
            pod: self.names.clone(),
            container: container.names.clone(),
            container_id: container.id.clone(),
            spec: self.spec_of(container)?.clone(),
            probe: probe.clone(),
            probe_type: worker.state.probe_type,
            address,
        })
    }

    pub(super) fn worker(&self, index: usize, probe_type: ProbeType) -> Option<&ProbeWorker> {
        let worker = self.worker_index(self.containers[index].name(), probe_type)?;
        Some(&self.workers[worker])
    }

    /// Returns the index of the worker of a probe.
    pub(super) fn worker_index(&self, container: &str, probe_type: ProbeType) -> Option<usize> {
        let matches =
            |worker: &ProbeWorker| worker.container == container && worker.state.probe_type == probe_type;
        self.workers.iter().position(matches)
    }

    pub(super) fn index_of(&self, handle: &Arc<ProbeWorkerHandle>) -> Option<usize> {
        self.workers.iter().position(|worker| Arc::ptr_eq(&worker.handle, handle))
    }
}
