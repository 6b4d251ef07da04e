//! Probes, made as the kubelet makes them, and what they amount to.
//!
//! ```text
//! inventory, specs ──► ProbeManager ──► PodState ◄──► ProbeState (decides), threshold, status
//!                                          ▲
//!                                        Worker ──► handler ──► runtime (ExecSync), the pod's address
//!                                          └──► events, metrics, result updates
//! ```

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
use pod::{Effects, Management};
use pod_table::PodTable;

pub(crate) use manager::KUBELET_TTL;

pub use enforcement::{EnforcementMode, EnforcementSettings, KillLimit, KillStats};
pub use metrics::{Agreement, ProberMetrics};
pub use snapshot::{ContainerReport, PodReport, ProbeReport};
pub(crate) use status::{ContainerProgress, phase, readiness};
pub use status::{PodCondition, PodPhase};
pub use threshold::{ProbeResult, ResultRun, ThresholdOutcome, apply_threshold};

/// Workers that may begin together where what is written of probes changes.
const JITTER_THRESHOLD: usize = 100;

/// Result updates that a receiver may lag behind. The kubelet wakes all pod workers when it has lagged further.
const RESULT_UPDATES: usize = 256;

/// Makes probes, and says what would be killed. Copies share it.
#[derive(Clone, Debug)]
pub struct ProbeManager {
    shared: Arc<ManagerInner>,
}

/// What a prober is made of.
#[derive(Debug)]
pub struct ProberConfig {
    /// What is written of probes.
    pub specs: SpecResolver,
    /// What is counted.
    pub metrics: ProberMetrics,
    /// Who is asked what has to be known of pods and containers.
    pub inspect_requests: mpsc::Sender<InspectRequest>,
    /// What is done about probes that have failed.
    pub enforcement: EnforcementSettings,
    /// The node is taken to have been there for long: workers begin at once, and not at times of chance within their first period.
    pub skip_start_jitter: bool,
}

impl ProbeManager {
    /// Starts a prober that knows no pods yet. `executor` executes commands and stops, `events` records events, and the tasks run
    /// on `runtime`.
    #[must_use]
    pub fn start(
        parts: ProberConfig,
        executor: Executor,
        events: Arc<EventRecorder>,
        runtime: Handle,
    ) -> Self {
        let ProberConfig { specs, metrics, inspect_requests, enforcement, skip_start_jitter } = parts;
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
        };
        let shared = Arc::new(shared);
        shared.runtime.spawn(shared.clone().housekeeping());
        Self { shared }
    }

    /// Returns a receiver of the pods with a probe whose result changes from now on (kubelet: `results.Manager.Updates`).
    #[must_use]
    pub fn result_updates(&self) -> broadcast::Receiver<Arc<PodRef>> {
        self.shared.result_updates.subscribe()
    }

    /// Something has become of the node.
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

    /// A pod is about to have a sandbox: the workers of its probes begin, as with the kubelet, before there is anything to probe.
    pub fn add_pod(&self, sandbox: Sandbox) {
        let key = self.shared.lock().expect(&Arc::new(sandbox));
        if let Some((pod, effects)) = key.and_then(|key| self.shared.refresh(&key, true)) {
            pod.lock().played = Management::Managed;
            self.shared.apply_effects(&pod, effects);
        }
    }

    /// Somebody starts these containers of a pod again, and kills them for their probes; none from now on where there are none.
    pub fn set_restartable(&self, names: &PodRef, containers: HashSet<String>) {
        if let Some(pod) = self.shared.lock().pod_named(names) {
            let mut state = pod.lock();
            state.played = if containers.is_empty() { Management::External } else { Management::Managed };
            state.kept = Some(containers).filter(|kept| !kept.is_empty());
        }
    }

    /// How a pod is, if it is probed. What is not ready is looked at again at once, as with each sync of the kubelet's.
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

    /// Whether the whole node has been listed.
    #[must_use]
    pub fn has_listed(&self) -> bool {
        self.shared.lock().is_listed
    }

    /// What is written of a pod by all sources, of those of its containers as well that are on the node.
    #[must_use]
    pub fn spec_of(&self, sandbox: &Sandbox) -> PodSpec {
        self.shared.lock().spec_of(sandbox)
    }

    /// How a pod is, if it is probed.
    #[must_use]
    pub fn pod_report(&self, names: &PodRef) -> Option<PodReport> {
        let pod = self.shared.lock().pod_named(names)?;
        let report = pod.lock().report();
        Some(report)
    }

    /// Whoever made a pod is about to end it: its regular containers are not probed any more, but for readiness.
    pub fn stop_liveness_and_startup(&self, names: &PodRef) {
        if let Some(pod) = self.shared.lock().pod_named(names) {
            pod.lock().played = Management::Terminating;
        }
    }

    /// Nobody makes the pod any more: its workers end.
    pub fn remove_pod(&self, names: &PodRef) {
        self.shared.lock().forget(names);
    }

    /// Somebody has killed a container for a probe, or has tried to.
    pub fn on_container_killed(&self, names: &PodRef, container: &str, probe_type: ProbeType, is_done: bool) {
        self.shared.metrics.killed(probe_type.title(), is_done);
        let pod = self.shared.lock().pod_named(names).filter(|_| is_done);
        if let Some(pod) = pod {
            pod.lock().killed(container, probe_type);
        }
    }

    /// A kubelet has been seen to use the runtime.
    pub fn kubelet_seen(&self) {
        self.shared.lock().kubelet_seen = Some(Instant::now());
    }

    /// The whole node has been listed: what comes from now on is new.
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

    /// What is done about probes that have failed.
    #[must_use]
    pub fn mode(&self) -> EnforcementMode {
        self.shared.enforcement.mode()
    }

    /// Switches the enforcement mode. `by` names the client that wants it.
    pub fn set_mode(&self, to: EnforcementMode, by: &str) {
        let from = self.shared.enforcement.set_mode(to);
        let message = format!("From {} to {}, by {by}", from.name(), to.name());
        self.shared.events.log_and_record(Event::warning(reason::ENFORCEMENT_MODE_CHANGED, message));
    }

    /// How kills stand.
    #[must_use]
    pub fn kills(&self) -> KillStats {
        self.shared.enforcement.kills(Instant::now())
    }

    /// How kills of the kubelet's and ours agree.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        self.shared.metrics.agreement()
    }

    /// A kubelet executes a command in a container, without a timeout.
    pub fn on_kubelet_exec_start(&self, container: &str, command: &[String], call: &Weak<CallInfo>) {
        let found = self.shared.lock().pod_of_container(container);
        if let Some((pod, container)) = found {
            pod.lock().hook_begins(&container, command, call);
        }
    }

    /// A kubelet has executed a command in a container, which came to this.
    pub fn on_kubelet_exec_end(&self, container: &str, command: &[String], came_to: &str) {
        let found = self.shared.lock().pod_of_container(container);
        if let Some((pod, container)) = found {
            pod.lock().heard_exec(&container, command, came_to);
        }
    }

    /// What is written of probes is different from now on.
    pub fn set_specs(&self, specs: SpecResolver) {
        let keys: Vec<Arc<str>> = {
            let mut pods = self.shared.lock();
            pods.specs = specs;
            pods.pods.keys().cloned().collect()
        };
        let all_effects: Vec<_> = keys.iter().filter_map(|key| self.shared.refresh(key, false)).collect();
        // Workers that begin together by the hundred are spread, as those are that begin with us.
        let is_crowd = all_effects.iter().map(|(_, effects)| effects.workers_to_start.len()).sum::<usize>()
            > JITTER_THRESHOLD;
        for (pod, mut effects) in all_effects {
            effects.jitter = is_crowd;
            self.shared.apply_effects(&pod, effects);
        }
    }

    /// Somebody has a sandbox or container stopped.
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

    /// Ends all workers.
    pub fn stop(&self) {
        let mut pods = self.shared.lock();
        pods.is_over = true;
        for pod in pods.pods.values().filter_map(|entry| entry.pod.as_ref()) {
            pod.lock().stop_workers();
        }
        pods.pods.clear();
    }

    /// How all pods are that are probed.
    #[must_use]
    pub fn report(&self) -> Vec<PodReport> {
        self.shared.pods().iter().map(|pod| pod.lock().report()).collect()
    }
}

#[cfg(test)]
mod tests;
