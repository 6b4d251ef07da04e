//! The RuntimeService.

use std::future::Future;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::Service;
use super::listing::{Streamed, batched_stream};
use crate::cri::v1;
use crate::cri::v1::runtime_service_server::RuntimeService;
use crate::procrun::container::{ContainerBackend, ProcrunContainer};
use crate::procrun::engine::Engine;
use crate::procrun::error::CriError;
use crate::procrun::sandbox::ProcrunSandbox;

type RuntimeAnswer<T> = Result<Response<T>, Status>;

/// Version of the runtime API that the kubelet expects (`kubeRuntimeAPIVersion` in
/// `kuberuntime/kuberuntime_manager.go`).
const KUBELET_API: &str = "0.1.0";

impl Service {
    fn container(&self, id: &str) -> Result<Arc<ProcrunContainer>, CriError> {
        let found = self.engine.containers.get(id);
        found.map_err(|refusal| {
            refusal.context(format!("an error occurred when try to find container {id:?}"))
        })
    }

    fn sandbox(&self, id: &str) -> Result<Arc<ProcrunSandbox>, CriError> {
        let found = self.engine.sandboxes.get(id);
        found.map_err(|refusal| refusal.context(format!("an error occurred when try to find sandbox {id:?}")))
    }

    /// Completes `work` even if the caller disconnects in the meantime.
    async fn finish<F>(&self, work: impl FnOnce(Arc<Engine>) -> F) -> Result<(), Status>
    where
        F: Future<Output = Result<(), CriError>> + Send + 'static,
    {
        let working = tokio::spawn(work(self.engine.clone()));
        Ok(working.await.map_err(|fault| Status::internal(fault.to_string()))??)
    }

    fn sandbox_items(&self, filter: Option<v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        self.engine.list_sandboxes(filter).iter().map(|sandbox| sandbox.item()).collect()
    }

    fn items_of_containers(&self, filter: Option<v1::ContainerFilter>) -> Vec<v1::Container> {
        self.engine.list_containers(filter).iter().map(|container| container.item()).collect()
    }
}

/// Turns the error `NotFound` into `None`, because a stop or removal of a missing object succeeds.
fn ignore_not_found<T>(found: Result<T, CriError>) -> Result<Option<T>, CriError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(refusal) if refusal.is_not_found() => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn unimplemented<T>(method: &str, why: &str) -> RuntimeAnswer<T> {
    Err(Status::unimplemented(format!("procrun has no {method}: {why}")))
}

#[tonic::async_trait]
impl RuntimeService for Service {
    type StreamPodSandboxesStream = Streamed<v1::StreamPodSandboxesResponse>;
    type StreamContainersStream = Streamed<v1::StreamContainersResponse>;
    type StreamContainerStatsStream = Streamed<v1::StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Streamed<v1::StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = Streamed<v1::StreamPodSandboxMetricsResponse>;
    type GetContainerEventsStream = Streamed<v1::ContainerEventResponse>;

    async fn version(&self, _: Request<v1::VersionRequest>) -> RuntimeAnswer<v1::VersionResponse> {
        Ok(Response::new(v1::VersionResponse {
            version: KUBELET_API.to_owned(),
            runtime_name: crate::cri::PROCRUN_RUNTIME_NAME.to_owned(),
            runtime_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> RuntimeAnswer<v1::RunPodSandboxResponse> {
        let pod_sandbox_id = self.engine.run_sandbox(request.into_inner())?;
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> RuntimeAnswer<v1::StopPodSandboxResponse> {
        if let Some(sandbox) = ignore_not_found(self.sandbox(&request.into_inner().pod_sandbox_id))? {
            self.finish(|engine| async move { engine.stop_sandbox(&sandbox).await }).await?;
        }
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> RuntimeAnswer<v1::RemovePodSandboxResponse> {
        if let Some(sandbox) = ignore_not_found(self.sandbox(&request.into_inner().pod_sandbox_id))? {
            self.finish(|engine| async move { engine.remove_sandbox(&sandbox).await }).await?;
        }
        Ok(Response::new(v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> RuntimeAnswer<v1::PodSandboxStatusResponse> {
        let request = request.into_inner();
        let sandbox = self.engine.sandboxes.get(&request.pod_sandbox_id);
        let sandbox =
            sandbox.map_err(|refusal| refusal.context("an error occurred when try to find sandbox"))?;
        let containers = self.engine.containers_of(&sandbox.id);
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status: Some(sandbox.status()),
            info: [].into(),
            containers_statuses: containers.iter().map(|container| container.status()).collect(),
            timestamp: crate::procrun::clock::now(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> RuntimeAnswer<v1::ListPodSandboxResponse> {
        let items = self.sandbox_items(request.into_inner().filter);
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> RuntimeAnswer<Self::StreamPodSandboxesStream> {
        let items = self.sandbox_items(request.into_inner().filter);
        Ok(batched_stream(items, |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes }))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> RuntimeAnswer<v1::CreateContainerResponse> {
        let container = self.engine.create(request.into_inner())?;
        Ok(Response::new(v1::CreateContainerResponse { container_id: container.id.clone() }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> RuntimeAnswer<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.finish(|engine| engine.start(id)).await?;
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> RuntimeAnswer<v1::StopContainerResponse> {
        let request = request.into_inner();
        if let Some(container) = ignore_not_found(self.container(&request.container_id))? {
            // If the caller disconnects during the wait, the container keeps running with its stop
            // signal sent, as in containerd.
            self.engine.stop(&container, request.timeout).await?;
        }
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> RuntimeAnswer<v1::RemoveContainerResponse> {
        if let Some(container) = ignore_not_found(self.container(&request.into_inner().container_id))? {
            self.finish(|engine| async move { engine.remove(&container).await }).await?;
        }
        Ok(Response::new(v1::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> RuntimeAnswer<v1::ListContainersResponse> {
        let containers = self.items_of_containers(request.into_inner().filter);
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> RuntimeAnswer<Self::StreamContainersStream> {
        let containers = self.items_of_containers(request.into_inner().filter);
        Ok(batched_stream(containers, |containers| v1::StreamContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> RuntimeAnswer<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        let container = self.container(&request.container_id)?;
        let info = request.verbose.then(|| ("info".to_owned(), container.info())).into_iter().collect();
        Ok(Response::new(v1::ContainerStatusResponse { status: Some(container.status()), info }))
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> RuntimeAnswer<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let container = self.engine.containers.get(&request.container_id);
        let container = container.map_err(|refusal| refusal.context("failed to find container"))?;
        container
            .update_resources(request.linux)
            .map_err(|refusal| refusal.context("failed to update resources"))?;
        Ok(Response::new(v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> RuntimeAnswer<v1::ReopenContainerLogResponse> {
        let container = self.container(&request.into_inner().container_id)?;
        if !container.stage().is_running() {
            return Err(CriError::unknown("container is not running").into());
        }
        if let Some(ContainerBackend::Processes { log, .. }) = container.backend.get() {
            log.reopen().await?;
        }
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> RuntimeAnswer<v1::ExecSyncResponse> {
        Ok(Response::new(self.engine.exec_sync(request.into_inner()).await?))
    }

    async fn exec(&self, _: Request<v1::ExecRequest>) -> RuntimeAnswer<v1::ExecResponse> {
        unimplemented("Exec", "it has no streaming server; use ExecSync (crictl exec -s)")
    }

    async fn attach(&self, _: Request<v1::AttachRequest>) -> RuntimeAnswer<v1::AttachResponse> {
        unimplemented("Attach", "it has no streaming server; read the container's log")
    }

    async fn port_forward(
        &self,
        _: Request<v1::PortForwardRequest>,
    ) -> RuntimeAnswer<v1::PortForwardResponse> {
        unimplemented("PortForward", "its containers are on the host's network: connect to 127.0.0.1")
    }

    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> RuntimeAnswer<v1::CheckpointContainerResponse> {
        unimplemented("CheckpointContainer", "the processes of its containers cannot be saved")
    }

    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> RuntimeAnswer<v1::ContainerStatsResponse> {
        let container = self.engine.containers.get(&request.into_inner().container_id);
        let container = container.map_err(|refusal| refusal.context("failed to find container"))?;
        let stats = self.stats_of_container(container).await?;
        Ok(Response::new(v1::ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> RuntimeAnswer<v1::ListContainerStatsResponse> {
        let stats = self.stats_of_containers(request.into_inner().filter).await?;
        Ok(Response::new(v1::ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> RuntimeAnswer<Self::StreamContainerStatsStream> {
        let stats = self.stats_of_containers(request.into_inner().filter).await?;
        Ok(batched_stream(stats, |container_stats| v1::StreamContainerStatsResponse { container_stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> RuntimeAnswer<v1::PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let sandbox = self.engine.sandboxes.get(&id);
        let sandbox = sandbox.map_err(|refusal| {
            refusal.context(format!("an error occurred when trying to find sandbox {id}"))
        })?;
        let stats = self.stats_of_sandbox(sandbox).await?;
        Ok(Response::new(v1::PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> RuntimeAnswer<v1::ListPodSandboxStatsResponse> {
        let stats = self.stats_of_sandboxes(request.into_inner().filter).await?;
        Ok(Response::new(v1::ListPodSandboxStatsResponse { stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> RuntimeAnswer<Self::StreamPodSandboxStatsStream> {
        let stats = self.stats_of_sandboxes(request.into_inner().filter).await?;
        Ok(batched_stream(stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> RuntimeAnswer<v1::UpdateRuntimeConfigResponse> {
        // The config has only the pods' address range, but all pods have one address.
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> RuntimeAnswer<v1::StatusResponse> {
        let ready = |kind: &str| v1::RuntimeCondition {
            r#type: kind.to_owned(),
            status: true,
            ..v1::RuntimeCondition::default()
        };
        let conditions = vec![ready("RuntimeReady"), ready("NetworkReady")];
        Ok(Response::new(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            runtime_handlers: vec![v1::RuntimeHandler::default()],
            ..v1::StatusResponse::default()
        }))
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> RuntimeAnswer<Self::GetContainerEventsStream> {
        Ok(Response::new(Box::pin(self.engine.events.subscribe())))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> RuntimeAnswer<v1::ListMetricDescriptorsResponse> {
        Ok(Response::new(v1::ListMetricDescriptorsResponse::default()))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> RuntimeAnswer<v1::ListPodSandboxMetricsResponse> {
        Ok(Response::new(v1::ListPodSandboxMetricsResponse::default()))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> RuntimeAnswer<Self::StreamPodSandboxMetricsStream> {
        Ok(batched_stream(Vec::new(), |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse {
            pod_sandbox_metrics,
        }))
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> RuntimeAnswer<v1::RuntimeConfigResponse> {
        // procrun uses no cgroups, but a kubelet queries the driver.
        let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: v1::CgroupDriver::Cgroupfs.into() };
        Ok(Response::new(v1::RuntimeConfigResponse { linux: Some(linux) }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> RuntimeAnswer<v1::UpdatePodSandboxResourcesResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.engine.sandboxes.get(&id).map_err(|refusal| refusal.context("failed to find sandbox"))?;
        Ok(Response::new(v1::UpdatePodSandboxResourcesResponse {}))
    }
}
