//! Requests the images of containers from the image manager.

use std::sync::Arc;

use super::PodWorker;
use super::start_context::{StartContext, StartError};
use crate::events::{Event, reason};
use crate::kubelet::images::{EnsuredImage, ImageRequest, SecretSource, TrackedCredential};
use crate::manifest::ConfigObjects;
use crate::manifest::docker_config::DockerConfigError;
use crate::manifest::pod::{Container, DataKind};
use crate::object_ref::ContainerRef;

impl PodWorker {
    /// Makes the image of a container available, and records the events about it.
    pub(super) async fn ensure_image(
        &self,
        container: &Container,
        container_ref: &Arc<ContainerRef>,
        context: StartContext<'_>,
    ) -> Result<EnsuredImage, StartError> {
        let request = ImageRequest {
            images: &self.context.runtime.images,
            image: &container.image,
            policy: container.pull_policy,
            pod_uid: &self.pod.uid,
            sandbox: context.config,
            credentials: context.credentials,
            has_registry: self.context.runtime.has_registry().await,
            is_of_client: container.client_request.is_some(),
            record: &|event| self.record_event(Some(container_ref), event),
        };
        Ok(self.context.stores.images.ensure_image_exists(&request).await?)
    }

    /// Returns the credentials in the pull secrets of the pod. Records an event for secrets that do
    /// not exist: the images are pulled without them (kubelet: `getPullSecretsForPod`). Fails with
    /// the first error of a Secret that cannot be read.
    pub(super) fn pull_credentials(
        &self,
        objects: &ConfigObjects,
    ) -> Result<Vec<TrackedCredential>, DockerConfigError> {
        let namespace = &self.pod.namespace;
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for name in &self.pod.pull_secrets {
            match objects.data(DataKind::Secret, namespace, name) {
                Some(secret) => found.push((name, secret)),
                None => failed.push(name.as_str()),
            }
        }
        if !failed.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                failed.join(", ")
            );
            self.record_event(None, Event::warning(reason::FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET, message));
        }
        let mut credentials = Vec::new();
        for (name, secret) in found {
            let source = Some(SecretSource { namespace: namespace.clone(), name: name.clone() });
            let tracked = |credential| TrackedCredential { credential, source: source.clone() };
            credentials.extend(secret.credentials()?.into_iter().map(tracked));
        }
        Ok(credentials)
    }
}
