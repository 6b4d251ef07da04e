//! References of a pod to ConfigMaps, Secrets and RuntimeClasses.

use std::fmt;

/// The kind of an object that holds data by keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataKind {
    ConfigMap,
    Secret,
}

/// A reference to a ConfigMap or Secret in the namespace of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataRef {
    pub(crate) kind: DataKind,
    pub(crate) name: String,
    /// Whether the object, or a key of it, may be missing.
    pub(crate) is_optional: bool,
}

/// Handler of the runtime that runs a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeHandler {
    /// Name by which the runtime knows the handler; empty for the default handler.
    Named(String),
    /// The handler of the RuntimeClass of this name.
    OfClass(String),
}

impl DataKind {
    /// Returns the name of the kind, as in manifests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl fmt::Display for DataKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Default for RuntimeHandler {
    fn default() -> Self {
        Self::Named(String::new())
    }
}

/// A key of a file with variables, in an emptyDir volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileKeyRef {
    /// Name of the volume.
    pub(crate) volume: String,
    /// Path of the file in the volume.
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) is_optional: bool,
}
