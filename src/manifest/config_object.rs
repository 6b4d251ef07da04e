//! ConfigMaps, Secrets and RuntimeClasses, and the set of those to which pods refer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::docker_config::{DockerConfigError, read_config_json, read_dockercfg};
use crate::manifest::pod::{Credential, DataKind, DataRef, Pod, RuntimeHandler};

/// An object to which pods refer.
#[derive(Clone, PartialEq)]
pub(crate) enum ConfigObject {
    /// A ConfigMap or Secret.
    Data(Arc<ConfigData>),
    /// A RuntimeClass, which names a handler of the runtime.
    RuntimeClass { name: String, handler: String },
}

/// A ConfigMap or Secret.
#[derive(PartialEq)]
pub(crate) struct ConfigData {
    pub(crate) kind: DataKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) entries: BTreeMap<String, Vec<u8>>,
    /// Keys of a ConfigMap's `binaryData`, which are available to volumes only.
    pub(crate) binary: BTreeSet<String>,
    /// Type of a Secret; empty for a ConfigMap.
    pub(crate) secret_type: String,
}

/// All known ConfigMaps, Secrets and RuntimeClasses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ConfigObjects {
    data: BTreeMap<(DataKind, String, String), Arc<ConfigData>>,
    runtime_classes: BTreeMap<String, String>,
}

/// Reason why a referenced object cannot be used. The messages are the kubelet's
/// (`kubelet_pods.go`: `makeEnvironmentVariables`; `configmap.go`, `secret.go`: `MakePayload`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ObjectError {
    /// The object does not exist.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// Resource name in the API.
        resource: &'static str,
        /// Name of the object.
        name: String,
    },
    /// The object has no such key for a variable.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKeyForVariable { key: String, kind: DataKind, namespace: String, name: String },
    /// The object has no such key for a volume.
    #[error("{}", no_key_for_volume(*.kind, .key))]
    NoKeyForVolume { key: String, kind: DataKind },
    /// Several objects cannot be used.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<Self>),
}

fn no_key_for_volume(kind: DataKind, key: &str) -> String {
    match kind {
        DataKind::ConfigMap => format!("configmap references non-existent config key: {key}"),
        DataKind::Secret => format!("references non-existent secret key: {key}"),
    }
}

impl fmt::Debug for ConfigObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.key())
    }
}

impl fmt::Debug for ConfigData {
    /// Leaves out the content, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl ConfigObject {
    /// Returns kind, namespace and name, which identify the object.
    pub(crate) fn key(&self) -> (&str, &str, &str) {
        match self {
            Self::Data(data) => (data.kind.name(), &data.namespace, &data.name),
            Self::RuntimeClass { name, .. } => ("RuntimeClass", "", name),
        }
    }
}

impl FromIterator<ConfigObject> for ConfigObjects {
    /// Collects objects. The first of several with the same key counts.
    fn from_iter<T: IntoIterator<Item = ConfigObject>>(objects: T) -> Self {
        let mut known = Self::default();
        for object in objects {
            match object {
                ConfigObject::Data(data) => {
                    let key = (data.kind, data.namespace.clone(), data.name.clone());
                    known.data.entry(key).or_insert(data);
                }
                ConfigObject::RuntimeClass { name, handler } => {
                    known.runtime_classes.entry(name).or_insert(handler);
                }
            }
        }
        known
    }
}

impl ConfigObjects {
    /// Returns the referenced object; `None` if the reference is optional and the object does not
    /// exist.
    pub(crate) fn resolve(
        &self,
        namespace: &str,
        reference: &DataRef,
    ) -> Result<Option<&Arc<ConfigData>>, ObjectError> {
        let DataRef { kind, name, is_optional } = reference;
        match self.data(*kind, namespace, name) {
            None if !is_optional => {
                let resource = match kind {
                    DataKind::ConfigMap => "configmap",
                    DataKind::Secret => "secret",
                };
                Err(ObjectError::NotFound { resource, name: name.clone() })
            }
            found => Ok(found),
        }
    }

    /// Returns a ConfigMap or Secret.
    pub(crate) fn data(&self, kind: DataKind, namespace: &str, name: &str) -> Option<&Arc<ConfigData>> {
        self.data.get(&(kind, namespace.to_owned(), name.to_owned()))
    }

    /// Returns the name by which the runtime knows a handler; empty for the default handler.
    pub(crate) fn runtime_handler<'a>(&'a self, handler: &'a RuntimeHandler) -> Result<&'a str, ObjectError> {
        match handler {
            RuntimeHandler::Named(name) => Ok(name),
            RuntimeHandler::OfClass(class) => {
                let known = self.runtime_classes.get(class).map(String::as_str);
                known.ok_or_else(|| ObjectError::NotFound {
                    resource: "runtimeclass.node.k8s.io",
                    name: class.clone(),
                })
            }
        }
    }

    /// Returns whether `other` differs in an object to which `pod` refers.
    pub(crate) fn differ_for(&self, pod: &Pod, other: &Self) -> bool {
        let class = match &pod.runtime_handler {
            RuntimeHandler::OfClass(class) => {
                self.runtime_classes.get(class) != other.runtime_classes.get(class)
            }
            RuntimeHandler::Named(_) => false,
        };
        let data =
            |kind, name| self.data(kind, &pod.namespace, name) != other.data(kind, &pod.namespace, name);
        class || pod.data_names().any(|(kind, name)| data(kind, name))
    }
}

impl ConfigData {
    /// Returns the value of a key for a variable; `None` if the key does not exist and the
    /// reference is optional.
    pub(crate) fn variable(&self, key: &str, is_optional: bool) -> Result<Option<&[u8]>, ObjectError> {
        match self.entries.get(key).filter(|_| !self.binary.contains(key)) {
            Some(value) => Ok(Some(value)),
            None if is_optional => Ok(None),
            None => Err(ObjectError::NoKeyForVariable {
                key: key.to_owned(),
                kind: self.kind,
                namespace: self.namespace.clone(),
                name: self.name.clone(),
            }),
        }
    }

    /// Returns the content of a key for a volume; `None` if the key does not exist and the
    /// reference is optional.
    pub(crate) fn file(&self, key: &str, is_optional: bool) -> Result<Option<&[u8]>, ObjectError> {
        match self.entries.get(key) {
            None if !is_optional => Err(ObjectError::NoKeyForVolume { key: key.to_owned(), kind: self.kind }),
            found => Ok(found.map(Vec::as_slice)),
        }
    }

    /// Returns all values that can become variables, by key.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let variables = self.entries.iter().filter(|(key, _)| !self.binary.contains(*key));
        variables.map(|(key, content)| (key.as_str(), content.as_slice()))
    }

    /// Returns the registry credentials in a Secret of type `kubernetes.io/dockerconfigjson` or
    /// `kubernetes.io/dockercfg`; a Secret of another type has none (kubelet:
    /// `pkg/credentialprovider/secrets/secrets.go`: `secretsToTrackedDockerConfigs`).
    pub(crate) fn credentials(&self) -> Result<Vec<Credential>, DockerConfigError> {
        let (key, read): (_, fn(&[u8]) -> _) = match self.secret_type.as_str() {
            "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", read_config_json),
            "kubernetes.io/dockercfg" => (".dockercfg", read_dockercfg),
            _ => return Ok(Vec::new()),
        };
        match self.entries.get(key) {
            Some(content) if !content.is_empty() => read(content),
            _ => Ok(Vec::new()),
        }
    }
}
