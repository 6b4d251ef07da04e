//! Where a container is started, and why it was not.

use std::time::SystemTime;

use crate::cri::v1::PodSandboxConfig;
use crate::kubelet::runtime_status::RuntimePodStatus;
use crate::manifest::ConfigObjects;
use crate::manifest::pod::Credential;

/// Why a container has not been started: the kubelet's word for it, and a sentence.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}: {message}")]
pub(super) struct StartError {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Until when it is not tried again, where that is known.
    pub(super) until: Option<SystemTime>,
}

impl StartError {
    pub(super) fn new(reason: &'static str, message: String) -> Self {
        Self { reason, message, until: None }
    }

    /// What the kubelet's event says of it: of images the word alone, since there is an event that says more.
    pub(super) fn reason_or_message(&self) -> &str {
        let is_of_image = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError"];
        if is_of_image.contains(&self.reason) { self.reason } else { &self.message }
    }
}

/// Where a container is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartContext<'a> {
    pub(super) sandbox: &'a str,
    pub(super) config: &'a PodSandboxConfig,
    pub(super) addresses: &'a [String],
    /// What was there before this sync has done anything.
    pub(super) runtime_status: &'a RuntimePodStatus,
    /// The objects that the pod may refer to.
    pub(super) objects: &'a ConfigObjects,
    /// Credentials of the pod for its images.
    pub(super) credentials: &'a [Credential],
}
