//! The volumes of a pod, and where its containers have them.

use super::{EnvField, ResourceField};
use crate::cri::v1::MountPropagation;

/// A volume in a container.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::play) struct VolumeMount {
    pub(in crate::play) volume: String,
    pub(in crate::play) path: String,
    pub(in crate::play) sub_path: String,
    /// Whether variables in that are expanded.
    pub(in crate::play) expands: bool,
    pub(in crate::play) is_read_only: bool,
    pub(in crate::play) recursive: RecursiveReadOnly,
    pub(in crate::play) propagation: MountPropagation,
}

/// Whether a mount is read-only with all that is mounted below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::play) enum RecursiveReadOnly {
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
pub(in crate::play) struct Volume {
    pub(in crate::play) name: String,
    pub(in crate::play) source: VolumeSource,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::play) enum VolumeSource {
    /// An empty folder; in memory, with a size if one is given.
    EmptyDir { is_memory: bool, size: Option<u64> },
    /// A path of the host.
    HostPath { path: String, kind: HostPathKind },
    /// Files.
    Files { kind: FilesKind, files: Vec<ProjectedFile>, mode: u32 },
}

/// What kind of volume files are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::play) enum FilesKind {
    ConfigMap,
    Secret,
    DownwardApi,
    Projected,
}

/// A file of a volume.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::play) struct ProjectedFile {
    pub(in crate::play) path: String,
    /// Where it is another than the volume's.
    pub(in crate::play) mode: Option<u32>,
    pub(in crate::play) content: VolumeContent,
}

/// What stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::play) enum VolumeContent {
    Given(Vec<u8>),
    Field(EnvField),
    Resource(ResourceField),
}

/// What has to be at a path of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::play) enum HostPathKind {
    Any,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}
