//! The RuntimeService.

use std::future::Future;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::Service;
use super::listing::{Streamed, in_batches};
use crate::cri::v1;
use crate::cri::v1::runtime_service_server::RuntimeService;
use crate::procrun::container::{Container, Runner};
use crate::procrun::engine::Engine;
use crate::procrun::refusal::Refusal;
use crate::procrun::sandbox::Sandbox;

type Answer<T> = Result<Response<T>, Status>;

/// The version of the runtime's part of the interface that the kubelet knows.
const KUBELET_API: &str = "0.1.0";

impl Service {
    fn container(&self, id: &str) -> Result<Arc<Container>, Refusal> {
        let found = self.engine.containers.get(id);
        found.map_err(|refusal| refusal.when(format!("an error occurred when try to find container {id:?}")))
    }

    fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Refusal> {
        let found = self.engine.sandboxes.get(id);
        found.map_err(|refusal| refusal.when(format!("an error occurred when try to find sandbox {id:?}")))
    }

    /// Brings what has begun to its end, also where its caller goes meanwhile.
    async fn finish<F>(&self, work: impl FnOnce(Arc<Engine>) -> F) -> Result<(), Status>
    where
        F: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let working = tokio::spawn(work(self.engine.clone()));
        Ok(working.await.map_err(|fault| Status::internal(fault.to_string()))??)
    }

    fn items_of_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        self.engine.list_sandboxes(filter).iter().map(|sandbox| sandbox.item()).collect()
    }

    fn items_of_containers(&self, filter: Option<v1::ContainerFilter>) -> Vec<v1::Container> {
        self.engine.list_containers(filter).iter().map(|container| container.item()).collect()
    }
}

/// Stop and remove succeed where there is nothing left to stop or remove.
fn gone_is_fine<T>(found: Result<T, Refusal>) -> Result<Option<T>, Refusal> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(refusal) if refusal.is_not_found() => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn unimplemented<T>(method: &str, why: &str) -> Answer<T> {
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

    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        Ok(Response::new(v1::VersionResponse {
            version: KUBELET_API.to_owned(),
            runtime_name: crate::cri::PROCRUN.to_owned(),
            runtime_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Answer<v1::RunPodSandboxResponse> {
        let pod_sandbox_id = self.engine.run_sandbox(request.into_inner())?;
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        if let Some(sandbox) = gone_is_fine(self.sandbox(&request.into_inner().pod_sandbox_id))? {
            self.finish(|engine| async move { engine.stop_sandbox(&sandbox).await }).await?;
        }
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        if let Some(sandbox) = gone_is_fine(self.sandbox(&request.into_inner().pod_sandbox_id))? {
            self.finish(|engine| async move { engine.remove_sandbox(&sandbox).await }).await?;
        }
        Ok(Response::new(v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let request = request.into_inner();
        let sandbox = self.engine.sandboxes.get(&request.pod_sandbox_id);
        let sandbox =
            sandbox.map_err(|refusal| refusal.when("an error occurred when try to find sandbox"))?;
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
    ) -> Answer<v1::ListPodSandboxResponse> {
        let items = self.items_of_sandboxes(request.into_inner().filter);
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let items = self.items_of_sandboxes(request.into_inner().filter);
        Ok(in_batches(items, |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes }))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let container = self.engine.create(request.into_inner())?;
        Ok(Response::new(v1::CreateContainerResponse { container_id: container.id.clone() }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answer<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.finish(|engine| engine.start(id)).await?;
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Answer<v1::StopContainerResponse> {
        let request = request.into_inner();
        if let Some(container) = gone_is_fine(self.container(&request.container_id))? {
            // As with containerd, a caller that goes while it waits leaves the container with its signal.
            self.engine.stop(&container, request.timeout).await?;
        }
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        if let Some(container) = gone_is_fine(self.container(&request.into_inner().container_id))? {
            self.finish(|engine| async move { engine.remove(&container).await }).await?;
        }
        Ok(Response::new(v1::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answer<v1::ListContainersResponse> {
        let containers = self.items_of_containers(request.into_inner().filter);
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let containers = self.items_of_containers(request.into_inner().filter);
        Ok(in_batches(containers, |containers| v1::StreamContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        let container = self.container(&request.container_id)?;
        let info = request.verbose.then(|| ("info".to_owned(), container.info())).into_iter().collect();
        Ok(Response::new(v1::ContainerStatusResponse { status: Some(container.status()), info }))
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let container = self.engine.containers.get(&request.container_id);
        let container = container.map_err(|refusal| refusal.when("failed to find container"))?;
        container
            .update_resources(request.linux)
            .map_err(|refusal| refusal.when("failed to update resources"))?;
        Ok(Response::new(v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        let container = self.container(&request.into_inner().container_id)?;
        if !container.stage().is_running() {
            return Err(Refusal::unknown("container is not running").into());
        }
        if let Some(Runner::Processes { log, .. }) = container.runner.get() {
            log.reopen().await?;
        }
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        Ok(Response::new(self.engine.exec_sync(request.into_inner()).await?))
    }

    async fn exec(&self, _: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        unimplemented("Exec", "it serves no streams beside the CRI; use ExecSync (crictl exec -s)")
    }

    async fn attach(&self, _: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        unimplemented("Attach", "it serves no streams beside the CRI; read the container's log")
    }

    async fn port_forward(&self, _: Request<v1::PortForwardRequest>) -> Answer<v1::PortForwardResponse> {
        unimplemented("PortForward", "its containers are on the host's network: connect to 127.0.0.1")
    }

    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        unimplemented("CheckpointContainer", "the processes of its containers cannot be saved")
    }

    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> Answer<v1::ContainerStatsResponse> {
        let container = self.engine.containers.get(&request.into_inner().container_id);
        let container = container.map_err(|refusal| refusal.when("failed to find container"))?;
        let stats = self.stats_of_container(container).await?;
        Ok(Response::new(v1::ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let stats = self.stats_of_containers(request.into_inner().filter).await?;
        Ok(Response::new(v1::ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let stats = self.stats_of_containers(request.into_inner().filter).await?;
        Ok(in_batches(stats, |container_stats| v1::StreamContainerStatsResponse { container_stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let sandbox = self.engine.sandboxes.get(&id);
        let sandbox = sandbox
            .map_err(|refusal| refusal.when(format!("an error occurred when trying to find sandbox {id}")))?;
        let stats = self.stats_of_sandbox(sandbox).await?;
        Ok(Response::new(v1::PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        let stats = self.stats_of_sandboxes(request.into_inner().filter).await?;
        Ok(Response::new(v1::ListPodSandboxStatsResponse { stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let stats = self.stats_of_sandboxes(request.into_inner().filter).await?;
        Ok(in_batches(stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        // The pods' addresses, of which there is only one.
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
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
    ) -> Answer<Self::GetContainerEventsStream> {
        Ok(Response::new(Box::pin(self.engine.events.subscribe())))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        Ok(Response::new(v1::ListMetricDescriptorsResponse::default()))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        Ok(Response::new(v1::ListPodSandboxMetricsResponse::default()))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        Ok(in_batches(Vec::new(), |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse {
            pod_sandbox_metrics,
        }))
    }

    async fn runtime_config(
        &self,
        _: Request<v1::RuntimeConfigRequest>,
    ) -> Answer<v1::RuntimeConfigResponse> {
        // There are no cgroups, but a kubelet wants to know.
        let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: v1::CgroupDriver::Cgroupfs.into() };
        Ok(Response::new(v1::RuntimeConfigResponse { linux: Some(linux) }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.engine.sandboxes.get(&id).map_err(|refusal| refusal.when("failed to find sandbox"))?;
        Ok(Response::new(v1::UpdatePodSandboxResourcesResponse {}))
    }
}
