//! Volumes of a pod, and their mounts in containers.

use crate::cri::v1::MountPropagation;
use crate::manifest::pod::{DataRef, EnvField, PullPolicy, ResourceField};
use crate::manifest::quantity::Quantity;

/// Mount of a volume in a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeMount {
    pub(crate) volume: String,
    pub(crate) path: String,
    pub(crate) sub_path: String,
    /// Whether variables in `sub_path` are expanded.
    pub(crate) expands: bool,
    pub(crate) is_read_only: bool,
    pub(crate) recursive: RecursiveReadOnly,
    pub(crate) propagation: MountPropagation,
}

/// Whether mounts below a read-only mount are read-only as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecursiveReadOnly {
    /// Only the mount itself is read-only.
    #[default]
    Disabled,
    /// Mounts below are read-only if the runtime supports it.
    IfPossible,
    /// Mounts below are read-only. The container does not start if the runtime does not support it.
    Enabled,
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) source: VolumeSource,
}

/// Source of a volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VolumeSource {
    /// An empty directory, with an optional size limit in bytes.
    EmptyDir { medium: EmptyDirMedium, size: Option<u64> },
    /// A path of the host.
    HostPath { path: String, kind: HostPathKind },
    /// The files of an image, which the runtime mounts.
    Image { reference: String, policy: PullPolicy },
    /// Files that probeshim writes.
    Files { kind: FilesKind, sources: Vec<FileSource>, mode: u32 },
}

/// Medium of an empty directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum EmptyDirMedium {
    #[default]
    Disk,
    Memory,
    /// Huge pages. `text` is the medium in the manifest, `page_size` the size in it.
    HugePages {
        text: String,
        page_size: Option<Quantity>,
    },
}

/// Kind of a volume of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesKind {
    ConfigMap,
    Secret,
    DownwardApi,
    Projected,
}

/// A source of files in a volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileSource {
    /// Keys of a ConfigMap or Secret; all keys if `items` is empty.
    Data { object: DataRef, items: Vec<KeyToPath> },
    /// Fields of the pod.
    DownwardApi(Vec<DownwardApiFile>),
}

/// A key of a ConfigMap or Secret, and the path of its file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyToPath {
    pub(crate) key: String,
    pub(crate) path: String,
    /// `None` for the mode of the volume.
    pub(crate) mode: Option<u32>,
}

/// A field of the pod, and the path of its file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DownwardApiFile {
    pub(crate) path: String,
    /// `None` for the mode of the volume.
    pub(crate) mode: Option<u32>,
    pub(crate) content: PodField,
}

/// A field or resource of a pod that is the content of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodField {
    Field(EnvField),
    Resource(ResourceField),
}

impl VolumeSource {
    /// Returns the references to ConfigMaps and Secrets.
    pub(crate) fn data_refs(&self) -> impl Iterator<Item = &DataRef> {
        let sources = match self {
            Self::Files { sources, .. } => sources.as_slice(),
            Self::EmptyDir { .. } | Self::HostPath { .. } | Self::Image { .. } => &[],
        };
        sources.iter().filter_map(|source| match source {
            FileSource::Data { object, .. } => Some(object),
            FileSource::DownwardApi(_) => None,
        })
    }
}

impl FileSource {
    /// Returns the paths that the manifest specifies.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Self::Data { items, .. } => items.iter().map(|item| item.path.as_str()).collect(),
            Self::DownwardApi(files) => files.iter().map(|file| file.path.as_str()).collect(),
        }
    }
}

/// Required type of a path on the host.
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
