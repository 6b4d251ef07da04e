//! Whether subPaths are mounted for the runtime, and what an earlier run has left mounted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

use super::host;
use super::means::Means;
use crate::cri::PROCRUN;
use crate::terminal::harmless;

/// Interval between attempts to ask a runtime that does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Means {
    /// Tells whether subPaths are mounted for the runtime: it mounts, and we may. Fails with the reason where our mounts do not reach it: a container
    /// would silently find an empty directory in the place of its files.
    pub(super) async fn binds_subpaths(&self) -> Result<bool, String> {
        if !rustix::process::geteuid().is_root() {
            return Ok(false);
        }
        let runtime = self.runtime_name().await.map_err(|status| harmless(status.message()))?;
        if runtime == PROCRUN {
            return Ok(false);
        }
        // The runtime may have been restarted elsewhere since.
        match host::obstacle(self.upstream.as_path(), &self.node.pods).await {
            Ok(Some(reason)) => Err(format!("mounts of subPaths cannot reach the runtime: {reason}")),
            // Where it cannot be told, it is as on most nodes.
            Ok(None) | Err(_) => Ok(true),
        }
    }

    /// Unmounts what an earlier run has mounted for pods that nobody knows any more.
    pub(super) async fn unmount_stale(&self) {
        let is_of_known = |point: &str, uid: &str| {
            self.memories.knows(uid) && Path::new(point).starts_with(self.node.pods.join(uid))
        };
        let mut stale = self.subpath_mounts.all();
        stale.retain(|(point, owner)| !is_of_known(point, &owner.uid));
        for (point, _) in stale {
            let path = point.clone();
            match spawn_blocking(move || host::unmount_stale(Path::new(&path))).await {
                Ok(Ok(())) => self.subpath_mounts.forget_point(&point),
                Ok(Err(error)) => warn!("a mount of an earlier run is left: {point}: {error}"),
                Err(_) => {}
            }
        }
    }
}

/// Tells, as soon as the runtime answers, if mounts of subPaths cannot reach it.
pub(super) async fn tell(means: Arc<Means>) {
    while means.runtime_name().await.is_err() {
        sleep(RETRY_INTERVAL).await;
    }
    if let Err(reason) = means.binds_subpaths().await {
        means.witness.mounts_unreachable(reason);
    }
}
