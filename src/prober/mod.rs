//! Runs probes as the kubelet does (`pkg/kubelet/prober`), and decides which containers to kill for
//! them.
//!
//! ```text
//! inventory, specs ──► ProbeManager ──► PodState ◄──► ProbeState (decides), threshold, status
//!                                          ▲
//!                                        Worker ──► handler ──► runtime (ExecSync), pod's address
//!                                          └──► events, metrics, result updates
//! ```

mod attempt_reporter;
mod enforcement;
mod kill_plan;
mod lateness;
mod manager;
mod metrics;
mod pod;
mod pod_table;
mod probe_state;
mod snapshot;
mod status;
mod threshold;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;

use crate::events::{Event, EventRecorder, reason};
use crate::handler::Executor;
use crate::inventory::{Change, InspectRequest, Inventory, Sandbox};
use crate::manifest::{PodSpec, ProbeType};
use crate::object_ref::PodRef;
use crate::probe::SpecResolver;
use crate::relay::CallInfo;
use crate::tap::StopRequest;
use enforcement::Enforcement;
use manager::ManagerInner;
use pod::{Effects, Management, ProbedPod};
use pod_table::PodTable;

pub(crate) use manager::KUBELET_TTL;

pub use attempt_reporter::{AttemptReporter, AttemptVerdict, ProbeAttempt};
pub use enforcement::{EnforcementMode, EnforcementSettings, KillLimit, KillStats};
pub use metrics::{Agreement, ProberMetrics};
pub use pod::{AttemptOutcome, AttemptRun};
pub use snapshot::{ContainerReport, PodReport, ProbeReport};
pub(crate) use status::{ContainerProgress, phase, readiness};
pub use status::{PodCondition, PodPhase};
pub use threshold::{ProbeResult, ResultRun, ThresholdOutcome, apply_threshold};

/// Number of workers above which workers that one change of the specifications starts are spread
/// over their first periods.
const JITTER_THRESHOLD: usize = 100;

/// Capacity of the channel of result updates. The built-in kubelet wakes all pod workers if it lags
/// further behind.
const RESULT_UPDATES: usize = 256;

/// Runs the probes of all pods, and decides which containers to kill for them. Clones share the
/// state.
#[derive(Clone, Debug)]
pub struct ProbeManager {
    shared: Arc<ManagerInner>,
}

/// Settings and dependencies of a [`ProbeManager`].
#[derive(Debug)]
pub struct ProberConfig {
    /// Specifications of the probes.
    pub specs: SpecResolver,
    /// Metrics of the probes.
    pub metrics: ProberMetrics,
    /// Queue of inspect requests for pods and containers of which information is missing.
    pub inspect_requests: mpsc::Sender<InspectRequest>,
    /// Initial enforcement mode, kill limit and protected containers.
    pub enforcement: EnforcementSettings,
    /// Whether workers start immediately instead of at random times within their first period. The
    /// node is then assumed to have been up for longer than any period.
    pub skip_start_jitter: bool,
    /// Receives attempts that have ended.
    pub attempts: AttemptReporter,
}

/// A sync of a managed pod.
#[derive(Debug)]
pub struct SyncInProgress {
    /// The pod, if it is probed.
    pod: Option<Arc<ProbedPod>>,
}

impl Drop for SyncInProgress {
    fn drop(&mut self) {
        if let Some(pod) = &self.pod {
            pod.lock().set_syncing(false);
        }
    }
}

impl ProbeManager {
    /// Starts a prober without pods. `executor` runs commands and stops containers, `events`
    /// records events, and the tasks run on `runtime`.
    #[must_use]
    pub fn start(
        parts: ProberConfig,
        executor: Executor,
        events: Arc<EventRecorder>,
        runtime: Handle,
    ) -> Self {
        let ProberConfig { specs, metrics, inspect_requests, enforcement, skip_start_jitter, attempts } =
            parts;
        let pods = PodTable {
            since: Instant::now(),
            is_listed: false,
            is_settled: skip_start_jitter,
            specs,
            pods: HashMap::new(),
            orphans: HashMap::new(),
            kubelet_seen: None,
            is_over: false,
        };
        let pod_table = Mutex::new(pods);
        let enforcement = Arc::new(Enforcement::new(enforcement));
        let thread_use = Arc::default();
        let shared = ManagerInner {
            executor,
            metrics,
            events,
            result_updates: broadcast::Sender::new(RESULT_UPDATES),
            inspect_requests,
            runtime,
            enforcement,
            pods: pod_table,
            thread_use,
            attempts,
        };
        let shared = Arc::new(shared);
        shared.runtime.spawn(shared.clone().housekeeping());
        Self { shared }
    }

    /// Returns a receiver of the pods whose probe results change after this call (kubelet:
    /// `results.Manager.Updates`).
    #[must_use]
    pub fn result_updates(&self) -> broadcast::Receiver<Arc<PodRef>> {
        self.shared.result_updates.subscribe()
    }

    /// Applies changes of the inventory.
    pub fn changed(&self, inventory: &Inventory, changes: &[Change]) {
        let mut touched: Vec<Arc<str>> = Vec::new();
        let mut seen = HashSet::new();
        let mut pods = self.shared.lock();
        for change in changes {
            if let Some(key) = pods.apply(inventory, change)
                && seen.insert(key.clone())
            {
                touched.push(key);
            }
        }
        drop(pods);
        for key in touched {
            if let Some((pod, effects)) = self.shared.refresh(&key, true) {
                self.shared.apply_effects(&pod, effects);
            }
        }
    }

    /// Adds a managed pod that has no sandbox yet, and starts its probe workers, as the kubelet
    /// does before there are containers (`prober_manager.go`: `AddPod`).
    pub fn add_pod(&self, sandbox: Sandbox) {
        let key = self.shared.lock().expect(&Arc::new(sandbox));
        if let Some((pod, effects)) = key.and_then(|key| self.shared.refresh(&key, true)) {
            pod.lock().played = Management::Managed;
            self.shared.apply_effects(&pod, effects);
        }
    }

    /// Sets the containers of a pod that its pod worker restarts and kills for their probes. With
    /// an empty set the pod is no longer managed.
    pub fn set_restartable(&self, names: &PodRef, containers: HashSet<String>) {
        if let Some(pod) = self.shared.lock().pod_named(names) {
            let mut state = pod.lock();
            state.played = if containers.is_empty() { Management::External } else { Management::Managed };
            state.kept = Some(containers).filter(|kept| !kept.is_empty());
        }
    }

    /// Returns the state of a pod, if it is probed. Triggers the readiness probes of containers
    /// that are not ready, as each sync of the kubelet does (`prober_manager.go`:
    /// `UpdatePodStatus`).
    #[must_use]
    pub fn update_pod_status(&self, names: &PodRef) -> Option<PodReport> {
        let pod = self.shared.lock().pod_named(names)?;
        let mut effects = Effects::default();
        let mut state = pod.lock();
        state.look(Instant::now(), &mut effects);
        let report = state.report();
        drop(state);
        self.shared.apply_effects(&pod, effects);
        Some(report)
    }

    /// Starts a sync of a managed pod, which may start containers. The probe workers see them when
    /// the returned value is dropped.
    #[must_use]
    pub fn begin_sync(&self, names: &PodRef) -> SyncInProgress {
        let pod = self.shared.lock().pod_named(names);
        if let Some(pod) = &pod {
            pod.lock().set_syncing(true);
        }
        SyncInProgress { pod }
    }

    /// Returns whether the whole node has been listed.
    #[must_use]
    pub fn has_listed(&self) -> bool {
        self.shared.lock().is_listed
    }

    /// Returns the specification of a pod, merged from all sources. It includes the containers of
    /// the pod that are on the node.
    #[must_use]
    pub fn spec_of(&self, sandbox: &Sandbox) -> PodSpec {
        self.shared.lock().spec_of(sandbox)
    }

    /// Returns the state of a pod, if it is probed.
    #[must_use]
    pub fn pod_report(&self, names: &PodRef) -> Option<PodReport> {
        let pod = self.shared.lock().pod_named(names)?;
        let report = pod.lock().report();
        Some(report)
    }

    /// Stops the liveness and startup probes of the regular containers of a pod that is about to be
    /// terminated (`prober_manager.go`: `StopLivenessAndStartup`). Readiness probes continue.
    pub fn stop_liveness_and_startup(&self, names: &PodRef) {
        if let Some(pod) = self.shared.lock().pod_named(names) {
            pod.lock().played = Management::Terminating;
        }
    }

    /// Removes a pod, and stops its probe workers (`prober_manager.go`: `RemovePod`).
    pub fn remove_pod(&self, names: &PodRef) {
        self.shared.lock().forget(names);
    }

    /// Counts a kill of a container for a probe. `is_done` is false if the kill failed.
    pub fn on_container_killed(&self, names: &PodRef, container: &str, probe_type: ProbeType, is_done: bool) {
        self.shared.metrics.killed(probe_type.title(), is_done);
        let pod = self.shared.lock().pod_named(names).filter(|_| is_done);
        if let Some(pod) = pod {
            pod.lock().killed(container, probe_type);
        }
    }

    /// Records that a kubelet has just used the runtime.
    pub fn kubelet_seen(&self) {
        self.shared.lock().kubelet_seen = Some(Instant::now());
    }

    /// Records that the whole node has been listed: pods that appear from now on are new. Reports
    /// `--never-kill` selectors that match no container.
    pub fn mark_listed(&self) {
        let mut pods = self.shared.lock();
        if !pods.is_listed {
            (pods.is_listed, pods.since) = (true, Instant::now());
            for unmet in self.shared.enforcement.unmatched() {
                let message = format!("--never-kill selector {unmet} matches no container on this node");
                self.shared.events.log_and_record(Event::warning(reason::SELECTOR_MATCHES_NOTHING, message));
            }
        }
    }

    /// Returns the enforcement mode.
    #[must_use]
    pub fn mode(&self) -> EnforcementMode {
        self.shared.enforcement.mode()
    }

    /// Switches the enforcement mode. `by` names the client in the event.
    pub fn set_mode(&self, to: EnforcementMode, by: &str) {
        let from = self.shared.enforcement.set_mode(to);
        let message = format!("Enforcement mode changed from {} to {} by {by}", from.name(), to.name());
        self.shared.events.log_and_record(Event::warning(reason::ENFORCEMENT_MODE_CHANGED, message));
    }

    /// Returns the state of the kill limit.
    #[must_use]
    pub fn kills(&self) -> KillStats {
        self.shared.enforcement.kills(Instant::now())
    }

    /// Returns the comparison of the kubelet's kills with the prober's predictions.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        self.shared.metrics.agreement()
    }

    /// Handles the start of an ExecSync of a kubelet without a timeout, which may be a preStop
    /// hook.
    pub fn on_kubelet_exec_start(&self, container: &str, command: &[String], call: &Weak<CallInfo>) {
        let found = self.shared.lock().pod_of_container(container);
        if let Some((pod, container)) = found {
            pod.lock().hook_begins(&container, command, call);
        }
    }

    /// Records the outcome of a command that a kubelet executed in a container.
    pub fn on_kubelet_exec_end(&self, container: &str, command: &[String], came_to: &str) {
        let found = self.shared.lock().pod_of_container(container);
        if let Some((pod, container)) = found {
            pod.lock().heard_exec(&container, command, came_to);
        }
    }

    /// Replaces the specifications, and updates all pods.
    pub fn set_specs(&self, specs: SpecResolver) {
        let keys: Vec<Arc<str>> = {
            let mut pods = self.shared.lock();
            pods.specs = specs;
            pods.pods.keys().cloned().collect()
        };
        let all_effects: Vec<_> = keys.iter().filter_map(|key| self.shared.refresh(key, false)).collect();
        // More than a hundred workers that start together are spread, as the workers of a new
        // prober are.
        let is_crowd = all_effects.iter().map(|(_, effects)| effects.workers_to_start.len()).sum::<usize>()
            > JITTER_THRESHOLD;
        for (pod, mut effects) in all_effects {
            effects.jitter = is_crowd;
            self.shared.apply_effects(&pod, effects);
        }
    }

    /// Handles the request of a client to stop a sandbox or container.
    pub fn on_stop_requested(&self, stopping: &StopRequest) {
        let StopRequest { info, pid: _, sandbox, container, is_removal: _ } = stopping;
        if let Some(sandbox) = sandbox {
            let pod = self.shared.lock().pod_of_sandbox(sandbox);
            if let Some(pod) = pod {
                let mut effects = Effects::default();
                pod.lock().stopping_all(info, &mut effects);
                self.shared.apply_effects(&pod, effects);
            }
        }
        let found = container.as_deref().and_then(|id| self.shared.lock().pod_of_container(id));
        if let Some((pod, container)) = found {
            let mut effects = Effects::default();
            pod.lock().stopping(&container, info, Instant::now(), &mut effects);
            self.shared.apply_effects(&pod, effects);
        }
    }

    /// Stops all workers, and removes all pods.
    pub fn stop(&self) {
        let mut pods = self.shared.lock();
        pods.is_over = true;
        for pod in pods.pods.values().filter_map(|entry| entry.pod.as_ref()) {
            pod.lock().stop_workers();
        }
        pods.pods.clear();
    }

    /// Returns the state of all pods that are probed.
    #[must_use]
    pub fn report(&self) -> Vec<PodReport> {
        self.shared.pods().iter().map(|pod| pod.lock().report()).collect()
    }
}

#[cfg(test)]
mod tests;
