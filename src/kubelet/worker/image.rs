//! Image of a container: presence check, back-off and pull, as in the kubelet's image manager
//! (`images/image_manager.go`: `EnsureImageExists`).

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;
use tonic::Status;
use wildmatch::WildMatch;

use super::PodWorker;
use super::start_context::{StartContext, StartError};
use crate::cri::v1::{AuthConfig, Image, ImageSpec, ImageStatusRequest, PullImageRequest};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, with_timeout};
use crate::events::{Event, reason};
use crate::kubelet::backoff::BackoffError;
use crate::kubelet::context::WorkerContext;
use crate::manifest::ConfigObjects;
use crate::manifest::pod::{Container, Credential, DataKind, Pod, PullPolicy};
use crate::object_ref::{ContainerRef, PodRef};
use crate::terminal::{format, sanitize};

/// Makes the image of a container available, and records the events about it.
pub(super) struct ImagePuller<'a> {
    pub(super) context: &'a WorkerContext,
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) pod_ref: &'a Arc<PodRef>,
    pub(super) container_ref: &'a Arc<ContainerRef>,
    pub(super) start: StartContext<'a>,
}

impl ImagePuller<'_> {
    /// Pulls the image if the pull policy requires it. Returns the runtime's reference of the
    /// image, and its status.
    pub(super) async fn ensure_image(&self) -> Result<(String, Option<Image>), StartError> {
        let image = self.container.image.as_str();
        let there = match self.container.pull_policy {
            PullPolicy::Always => None,
            _ => self.status(image).await.inspect_err(|error| {
                self.record(Event::warning(reason::INSPECT_FAILED, error.message.clone()));
            })?,
        };
        match (there, self.container.pull_policy) {
            (Some(there), _) => {
                let message = format!(
                    "Container image {image:?} already present on machine and can be accessed by the pod"
                );
                self.record(Event::normal(reason::PULLED, message));
                Ok((there.id.clone(), Some(there)))
            }
            (None, PullPolicy::Never) => {
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                self.record(Event::warning(reason::ERR_IMAGE_NEVER_PULL, message.clone()));
                Err(StartError::new("ErrImageNeverPull", message))
            }
            (None, _) => self.pull(image).await,
        }
    }

    async fn pull(&self, image: &str) -> Result<(String, Option<Image>), StartError> {
        let key = format!("{}/{image}", self.pod.uid);
        if let Err(BackoffError { delay, until }) =
            self.context.stores.image_backoff.check(&key, SystemTime::now())
        {
            self.record(Event::normal(reason::BACK_OFF, format!("Back-off pulling image {image:?}")));
            let message = format!("Back-off pulling image {image:?}, for {}", format::duration(delay));
            return Err(StartError { until: Some(until), ..StartError::new("ImagePullBackOff", message) });
        }
        self.record(Event::normal(reason::PULLING, format!("Pulling image {image:?}")));
        let started = Instant::now();
        match self.pull_with_credentials(image).await {
            Ok(pulled) => {
                let status = self.status(&pulled).await?;
                let size = status.as_ref().map_or(0, |image| image.size);
                let took = format::duration(started.elapsed());
                self.record(Event::normal(reason::PULLED, format!("Successfully pulled image {image:?} in {took} ({took} including waiting). Image size: {size} bytes.")));
                Ok((pulled, status))
            }
            Err(status) => {
                let reason = sanitize(status.message());
                self.record(Event::warning(
                    reason::FAILED,
                    format!("Failed to pull image {image:?}: {reason}"),
                ));
                let now = SystemTime::now();
                let delay = self.context.stores.image_backoff.record_failure(&key, now);
                let error = StartError::new("ErrImagePull", reason);
                Err(StartError { until: Some(now + delay), ..error })
            }
        }
    }

    /// Pulls the image with each matching credential in turn, or without credentials if none
    /// matches. Returns the runtime's reference of the image.
    async fn pull_with_credentials(&self, image: &str) -> Result<String, Status> {
        let mut auths: Vec<Option<AuthConfig>> =
            credentials(image, self.start.credentials).into_iter().map(Some).collect();
        if auths.is_empty() {
            auths.push(None);
        }
        let mut refused = Status::unknown("no credentials were tried");
        for auth in auths {
            let request = PullImageRequest {
                image: Some(self.spec(image)),
                auth,
                sandbox_config: Some(self.start.config.clone()),
            };
            // A pull has no timeout.
            match self.context.runtime.images.clone().pull_image(request).await {
                Ok(answer) => return Ok(answer.into_inner().image_ref),
                Err(status) => refused = status,
            }
        }
        Err(refused)
    }

    fn spec(&self, image: &str) -> ImageSpec {
        let annotations = self.start.config.annotations.clone();
        let user_specified_image = self.container.image.clone();
        // The RuntimeClass may have been deleted since the sandbox was created.
        let handler = self.start.objects.runtime_handler(&self.pod.runtime_handler);
        let runtime_handler = handler.unwrap_or_default().to_owned();
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
        let answered =
            with_timeout(RUNTIME_REQUEST_TIMEOUT, self.context.runtime.images.clone().image_status(request))
                .await;
        let answer = answered.map_err(|status| {
            let message = format!("Failed to inspect image {image:?}: {}", sanitize(status.message()));
            StartError::new("ImageInspectError", message)
        })?;
        Ok(answer.image)
    }

    fn record(&self, event: Event) {
        self.context.record_event(self.pod_ref, Some(self.container_ref), event);
    }
}

impl PodWorker {
    /// Returns the credentials in the pull secrets of the pod. Records an event for secrets that do
    /// not exist: the images are pulled without them (kubelet: `getPullSecretsForPod`). Secrets
    /// without readable credentials are ignored.
    pub(super) fn pull_credentials(&self, objects: &ConfigObjects) -> Vec<Credential> {
        let (mut credentials, mut failed) = (Vec::new(), Vec::new());
        for name in &self.pod.pull_secrets {
            match objects.data(DataKind::Secret, &self.pod.namespace, name) {
                Some(secret) => credentials.extend(secret.credentials().unwrap_or_default()),
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
        credentials
    }
}

/// Returns the credentials that match an image, those with the most specific registry first. For an
/// image of the default registry without a match it returns those of `index.docker.io` (kubelet:
/// `pkg/credentialprovider/keyring.go`: `BasicDockerKeyring.Lookup`).
fn credentials(image: &str, known: &[Credential]) -> Vec<AuthConfig> {
    let (first, rest) = image.split_once('/').unwrap_or(("", image));
    let is_of_default = ["", "docker.io", "index.docker.io"].contains(&first)
        || !first.contains(['.', ':']) && first != "localhost";
    let (host, path) = match first {
        "" => ("docker.io", format!("library/{rest}")),
        _ if is_of_default && !first.ends_with("docker.io") => ("docker.io", image.to_owned()),
        _ => (first, rest.to_owned()),
    };
    let fits = |credential: &&Credential| {
        let (of, below) = credential.registry.split_once('/').unwrap_or((&credential.registry, ""));
        let (pattern, parts): (Vec<&str>, Vec<&str>) = (of.split('.').collect(), host.split('.').collect());
        pattern.len() == parts.len()
            && pattern.iter().zip(parts).all(|(pattern, part)| WildMatch::new(pattern).matches(part))
            && path.starts_with(below)
    };
    let mut all: Vec<&Credential> = known.iter().filter(fits).collect();
    if all.is_empty() && is_of_default {
        all = known.iter().filter(|credential| credential.registry == "index.docker.io").collect();
    }
    all.sort_by(|one, other| other.registry.cmp(&one.registry));
    let auth = |credential: &Credential| AuthConfig {
        username: credential.user.clone(),
        password: credential.password.clone(),
        ..AuthConfig::default()
    };
    all.into_iter().map(auth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_credentials_match_registries_and_repositories() {
        let credential = |registry: &str| Credential {
            registry: registry.to_owned(),
            user: registry.to_owned(),
            password: "secret".to_owned(),
        };
        let known =
            ["ghcr.io", "ghcr.io/a", "*.example.com", "index.docker.io", "127.0.0.1:5000"].map(credential);
        for (image, expected) in [
            ("ghcr.io/a/b:1", &["ghcr.io/a", "ghcr.io"][..]),
            ("ghcr.io/b", &["ghcr.io"]),
            ("my.example.com/x", &["*.example.com"]),
            ("my.own.example.com/x", &[]),
            ("busybox", &["index.docker.io"]),
            ("me/busybox:1", &["index.docker.io"]),
            ("docker.io/me/busybox", &["index.docker.io"]),
            ("127.0.0.1:5000/x", &["127.0.0.1:5000"]),
            ("127.0.0.1:5001/x", &[]),
        ] {
            let found = credentials(image, &known);
            let users: Vec<&str> = found.iter().map(|auth| auth.username.as_str()).collect();
            assert_eq!(users, expected, "{image}");
            assert!(
                found.iter().all(|auth| auth.server_address.is_empty()),
                "the runtime would parse it as a URL"
            );
        }
    }
}
