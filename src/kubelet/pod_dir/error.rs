//! Errors about files of a pod.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use super::huge_pages::PageSizeError;
use crate::manifest::ObjectError;

/// Error of the preparation or removal of a pod's files.
#[derive(Debug, thiserror::Error)]
pub(in crate::kubelet) enum VolumeError {
    /// A system call failed.
    #[error("{path}: {source}")]
    System {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A mount below the directory of a pod cannot be unmounted, so the directory is not removed.
    #[error("mount point {path} cannot be unmounted, and the pod's directory is not removed: {source}")]
    StillMounted {
        /// The mount point.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A volume cannot be set up. The message is the kubelet's.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    SetUp {
        /// Name of the volume.
        volume: String,
        /// The reason.
        source: Box<VolumeError>,
    },
    /// The page size of a volume of huge pages is not known.
    #[error(transparent)]
    PageSize(#[from] PageSizeError),
    /// An object to which the volume refers cannot be used.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The file at a hostPath does not have the type that the volume requires. The message is the
    /// kubelet's.
    #[error("hostPath type check failed: {path} is not a {expected}")]
    OtherKind {
        /// The path.
        path: PathBuf,
        /// Type that the volume requires.
        expected: &'static str,
    },
    /// A path or a link on it leads out of its volume.
    #[error("subPath {0:?} leads out of its volume")]
    Outside(String),
    /// A subPath begins with a slash. The message is the kubelet's.
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    /// A subPath contains `..`. The message is the kubelet's.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backsteps(String),
    /// A subPathExpr has variables without a value. The message is the kubelet's.
    #[error("missing value for {}", .0.join(", "))]
    MissingValues(Vec<String>),
    /// A subPath cannot be used. The message is the kubelet's; like the kubelet's it omits the
    /// source, which may reveal files of the host.
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
    /// The pod's files were removed because the pod has terminated.
    #[error("the files of the pod have been removed")]
    Gone,
}

impl VolumeError {
    /// Wraps an error about a subPath of a volume, so that the message omits the reason.
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

    /// Returns the reason that the message of a subPath error omits. The caller logs it.
    pub(in crate::kubelet) fn details(&self) -> Option<String> {
        matches!(self, Self::SubPath { .. }).then(|| self.source().map(ToString::to_string)).flatten()
    }
}

/// Returns a function that adds a path to an error of the operating system.
pub(super) fn with_path(path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    move |source| VolumeError::System { path: path.to_owned(), source }
}
