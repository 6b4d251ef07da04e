//! Mounts of a container, and the bind mounts of its subPaths. The bind mounts are made before the
//! container is created and removed after it has ended.

use std::error::Error as _;

use tokio::task::{JoinError, spawn_blocking};
use tracing::warn;

use super::PodWorker;
use crate::cri::v1::Mount;
use crate::kubelet::cri_config::{self, EnvFacts, Variables};
use crate::kubelet::pod_dir::{ImageVolumes, MountOptions, PodDir};
use crate::kubelet::runtime_status::RuntimePodStatus;
use crate::kubelet::subpath_mounts::MountOwner;
use crate::manifest::pod::{Container, EmptyDirMedium, FileKeyRef, VolumeSource};
use crate::terminal::sanitize;

impl PodWorker {
    /// Returns the variables of a container, some of which may be in files of its volumes. Fails
    /// with a readable reason.
    pub(super) async fn variables(
        &self,
        container: &Container,
        addresses: &[String],
    ) -> Result<Variables, String> {
        let (pod, container) = (self.pod.full_name(), container.clone());
        let read = self.in_pod_dir(addresses, move |dir, facts| {
            let read_file = |file: &FileKeyRef| {
                dir.env_value(file).map_err(|error| {
                    if let Some(cause) = error.source() {
                        warn!(pod, container = container.name, "{error}: {cause}");
                    }
                    error.to_string()
                })
            };
            cri_config::variables(&container, facts, &read_file)
        });
        match read.await {
            Ok(variables) => variables.map_err(|error| error.to_string()),
            Err(_) => Err("probeshim panicked while it read the variables".to_owned()),
        }
    }

    /// Prepares the files on this host that a container mounts. Fails with a readable reason.
    pub(super) async fn mounts(
        &self,
        container: &Container,
        addresses: &[String],
        variables: &[(String, Vec<u8>)],
        recurses: bool,
        images: ImageVolumes,
    ) -> Result<Vec<Mount>, String> {
        let points = self.dir.subpath_targets(&self.pod, container);
        let binds = !points.is_empty() && self.context.binds_subpaths().await?;
        if points.is_empty() && self.uses_memory(container) {
            // If mounts do not reach the runtime, the container finds the plain directory below the
            // tmpfs.
            self.context.report_unreachable_mounts().await;
        }
        if binds {
            self.context.stores.subpath_mounts.record(&points, &self.mount_owner(&container.name));
            // The record is written before the mount: after a crash there may be a record without a
            // mount, but no mount without a record.
            self.context.stores.state.flush().await;
        }
        let (name, container, variables) = (container.name.clone(), container.clone(), variables.to_vec());
        let options = MountOptions { recurses, binds, images };
        let mounted =
            self.in_pod_dir(addresses, move |dir, facts| dir.mounts(&container, facts, &variables, &options));
        match mounted.await {
            Ok(mounted) => mounted.map_err(|error| {
                if let Some(details) = error.details() {
                    let pod = self.pod.full_name();
                    warn!(pod, container = name, "{error}: {}", sanitize(&details));
                }
                error.to_string()
            }),
            Err(_) => Err("probeshim panicked while it prepared the mounts".to_owned()),
        }
    }

    /// Runs work on the pod's directory, which may block, on another thread. Fails if the work
    /// panics.
    pub(super) async fn in_pod_dir<T: Send + 'static>(
        &self,
        addresses: &[String],
        work: impl FnOnce(&PodDir, &EnvFacts<'_>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let (dir, pod, context) = (self.dir.clone(), self.pod.clone(), self.context.clone());
        let (addresses, seen) = (addresses.to_vec(), self.first_seen());
        let run = move || {
            let objects = context.objects.get();
            let facts = EnvFacts {
                pod: &pod,
                node: &context.node,
                seen: &seen,
                addresses: &addresses,
                objects: &objects,
            };
            work(&dir, &facts)
        };
        spawn_blocking(run).await
    }

    /// Returns whether a container mounts an emptyDir that is not on disk.
    fn uses_memory(&self, container: &Container) -> bool {
        let in_memory = |source: &VolumeSource| match source {
            VolumeSource::EmptyDir { medium, .. } => *medium != EmptyDirMedium::Disk,
            _ => false,
        };
        let mut volumes = self.pod.volumes.iter().filter(|volume| in_memory(&volume.source));
        volumes.any(|volume| container.mounts.iter().any(|mount| mount.volume == volume.name))
    }

    /// Unmounts the subPaths of containers that do not run, including containers that the pod no
    /// longer has. The next sync repeats a failed unmount.
    pub(super) async fn release_subpaths(&self, runtime_status: &RuntimePodStatus) {
        let known = self.context.stores.subpath_mounts.containers_of(&self.pod.uid);
        self.lock().unreleased.retain(|name| known.contains(name));
        for name in known {
            if runtime_status.live().any(|instance| instance.name == name) {
                continue;
            }
            let (dir, container) = (self.dir.clone(), name.clone());
            match spawn_blocking(move || dir.release(&container)).await {
                Ok(Ok(())) => {
                    let owner = self.mount_owner(&name);
                    self.context.stores.subpath_mounts.forget(|known| *known == owner);
                }
                Ok(Err(error)) if self.lock().unreleased.insert(name.clone()) => {
                    let (pod, error) = (self.pod.full_name(), sanitize(&error.to_string()));
                    warn!(pod, container = name, "unmount of a subPath failed and is retried: {error}");
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    fn mount_owner(&self, container: &str) -> MountOwner {
        MountOwner { uid: self.pod.uid.clone(), container: container.to_owned() }
    }
}
