//! Connections to the runtime, and queries about its pods.

use std::collections::HashMap;

use tokio::sync::OnceCell;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tracing::{debug, warn};

use super::pleg_cache::PodStates;
use super::runtime_status::RuntimePodStatus;
use crate::cri::labels::{POD_UID, STATE_LABEL};
use crate::cri::v1::image_service_client::ImageServiceClient;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::cri::v1::{
    Container, ContainerFilter, ContainerState, ContainerStatusRequest, ListContainersRequest,
    ListPodSandboxRequest, PodSandboxFilter, PodSandboxMetadata, PodSandboxStatusRequest, VersionRequest,
};
use crate::cri::{
    MeteredChannel, MeteredRuntimeClient, PROCRUN_RUNTIME_NAME, RUNTIME_REQUEST_TIMEOUT, RawClient,
    ignore_not_found, image_client, runtime_client, with_timeout,
};
use crate::manifest::pod::{Pod, PodOrigin, identity};
use crate::socket::SocketPath;
use crate::terminal::sanitize;

/// Logs a failed request about all pods. Returns whether it is a warning: that the runtime is
/// unavailable is reported by an event, too.
pub(super) fn log_failure(status: &Status, what: &str) -> bool {
    let message = sanitize(status.message());
    if status.code() == Code::Unavailable {
        debug!("{what}: {message}");
        return false;
    }
    warn!("{what}: {message}");
    true
}

/// Connections to the runtime. Calls that change something pass through the relay, which records
/// them like those of clients. Queries go to the runtime directly.
#[derive(Debug)]
pub(super) struct RuntimeClients {
    pub(super) relay_client: RuntimeServiceClient<Channel>,
    pub(super) images: ImageServiceClient<Channel>,
    /// Client that resends the captured requests of clients with a few fields changed.
    pub(super) raw_client: RawClient,
    pub(super) client: MeteredRuntimeClient,
    /// Socket of the runtime.
    pub(super) socket: SocketPath,
    name: OnceCell<String>,
}

/// Returns the identity of a sandbox's pod.
fn identity_of(metadata: &PodSandboxMetadata) -> String {
    identity(&metadata.namespace, &metadata.name, &metadata.uid)
}

/// Returns whether PLEG reports a container. The kubelet maps the states created and unknown to
/// `plegContainerUnknown`, and sends no event for a change to that state (`pleg/generic.go`:
/// `convertState`, `Relist`).
fn is_relevant(container: &Container) -> bool {
    matches!(container.state(), ContainerState::ContainerRunning | ContainerState::ContainerExited)
}

impl RuntimeClients {
    /// Creates connections to the runtime and to the relay in front of it.
    pub(super) fn new(relay_socket: &SocketPath, runtime: &MeteredChannel) -> Self {
        Self {
            relay_client: runtime_client(relay_socket),
            images: image_client(relay_socket),
            raw_client: RawClient::new(relay_socket),
            client: runtime.client(),
            socket: runtime.socket().clone(),
            name: OnceCell::new(),
        }
    }

    /// Returns the name of the runtime.
    pub(super) async fn name(&self) -> Result<&str, Status> {
        let fetch = || async {
            let mut client = self.client.clone();
            let version =
                with_timeout(RUNTIME_REQUEST_TIMEOUT, client.version(VersionRequest::default())).await?;
            Ok::<_, Status>(version.runtime_name)
        };
        self.name.get_or_try_init(fetch).await.map(String::as_str)
    }

    /// Returns whether the runtime pulls images from a registry. The images of procrun are only
    /// names. A runtime that does not respond may have one.
    pub(super) async fn has_registry(&self) -> bool {
        !self.name().await.is_ok_and(|name| name == PROCRUN_RUNTIME_NAME)
    }

    /// Returns the status of a pod, and the states of its sandboxes and containers.
    pub(super) async fn pod_status(&self, pod: &Pod) -> Result<(RuntimePodStatus, PodStates), Status> {
        let mut client = self.client.clone();
        // The labels of a client's pod are the client's choice.
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
        record.extend(containers.iter().filter(|it| is_relevant(it)).map(|it| (it.id.clone(), it.state)));
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
            let status = status.and_then(|answer| answer.status);
            statuses.extend(status.map(|status| (status, container.pod_sandbox_id)));
        }
        let newest = |id: &str| {
            let containers =
                pod.containers.iter().filter_map(|it| it.client_request.as_ref()?.newest.as_ref());
            containers.chain(pod.newest_sandbox()).any(|newest| **newest == *id)
        };
        Ok((RuntimePodStatus::new(sandbox_statuses, statuses, newest), record))
    }

    /// Returns the states of all sandboxes and containers, by the identities of pods.
    pub(super) async fn list_all(&self) -> Result<HashMap<String, PodStates>, Status> {
        let mut client = self.client.clone();
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
        for container in containers.containers.into_iter().filter(is_relevant) {
            if let Some(pod) = pods.get(&container.pod_sandbox_id) {
                records.entry(pod.clone()).or_default().insert(container.id, container.state);
            }
        }
        Ok(records)
    }

    /// Returns the labels of all sandboxes of pods that ran with the state directory `state`.
    pub(super) async fn list_managed(&self, state: &str) -> Result<Vec<HashMap<String, String>>, Status> {
        let label_selector = HashMap::from([(STATE_LABEL.to_owned(), state.to_owned())]);
        let filter = PodSandboxFilter { label_selector, ..PodSandboxFilter::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let sandboxes =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, self.client.clone().list_pod_sandbox(request)).await?.items;
        Ok(sandboxes.into_iter().map(|sandbox| sandbox.labels).collect())
    }
}
