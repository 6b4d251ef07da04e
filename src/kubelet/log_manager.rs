//! Rotates the logs of containers (kubelet: `container_log_manager.go`). Runtimes write logs, and
//! never limit them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::sleep;
use tonic::Code;
use tracing::{debug, warn};

use super::context::WorkerContext;
use super::logs::{LogRotatePolicy, RotateError, rotate_if_large};
use super::pod_workers::PodWorkers;
use crate::cri::labels::POD_UID;
use crate::cri::v1::{
    Container, ContainerFilter, ContainerState, ContainerStateValue, ContainerStatusRequest,
    ListContainersRequest, ReopenContainerLogRequest,
};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, with_timeout};

/// Rotates the logs of the containers of managed pods.
#[derive(Debug)]
pub(super) struct ContainerLogManager {
    context: Arc<WorkerContext>,
    pod_workers: Arc<PodWorkers>,
    policy: LogRotatePolicy,
    /// Containers with a failed rotation. The first failure of each was logged.
    failing: HashSet<String>,
}

impl ContainerLogManager {
    pub(super) fn new(
        context: Arc<WorkerContext>,
        pod_workers: Arc<PodWorkers>,
        policy: LogRotatePolicy,
    ) -> Self {
        Self { context, pod_workers, policy, failing: HashSet::new() }
    }

    /// Checks all logs at the monitor interval. Rotates nothing while a kubelet uses the runtime,
    /// because the kubelet rotates the logs of every container.
    pub(super) async fn run(mut self) {
        let Some(max_size) = self.policy.max_size else { return };
        loop {
            if !self.context.stores.kubelet_presence.is_active() {
                self.rotate_logs(max_size).await;
            }
            sleep(self.policy.monitor_interval).await;
        }
    }

    /// Checks the logs of the running containers one after another: the kubelet has one worker by
    /// default.
    async fn rotate_logs(&mut self, max_size: u64) {
        let containers = match self.running_containers().await {
            Ok(containers) => containers,
            Err(error) => {
                debug!(%error, "container log check failed");
                return;
            }
        };
        self.failing.retain(|id| containers.iter().any(|container| container.id == *id));
        for Container { id, .. } in containers {
            match self.process_container(&id, max_size).await {
                Ok(()) => drop(self.failing.remove(&id)),
                // The container was removed after it was listed.
                Err(RotateError::Runtime { status, .. }) if status.code() == Code::NotFound => {}
                Err(error) if self.failing.insert(id.clone()) => {
                    warn!(container = id, %error, "container log rotation failed, retrying");
                }
                Err(error) => debug!(container = id, %error, "container log rotation failed"),
            }
        }
    }

    /// Lists the running containers of managed pods.
    async fn running_containers(&self) -> Result<Vec<Container>, RotateError> {
        let state = Some(ContainerStateValue { state: ContainerState::ContainerRunning.into() });
        let filter = Some(ContainerFilter { state, ..ContainerFilter::default() });
        let mut client = self.context.runtime.client.clone();
        let listed =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, client.list_containers(ListContainersRequest { filter }))
                .await;
        let listed = listed.map_err(|status| RotateError::Runtime { method: "ListContainers", status })?;
        let mut containers = listed.containers;
        let uids: HashSet<String> =
            self.pod_workers.lock().values().map(|worker| worker.pod.borrow().uid.clone()).collect();
        containers.retain(|container| container.labels.get(POD_UID).is_some_and(|uid| uids.contains(uid)));
        Ok(containers)
    }

    async fn process_container(&self, id: &str, max_size: u64) -> Result<(), RotateError> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = with_timeout(
            RUNTIME_REQUEST_TIMEOUT,
            self.context.runtime.client.clone().container_status(request),
        )
        .await;
        let answer = answer.map_err(|status| RotateError::Runtime { method: "ContainerStatus", status })?;
        let path = PathBuf::from(answer.status.unwrap_or_default().log_path);
        let reopen = || async {
            let request = ReopenContainerLogRequest { container_id: id.to_owned() };
            with_timeout(
                RUNTIME_REQUEST_TIMEOUT,
                self.context.runtime.relay_client.clone().reopen_container_log(request),
            )
            .await
            .map(drop)
        };
        let (now, max_files) = (Timestamp::now(), self.policy.max_files);
        if rotate_if_large(&path, max_size, max_files, now, reopen).await? {
            debug!(container = id, path = %path.display(), "container log rotated");
        }
        Ok(())
    }
}
