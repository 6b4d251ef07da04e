//! What pods are played with: the runtime, the prober, the node, and what is remembered of failures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use tonic::Status;
use tonic::transport::Channel;
use tracing::warn;

use super::backoff::Backoff;
use super::client_pods::ClientPods;
use super::node::NodeInfo;
use super::objects::ObjectStore;
use super::pod_registry::PodRegistry;
use super::presence::KubeletPresence;
use super::probe_killed::ProbeKilled;
use super::runtime_status::RuntimePodStatus;
use super::subpath_mounts::SubPathMounts;
use crate::cri::labels::{POD_UID, STATE_LABEL};
use crate::cri::v1::image_service_client::ImageServiceClient;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::cri::v1::{
    ContainerFilter, ContainerStatusRequest, ListContainersRequest, ListPodSandboxRequest, PodSandboxFilter,
    PodSandboxMetadata, PodSandboxStatusRequest, StatusRequest, VersionRequest,
};
use crate::cri::{MeteredRuntimeClient, RUNTIME_REQUEST_TIMEOUT, RawClient, ignore_not_found, with_timeout};
use crate::events::{Event, EventRecorder, reason};
use crate::handler::Executor;
use crate::manifest::pod::{Pod, PodOrigin, identity};
use crate::object_ref::{ContainerRef, PodRef};
use crate::prober::ProbeManager;
use crate::socket::SocketPath;
use crate::state::StateStore;
use crate::tap::InternalCalls;

/// What pods are played with.
#[derive(Debug)]
pub(super) struct WorkerContext {
    /// For what is done: it is seen as what any client does.
    pub(super) relay_client: RuntimeServiceClient<Channel>,
    pub(super) images: ImageServiceClient<Channel>,
    /// For what is asked in the words of others.
    pub(super) raw_client: RawClient,
    /// For what is asked.
    pub(super) runtime_client: MeteredRuntimeClient,
    /// Socket of the runtime.
    pub(super) upstream: SocketPath,
    /// For what is executed and stopped.
    pub(super) executor: Executor,
    /// The prober; `None` if no probes are made.
    pub(super) prober: Option<ProbeManager>,
    pub(super) node: NodeInfo,
    /// For containers that end, and for images that are not to be had.
    pub(super) restart_backoff: Backoff,
    pub(super) image_backoff: Backoff,
    /// What outlives us.
    pub(super) state: StateStore,
    pub(super) registry: PodRegistry,
    pub(super) objects: ObjectStore,
    pub(super) probe_killed: ProbeKilled,
    pub(super) subpath_mounts: SubPathMounts,
    pub(super) events: Arc<EventRecorder>,
    /// Knows what clients have done.
    pub(super) internal_calls: InternalCalls,
    pub(super) runtime_name: OnceCell<String>,
    pub(super) pleg_cache: PlegCache,
    pub(super) kubelet: KubeletPresence,
    /// Knows what clients have made.
    pub(super) client_pods: ClientPods,
}

/// The identity of the pod that a sandbox is made for.
fn identity_of(metadata: &PodSandboxMetadata) -> String {
    identity(&metadata.namespace, &metadata.name, &metadata.uid)
}

/// What was seen last of the containers and sandboxes of each pod, by its identity: their states, by their ids.
#[derive(Debug, Default)]
pub(super) struct PlegCache(Mutex<HashMap<String, PodStates>>);

/// Of one pod.
pub(super) type PodStates = HashMap<String, i32>;

impl PlegCache {
    /// Takes what is seen of a pod. Tells whether it is anything new.
    pub(super) fn set(&self, pod: &str, record: PodStates) -> bool {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = records.get(pod) != Some(&record);
        if is_new {
            records.insert(pod.to_owned(), record);
        }
        is_new
    }

    /// Whether the runtime has ever told of a pod, be it that there is nothing of it.
    pub(super) fn knows(&self, pod: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(pod)
    }

    pub(super) fn forget(&self, pod: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(pod);
    }
}

impl WorkerContext {
    /// What the runtime calls itself.
    pub(super) async fn runtime_name(&self) -> Result<&str, Status> {
        let fetch = || async {
            let mut client = self.runtime_client.clone();
            let version =
                with_timeout(RUNTIME_REQUEST_TIMEOUT, client.version(VersionRequest::default())).await?;
            Ok::<_, Status>(version.runtime_name)
        };
        self.runtime_name.get_or_try_init(fetch).await.map(String::as_str)
    }

    /// Whether this handler of the runtime can make a mount read-only with all that is mounted below it.
    pub(super) async fn supports_rro(&self, handler: &str) -> Result<bool, Status> {
        let status = with_timeout(
            RUNTIME_REQUEST_TIMEOUT,
            self.runtime_client.clone().status(StatusRequest::default()),
        )
        .await?;
        let supported = status.runtime_handlers.into_iter().find(|supported| supported.name == handler);
        Ok(supported.and_then(|supported| supported.features).is_some_and(|it| it.recursive_read_only_mounts))
    }

    /// What the runtime says of a pod.
    pub(super) async fn pod_status(&self, pod: &Pod) -> Result<RuntimePodStatus, Status> {
        let mut client = self.runtime_client.clone();
        // Clients label their pods as they like.
        let label_selector = || match pod.origin {
            PodOrigin::Client { .. } => HashMap::new(),
            PodOrigin::Manifest | PodOrigin::Orphan => HashMap::from([(POD_UID.to_owned(), pod.uid.clone())]),
        };
        let filter = PodSandboxFilter { label_selector: label_selector(), ..PodSandboxFilter::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let mut sandboxes =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, client.list_pod_sandbox(request)).await?.items;
        let filter = ContainerFilter { label_selector: label_selector(), ..ContainerFilter::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        let mut containers =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, client.list_containers(request)).await?.containers;
        if pod.is_client_pod() {
            let identity = pod.identity();
            sandboxes.retain(|it| it.metadata.as_ref().is_some_and(|it| identity_of(it) == identity));
            containers.retain(|it| sandboxes.iter().any(|sandbox| sandbox.id == it.pod_sandbox_id));
        }
        let mut record: PodStates = sandboxes.iter().map(|it| (it.id.clone(), it.state)).collect();
        record.extend(containers.iter().map(|it| (it.id.clone(), it.state)));
        let mut sandbox_statuses = Vec::new();
        for sandbox in sandboxes {
            let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone(), verbose: false };
            let status = ignore_not_found(
                with_timeout(RUNTIME_REQUEST_TIMEOUT, client.pod_sandbox_status(request)).await,
            )?;
            let is_empty = containers.iter().all(|container| container.pod_sandbox_id != sandbox.id);
            sandbox_statuses.extend(status.and_then(|answer| answer.status).map(|status| (status, is_empty)));
        }
        let mut statuses = Vec::new();
        for container in containers {
            let request = ContainerStatusRequest { container_id: container.id, verbose: false };
            let status = ignore_not_found(
                with_timeout(RUNTIME_REQUEST_TIMEOUT, client.container_status(request)).await,
            )?;
            statuses.extend(status.and_then(|answer| answer.status));
        }
        self.pleg_cache.set(&pod.identity(), record);
        let newest = |id: &str| {
            let containers =
                pod.containers.iter().filter_map(|it| it.client_request.as_ref()?.newest.as_ref());
            containers.chain(pod.newest_sandbox()).any(|newest| **newest == *id)
        };
        Ok(RuntimePodStatus::new(sandbox_statuses, statuses, newest))
    }

    /// Everything on the node, by the identities of pods.
    pub(super) async fn list_all(&self) -> Result<HashMap<String, PodStates>, Status> {
        let mut client = self.runtime_client.clone();
        let sandboxes =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, client.list_pod_sandbox(ListPodSandboxRequest::default()))
                .await?
                .items;
        let containers =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, client.list_containers(ListContainersRequest::default()))
                .await?;
        let (mut records, mut pods) = (HashMap::<String, PodStates>::new(), HashMap::new());
        for sandbox in sandboxes {
            let pod = sandbox.metadata.as_ref().map(identity_of).unwrap_or_default();
            records.entry(pod.clone()).or_default().insert(sandbox.id.clone(), sandbox.state);
            pods.insert(sandbox.id, pod);
        }
        for container in containers.containers {
            if let Some(pod) = pods.get(&container.pod_sandbox_id) {
                records.entry(pod.clone()).or_default().insert(container.id, container.state);
            }
        }
        Ok(records)
    }

    /// The labels of all sandboxes of pods that were played with this state.
    pub(super) async fn list_managed(&self) -> Result<Vec<HashMap<String, String>>, Status> {
        let label_selector = HashMap::from([(STATE_LABEL.to_owned(), self.node.state.clone())]);
        let filter = PodSandboxFilter { label_selector, ..PodSandboxFilter::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let sandboxes =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, self.runtime_client.clone().list_pod_sandbox(request))
                .await?
                .items;
        Ok(sandboxes.into_iter().map(|sandbox| sandbox.labels).collect())
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

    /// Records and logs that the kubelet is paused.
    pub(super) fn record_paused(&self) {
        let message = "A kubelet uses the runtime: probeshim starts and ends nothing until the kubelet has been gone for a minute";
        warn!("{message}");
        self.events.record(Event::warning(reason::PAUSED_FOR_KUBELET, message));
    }
}
