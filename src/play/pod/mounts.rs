//! Mounts of a container, and the bind mounts of its subPaths: made before it is created, gone after it has ended.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use tracing::warn;

use super::Worker;
use crate::cri::v1::Mount;
use crate::play::configs::Facts;
use crate::play::seen::Seen;
use crate::play::spec::{Container, Pod};
use crate::play::subpath_mounts::MountOwner;
use crate::terminal::harmless;

impl Worker {
    /// Prepares what a container has of this host. Fails with the reason, for people.
    pub(super) async fn mounts(
        &self,
        container: &Container,
        addresses: &[String],
        variables: &[(String, String)],
        recurses: bool,
    ) -> Result<Vec<Mount>, String> {
        let points = self.folder.subpath_targets(container);
        let binds = !points.is_empty() && self.means.binds_subpaths().await?;
        if binds {
            self.means.subpath_mounts.record(&points, &owner(&self.pod, container));
            // A crash between the record and the mount leaves a record of nothing, the other way round it would leave a mount of nobody.
            self.means.state.settled().await;
        }
        let (folder, pod, means) = (self.folder.clone(), self.pod.clone(), self.means.clone());
        let (name, container, addresses) = (container.name.clone(), container.clone(), addresses.to_vec());
        let variables = variables.to_vec();
        let mounted = spawn_blocking(move || {
            let facts = Facts { pod: &pod, node: &means.node, addresses: &addresses };
            folder.mounts(&container, &facts, &variables, recurses, binds)
        });
        match mounted.await {
            Ok(mounted) => mounted.map_err(|error| {
                if let Some(details) = error.details() {
                    let pod = self.pod.full_name();
                    warn!(pod, container = name, "{error}: {}", harmless(&details));
                }
                error.to_string()
            }),
            Err(_) => Err("probeshim panicked while it prepared the mounts".to_owned()),
        }
    }

    /// Unmounts the subPaths of containers that do not run. What cannot be unmounted is tried again with the next sync.
    pub(super) async fn release_subpaths(&self, seen: &Seen) {
        for container in &self.pod.containers {
            let owner = owner(&self.pod, container);
            let runs = seen.alive().any(|instance| instance.name == container.name);
            if runs || !self.means.subpath_mounts.has(&owner) {
                continue;
            }
            let (folder, name) = (self.folder.clone(), container.name.clone());
            match spawn_blocking(move || folder.release(&name)).await {
                Ok(Ok(())) => self.means.subpath_mounts.forget(|known| *known == owner),
                Ok(Err(error)) => {
                    let pod = self.pod.full_name();
                    warn!(pod, container = container.name, "a subPath is not unmounted yet: {error}");
                }
                Err(_) => {}
            }
        }
    }
}

fn owner(pod: &Arc<Pod>, container: &Container) -> MountOwner {
    MountOwner { uid: pod.uid.clone(), container: container.name.clone() }
}
