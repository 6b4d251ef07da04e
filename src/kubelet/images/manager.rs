//! Makes the image of a container available: presence check, credentials, back-off and pull
//! (kubelet: `images/image_manager.go`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::transport::Channel;
use tracing::warn;

use super::keyring::{TrackedCredential, lookup};
use super::node_credentials::NodeCredentials;
use super::pull_error::pull_reason;
use super::pull_manager::PullManager;
use super::puller::{PulledImage, SerialImagePuller, image_status};
use crate::cri::v1::image_service_client::ImageServiceClient;
use crate::cri::v1::{Image, ImageSpec, ListImagesRequest, PodSandboxConfig};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, with_timeout};
use crate::events::{Event, reason};
use crate::gofmt::{format_duration, quote};
use crate::kubelet::backoff::Backoff;
use crate::manifest::docker_config::DockerConfigError;
use crate::manifest::image_name::{ImageName, with_default_tag};
use crate::manifest::pod::PullPolicy;
use crate::state::{Snapshot, StateError, StateStore, StateTable};
use crate::terminal::sanitize;

/// Interval of the collection of images (`kubelet.go`: `ImageGCPeriod`).
pub(in crate::kubelet) const IMAGE_GC_PERIOD: Duration = Duration::from_secs(300);

/// Makes images available. All pods of the node share it.
#[derive(Debug)]
pub(in crate::kubelet) struct ImageManager {
    puller: SerialImagePuller,
    pulls: PullManager,
    backoff: Backoff,
    /// Reason and message of the last failed pull, by the keys of `backoff`.
    last_errors: Mutex<HashMap<String, String>>,
    node_credentials: NodeCredentials,
    /// Time in place of that of the clock, once a test has set it.
    #[cfg(test)]
    stopped_at: Mutex<Option<SystemTime>>,
}

/// A request for the image of a container.
pub(in crate::kubelet) struct ImageRequest<'a> {
    /// Client of the runtime.
    pub(in crate::kubelet) images: &'a ImageServiceClient<Channel>,
    /// Name of the image as the pod specifies it.
    pub(in crate::kubelet) image: &'a str,
    pub(in crate::kubelet) policy: PullPolicy,
    pub(in crate::kubelet) pod_uid: &'a str,
    pub(in crate::kubelet) sandbox: &'a PodSandboxConfig,
    /// Credentials of the pod's Secrets, or the reason why they cannot be read.
    pub(in crate::kubelet) credentials: Result<&'a [TrackedCredential], &'a DockerConfigError>,
    /// Whether the runtime pulls from a registry, so that the kubelet's limit of pulls applies.
    pub(in crate::kubelet) has_registry: bool,
    /// Whether a client created the container. The client may have specified the image by its id,
    /// and the container has run before, so neither name nor credentials are verified.
    pub(in crate::kubelet) is_of_client: bool,
    /// Records an event about the container.
    pub(in crate::kubelet) record: &'a (dyn Fn(Event) + Sync),
}

/// An image that is on the node.
#[derive(Debug)]
pub(in crate::kubelet) struct EnsuredImage {
    /// The runtime's reference of the image.
    pub(in crate::kubelet) image_ref: String,
    /// Status of the image, if the runtime could return it.
    pub(in crate::kubelet) status: Option<Image>,
}

/// Reason and message of a container whose image is not available. The reasons are the kubelet's
/// (`images/types.go`), or the text of the error of credentials that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubelet) struct ImageError {
    pub(in crate::kubelet) reason: Cow<'static, str>,
    pub(in crate::kubelet) message: String,
}

impl ImageManager {
    /// Restores the records and back-offs of an earlier process.
    pub(in crate::kubelet) fn restore(snapshot: &Snapshot, state: &StateStore) -> Result<Self, StateError> {
        Ok(Self {
            puller: SerialImagePuller::new(),
            pulls: PullManager::restore(snapshot, state.clone())?,
            backoff: Backoff::restore(snapshot, state, StateTable::ImageBackoff)?,
            last_errors: Mutex::default(),
            node_credentials: NodeCredentials::new(Path::new(state.dir())),
            #[cfg(test)]
            stopped_at: Mutex::default(),
        })
    }

    /// Pulls the image of a container if the pull policy or the verification of credentials
    /// requires it (kubelet: `EnsureImageExists`).
    pub(in crate::kubelet) async fn ensure_image_exists(
        &self,
        request: &ImageRequest<'_>,
    ) -> Result<EnsuredImage, ImageError> {
        self.initialize(request.images).await;
        let spec = request.spec()?;
        let present = match request.policy {
            PullPolicy::Always => None,
            PullPolicy::IfNotPresent | PullPolicy::Never => request.inspect(&spec).await?,
        };
        if let Some(status) = present
            && !self.must_pull(request, &spec, &status)?
        {
            let image = quote(request.image);
            let message =
                format!("Container image {image} already present on machine and can be accessed by the pod");
            request.record(Event::normal(reason::PULLED, message));
            return Ok(EnsuredImage { image_ref: status.id.clone(), status: Some(status) });
        }
        match request.policy {
            PullPolicy::Never => Err(request.never_pull()),
            PullPolicy::Always | PullPolicy::IfNotPresent => self.pull(request, &spec).await,
        }
    }

    /// Returns whether the pod may have no access to an image that is on the node. A container that
    /// a client created has access.
    fn must_pull(
        &self,
        request: &ImageRequest<'_>,
        spec: &ImageSpec,
        status: &Image,
    ) -> Result<bool, ImageError> {
        if request.is_of_client {
            return Ok(false);
        }
        let credentials = || Ok(lookup(&repository(spec), request.credentials()?));
        self.pulls.must_attempt_pull(request.image, &status.id, credentials)
    }

    async fn pull(&self, request: &ImageRequest<'_>, spec: &ImageSpec) -> Result<EnsuredImage, ImageError> {
        let ImageRequest { image, pod_uid, .. } = request;
        let credentials = self.credentials(request, spec).await?;
        let intent = self.pulls.record_pull_intent(image).await;
        let key = format!("{pod_uid}_{image}");
        if self.backoff.check(&key, self.now()).is_err() {
            return Err(self.back_off(request, &key));
        }
        self.lock_errors().remove(&key);
        request.record(Event::normal(reason::PULLING, format!("Pulling image {}", quote(image))));
        let started = Instant::now();
        match self
            .puller
            .pull(request.images, spec, &credentials, request.sandbox, request.has_registry)
            .await
        {
            Ok(PulledImage { image_ref, image: status, credential, duration }) => {
                let size = status.as_ref().map_or(0, |status| status.size);
                request.record(pulled(image, duration, started.elapsed(), size));
                intent.succeed(&image_ref, credential.as_ref());
                Ok(EnsuredImage { image_ref, status })
            }
            Err(error) => Err(self.fail(request, key, &sanitize(&error))),
        }
    }

    /// Records that a pull is delayed. The message has the error of the last pull, unless it was
    /// made by an earlier process.
    fn back_off(&self, request: &ImageRequest<'_>, key: &str) -> ImageError {
        let message = format!("Back-off pulling image {}", quote(request.image));
        request.record(Event::normal(reason::BACK_OFF, message.clone()));
        let message = match self.lock_errors().get(key) {
            Some(error) => format!("{message}: {error}"),
            None => message,
        };
        ImageError { reason: "ImagePullBackOff".into(), message }
    }

    /// Records a failed pull.
    fn fail(&self, request: &ImageRequest<'_>, key: String, error: &str) -> ImageError {
        let image = request.image;
        let message = format!("Failed to pull image {}: {error}", quote(image));
        request.record(Event::warning(reason::FAILED, message));
        self.backoff.record_failure(&key, self.now());
        let (reason, message) = pull_reason(image, error);
        let mut errors = self.lock_errors();
        errors.retain(|key, _| self.backoff.has(key));
        errors.insert(key, format!("{reason}: {message}"));
        ImageError { reason: reason.into(), message }
    }

    /// Returns the credentials for an image: those of the pod's Secrets, then those of the node
    /// (kubelet: `makeLookupPullCredentialsFunc`).
    async fn credentials(
        &self,
        request: &ImageRequest<'_>,
        spec: &ImageSpec,
    ) -> Result<Vec<TrackedCredential>, ImageError> {
        let repository = repository(spec);
        let mut found = lookup(&repository, request.credentials()?);
        let node_credentials = self.node_credentials.clone();
        let of_node = spawn_blocking(move || node_credentials.read()).await.unwrap_or_default();
        found.extend(lookup(&repository, &of_node));
        Ok(found)
    }

    /// Compares the records of an earlier process with the images on the node, before the first use
    /// of the records.
    async fn initialize(&self, images: &ImageServiceClient<Channel>) {
        warn_of_failed_list(self.pulls.initialize(list_images(images)).await);
    }

    /// Removes the records of images that are no longer on the node, every five minutes. The
    /// kubelet removes them after it has collected images, for which it looks as often
    /// (`kubelet.go`: `StartGarbageCollection`).
    pub(in crate::kubelet) async fn prune_records(&self, images: &ImageServiceClient<Channel>) {
        loop {
            sleep(IMAGE_GC_PERIOD).await;
            let pruned = async {
                self.pulls.initialize(list_images(images)).await?;
                self.pulls.prune_unknown_records(list_images(images)).await
            };
            warn_of_failed_list(pruned.await);
        }
    }

    /// Returns the time by which failed pulls are delayed.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests stop the time"))]
    fn now(&self) -> SystemTime {
        #[cfg(test)]
        if let Some(stopped_at) = *self.stopped_at.lock().unwrap() {
            return stopped_at;
        }
        SystemTime::now()
    }

    /// Stops the time by which failed pulls are delayed, after letting this much pass.
    #[cfg(test)]
    pub(in crate::kubelet) fn elapse(&self, time: Duration) {
        let now = self.now() + time;
        *self.stopped_at.lock().unwrap() = Some(now);
    }

    fn lock_errors(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.last_errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ImageRequest<'_> {
    /// Returns the image as the runtime gets it. It has no runtime handler: the kubelet's feature
    /// gate `RuntimeClassInImageCriAPI` is off.
    fn spec(&self) -> Result<ImageSpec, ImageError> {
        let named = if self.is_of_client { Ok(self.image.to_owned()) } else { with_default_tag(self.image) };
        let image = named.map_err(|error| {
            let error = sanitize(&error.to_string());
            let message = format!("Failed to apply default image tag {}: {error}", quote(self.image));
            self.inspect_failed("InvalidImageName", message)
        })?;
        let annotations = self.sandbox.annotations.clone();
        Ok(ImageSpec { image, annotations, ..ImageSpec::default() })
    }

    /// Returns the status of the image; `None` if it is not on the node. The kubelet's message
    /// names no image.
    async fn inspect(&self, spec: &ImageSpec) -> Result<Option<Image>, ImageError> {
        image_status(self.images, spec).await.map_err(|error| {
            let message = format!("Failed to inspect image \"\": {}", sanitize(&error));
            self.inspect_failed("ImageInspectError", message)
        })
    }

    fn inspect_failed(&self, reason: &'static str, message: String) -> ImageError {
        self.record(Event::warning(reason::INSPECT_FAILED, message.clone()));
        ImageError { reason: reason.into(), message }
    }

    /// Records that the image may not be pulled. An image to which the pod has no access counts as
    /// missing, so that its presence stays hidden.
    fn never_pull(&self) -> ImageError {
        let message =
            format!("Container image {} is not present with pull policy of Never", quote(self.image));
        self.record(Event::warning(reason::ERR_IMAGE_NEVER_PULL, message.clone()));
        ImageError { reason: "ErrImageNeverPull".into(), message }
    }

    /// Returns the credentials of the pod's Secrets. If one of them cannot be read, the container
    /// waits with the text of the error as both reason and message.
    fn credentials(&self) -> Result<&[TrackedCredential], ImageError> {
        self.credentials.map_err(|error| {
            let error = sanitize(&error.to_string());
            ImageError { reason: error.clone().into(), message: error }
        })
    }

    fn record(&self, event: Event) {
        (self.record)(event);
    }
}

/// Returns the images on the node.
async fn list_images(images: &ImageServiceClient<Channel>) -> Result<Vec<Image>, Status> {
    let mut images = images.clone();
    let listed = images.list_images(ListImagesRequest::default());
    with_timeout(RUNTIME_REQUEST_TIMEOUT, listed).await.map(|answer| answer.images)
}

fn warn_of_failed_list(listed: Result<(), Status>) {
    if let Err(status) = listed {
        warn!("failed to list images: {}", sanitize(status.message()));
    }
}

/// Returns the normalized name of an image without tag and digest; empty for a name that is none,
/// which only a client may have specified.
fn repository(spec: &ImageSpec) -> String {
    ImageName::parse(&spec.image).map(|name| name.repository).unwrap_or_default()
}

/// Returns the event of a successful pull. `total`: duration with the time in which the pull waited
/// for its turn.
fn pulled(image: &str, duration: Duration, total: Duration, size: u64) -> Event {
    let milliseconds = |it: Duration| {
        let milliseconds = it.as_millis().try_into().unwrap_or(u64::MAX);
        format_duration(Duration::from_millis(milliseconds))
    };
    let (duration, total) = (milliseconds(duration), milliseconds(total));
    let image = quote(image);
    let message = format!(
        "Successfully pulled image {image} in {duration} ({total} including waiting). Image size: {size} bytes."
    );
    Event::normal(reason::PULLED, message)
}
