//! Rotation of container logs, as by the kubelet's container log manager: runtimes write them, and never limit them.

mod directory;
mod policy;

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tonic::{Code, Status};
use tracing::{debug, warn};

use super::context::WorkerContext;
use super::pod_workers::PodWorkers;
use crate::cri::labels::POD_UID;
use crate::cri::v1::{
    Container, ContainerFilter, ContainerState, ContainerStateValue, ContainerStatusRequest,
    ListContainersRequest, ReopenContainerLogRequest,
};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, with_timeout};
use crate::terminal::sanitize;
use directory::LogDirectory;

pub use policy::LogRotatePolicy;

/// Form of the time in the name of a rotated log, in UTC.
const TIMESTAMP_FORMAT: &str = "%Y%m%d-%H%M%S";

/// Rotates the logs of the containers of played pods.
#[derive(Debug)]
pub(super) struct ContainerLogManager {
    context: Arc<WorkerContext>,
    pod_workers: Arc<PodWorkers>,
    policy: LogRotatePolicy,
    /// Containers whose logs could not be rotated the last time, which was logged.
    failing: HashSet<String>,
}

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
enum RotateError {
    /// An operation on a file failed.
    #[error("cannot {action}: {source}")]
    File {
        /// The action that failed.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The runtime refused something.
    #[error("{method}: {}", sanitize(status.message()))]
    Runtime {
        /// The call.
        method: &'static str,
        /// The answer.
        status: Status,
    },
    /// The log was moved aside, the runtime refused to open it again, and it could not be moved back.
    #[error("ReopenContainerLog: {}, and the log keeps its rotated name: {source}", sanitize(status.message()))]
    NotRestored {
        /// The answer of the runtime.
        status: Status,
        /// The reason.
        source: io::Error,
    },
}

impl ContainerLogManager {
    pub(super) fn new(
        context: Arc<WorkerContext>,
        pod_workers: Arc<PodWorkers>,
        policy: LogRotatePolicy,
    ) -> Self {
        Self { context, pod_workers, policy, failing: HashSet::new() }
    }

    /// Checks all logs again and again. Beside a kubelet nothing is rotated: it rotates the logs of every container.
    pub(super) async fn run(mut self) {
        let Some(max_size) = self.policy.max_size else { return };
        loop {
            if !self.context.stores.kubelet_presence.is_active() {
                self.rotate_logs(max_size).await;
            }
            sleep(self.policy.monitor_interval).await;
        }
    }

    /// Checks the log of each running container, one after the other: the kubelet has one worker by default.
    async fn rotate_logs(&mut self, max_size: u64) {
        let containers = match self.running_containers().await {
            Ok(containers) => containers,
            Err(error) => {
                debug!(%error, "the logs of containers were not checked");
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
                    warn!(container = id, %error, "a container's log was not rotated, and is tried again");
                }
                Err(error) => debug!(container = id, %error, "a container's log was not rotated"),
            }
        }
    }

    /// Lists the running containers of the pods that are played.
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
        if rotate_if_large(&path, (max_size, max_files), now, reopen).await? {
            debug!(container = id, path = %path.display(), "a container's log was rotated");
        }
        Ok(())
    }
}

/// Rotates the log at `path` if it has reached `max_size`, so that at most `max_files` are there. `reopen` makes the runtime open the path
/// again. Tells whether the log was rotated.
async fn rotate_if_large<F>(
    path: &Path,
    (max_size, max_files): (u64, usize),
    now: Timestamp,
    reopen: impl Fn() -> F,
) -> Result<bool, RotateError>
where
    F: Future<Output = Result<(), Status>>,
{
    let checked = path.to_owned();
    let open = move || LogDirectory::open(&checked).and_then(|log| Ok((log.size()?, log)));
    let size = match run_blocking("find the log", open.clone()).await {
        // An earlier rotation was interrupted before the runtime had opened the path again.
        Err(RotateError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let reopened = reopen().await;
            reopened.map_err(|status| RotateError::Runtime { method: "ReopenContainerLog", status })?;
            run_blocking("find the log after it was reopened", open).await
        }
        found => found,
    };
    let (size, log) = size?;
    if size < max_size {
        return Ok(false);
    }
    let log = Arc::new(log);
    let (files, suffix) = (log.clone(), now.strftime(TIMESTAMP_FORMAT).to_string());
    run_blocking("remove or compress earlier logs", move || files.make_room(max_files)).await?;
    let (files, aside) = (log.clone(), suffix.clone());
    run_blocking("rename the log", move || files.set_aside(&aside)).await?;
    match reopen().await {
        Ok(()) => Ok(true),
        // The next check tries again.
        Err(status) => match run_blocking("rename the log back", move || log.restore(&suffix)).await {
            Ok(()) => Err(RotateError::Runtime { method: "ReopenContainerLog", status }),
            Err(RotateError::File { source, .. }) => Err(RotateError::NotRestored { status, source }),
            Err(other) => Err(other),
        },
    }
}

/// Removes the log at `path` with everything that was rotated. A log that was never written is none.
pub(super) async fn remove_log(path: PathBuf) {
    let removed = spawn_blocking(move || match LogDirectory::open(&path).and_then(|log| log.remove_all()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            debug!(path = %path.display(), %error, "a container's log was not removed");
        }
        _ => {}
    });
    // A panic was logged, and the log goes with the pod.
    let _ = removed.await;
}

/// Runs a file operation on a thread for blocking work.
async fn run_blocking<T: Send + 'static>(
    action: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, RotateError> {
    let done = spawn_blocking(work).await.unwrap_or_else(|fault| Err(io::Error::other(fault)));
    done.map_err(|source| RotateError::File { action, source })
}

#[cfg(test)]
mod tests;
