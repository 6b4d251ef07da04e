//! Decides whether subPaths are bind-mounted, and unmounts those of an earlier run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

use super::context::WorkerContext;
use super::pod_dir;
use crate::cri::PROCRUN_RUNTIME_NAME;
use crate::events::{Event, reason};
use crate::terminal::sanitize;

/// Interval between requests to a runtime that does not respond.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Whether mounts of probeshim reach the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mounting {
    /// Mounts reach the runtime.
    Reaches,
    /// probeshim makes no mounts: it is not root, or the runtime mounts no volumes.
    Never,
    /// Mounts do not reach the runtime, for this reason.
    Unreachable(String),
}

impl WorkerContext {
    /// Returns whether mounts reach the runtime. Fails if the runtime does not respond.
    pub(super) async fn mounting(&self) -> Result<Mounting, String> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Mounting::Never);
        }
        let runtime = self.runtime.name().await.map_err(|status| sanitize(status.message()))?;
        if runtime == PROCRUN_RUNTIME_NAME {
            return Ok(Mounting::Never);
        }
        // The runtime may have been restarted in another mount namespace.
        match pod_dir::obstacle(self.runtime.socket.as_path(), &self.node.pods).await {
            Ok(Some(reason)) => Ok(Mounting::Unreachable(reason)),
            // If this cannot be determined, mounts are assumed to reach the runtime, as on most
            // nodes.
            Ok(None) | Err(_) => Ok(Mounting::Reaches),
        }
    }

    /// Returns whether subPaths are bind-mounted for the runtime. This requires that probeshim is
    /// root and that the runtime mounts volumes. Fails if mounts do not reach the runtime, because
    /// a container would then find an empty directory instead of its files.
    pub(super) async fn binds_subpaths(&self) -> Result<bool, String> {
        match self.mounting().await? {
            Mounting::Reaches => Ok(true),
            Mounting::Never => Ok(false),
            Mounting::Unreachable(reason) => {
                Err(format!("mounts of subPaths cannot reach the runtime: {reason}"))
            }
        }
    }

    /// Records an event if the runtime responds and mounts do not reach it.
    pub(super) async fn report_unreachable_mounts(&self) {
        if let Ok(Mounting::Unreachable(reason)) = self.mounting().await {
            let message = format!(
                "Mounts of probeshim do not reach the runtime: {reason}; containers with a subPath are not created, and emptyDirs in memory are on disk"
            );
            self.events.log_and_record(Event::warning(reason::MOUNTS_UNREACHABLE, message));
        }
    }

    /// Unmounts subPaths that an earlier run mounted for pods that are no longer known.
    pub(super) async fn unmount_stale(&self) {
        let is_of_known = |point: &str, uid: &str| {
            self.stores.registry.knows(uid) && Path::new(point).starts_with(self.node.pods.join(uid))
        };
        let mut stale = self.stores.subpath_mounts.all();
        stale.retain(|(point, owner)| !is_of_known(point, &owner.uid));
        for (point, _) in stale {
            let path = point.clone();
            match spawn_blocking(move || pod_dir::unmount_stale(Path::new(&path))).await {
                Ok(Ok(())) => self.stores.subpath_mounts.forget_point(&point),
                Ok(Err(error)) => warn!("unmount of a mount of an earlier run failed: {point}: {error}"),
                Err(_) => {}
            }
        }
    }
}

/// Waits until the runtime responds, and records an event if mounts do not reach it.
pub(super) async fn report_unreachable(context: Arc<WorkerContext>) {
    while context.runtime.name().await.is_err() {
        sleep(RETRY_INTERVAL).await;
    }
    context.report_unreachable_mounts().await;
}
