//! Usage figures. What is read from /proc and from folders is read beside the calls that others wait for.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tonic::Status;

use super::Service;
use crate::cri::v1::{self, ContainerStatsFilter, PodSandboxStatsFilter};
use crate::procrun::container::{Container, Stage};
use crate::procrun::sandbox::Sandbox;
use crate::procrun::usage::Snapshot;

impl Service {
    pub(super) async fn stats_of_container(
        &self,
        container: Arc<Container>,
    ) -> Result<v1::ContainerStats, Status> {
        aside(move || Snapshot::take().of_container(&container)).await
    }

    /// The figures of containers that have not ended, as with containerd.
    pub(super) async fn stats_of_containers(
        &self,
        filter: Option<ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>, Status> {
        let ContainerStatsFilter { id, pod_sandbox_id, label_selector } = filter.unwrap_or_default();
        let filter = v1::ContainerFilter { id, pod_sandbox_id, label_selector, state: None };
        let mut containers = self.engine.list_containers(Some(filter));
        containers.retain(|container| !matches!(container.stage(), Stage::Exited { .. }));
        aside(move || {
            let snapshot = Snapshot::take();
            containers.iter().map(|container| snapshot.of_container(container)).collect()
        })
        .await
    }

    pub(super) async fn stats_of_sandbox(
        &self,
        sandbox: Arc<Sandbox>,
    ) -> Result<v1::PodSandboxStats, Status> {
        let containers = self.engine.containers_of(&sandbox.id);
        aside(move || Snapshot::take().of_sandbox(&sandbox, &containers)).await
    }

    pub(super) async fn stats_of_sandboxes(
        &self,
        filter: Option<PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, Status> {
        let PodSandboxStatsFilter { id, label_selector } = filter.unwrap_or_default();
        let filter = v1::PodSandboxFilter { id, label_selector, state: None };
        let sandboxes = self.engine.list_sandboxes(Some(filter));
        let mut containers: HashMap<String, Vec<Arc<Container>>> = HashMap::new();
        for container in self.engine.containers.select(|_| true) {
            containers.entry(container.sandbox.clone()).or_default().push(container);
        }
        aside(move || {
            let snapshot = Snapshot::take();
            let none = Vec::new();
            let of = |sandbox: &Arc<Sandbox>| {
                snapshot.of_sandbox(sandbox, containers.get(&sandbox.id).unwrap_or(&none))
            };
            sandboxes.iter().map(of).collect()
        })
        .await
    }
}

/// Does what may take long on a thread for such work.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    spawn_blocking(work).await.map_err(|fault| Status::internal(fault.to_string()))
}
