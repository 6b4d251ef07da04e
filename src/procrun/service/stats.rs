//! Statistics. They are read from /proc and directories on other threads, so that no other call
//! waits.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tonic::Status;

use super::Service;
use crate::cri::v1::{self, ContainerStatsFilter, PodSandboxStatsFilter};
use crate::procrun::container::{ContainerStage, ProcrunContainer};
use crate::procrun::proc_stats::ProcSnapshot;
use crate::procrun::sandbox::ProcrunSandbox;

impl Service {
    pub(super) async fn stats_of_container(
        &self,
        container: Arc<ProcrunContainer>,
    ) -> Result<v1::ContainerStats, Status> {
        run_blocking(move || ProcSnapshot::capture().container_stats(&container)).await
    }

    /// Returns the statistics of the selected containers that have not exited, as in containerd.
    pub(super) async fn stats_of_containers(
        &self,
        filter: Option<ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>, Status> {
        let ContainerStatsFilter { id, pod_sandbox_id, label_selector } = filter.unwrap_or_default();
        let filter = v1::ContainerFilter { id, pod_sandbox_id, label_selector, state: None };
        let mut containers = self.engine.list_containers(Some(filter));
        containers.retain(|container| !matches!(container.stage(), ContainerStage::Exited { .. }));
        run_blocking(move || {
            let snapshot = ProcSnapshot::capture();
            containers.iter().map(|container| snapshot.container_stats(container)).collect()
        })
        .await
    }

    pub(super) async fn stats_of_sandbox(
        &self,
        sandbox: Arc<ProcrunSandbox>,
    ) -> Result<v1::PodSandboxStats, Status> {
        let containers = self.engine.containers_of(&sandbox.id);
        run_blocking(move || ProcSnapshot::capture().sandbox_stats(&sandbox, &containers)).await
    }

    pub(super) async fn stats_of_sandboxes(
        &self,
        filter: Option<PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, Status> {
        let PodSandboxStatsFilter { id, label_selector } = filter.unwrap_or_default();
        let filter = v1::PodSandboxFilter { id, label_selector, state: None };
        let sandboxes = self.engine.list_sandboxes(Some(filter));
        let mut containers: HashMap<String, Vec<Arc<ProcrunContainer>>> = HashMap::new();
        for container in self.engine.containers.select(|_| true) {
            containers.entry(container.sandbox.clone()).or_default().push(container);
        }
        run_blocking(move || {
            let snapshot = ProcSnapshot::capture();
            let none = Vec::new();
            let of = |sandbox: &Arc<ProcrunSandbox>| {
                snapshot.sandbox_stats(sandbox, containers.get(&sandbox.id).unwrap_or(&none))
            };
            sandboxes.iter().map(of).collect()
        })
        .await
    }
}

/// Runs `work`, which may take long, on a thread for blocking work.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    spawn_blocking(work).await.map_err(|fault| Status::internal(fault.to_string()))
}
