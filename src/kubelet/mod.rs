//! The built-in kubelet: runs pods on a container runtime as a kubelet would.
//!
//! ```text
//! manifest_source, client_pods ──► Kubelet ──► PodWorker (one per pod) ──► relay ──► runtime
//!                                               ▲   ▲     │    ▲
//!                                  runtime, pleg┘   │     │    └ cri_config, pod_dir
//!                                        prober ────┘     └──► published_pod ──► admin
//! ```

mod actions;
mod admission;
mod backoff;
mod client_pods;
mod config;
mod context;
mod cri_config;
mod deleted_pods;
mod images;
mod local_image;
mod log_manager;
mod logs;
mod manifest_source;
mod mounting;
mod node;
mod objects;
mod orphans;
mod pleg;
mod pleg_cache;
mod pod_dir;
mod pod_registry;
mod pod_source;
mod pod_status;
mod pod_workers;
mod presence;
mod printer;
mod probe_killed;
mod published_pod;
mod queries;
mod runtime_clients;
mod runtime_state;
mod runtime_status;
mod subpath_mounts;
mod terminated_pods;
mod user_namespaces;
mod worker;
mod workload_status;
mod workload_store;
mod workloads;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::FutureExt as _;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::events::{Event, reason};
use crate::manifest::ConfigObjects;
use crate::manifest::pod::{Pod, PodOrigin};
use crate::object_ref::PodRef;
use crate::probe::{SpecResolver, record_problem};
use crate::state::StateError;
use admission::Admission;
use context::{Stores, WorkerContext};
use log_manager::ContainerLogManager;
use manifest_source::ManifestWatch;
use node::NodeInfo;
use objects::ObjectStore;
use orphans::{Orphans, find_orphans};
use pleg_cache::PlegCache;
use pod_source::{DesiredPods, PodOwner, PodSource, with_pods};
use pod_workers::{PodWorkerHandle, PodWorkers};
use runtime_clients::RuntimeClients;
use runtime_state::RuntimeState;
use worker::{PodWorker, WorkerSignals};
use workloads::ManifestPods;

pub(crate) use client_pods::{ClientActionRecorder, ClientPodStore, Restarter};
pub use client_pods::{ClientPods, ClientPodsSnapshot, PodKey};
pub(crate) use config::{KubeletConfig, KubeletDeps, PodDirs};
pub use logs::LogRotatePolicy;
pub use manifest_source::{ManifestLimits, ManifestSource};
pub use pod_status::{ContainerStatusExt, PodStatusExt};
pub use printer::Summary;
pub use published_pod::{PublishedPod, WorkerPhase};
pub use runtime_status::was_created_after;
pub use workload_status::WorkloadStatus;

/// The built-in kubelet: starts a pod worker for each pod of its source. Clones share it.
#[derive(Clone, Debug)]
pub struct Kubelet {
    context: Arc<WorkerContext>,
    pod_workers: Arc<PodWorkers>,
    spec_updates: Option<mpsc::Sender<SpecResolver>>,
    prune: bool,
    log_rotation: LogRotatePolicy,
}

/// Key of the pod whose worker has ended, and whether nothing of the pod is left.
type WorkerExit = (String, bool);

impl Kubelet {
    /// Creates a kubelet without pods.
    pub(crate) fn new(config: KubeletConfig, deps: KubeletDeps) -> Result<Self, StateError> {
        let KubeletConfig { relay_socket, dirs, paths, prune } = config;
        let KubeletDeps { runtime, executor, internal_calls, prober, events, spec_updates, store } = deps;
        let PodDirs { logs, keep_logs, log_rotation, pods } = dirs;
        let state_dir = store.state.dir().display().to_string();
        let context = WorkerContext {
            runtime: RuntimeClients::new(&relay_socket, &runtime),
            stores: Stores::restore(store.state, &store.snapshot, paths)?,
            node: NodeInfo::detect(logs, keep_logs, pods, state_dir),
            admission: Admission::default(),
            executor,
            prober,
            objects: ObjectStore::default(),
            pleg_cache: PlegCache::default(),
            runtime_state: RuntimeState::default(),
            events,
            internal_calls,
            client_pods: store.client_pods,
        };
        if context.stores.kubelet_presence.is_active() {
            context.record_paused();
        }
        Ok(Self {
            context: Arc::new(context),
            pod_workers: Arc::new(PodWorkers::new()),
            spec_updates,
            prune,
            log_rotation,
        })
    }

    /// Runs the pods and workloads of manifests until `end` is cancelled, then terminates them.
    /// Returns whether nothing is left of the pods that have ended.
    pub(crate) async fn run_manifests(&self, manifests: ManifestWatch, end: CancellationToken) -> bool {
        let pods = ManifestPods::new(manifests, self.context.clone(), self.pod_workers.clone());
        self.run(pods, end).await
    }

    /// Runs the pods of a source until `end` is cancelled, then terminates them if the kubelet owns
    /// them. Returns whether nothing is left of the pods that have ended.
    pub(crate) async fn run<S: PodSource>(&self, mut source: S, end: CancellationToken) -> bool {
        let (mut workers, mut is_clean) = (JoinSet::new(), true);
        let _background = self.start_background(S::OWNER);
        let mut state_errors = self.context.stores.state.write_error();
        let mut orphan_scan = JoinSet::new();
        let desired = source.desired();
        if let Some(specs) = &desired.specs {
            self.set_specs(specs, &desired.pods);
        }
        self.context.objects.replace(desired.objects);
        if S::OWNER == PodOwner::Kubelet {
            self.context.unmount_stale().await;
            self.terminate_all(self.context.stores.registry.pods_to_terminate(&desired.pods), &mut workers);
            orphan_scan.spawn(find_orphans(self.context.clone(), desired.pods.clone()));
        }
        self.set_pods(desired.pods, &mut workers);
        loop {
            tokio::select! {
                () = end.cancelled() => break,
                () = source.changed() => self.apply(source.desired(), &mut workers),
                Some(exit) = workers.join_next() => is_clean &= self.on_worker_exit(exit, &mut workers),
                Some(Ok(orphans)) = orphan_scan.join_next() => self.on_orphans(orphans, &mut workers),
                Ok(()) = state_errors.changed() => self.on_state_error(state_errors.borrow_and_update().as_deref()),
                () = self.pod_workers.terminated.expire_next() => {}
            }
        }
        source.end();
        if S::OWNER == PodOwner::Kubelet {
            self.set_pods(Vec::new(), &mut workers);
            while let Some(exit) = workers.join_next().await {
                is_clean &= self.on_worker_exit(exit, &mut workers);
            }
        }
        is_clean
    }

    /// Starts the background tasks. They end when the returned set is dropped.
    fn start_background(&self, owner: PodOwner) -> JoinSet<()> {
        let mut background = JoinSet::new();
        background.spawn(pleg::run(self.context.clone(), self.pod_workers.clone()));
        if let Some(prober) = &self.context.prober {
            background.spawn(self.clone().follow_probe_results(prober.result_updates()));
        }
        let context = self.context.clone();
        background.spawn(async move { context.stores.images.prune_records(&context.runtime.images).await });
        let context = self.context.clone();
        background.spawn(async move { context.runtime_state.update_forever(&context.runtime.client).await });
        if owner == PodOwner::Kubelet {
            let (context, pod_workers) = (self.context.clone(), self.pod_workers.clone());
            background.spawn(ContainerLogManager::new(context, pod_workers, self.log_rotation).run());
            background.spawn(mounting::report_unreachable(self.context.clone()));
        }
        background
    }

    /// Applies the desired pods of a source.
    fn apply(&self, desired: DesiredPods, workers: &mut JoinSet<WorkerExit>) {
        let DesiredPods { pods, objects, specs } = desired;
        if let Some(specs) = specs {
            self.set_specs(&specs, &pods);
        }
        self.set_objects(&objects);
        self.set_pods(pods, workers);
    }

    /// Passes the probes of the pods, and those of other sources, to the prober and the engine.
    fn set_specs(&self, specs: &SpecResolver, pods: &[Arc<Pod>]) {
        // Pods that are about to terminate are probed until then.
        let running = self.pod_workers.except(pods);
        let specs = with_pods(specs, pods.iter().chain(&running));
        if let Some(prober) = &self.context.prober {
            // The prober knows the specs before there is anything to probe.
            prober.set_specs(specs.clone());
        }
        if let Some(updates) = &self.spec_updates {
            // Fails only if the engine has left 4,096 updates in the queue.
            let _ = updates.try_send(specs);
        }
    }

    /// Wakes the worker of each pod with a probe whose result changes.
    async fn follow_probe_results(self, mut updates: broadcast::Receiver<Arc<PodRef>>) {
        loop {
            match updates.recv().await {
                Ok(pod) => self.wake(&pod),
                Err(RecvError::Lagged(_)) => self.wake_all(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Records an event when a write of the state fails or succeeds again.
    fn on_state_error(&self, reason: Option<&str>) {
        let event = if let Some(reason) = reason {
            let message =
                format!("--state-dir: the state cannot be written, and probeshim retries: {reason}");
            Event::warning(reason::STATE_WRITE_FAILED, message)
        } else {
            Event::normal(reason::STATE_WRITE_RECOVERED, "The state can be written again")
        };
        self.context.events.log_and_record(event);
    }

    /// Terminates orphans with `--prune`, and reports them otherwise.
    fn on_orphans(&self, Orphans { mut running, removed }: Orphans, workers: &mut JoinSet<WorkerExit>) {
        // The source may have added some of these pods since the scan.
        running
            .retain(|pod| !self.pod_workers.lock().values().any(|worker| worker.pod.borrow().uid == pod.uid));
        if self.prune {
            self.terminate_all(running, workers);
        } else {
            for pod in running {
                let (name, uid) = (pod.full_name(), &pod.uid);
                let problem = format!(
                    "pod {name} (uid {uid}) of an earlier run is in no manifest and is left alone; --prune removes it"
                );
                record_problem(&self.context.events, problem);
            }
        }
        // Files of these pods may be left on the host.
        self.terminate_all(removed, workers);
    }

    /// Starts workers that terminate pods of an earlier probeshim.
    fn terminate_all(&self, pods: Vec<Arc<Pod>>, workers: &mut JoinSet<WorkerExit>) {
        for pod in pods {
            let name = pod.key();
            if self.pod_workers.lock().contains_key(&name) {
                continue;
            }
            let worker = self.start_worker(pod, workers);
            worker.request_termination(None);
            self.pod_workers.lock().insert(name, worker);
        }
    }

    /// Sets the objects that pods may refer to. Wakes the workers of pods for which they have
    /// changed.
    fn set_objects(&self, objects: &Arc<ConfigObjects>) {
        let earlier = self.context.objects.replace(objects.clone());
        for worker in self.pod_workers.lock().values() {
            if objects.differ_for(&worker.pod.borrow(), &earlier) {
                worker.signals.sync.notify_one();
            }
        }
    }

    /// Sets the desired pods. Starts, updates and terminates pod workers accordingly.
    fn set_pods(&self, pods: Vec<Arc<Pod>>, workers: &mut JoinSet<WorkerExit>) {
        let mut handles = self.pod_workers.lock();
        let pods = self.pod_workers.deleted.filter(pods);
        let inactive = pod_workers::inactive_pods(&handles);
        self.context.admission.update(&pods, &inactive, &self.context.node);
        let mut desired: BTreeMap<String, Arc<Pod>> = pods.into_iter().map(|pod| (pod.key(), pod)).collect();
        let deleted = desired.values().filter(|pod| pod.deletion.is_some()).map(|pod| pod.uid.as_str());
        self.pod_workers.terminated.retain_deleted(&deleted.collect());
        for (name, worker) in &mut *handles {
            worker.update(desired.remove(name));
        }
        for (name, pod) in desired {
            // Sandboxes and files are found by the pod's uid, so two workers must not have the same
            // one.
            let same_pod = |handle: &&mut PodWorkerHandle| {
                let known = handle.pod.borrow();
                let orphan_of_same_name =
                    known.origin == PodOrigin::Orphan && known.full_name() == pod.full_name();
                !pod.is_client_pod() && (known.uid == pod.uid || orphan_of_same_name)
            };
            let other = handles.values_mut().find(same_pod);
            if let Some(worker) = other {
                worker.successors.push(pod);
            } else if pod.deletion.is_none() || !self.pod_workers.terminated.is_deleted(&pod.uid) {
                let worker = self.start_worker(pod, workers);
                handles.insert(name, worker);
            }
        }
        drop(handles);
        self.pod_workers.changed.send_replace(());
    }

    /// Starts the worker of a pod.
    fn start_worker(&self, pod: Arc<Pod>, workers: &mut JoinSet<WorkerExit>) -> PodWorkerHandle {
        let (name, signals) = (pod.key(), Arc::new(WorkerSignals::default()));
        self.pod_workers.terminated.replace_by(&pod);
        let deletion = pod.deletion;
        let started = match pod.origin {
            PodOrigin::Manifest => self.context.stores.registry.register(&pod),
            PodOrigin::Orphan | PodOrigin::Client { .. } => SystemTime::now(),
        };
        let (published_tx, published_rx) = watch::channel(PublishedPod::new(pod.clone(), started));
        let (pod_tx, pod_rx) = watch::channel(pod);
        let worker = PodWorker::new(self.context.clone(), pod_rx, signals.clone(), published_tx);
        let (mut changes, pod_workers) = (published_rx.clone(), self.pod_workers.clone());
        workers.spawn(async move {
            let mut run = std::pin::pin!(AssertUnwindSafe(worker.run()).catch_unwind());
            loop {
                tokio::select! {
                    ended = &mut run => return (name, ended.unwrap_or(false)),
                    Ok(()) = changes.changed() => pod_workers.changed.send_replace(()),
                }
            }
        });
        let handle =
            PodWorkerHandle { pod: pod_tx, signals, published: published_rx, successors: Vec::new() };
        if let Some(deletion) = deletion {
            handle.request_termination(deletion.grace_period);
        }
        handle
    }

    /// Called when a worker has ended. Starts the successors of its pod. Returns whether nothing of
    /// the pod is left.
    fn on_worker_exit(&self, exit: Result<WorkerExit, JoinError>, workers: &mut JoinSet<WorkerExit>) -> bool {
        let Ok((name, is_gone)) = exit else { return false };
        if !is_gone {
            error!(pod = name, "pod worker ended, but containers or files of its pod are left");
        }
        let mut handles = self.pod_workers.lock();
        if let Some(worker) = handles.remove(&name) {
            let published = worker.published();
            if is_gone && published.pod.origin == PodOrigin::Manifest {
                self.pod_workers.terminated.add(published);
            }
            let successors = worker.successors.into_iter();
            for next in successors.filter(|next| !self.pod_workers.deleted.contains(next)) {
                let name = next.key();
                let handle = self.start_worker(next, workers);
                handles.insert(name, handle);
            }
        }
        drop(handles);
        self.pod_workers.changed.send_replace(());
        is_gone
    }
}

#[cfg(test)]
mod tests;
