//! The volumes of a pod, and where its containers have them.

use super::{EnvField, ResourceField};
use crate::cri::v1::MountPropagation;

/// A volume in a container.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubelet) struct VolumeMount {
    pub(in crate::kubelet) volume: String,
    pub(in crate::kubelet) path: String,
    pub(in crate::kubelet) sub_path: String,
    /// Whether variables in that are expanded.
    pub(in crate::kubelet) expands: bool,
    pub(in crate::kubelet) is_read_only: bool,
    pub(in crate::kubelet) recursive: RecursiveReadOnly,
    pub(in crate::kubelet) propagation: MountPropagation,
}

/// Whether a mount is read-only with all that is mounted below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::kubelet) enum RecursiveReadOnly {
    /// It alone is.
    #[default]
    Disabled,
    /// It is, where the runtime can.
    IfPossible,
    /// It is, or the container is not made.
    Enabled,
}

/// A volume.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubelet) struct Volume {
    pub(in crate::kubelet) name: String,
    pub(in crate::kubelet) source: VolumeSource,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubelet) enum VolumeSource {
    /// An empty folder; in memory, with a size if one is given.
    EmptyDir { is_memory: bool, size: Option<u64> },
    /// A path of the host.
    HostPath { path: String, kind: HostPathKind },
    /// Files.
    Files { kind: FilesKind, files: Vec<ProjectedFile>, mode: u32 },
}

/// What kind of volume files are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kubelet) enum FilesKind {
    ConfigMap,
    Secret,
    DownwardApi,
    Projected,
}

/// A file of a volume.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubelet) struct ProjectedFile {
    pub(in crate::kubelet) path: String,
    /// Where it is another than the volume's.
    pub(in crate::kubelet) mode: Option<u32>,
    pub(in crate::kubelet) content: VolumeContent,
}

/// What stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubelet) enum VolumeContent {
    Given(Vec<u8>),
    Field(EnvField),
    Resource(ResourceField),
}

/// What has to be at a path of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kubelet) enum HostPathKind {
    Any,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}
