//! Context that all pod workers share.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use tonic::Status;

use super::admission::Admission;
use super::backoff::Backoff;
use super::client_pods::ClientPods;
use super::images::ImageManager;
use super::node::NodeInfo;
use super::objects::ObjectStore;
use super::pleg_cache::PlegCache;
use super::pod_registry::PodRegistry;
use super::presence::KubeletPresence;
use super::probe_killed::ProbeKilled;
use super::runtime_clients::RuntimeClients;
use super::runtime_state::RuntimeState;
use super::runtime_status::RuntimePodStatus;
use super::subpath_mounts::SubPathMounts;
use super::user_namespaces::UserNamespaces;
use super::workload_store::WorkloadStore;
use crate::events::{Event, EventRecorder, reason};
use crate::handler::Executor;
use crate::manifest::pod::Pod;
use crate::object_ref::{ContainerRef, PodRef};
use crate::prober::ProbeManager;
use crate::state::{Snapshot, StateError, StateStore, StateTable};
use crate::tap::InternalCalls;

/// Context that all pod workers share.
#[derive(Debug)]
pub(super) struct WorkerContext {
    pub(super) runtime: RuntimeClients,
    pub(super) stores: Stores,
    pub(super) node: NodeInfo,
    pub(super) admission: Admission,
    /// Executes probes and hooks, and stops containers.
    pub(super) executor: Executor,
    /// The prober; `None` if no probes are run.
    pub(super) prober: Option<ProbeManager>,
    pub(super) objects: ObjectStore,
    pub(super) pleg_cache: PlegCache,
    pub(super) runtime_state: RuntimeState,
    pub(super) events: Arc<EventRecorder>,
    /// Orders internal calls among the calls of clients.
    pub(super) internal_calls: InternalCalls,
    /// Pods that clients have created.
    pub(super) client_pods: ClientPods,
}

/// Stores whose content outlives the process.
#[derive(Debug)]
pub(super) struct Stores {
    pub(super) state: StateStore,
    pub(super) registry: PodRegistry,
    /// Back-off of restarted containers.
    pub(super) restart_backoff: Backoff,
    pub(super) images: ImageManager,
    pub(super) probe_killed: ProbeKilled,
    pub(super) subpath_mounts: SubPathMounts,
    pub(super) user_namespaces: UserNamespaces,
    pub(super) kubelet_presence: KubeletPresence,
    pub(super) workloads: WorkloadStore,
}

impl Stores {
    /// Restores the stores of an earlier process. `paths`: files and directories of the current
    /// manifests.
    pub(super) fn restore(
        state: StateStore,
        snapshot: &Snapshot,
        paths: BTreeSet<PathBuf>,
    ) -> Result<Self, StateError> {
        Ok(Self {
            registry: PodRegistry::new(snapshot, state.clone(), paths)?,
            restart_backoff: Backoff::restore(snapshot, &state, StateTable::RestartBackoff)?,
            images: ImageManager::restore(snapshot, &state)?,
            probe_killed: ProbeKilled::new(snapshot, state.clone())?,
            subpath_mounts: SubPathMounts::new(snapshot, state.clone())?,
            user_namespaces: UserNamespaces::restore(snapshot, state.clone())?,
            kubelet_presence: KubeletPresence::new(snapshot, state.clone())?,
            workloads: WorkloadStore::restore(snapshot, state.clone())?,
            state,
        })
    }
}

impl WorkerContext {
    /// Reads the status of a pod from the runtime, and updates the PLEG cache.
    pub(super) async fn pod_status(&self, pod: &Pod) -> Result<RuntimePodStatus, Status> {
        let (pod_status, states) = self.runtime.pod_status(pod).await?;
        self.pleg_cache.set(&pod.identity(), states);
        Ok(pod_status)
    }

    /// Records an event about a pod, or about a container of it.
    pub(super) fn record_event(
        &self,
        pod: &Arc<PodRef>,
        container: Option<&Arc<ContainerRef>>,
        event: Event,
    ) {
        self.events.record(match container {
            Some(container) => event.for_container(pod.clone(), container.clone()),
            None => event.for_pod(pod.clone()),
        });
    }

    /// Records and logs that the built-in kubelet is paused.
    pub(super) fn record_paused(&self) {
        let message = "A kubelet uses the runtime: probeshim starts and stops nothing until the kubelet has been gone for a minute";
        self.events.log_and_record(Event::warning(reason::PAUSED_FOR_KUBELET, message));
    }
}
