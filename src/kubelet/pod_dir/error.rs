//! Errors about files of a pod.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::ObjectError;

/// Why files of a pod cannot be prepared or removed.
#[derive(Debug, thiserror::Error)]
pub(in crate::kubelet) enum VolumeError {
    /// The system refuses something.
    #[error("{path}: {source}")]
    System {
        /// Where.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Something is mounted in the directory of a pod that is to be removed.
    #[error("{path} cannot be unmounted, and nothing is removed through it: {source}")]
    StillMounted {
        /// The mount point.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A volume cannot be set up. The words are the kubelet's.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    SetUp {
        /// Name of the volume.
        volume: String,
        /// The reason.
        source: Box<VolumeError>,
    },
    /// An object that the volume refers to cannot be used.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The file at a hostPath has another type than the volume asks for.
    #[error("hostPath type check failed: {path} is not a {expected}")]
    OtherKind {
        /// The path.
        path: PathBuf,
        /// Type that the volume asks for.
        expected: &'static str,
    },
    /// A path or a link on it leads out of its volume.
    #[error("subPath {0:?} leads out of its volume")]
    Outside(String),
    /// A subPath begins with a slash. The words are the kubelet's.
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    /// A subPath contains `..`. The words are the kubelet's.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backsteps(String),
    /// A subPathExpr has variables without a value. The words are the kubelet's.
    #[error("missing value for {}", .0.join(", "))]
    MissingValues(Vec<String>),
    /// A subPath cannot be used. The words are the kubelet's, which withholds the source: it could tell about files of the host.
    #[error("failed to {action} for volumeMount {volume:?} of container {container:?}")]
    SubPath {
        /// The action that failed.
        action: &'static str,
        /// Name of the volume.
        volume: String,
        /// Name of the container.
        container: String,
        /// The reason.
        source: Box<VolumeError>,
    },
    /// The pod ends, and has no files any more.
    #[error("the files of the pod have been removed")]
    Gone,
}

impl VolumeError {
    /// Withholds why a subPath of a volume cannot be used.
    pub(super) fn in_volume(self, action: &'static str, volume: &str) -> Self {
        Self::SubPath { action, volume: volume.to_owned(), container: String::new(), source: Box::new(self) }
    }

    /// Adds the container to an error about a subPath.
    pub(super) fn in_container(self, name: &str) -> Self {
        match self {
            Self::SubPath { action, volume, source, .. } => {
                Self::SubPath { action, volume, container: name.to_owned(), source }
            }
            other => other,
        }
    }

    /// Returns what the message withholds, for the log.
    pub(in crate::kubelet) fn details(&self) -> Option<String> {
        matches!(self, Self::SubPath { .. }).then(|| self.source().map(ToString::to_string)).flatten()
    }
}

/// Adds a path to an error of the system.
pub(super) fn with_path(path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    move |source| VolumeError::System { path: path.to_owned(), source }
}
