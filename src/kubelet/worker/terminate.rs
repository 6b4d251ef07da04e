//! Terminates a pod, and removes everything of it.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tracing::warn;

use super::kill::GracePeriodRules;
use super::{PodWorker, SyncError, TERMINATION_RETRY};
use crate::cri::v1::RemovePodSandboxRequest;
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, ignore_not_found, with_timeout};
use crate::events::{Event, reason};
use crate::kubelet::cri_config;
use crate::kubelet::pod_dir::remove_log_directory;
use crate::kubelet::published_pod::{PublishedPod, WorkerPhase};
use crate::kubelet::runtime_status::RuntimePodStatus;
use crate::terminal::sanitize;

/// Minimum grace period of a pod that is deleted, in seconds. It is not 0, so that preStop hooks
/// always run.
const MIN_TERMINATION_GRACE: u32 = 1;

/// Timeout of each part of a forced removal: that from the runtime, and that of the files.
const FORCED_REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval between attempts to remove the files in a forced removal.
const HURRIED_RETRY: Duration = Duration::from_millis(100);

/// Maximum number of attempts to remove the files, or the log directory, of a pod.
const REMOVE_ATTEMPTS: usize = 5;

impl PodWorker {
    /// Terminates the pod, and removes it once it is no longer desired. Until then, a restart of
    /// probeshim continues with the pod that has ended. Returns whether nothing of the pod is left.
    pub(super) async fn end(&self) -> bool {
        let terminate = async {
            self.terminate().await;
            self.published.send_modify(PublishedPod::finish);
        };
        tokio::join!(self.record_termination(), terminate);
        self.cleanup().await
    }

    /// Waits until the termination of the pod is requested, and records it, so that the next
    /// probeshim finishes it if this one is killed.
    pub(super) async fn record_termination(&self) {
        self.signals.terminate.cancelled().await;
        self.context.stores.registry.mark_terminating(&self.pod.uid);
    }

    /// Stops all containers and sandboxes of the pod, and retries until that succeeds. Returns
    /// early if the termination is forced, or if the runtime never created anything of the pod.
    async fn terminate(&self) {
        if let Some(prober) = &self.context.prober {
            prober.stop_liveness_and_startup(&self.names);
        }
        self.published.send_modify(|published| published.phase = WorkerPhase::Terminating);
        let force = self.signals.force.clone();
        let mut grace_periods = self.signals.grace_periods();
        loop {
            let grace_period = *grace_periods.borrow_and_update();
            let ended = tokio::select! {
                ended = self.try_terminate(grace_period) => ended,
                // The containers are stopped again, with the shorter period.
                Ok(()) = grace_periods.changed() => continue,
                () = force.cancelled() => return,
            };
            let Err(error) = ended else { return };
            if self.never_created() {
                return;
            }
            warn!(pod = self.pod.full_name(), "pod termination failed: {error}");
            self.record_event(
                None,
                Event::warning(reason::FAILED_KILL_POD, format!("error killing pod: {error}")),
            );
            tokio::select! {
                () = sleep(TERMINATION_RETRY) => {}
                () = force.cancelled() => return,
            }
        }
    }

    async fn try_terminate(&self, grace_period: Option<u32>) -> Result<(), SyncError> {
        let runtime_status = self.context.pod_status(&self.pod).await?;
        if self.last_status().0.is_none() {
            // Hooks may connect to the pod's address, which comes from the status.
            self.update_status(&runtime_status, None, false).await?;
        }
        let grace = GracePeriodRules { override_seconds: grace_period, minimum: MIN_TERMINATION_GRACE };
        self.run_publishing_status(&runtime_status, self.kill_all(&runtime_status, grace)).await?;
        let runtime_status = self.context.pod_status(&self.pod).await?;
        self.release_subpaths(&runtime_status).await;
        let report = self.context.prober.as_ref().and_then(|prober| prober.update_pod_status(&self.names));
        self.update_status(&runtime_status, report.as_ref(), true).await?;
        if let Some(prober) = &self.context.prober {
            prober.remove_pod(&self.names);
        }
        Ok(())
    }

    /// Removes everything of the pod, and retries until that succeeds. Once `force` is cancelled,
    /// it tries once more, within a limit. Returns whether nothing of the pod is left.
    pub(super) async fn cleanup(&self) -> bool {
        let patient = async {
            while let Err(status) = self.remove_from_runtime().await {
                warn!(pod = self.pod.full_name(), "pod removal failed: {}", sanitize(status.message()));
                sleep(TERMINATION_RETRY).await;
            }
            let mut is_logged = false;
            while let Err(error) = self.remove_files().await {
                if !is_logged {
                    let (pod, error) = (self.pod.full_name(), sanitize(&error));
                    warn!(pod, "removal of a pod's files failed and is retried: {error}");
                }
                is_logged = true;
                sleep(TERMINATION_RETRY).await;
            }
        };
        // The `select!` drops the first removal before the forced one starts. Two concurrent
        // removals would interfere with each other.
        let is_gone = tokio::select! {
            () = patient => true,
            () = self.signals.force.cancelled() => false,
        } || self.remove_forcibly().await;
        self.forget();
        if is_gone {
            self.context.stores.user_namespaces.release(&self.pod.uid);
            self.context.stores.registry.forget(&self.pod.uid);
        }
        is_gone
    }

    /// Removes everything of the pod within a time limit. Returns whether nothing is left.
    async fn remove_forcibly(&self) -> bool {
        let is_removed =
            matches!(timeout(FORCED_REMOVAL_TIMEOUT, self.remove_from_runtime()).await, Ok(Ok(())));
        let remove_files = async {
            // The blocking task of a cancelled removal may still run.
            for _ in 0..REMOVE_ATTEMPTS {
                if self.remove_files().await.is_ok() {
                    return true;
                }
                sleep(HURRIED_RETRY).await;
            }
            false
        };
        timeout(FORCED_REMOVAL_TIMEOUT, remove_files).await.unwrap_or(false) && is_removed
    }

    /// Removes the pod from the prober and from the PLEG cache.
    fn forget(&self) {
        if let Some(prober) = &self.context.prober {
            prober.remove_pod(&self.names);
        }
        self.context.pleg_cache.forget(&self.pod.identity());
    }

    /// Whether nothing of the pod can exist: the runtime has never answered, and no earlier
    /// probeshim ran the pod.
    fn never_created(&self) -> bool {
        !self.context.pleg_cache.knows(&self.pod.identity())
            && self.context.stores.registry.is_new(&self.pod.uid)
    }

    /// Removes the files of the pod, and its logs unless they are kept. Fails with the reason.
    async fn remove_files(&self) -> Result<(), String> {
        let node = &self.context.node;
        let logs = (!node.keep_logs).then(|| (node.logs.clone(), cri_config::log_dir(&self.pod, &node.logs)));
        let dir = self.dir.clone();
        let removed = spawn_blocking(move || {
            let removed = dir.remove();
            if let Some((logs, container_logs)) = logs {
                remove_logs(&logs, &container_logs);
            }
            removed
        });
        removed.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        self.context.stores.subpath_mounts.forget(|owner| owner.uid == self.pod.uid);
        Ok(())
    }

    /// Removes the pod from the runtime, until the runtime lists nothing of it. An object whose
    /// creation was in flight when the termination began may appear later.
    async fn remove_from_runtime(&self) -> Result<(), Status> {
        if self.never_created() {
            return Ok(());
        }
        loop {
            let runtime_status = self.context.pod_status(&self.pod).await?;
            if runtime_status.containers.is_empty() && runtime_status.sandboxes.is_empty() {
                self.forget();
                return Ok(());
            }
            self.remove_all(&runtime_status).await?;
        }
    }

    async fn remove_all(&self, runtime_status: &RuntimePodStatus) -> Result<(), Status> {
        for instance in &runtime_status.containers {
            self.remove(&instance.id).await?;
        }
        for sandbox in &runtime_status.sandboxes {
            self.remove_sandbox(&sandbox.id).await?;
        }
        Ok(())
    }

    pub(super) async fn remove_sandbox(&self, id: &str) -> Result<(), Status> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        ignore_not_found(
            with_timeout(
                RUNTIME_REQUEST_TIMEOUT,
                self.context.runtime.relay_client.clone().remove_pod_sandbox(request),
            )
            .await,
        )
        .map(drop)
    }
}

/// Removes the log directory of a pod from the directory of all logs. Retries if the directory is
/// not empty: the compression of a rotated log may add a file to it. It adds at most one, because
/// nothing is left to compress afterwards.
fn remove_logs(logs: &Path, directory: &Path) {
    for _ in 0..REMOVE_ATTEMPTS {
        match remove_log_directory(logs, directory) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            // A missing directory is no error.
            _ => return,
        }
    }
}
