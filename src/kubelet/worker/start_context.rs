//! Inputs of a container's start, and the error of a failed one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::cri::v1::{ImageSpec, PodSandboxConfig};
use crate::kubelet::images::{ImageError, TrackedCredential};
use crate::kubelet::runtime_status::RuntimePodStatus;
use crate::manifest::ConfigObjects;
use crate::manifest::docker_config::DockerConfigError;

/// Images of the image volumes of a pod, or the reasons why they are not available, by the names of
/// the volumes.
pub(super) type ImageVolumePulls = BTreeMap<String, Result<ImageSpec, ImageError>>;

/// Reason and message of a container that has not been started. The reasons are the kubelet's.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}: {message}")]
pub(super) struct StartError {
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
    /// Time before which the start is not tried again, if it is known.
    pub(super) until: Option<SystemTime>,
    /// Whether the image is not available.
    pub(super) is_of_image: bool,
}

impl StartError {
    pub(super) fn new(reason: impl Into<Cow<'static, str>>, message: String) -> Self {
        Self { reason: reason.into(), message, until: None, is_of_image: false }
    }

    /// Returns the text of the `Failed` event. For image errors it is the reason alone, as with the
    /// kubelet: another event has the message.
    pub(super) fn reason_or_message(&self) -> &str {
        if self.is_of_image { &self.reason } else { &self.message }
    }
}

impl From<ImageError> for StartError {
    /// The start is tried again after the default delay, not after the back-off of the pull: the
    /// kubelet's `ErrImagePullBackOff` is no `BackoffError`.
    fn from(error: ImageError) -> Self {
        Self { is_of_image: true, ..Self::new(error.reason, error.message) }
    }
}

/// Inputs of the start of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartContext<'a> {
    pub(super) sandbox: &'a str,
    pub(super) config: &'a PodSandboxConfig,
    pub(super) addresses: &'a [String],
    /// State of the pod before this sync changed anything.
    pub(super) runtime_status: &'a RuntimePodStatus,
    /// Objects that the pod may refer to.
    pub(super) objects: &'a ConfigObjects,
    /// Credentials of the pod's pull secrets, or the reason why they cannot be read.
    pub(super) credentials: Result<&'a [TrackedCredential], &'a DockerConfigError>,
    /// Images of the pod's image volumes, or the reasons why they are not available.
    pub(super) image_volumes: &'a ImageVolumePulls,
}
