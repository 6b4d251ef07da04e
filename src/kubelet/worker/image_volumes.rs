//! Requests the images of image volumes from the image manager (kubelet:
//! `kuberuntime_manager.go`: `getImageVolumes`).

use std::sync::Arc;

use super::start_context::{ImageVolumePulls, StartContext, StartError};
use super::{PodWorker, SyncError};
use crate::cri::v1::{ImageSpec, PodSandboxConfig};
use crate::kubelet::images::{ImageRequest, TrackedCredential};
use crate::kubelet::pod_dir::ImageVolumes;
use crate::kubelet::runtime_status::RuntimePodStatus;
use crate::manifest::ConfigObjects;
use crate::manifest::docker_config::DockerConfigError;
use crate::manifest::pod::Container;
use crate::object_ref::ContainerRef;

impl PodWorker {
    /// Makes the images of the pod's image volumes available. The events about them are events of
    /// the pod, because all containers share its volumes.
    pub(super) async fn pull_image_volumes(
        &self,
        config: &PodSandboxConfig,
        objects: &ConfigObjects,
        credentials: Result<&[TrackedCredential], &DockerConfigError>,
    ) -> Result<ImageVolumePulls, SyncError> {
        let mut pulls = ImageVolumePulls::new();
        for (name, reference, policy) in self.pod.image_volumes() {
            let handler = objects.runtime_handler(&self.pod.runtime_handler)?;
            let request = ImageRequest {
                images: &self.context.runtime.images,
                image: reference,
                policy,
                pod_uid: &self.pod.uid,
                sandbox: config,
                credentials,
                has_registry: self.context.runtime.has_registry().await,
                is_of_client: false,
                record: &|event| self.record_event(None, event),
            };
            let ensured = self.context.stores.images.ensure_image_exists(&request).await;
            let pull = ensured.map(|ensured| ImageSpec {
                image: ensured.image_ref,
                user_specified_image: reference.to_owned(),
                runtime_handler: handler.to_owned(),
                annotations: config.annotations.clone(),
                ..ImageSpec::default()
            });
            pulls.insert(name.to_owned(), pull);
        }
        Ok(pulls)
    }

    /// Makes the images of image volumes available in a sync that starts nothing. The kubelet does
    /// so in each sync, so that a volume with the policy `Always` is pulled each time.
    pub(super) async fn refresh_image_volumes(
        &self,
        runtime_status: &RuntimePodStatus,
    ) -> Result<(), SyncError> {
        if self.pod.image_volumes().next().is_none() {
            return Ok(());
        }
        let (config, _) = self.sandbox_config(None, runtime_status).await?;
        let objects = self.context.objects.get();
        let credentials = self.pull_credentials(&objects);
        self.pull_image_volumes(&config, &objects, credentials.as_deref()).await.map(drop)
    }

    /// Returns the images of the image volumes that a container mounts. If some are not available,
    /// it records an event for each of these mounts, and fails with the reason of the last
    /// (kubelet: `kuberuntime_manager.go`: `toKubeContainerImageVolumes`).
    pub(super) fn image_volumes_of(
        &self,
        container: &Container,
        container_ref: &Arc<ContainerRef>,
        context: StartContext<'_>,
    ) -> Result<ImageVolumes, StartError> {
        let (mut volumes, mut last_error) = (ImageVolumes::new(), None);
        for mount in &container.mounts {
            match context.image_volumes.get(&mount.volume) {
                Some(Ok(image)) => drop(volumes.insert(mount.volume.clone(), image.clone())),
                Some(Err(error)) => {
                    let error = StartError::from(error.clone());
                    self.failed(container_ref, &error);
                    last_error = Some(error);
                }
                None => {}
            }
        }
        last_error.map_or(Ok(volumes), Err)
    }
}
