//! Pulls images one after the other (kubelet: `images/puller.go`: `serialImagePuller`).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use super::keyring::TrackedCredential;
use super::pull_error::pull_error_text;
use crate::cri::v1::image_service_client::ImageServiceClient;
use crate::cri::v1::{Image, ImageSpec, ImageStatusRequest, PodSandboxConfig, PullImageRequest};
use crate::cri::{RUNTIME_REQUEST_TIMEOUT, with_timeout};
use crate::gofmt::aggregate;
use crate::gofmt::{quote, rpc_error};
use crate::token_bucket::TokenBucket;

/// Limit of pulls, the kubelet's defaults (`registryPullQPS`, `registryBurst`).
const PULLS_PER_SECOND: u32 = 5;
const PULL_BURST: u32 = 10;

/// Pulls one image at a time, in the order of the requests, at a limited rate.
#[derive(Debug)]
pub(super) struct SerialImagePuller {
    /// Permit of the pull in flight. Waiting pulls get it in their order.
    turn: Semaphore,
    limit: Mutex<TokenBucket>,
}

/// A pulled image.
#[derive(Debug)]
pub(super) struct PulledImage {
    /// The runtime's reference of the image.
    pub(super) image_ref: String,
    /// Status of the image, if the runtime could return it.
    pub(super) image: Option<Image>,
    /// Credentials with which the image was pulled; `None` if it was pulled without.
    pub(super) credential: Option<TrackedCredential>,
    /// Duration of the pull, without the time in which it waited for its turn.
    pub(super) duration: Duration,
}

impl SerialImagePuller {
    pub(super) fn new() -> Self {
        Self {
            turn: Semaphore::new(1),
            limit: TokenBucket::new(Duration::from_secs(1) / PULLS_PER_SECOND, PULL_BURST).into(),
        }
    }

    /// Pulls an image, at the limited rate if the runtime has a registry. Fails with the text of
    /// the kubelet's error.
    pub(super) async fn pull(
        &self,
        images: &ImageServiceClient<Channel>,
        spec: &ImageSpec,
        credentials: &[TrackedCredential],
        sandbox: &PodSandboxConfig,
        has_registry: bool,
    ) -> Result<PulledImage, String> {
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await;
        let started = Instant::now();
        if has_registry && !self.limit.lock().unwrap_or_else(PoisonError::into_inner).try_accept(started) {
            return Err("pull QPS exceeded".to_owned());
        }
        let (image_ref, credential) = pull_with_any(images, spec, credentials, sandbox).await?;
        let image = image_status(images, spec).await.ok().flatten();
        Ok(PulledImage { image_ref, image, credential, duration: started.elapsed() })
    }
}

/// Pulls an image with each of the credentials in turn, or without if there are none. Returns the
/// runtime's reference, and the credentials that were used (kubelet:
/// `kuberuntime/kuberuntime_image.go`: `PullImage`).
async fn pull_with_any(
    images: &ImageServiceClient<Channel>,
    spec: &ImageSpec,
    credentials: &[TrackedCredential],
    sandbox: &PodSandboxConfig,
) -> Result<(String, Option<TrackedCredential>), String> {
    if credentials.is_empty() {
        return Ok((pull_image(images, spec, None, sandbox).await?, None));
    }
    let mut errors = Vec::new();
    for credential in credentials {
        match pull_image(images, spec, Some(credential), sandbox).await {
            Ok(image_ref) => return Ok((image_ref, Some(credential.clone()))),
            Err(error) => errors.push(error),
        }
    }
    Err(aggregate(&errors))
}

/// Calls `PullImage`, which has no timeout.
async fn pull_image(
    images: &ImageServiceClient<Channel>,
    spec: &ImageSpec,
    credential: Option<&TrackedCredential>,
    sandbox: &PodSandboxConfig,
) -> Result<String, String> {
    let request = PullImageRequest {
        image: Some(spec.clone()),
        auth: credential.map(TrackedCredential::auth_config),
        sandbox_config: Some(sandbox.clone()),
    };
    let answer = images.clone().pull_image(request).await.map_err(|status| pull_error_text(&status))?;
    let image_ref = answer.into_inner().image_ref;
    if image_ref.is_empty() {
        return Err(format!("imageRef of image {} is not set", quote(&spec.image)));
    }
    Ok(image_ref)
}

/// Returns the status of an image; `None` if the image is not on the node. Fails with the text of
/// the kubelet's error (cri-client: `pkg/remote_image.go`: `imageStatusV1`).
pub(super) async fn image_status(
    images: &ImageServiceClient<Channel>,
    spec: &ImageSpec,
) -> Result<Option<Image>, String> {
    let request = ImageStatusRequest { image: Some(spec.clone()), verbose: false };
    let mut client = images.clone();
    let answer = with_timeout(RUNTIME_REQUEST_TIMEOUT, client.image_status(request)).await;
    let image = answer.map_err(|status: Status| rpc_error(&status))?.image;
    match image {
        Some(image) if image.id.is_empty() || image.size == 0 => {
            Err(format!("Id or size of image {} is not set", quote(&spec.image)))
        }
        image => Ok(image),
    }
}
