//! Environment variables of a container.

use super::{DataRef, FileKeyRef};
use crate::manifest::quantity::Quantity;

/// An environment variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: VariableValue,
}

/// Value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VariableValue {
    /// A literal value, which may contain references to other variables.
    Literal(String),
    /// A field of the pod.
    Field(EnvField),
    /// A limit or request of a container.
    Resource(ResourceField),
    /// The value of a key of a ConfigMap or Secret.
    Key { object: DataRef, key: String },
    /// The value of a key in a file of a volume.
    FileKey(FileKeyRef),
}

/// Variables from all keys of a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnvFrom {
    pub(crate) prefix: String,
    pub(crate) object: DataRef,
}

/// A field of a pod whose value a variable or file can have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EnvField {
    Name,
    Namespace,
    Uid,
    Label(String),
    Annotation(String),
    Labels,
    Annotations,
    NodeName,
    ServiceAccount,
    HostIp,
    HostIps,
    PodIp,
    PodIps,
}

/// A limit or request of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourceField {
    /// Name of the container; `None` for the container of the variable.
    pub(crate) container: Option<String>,
    pub(crate) is_limit: bool,
    pub(crate) resource: String,
    pub(crate) divisor: Quantity,
}
