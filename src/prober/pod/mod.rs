//! A pod that is probed: the state of its containers, and the results of their probes.

mod agreement;
mod attempt_run;
mod container;
mod kill_decision;
mod kill_request;
mod workers;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::enforcement::Enforcement;
use super::probe_state::{ContainerRun, ContainerView, ObservedState, PodView, Terminating};
use super::status::{ContainerProgress, PodPhase, ReadinessInputs, phase};
use super::threshold::ProbeResult;
use crate::manifest::{ContainerKind, ContainerSpec, PodSpec, ProbeType};
use crate::object_ref::PodRef;
use crate::relay::CallInfo;

pub use attempt_run::{AttemptOutcome, AttemptRun};
pub(in crate::prober) use container::{Age, ContainerUpdate, InventoryObject, ProbedContainer};
pub(in crate::prober) use kill_request::{KillAbort, KillRequest};
pub(in crate::prober) use workers::{AttemptContext, AttemptResult, Effects, ProbeWorker, ProbeWorkerHandle};

use container::WouldKillStats;

/// Time by which a container must be older than the prober to count as started before it
/// (`prober_manager.go`: `kubeletRestartGracePeriod`).
const PREDATES_MARGIN: Duration = Duration::from_secs(10);

/// A pod with its workers.
#[derive(Debug)]
pub(in crate::prober) struct ProbedPod {
    state: Mutex<PodState>,
    /// Permit to kill a container of the pod. Containers are killed one after the other, as by the
    /// kubelet's pod worker.
    pub(in crate::prober) turn: Semaphore,
}

/// State of a [`ProbedPod`].
#[derive(Debug)]
pub(in crate::prober) struct PodState {
    pub(in crate::prober) names: Arc<PodRef>,
    pub(in crate::prober) spec: Arc<PodSpec>,
    /// ID of the pod's newest sandbox.
    sandbox: Arc<str>,
    /// Address of the pod, once it is known.
    pub(in crate::prober) address: Option<Arc<str>>,
    /// Address that the runtime reports for the sandbox; `None` in the host's network.
    pub(in crate::prober) sandbox_address: Option<Arc<str>>,
    /// Whether the sandbox no longer runs.
    pub(in crate::prober) has_ended: bool,
    /// Call that stops the pod, while it is in flight.
    stopper: Weak<CallInfo>,
    /// Management of the pod by a pod worker.
    pub(in crate::prober) played: Management,
    /// Whether a sync of the pod worker is in progress, which may start containers.
    is_syncing: bool,
    /// Names of the containers that the pod worker restarts; `None` for all containers of a managed
    /// pod.
    pub(in crate::prober) kept: Option<HashSet<String>>,
    /// Whether all probe workers have been stopped permanently.
    workers_stopped: bool,
    pub(in crate::prober) containers: Vec<ProbedContainer>,
    pub(in crate::prober) workers: Vec<ProbeWorker>,
    /// Probes that have had a worker. Such a probe gets another worker only if no probe before it
    /// has one.
    launched: HashSet<(String, ProbeType)>,
    /// Time of the next sync if nothing changes before.
    pub(in crate::prober) next_sync: Instant,
    /// Start of the prober, or the time of its first full list of the node if the pod is newer.
    since: Instant,
    enforcement: Arc<Enforcement>,
}

/// Management of a pod by a pod worker. The syncs of the pod worker trigger readiness probes of a
/// managed pod; for other pods the prober's own syncs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prober) enum Management {
    /// No pod worker manages the pod.
    External,
    /// A pod worker manages the pod.
    Managed,
    /// A pod worker manages the pod, and is about to terminate it.
    Terminating,
}

impl ProbedPod {
    pub(in crate::prober) fn new(
        names: Arc<PodRef>,
        enforcement: Arc<Enforcement>,
        since: Instant,
        now: Instant,
    ) -> Self {
        let state = PodState {
            names,
            spec: Arc::default(),
            sandbox: "".into(),
            address: None,
            sandbox_address: None,
            has_ended: false,
            stopper: Weak::new(),
            played: Management::External,
            is_syncing: false,
            kept: None,
            workers_stopped: false,
            containers: Vec::new(),
            workers: Vec::new(),
            launched: HashSet::new(),
            next_sync: now,
            since,
            enforcement,
        };
        Self { state: Mutex::new(state), turn: Semaphore::new(1) }
    }

    pub(in crate::prober) fn lock(&self) -> MutexGuard<'_, PodState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodState {
    /// Sets the specification of the pod. A probe whose specification has changed is replaced by
    /// another probe.
    pub(in crate::prober) fn specify(&mut self, spec: PodSpec) {
        for worker in &mut self.workers {
            match spec.container(&worker.container).and_then(|it| it.probe(worker.state.probe_type)) {
                Some(probe) if probe.is_same_as(&worker.state.probe) => worker.state.probe = probe.clone(),
                _ => {
                    worker.handle.stop.notify_one();
                    self.launched.remove(&(worker.container.clone(), worker.state.probe_type));
                }
            }
        }
        self.spec = Arc::new(spec);
    }

    /// Sets the sandbox of the pod. In another sandbox, probes whose workers have exited get
    /// workers again.
    pub(in crate::prober) fn set_sandbox(&mut self, sandbox: &Arc<str>) {
        if self.sandbox != *sandbox {
            self.sandbox = sandbox.clone();
            let mut launched = std::mem::take(&mut self.launched);
            launched.retain(|(name, probe_type)| self.worker_index(name, *probe_type).is_some());
            self.launched = launched;
        }
    }

    /// Adds, updates or replaces a container.
    pub(in crate::prober) fn upsert_container(&mut self, known: ContainerUpdate, effects: &mut Effects) {
        let name = known.names.name.as_deref().unwrap_or_default();
        let Some(index) = self.index_by_name(name) else {
            let container = self.new_container(known);
            self.containers.push(container);
            return;
        };
        let container = &mut self.containers[index];
        if container.id == known.id {
            container.update(known);
        } else if known.age.is_newer_than(container.age) {
            self.replaced(index, known.hash.as_deref(), effects);
            self.containers[index] = self.new_container(known);
        }
    }

    /// Removes a container.
    pub(in crate::prober) fn remove_container(&mut self, id: &str) {
        self.containers.retain(|container| *container.id != *id);
    }

    pub(super) fn new_container(&self, known: ContainerUpdate) -> ProbedContainer {
        let ContainerUpdate { names, id, sandbox, age, state, object, hash } = known;
        let mut container = ProbedContainer {
            names,
            id,
            sandbox,
            age,
            state,
            awaits_sync: self.is_syncing,
            post_start: Weak::new(),
            was_started: false,
            stopper: Weak::new(),
            results: [const { None }; 3],
            endings: [WouldKillStats::default(); 3],
            object,
            kill_pending: false,
            hash,
            their_stop: None,
        };
        container.was_started = self.assume_started(&container);
        container
    }

    /// Returns whether a container is assumed to have started. The result of the startup probe is
    /// unknown for a container that is older than the prober. A container that still runs after its
    /// startup probe would have ended it (`initialDelaySeconds` + `periodSeconds` ×
    /// `failureThreshold`) must have started.
    pub(super) fn assume_started(&self, container: &ProbedContainer) -> bool {
        let ObservedState::Running(since) = container.state else { return false };
        let startup = self.spec_of(container).and_then(|spec| spec.probe(ProbeType::Startup).cloned());
        let budget = startup.map_or(0, |probe| {
            u64::from(probe.initial_delay) + u64::from(probe.period) * u64::from(probe.failure_threshold)
        });
        self.is_survivor(since) && self.since.saturating_duration_since(since) > Duration::from_secs(budget)
    }

    pub(super) fn is_survivor(&self, since: Instant) -> bool {
        self.since.checked_duration_since(since).is_some_and(|age| age > PREDATES_MARGIN)
    }

    /// Records the start or the end of a sync of the pod worker. The workers see the containers
    /// that it has started once it has ended: after the hooks, and the image pulls of later
    /// containers.
    pub(in crate::prober) fn set_syncing(&mut self, is_syncing: bool) {
        self.is_syncing = is_syncing;
        if !is_syncing {
            for container in &mut self.containers {
                container.awaits_sync = false;
            }
        }
    }

    /// Syncs the pod: starts missing workers, triggers readiness probes, and decides about kills.
    pub(in crate::prober) fn sync(&mut self, now: Instant, effects: &mut Effects) {
        if self.workers_stopped {
            return;
        }
        self.next_sync = now + Duration::from_secs(60).mul_f64(1.0 + fastrand::f64() / 2.0);
        self.start_workers(effects);
        for index in 0..self.containers.len() {
            self.containers[index].was_started = self.readiness_inputs(index).is_started();
            if self.played == Management::External {
                self.trigger_readiness(index);
            }
            self.decide(index, now, effects);
        }
        self.sync_after_stops(now);
    }

    /// Syncs the pod for its pod worker, and triggers readiness probes.
    pub(in crate::prober) fn look(&mut self, now: Instant, effects: &mut Effects) {
        self.sync(now, effects);
        for index in 0..self.containers.len() {
            self.trigger_readiness(index);
        }
    }

    /// Triggers the readiness probe of a container that has started and is not ready.
    fn trigger_readiness(&self, index: usize) {
        if self.readiness_inputs(index).needs_readiness_trigger()
            && let Some(worker) = self.worker(index, ProbeType::Readiness)
        {
            worker.handle.manual_trigger.notify_one();
        }
    }

    /// Sets or removes the result of a probe. Returns whether there is a new result.
    pub(super) fn set_result(
        &mut self,
        name: &str,
        probe_type: ProbeType,
        run: &ContainerRun,
        result: Option<ProbeResult>,
    ) -> bool {
        let Some(index) = self.index_by_name(name) else { return false };
        let container = &mut self.containers[index];
        if container.id != run.container_id {
            return false;
        }
        let held = &mut container.results[probe_type as usize];
        let is_of_life = held.as_ref().is_some_and(|(known, _)| known == run);
        match result {
            Some(result) if is_of_life && held.as_ref().is_some_and(|(_, known)| *known == result) => false,
            Some(result) => {
                *held = Some((run.clone(), result));
                true
            }
            None => {
                if is_of_life {
                    *held = None;
                }
                false
            }
        }
    }

    pub(super) fn view(&self, name: &str, probe_type: ProbeType) -> PodView {
        let index = self.index_by_name(name);
        PodView {
            is_pod_over: self.is_finished(),
            container: index
                .filter(|index| self.containers[*index].is_published())
                .map(|index| self.container_view(index, probe_type)),
        }
    }

    pub(super) fn container_view(&self, index: usize, probe_type: ProbeType) -> ContainerView {
        let container = &self.containers[index];
        let spec = self.spec_of(container);
        let role = spec.map_or(ContainerKind::Regular, |spec| spec.role);
        let ending = container.endings[probe_type as usize];
        let state = match (container.state, ending.last) {
            (ObservedState::Running(since), Some(last)) => ObservedState::Running(since.max(last)),
            (state, _) => state,
        };
        let is_restarted = match container.state {
            ObservedState::Terminated(Some(code)) => {
                spec.is_none_or(|spec| spec.is_restarted(self.spec.restart_policy, code))
                    || self.restarts_all()
            }
            _ => true,
        };
        ContainerView {
            run: ContainerRun { container_id: container.id.clone(), would_have_ended: ending.count },
            state,
            role,
            is_started: self.readiness_inputs(index).is_started(),
            is_restarted,
            predates_prober: matches!(state, ObservedState::Running(since) if self.is_survivor(since)),
            ends: match role {
                ContainerKind::Regular
                    if self.has_ended || self.workers_stopped || self.played == Management::Terminating =>
                {
                    Terminating::Pod
                }
                // The call may fail, so liveness and startup probes wait instead of exiting.
                ContainerKind::Regular if self.is_ending() || container.is_being_stopped() => {
                    Terminating::Container
                }
                _ => Terminating::None,
            },
        }
    }

    /// Returns whether a container has ended in a way that restarts all containers of the pod.
    pub(super) fn restarts_all(&self) -> bool {
        self.containers.iter().any(|container| match container.state {
            ObservedState::Terminated(Some(code)) => {
                self.spec_of(container).is_some_and(|spec| spec.restarts_all_containers(code))
            }
            _ => false,
        })
    }

    pub(super) fn readiness_inputs(&self, index: usize) -> ReadinessInputs {
        let container = &self.containers[index];
        ReadinessInputs {
            state: container.state,
            role: self.spec_of(container).map_or(ContainerKind::Regular, |spec| spec.role),
            startup: container.result(ProbeType::Startup),
            readiness: container.result(ProbeType::Readiness),
            was_started: container.was_started,
            has_startup_worker: self.worker(index, ProbeType::Startup).is_some(),
            has_readiness_worker: self.worker(index, ProbeType::Readiness).is_some(),
        }
    }

    /// Returns whether no container of the pod will be probed again: the pod has ended, or its
    /// sandbox and all of its containers have.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.phase(), PodPhase::Succeeded | PodPhase::Failed)
            || (self.has_ended && !self.containers.iter().any(ProbedContainer::is_running))
    }

    pub(super) fn phase(&self) -> PodPhase {
        let is_init =
            |name: &str| self.spec.container(name).is_some_and(|spec| spec.role == ContainerKind::Init);
        let has_regular = self.regular_containers().next().is_some();
        let stage = |name: &str| {
            let index = self.index_by_name(name);
            match index.map_or(ObservedState::Waiting, |index| self.containers[index].state) {
                // An init container that was removed has succeeded, because a later container
                // exists (`kubelet_pods.go`: `convertToAPIContainerStatuses`).
                ObservedState::Waiting if index.is_none() && has_regular && is_init(name) => {
                    ContainerProgress::Ended(Some(0))
                }
                ObservedState::Waiting => ContainerProgress::Waiting,
                ObservedState::Running(_) => ContainerProgress::Running {
                    is_started: index.is_some_and(|index| self.readiness_inputs(index).is_started()),
                },
                ObservedState::Terminated(code) => ContainerProgress::Ended(code),
            }
        };
        let is_active = |container: &ProbedContainer| {
            !self.has_ended && container.sandbox.as_ref().is_none_or(|sandbox| *sandbox == self.sandbox)
        };
        phase(&self.spec, false, self.regular_containers().any(is_active), stage)
    }

    fn regular_containers(&self) -> impl Iterator<Item = &ProbedContainer> {
        self.containers.iter().filter(|container| {
            self.spec_of(container).is_none_or(|spec| spec.role == ContainerKind::Regular)
        })
    }

    pub(super) fn state_of(&self, name: &str) -> Option<ObservedState> {
        self.index_by_name(name).map(|index| self.containers[index].state)
    }

    pub(super) fn spec_of(&self, container: &ProbedContainer) -> Option<&Arc<ContainerSpec>> {
        self.spec.container(container.name())
    }

    pub(super) fn index_by_name(&self, name: &str) -> Option<usize> {
        self.containers.iter().position(|container| container.name() == name)
    }

    /// Returns the index of the container with this ID.
    pub(super) fn index_by_id(&self, id: &str) -> Option<usize> {
        self.containers.iter().position(|container| *container.id == *id)
    }
}
