//! The volumes of a pod, and where its containers have them.

use crate::cri::v1::MountPropagation;
use crate::manifest::pod::{EnvField, ResourceField};

/// A volume in a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeMount {
    pub(crate) volume: String,
    pub(crate) path: String,
    pub(crate) sub_path: String,
    /// Whether variables in that are expanded.
    pub(crate) expands: bool,
    pub(crate) is_read_only: bool,
    pub(crate) recursive: RecursiveReadOnly,
    pub(crate) propagation: MountPropagation,
}

/// Whether a mount is read-only with all that is mounted below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecursiveReadOnly {
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
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) source: VolumeSource,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VolumeSource {
    /// An empty folder; in memory, with a size if one is given.
    EmptyDir { is_memory: bool, size: Option<u64> },
    /// A path of the host.
    HostPath { path: String, kind: HostPathKind },
    /// Files.
    Files { kind: FilesKind, files: Vec<ProjectedFile>, mode: u32 },
}

/// What kind of volume files are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesKind {
    ConfigMap,
    Secret,
    DownwardApi,
    Projected,
}

/// A file of a volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProjectedFile {
    pub(crate) path: String,
    /// Where it is another than the volume's.
    pub(crate) mode: Option<u32>,
    pub(crate) content: VolumeContent,
}

/// What stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VolumeContent {
    Given(Vec<u8>),
    Field(EnvField),
    Resource(ResourceField),
}

/// What has to be at a path of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPathKind {
    Any,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}
