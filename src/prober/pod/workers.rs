//! The jobs of a pod: what a worker is to do next, and what comes of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::PodState;
use super::container::ProbedContainer;
use super::kill_request::KillRequest;
use crate::probe::{ContainerSpec, Handler, Probe, ProbeType};
use crate::prober::events::{ContainerEvent, GlobalEvent};
use crate::prober::probe_state::{NextAction, ProbeState, ResultUpdate};
use crate::prober::threshold::ProbeResult;
use crate::tap;

/// Failures that are told of where a container is killed, and letters of each.
const MAX_FAILURES: usize = 5;
const MAX_MESSAGE_BYTES: usize = 200;

/// A worker, and what it works on.
#[derive(Debug)]
pub(in crate::prober) struct ProbeWorker {
    pub(in crate::prober) container: String,
    pub(in crate::prober) state: ProbeState,
    pub(in crate::prober) handle: Arc<ProbeWorkerHandle>,
    /// The last failures in a row, as many as are told of.
    pub(super) failures: VecDeque<tap::ProbeFailure>,
    /// How long the last attempt took.
    pub(super) last_duration: Duration,
    /// How often it has had its container killed by us.
    pub(in crate::prober) kill_count: u32,
    /// The last attempt of the kubelet's that was seen.
    pub(super) last_kubelet_attempt: Option<String>,
    /// Number of failed attempts since the last success that were discarded because the prober was late. The kubelet has counted its own.
    pub(super) discarded_failures: u32,
}

/// What came of an attempt.
#[derive(Clone, Debug)]
pub(in crate::prober) struct AttemptResult {
    pub(in crate::prober) result: ProbeResult,
    /// How long it took.
    pub(in crate::prober) duration: Duration,
    /// What is told of a failure.
    pub(in crate::prober) message: String,
}

/// What a worker is told while it waits.
#[derive(Debug, Default)]
pub(in crate::prober) struct ProbeWorkerHandle {
    /// It is to end.
    pub(in crate::prober) stop: Notify,
    /// It is to make an attempt now.
    pub(in crate::prober) manual_trigger: Notify,
}

/// What an attempt needs to know.
#[derive(Clone, Debug)]
pub(in crate::prober) struct AttemptContext {
    pub(in crate::prober) pod: Arc<tap::PodRef>,
    pub(in crate::prober) container: Arc<tap::ContainerRef>,
    pub(in crate::prober) container_id: Arc<str>,
    pub(in crate::prober) spec: Arc<ContainerSpec>,
    pub(in crate::prober) probe: Arc<Probe>,
    pub(in crate::prober) probe_type: ProbeType,
    pub(in crate::prober) address: Arc<str>,
}

/// What is to be done once nobody looks at the pod any more.
#[derive(Debug, Default)]
pub(in crate::prober) struct Effects {
    /// Workers to start.
    pub(in crate::prober) workers_to_start: Vec<(Arc<ProbeWorkerHandle>, Arc<Probe>)>,
    pub(in crate::prober) events: Vec<ContainerEvent>,
    /// What concerns no pod alone.
    pub(in crate::prober) global_events: Vec<GlobalEvent>,
    /// Containers to kill.
    pub(in crate::prober) kill_requests: Vec<KillRequest>,
    /// Whether the workers begin at times of chance within their periods.
    pub(in crate::prober) jitter: bool,
    /// A probe says something else than before.
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
            last_kubelet_attempt: None,
            discarded_failures: 0,
        }
    }

    /// Whether it is this command that it has executed.
    pub(super) fn matches_command(&self, command: &[String]) -> bool {
        matches!(&self.state.probe.handler, Handler::Exec(own) if own == command)
    }

    /// The last failures, of as many as were needed.
    pub(in crate::prober) fn last_failures(&self, threshold: u32) -> Vec<tap::ProbeFailure> {
        let count = usize::try_from(threshold).unwrap_or(usize::MAX).min(self.failures.len());
        self.failures.iter().skip(self.failures.len() - count).cloned().collect()
    }

    fn record_attempt(&mut self, outcome: AttemptResult) {
        let AttemptResult { result, duration, message } = outcome;
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
    /// Starts the workers of all probes, those of regular containers first. As the kubelet, it goes no further than to the first that is
    /// there when it is about one that has been there before.
    pub(super) fn start_workers(&mut self, todo: &mut Effects) {
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
                    let signals = Arc::new(ProbeWorkerHandle::default());
                    let machine = ProbeState::new(probe_type, probe.clone());
                    self.workers.push(ProbeWorker::new(&key.0, machine, signals.clone()));
                    self.launched.insert(key);
                    todo.workers_to_start.push((signals, probe.clone()));
                }
            }
        }
    }

    /// What a worker does next.
    pub(in crate::prober) fn next_action(
        &mut self,
        signals: &Arc<ProbeWorkerHandle>,
        now: Instant,
        todo: &mut Effects,
    ) -> (NextAction, Option<AttemptContext>) {
        let Some(place) = self.index_of(signals) else { return (NextAction::Exit, None) };
        let (name, probe_type) =
            (self.workers[place].container.clone(), self.workers[place].state.probe_type);
        let view = self.view(&name, probe_type);
        let mut effects = Vec::new();
        let mut next = self.workers[place].state.next_action(&view, now, &mut effects);
        let task = (next == NextAction::Attempt).then(|| self.attempt_context(place)).flatten();
        if next == NextAction::Attempt && task.is_none() {
            // Where the kubelet does not know the address yet it asks this host; we know better.
            next = NextAction::Wait;
        }
        self.apply_updates(&name, probe_type, effects, now, todo);
        (next, task)
    }

    /// What came of a worker's attempt.
    pub(in crate::prober) fn record_attempt(
        &mut self,
        signals: &Arc<ProbeWorkerHandle>,
        outcome: AttemptResult,
        now: Instant,
        todo: &mut Effects,
    ) {
        let Some(place) = self.index_of(signals) else { return };
        let mut effects = Vec::new();
        let job = &self.workers[place];
        let container = self.index_by_name(&job.container).map(|place| &self.containers[place]);
        if container.is_some_and(ProbedContainer::stopped_by_kubelet)
            && ProbeType::KILLING.contains(&job.state.probe_type)
        {
            // The kubelet has come to its verdict, and begins to count anew.
            return;
        }
        let job = &mut self.workers[place];
        if outcome.result == ProbeResult::Success {
            job.discarded_failures = 0;
        }
        job.state.record_result(outcome.result, &mut effects);
        job.record_attempt(outcome);
        let (name, probe_type) = (job.container.clone(), job.state.probe_type);
        self.apply_updates(&name, probe_type, effects, now, todo);
    }

    /// Counts a failed attempt that was discarded.
    pub(in crate::prober) fn discard_failure(&mut self, signals: &Arc<ProbeWorkerHandle>) {
        if let Some(index) = self.index_of(signals) {
            self.workers[index].discarded_failures += 1;
        }
    }

    /// A worker has ended. If its probe is written otherwise by now, another one begins.
    pub(in crate::prober) fn on_worker_exit(
        &mut self,
        signals: &Arc<ProbeWorkerHandle>,
        now: Instant,
        todo: &mut Effects,
    ) {
        let Some(place) = self.index_of(signals) else { return };
        let mut job = self.workers.remove(place);
        let probe_type = job.state.probe_type;
        if let Some(ResultUpdate::Remove(life)) = job.state.end() {
            self.set_result(&job.container, probe_type, &life, None);
        }
        if !self.launched.contains(&(job.container, probe_type)) && !self.stopped {
            self.sync(now, todo);
        }
    }

    /// Stops all workers, for good.
    pub(in crate::prober) fn stop_workers(&mut self) {
        self.stopped = true;
        for job in &self.workers {
            job.handle.stop.notify_one();
        }
    }

    pub(super) fn apply_updates(
        &mut self,
        name: &str,
        probe_type: ProbeType,
        effects: Vec<ResultUpdate>,
        now: Instant,
        todo: &mut Effects,
    ) {
        let mut changed = None;
        for effect in effects {
            let (life, result) = match effect {
                ResultUpdate::Remove(life) => (life, None),
                ResultUpdate::Set(life, result) => (life, Some(result)),
            };
            if self.set_result(name, probe_type, &life, result) {
                changed = result.or(changed);
            }
        }
        // As in the kubelet's main loop, to which an alive container is no news.
        let is_news = |result| probe_type != ProbeType::Liveness || result == ProbeResult::Failure;
        if changed.is_some_and(is_news) {
            todo.result_changed = true;
            self.sync(now, todo);
        }
    }

    pub(super) fn attempt_context(&self, place: usize) -> Option<AttemptContext> {
        let job = &self.workers[place];
        let container = &self.containers[self.index_by_name(&job.container)?];
        let probe = &job.state.probe;
        let address = self.address.clone().or_else(|| (!probe.handler.needs_address()).then(|| "".into()))?;
        Some(AttemptContext {
            pod: self.names.clone(),
            container: container.names.clone(),
            container_id: container.id.clone(),
            spec: self.spec_of(container)?.clone(),
            probe: probe.clone(),
            probe_type: job.state.probe_type,
            address,
        })
    }

    pub(super) fn worker(&self, place: usize, probe_type: ProbeType) -> Option<&ProbeWorker> {
        let job = self.worker_index(self.containers[place].name(), probe_type)?;
        Some(&self.workers[job])
    }

    /// The place of the job that works on a probe.
    pub(super) fn worker_index(&self, container: &str, probe_type: ProbeType) -> Option<usize> {
        let is_it = |job: &ProbeWorker| job.container == container && job.state.probe_type == probe_type;
        self.workers.iter().position(is_it)
    }

    pub(super) fn index_of(&self, signals: &Arc<ProbeWorkerHandle>) -> Option<usize> {
        self.workers.iter().position(|job| Arc::ptr_eq(&job.handle, signals))
    }
}
