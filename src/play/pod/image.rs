//! The image of a container, as the kubelet sees to it.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::failure::StartError;
use crate::cri::v1::{AuthConfig, Image, ImageSpec, ImageStatusRequest, PodSandboxConfig, PullImageRequest};
use crate::cri::{PATIENCE, within};
use crate::play::backoff::TooEarly;
use crate::play::means::Means;
use crate::play::spec::{Container, Credential, Pod, PullPolicy};
use crate::tap;
use crate::terminal::{harmless, human};

/// Whose image it is, and what it is for.
pub(super) struct Wanted<'a> {
    pub(super) means: &'a Means,
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) names: (&'a Arc<tap::Pod>, &'a Arc<tap::Container>),
    pub(super) sandbox: &'a PodSandboxConfig,
}

impl Wanted<'_> {
    /// Sees to it that the image is there. Returns what the runtime calls it, and what it knows of it.
    pub(super) async fn ensure(&self) -> Result<(String, Option<Image>), StartError> {
        let image = self.container.image.as_str();
        let there = match self.container.pull_policy {
            PullPolicy::Always => None,
            _ => self.status(image).await?,
        };
        match (there, self.container.pull_policy) {
            (Some(there), _) => {
                let message = format!(
                    "Container image {image:?} already present on machine and can be accessed by the pod"
                );
                self.tell("Pulled", false, message);
                Ok((there.id.clone(), Some(there)))
            }
            (None, PullPolicy::Never) => {
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                self.tell("ErrImageNeverPull", true, message.clone());
                Err(StartError::new("ErrImageNeverPull", message))
            }
            (None, _) => self.pull(image).await,
        }
    }

    async fn pull(&self, image: &str) -> Result<(String, Option<Image>), StartError> {
        let (key, now) = (format!("{}/{image}", self.pod.uid), SystemTime::now());
        let since = self.means.pulls.tried(&key).unwrap_or(now);
        if let Err(TooEarly { delay, until }) = self.means.pulls.try_again(&key, since, now) {
            self.tell("BackOff", false, format!("Back-off pulling image {image:?}"));
            let message = format!("Back-off pulling image {image:?}, for {}", human::duration(delay));
            return Err(StartError { until: Some(until), ..StartError::new("ImagePullBackOff", message) });
        }
        self.tell("Pulling", false, format!("Pulling image {image:?}"));
        let begun = Instant::now();
        let request = PullImageRequest {
            image: Some(self.spec(image)),
            auth: self.credentials(image),
            sandbox_config: Some(self.sandbox.clone()),
        };
        // It may take as long as it takes.
        match self.means.images.clone().pull_image(request).await {
            Ok(answer) => {
                self.means.pulls.forget(&key);
                let pulled = answer.into_inner().image_ref;
                let status = self.status(&pulled).await?;
                let size = status.as_ref().map_or(0, |image| image.size);
                let took = human::duration(begun.elapsed());
                self.tell(
                    "Pulled",
                    false,
                    format!("Successfully pulled image {image:?} in {took}. Image size: {size} bytes."),
                );
                Ok((pulled, status))
            }
            Err(status) => {
                let reason = harmless(status.message());
                self.tell("Failed", true, format!("Failed to pull image {image:?}: {reason}"));
                let delay = self.means.pulls.delay(&key).unwrap_or_default();
                let error = StartError::new("ErrImagePull", reason);
                Err(StartError { until: Some(now + delay), ..error })
            }
        }
    }

    fn spec(&self, image: &str) -> ImageSpec {
        let annotations = self.sandbox.annotations.clone();
        let user_specified_image = self.container.image.clone();
        let runtime_handler = self.pod.runtime_handler.clone();
        ImageSpec {
            image: image.to_owned(),
            annotations,
            user_specified_image,
            runtime_handler,
            image_ref: String::new(),
        }
    }

    async fn status(&self, image: &str) -> Result<Option<Image>, StartError> {
        let request = ImageStatusRequest { image: Some(self.spec(image)), verbose: false };
        let answered = within(PATIENCE, self.means.images.clone().image_status(request)).await;
        let answer = answered.map_err(|status| {
            let message = format!("Failed to inspect image {image:?}: {}", harmless(status.message()));
            StartError::new("ImageInspectError", message)
        })?;
        Ok(answer.image)
    }

    /// The credentials for the registry of an image.
    fn credentials(&self, image: &str) -> Option<AuthConfig> {
        let first = image.split('/').next().unwrap_or_default();
        let is_registry = image.contains('/') && first.contains(['.', ':']) || first == "localhost";
        let registry = if is_registry { first } else { "docker.io" };
        let fits = |known: &&Credential| {
            known.registry == registry || (registry == "docker.io" && known.registry.ends_with(".docker.io"))
        };
        let Credential { registry, user, password } = self.pod.credentials.iter().find(fits)?.clone();
        Some(AuthConfig { username: user, password, server_address: registry, ..AuthConfig::default() })
    }

    fn tell(&self, reason: &'static str, is_warning: bool, message: String) {
        self.means.tell(self.names.0, Some(self.names.1), (reason, is_warning), message);
    }
}
