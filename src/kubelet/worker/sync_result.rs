//! Results of a sync of a pod.

use std::time::SystemTime;

use tonic::{Code, Status};

use super::kill::KillPodError;
use crate::kubelet::cri_config::FqdnTooLong;
use crate::kubelet::node::ResolvConfError;
use crate::kubelet::user_namespaces::UserNamespaceError;
use crate::manifest::ObjectError;
use crate::terminal::sanitize;

/// Result of a successful sync.
pub(super) enum SyncResult {
    /// The sync changed something. The next sync follows after a short delay.
    Changed,
    /// There was nothing to do.
    NoChange,
    /// A step failed. The next sync is at this time, or after the default delay.
    Retry(Option<SystemTime>),
    /// The pod has ended and is to be terminated.
    Terminal,
}

/// Reason why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    /// A CRI call failed.
    #[error("{}", sanitize(.0.message()))]
    Runtime(#[from] Status),
    /// Containers or sandboxes of the pod were not stopped.
    #[error(transparent)]
    KillPod(#[from] KillPodError),
    /// The network of the runtime is not ready, for this reason. The message is the kubelet's.
    #[error("network is not ready: {0}")]
    NetworkNotReady(String),
    /// The resolver configuration of the node was not read.
    #[error(transparent)]
    ResolvConf(#[from] ResolvConfError),
    /// The host name of the pod is too long.
    #[error(transparent)]
    Hostname(#[from] FqdnTooLong),
    /// The pod has no user namespace.
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    /// An object that the pod refers to does not exist.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The files of the pod could not be prepared.
    #[error("{0}")]
    Volumes(String),
}

impl SyncError {
    /// Returns whether the reason is probably a state of the runtime that affects all pods, and not
    /// this pod.
    pub(super) fn is_of_node(&self) -> bool {
        match self {
            Self::NetworkNotReady(_) => true,
            Self::Runtime(status) => status.code() == Code::Unavailable,
            _ => false,
        }
    }
}
