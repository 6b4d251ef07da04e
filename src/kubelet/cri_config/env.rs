//! Environment variables of a container, and the fields of its pod for variables and files.

use std::collections::HashMap;

use super::CONFIG_SEEN;
use crate::gofmt::quote;
use crate::kubelet::node::NodeInfo;
use crate::manifest::pod::{
    Container, EnvField, EnvFrom, FileKeyRef, Pod, ResourceField, StringMap, VariableValue,
};
use crate::manifest::{ConfigObjects, ContainerKind, ObjectError};
use crate::probe::expand_with;

/// Variables of a container, sorted by name. A value from a Secret may have any bytes.
pub(in crate::kubelet) type Variables = Vec<(String, Vec<u8>)>;

/// Reads a variable from a file. Returns `None` if the file does not have it and it is optional.
/// Fails with the kubelet's message.
pub(in crate::kubelet) type ReadEnvFile<'a> = &'a dyn Fn(&FileKeyRef) -> Result<Option<String>, String>;

/// Returns the value of a variable of a file in tests that have no files.
#[cfg(test)]
pub(in crate::kubelet) fn no_file(file: &FileKeyRef) -> Result<Option<String>, String> {
    Err(format!("no file {}", file.path))
}

/// Reason why a variable has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::kubelet) enum EnvError {
    /// An object cannot be used.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A file cannot be used.
    #[error("{0}")]
    File(String),
}

/// The pod, the node and the objects from which variables and files get their values.
#[derive(Clone, Copy, Debug)]
pub(in crate::kubelet) struct EnvFacts<'a> {
    pub(in crate::kubelet) pod: &'a Pod,
    pub(in crate::kubelet) node: &'a NodeInfo,
    /// Time at which the pod was seen first, which the kubelet adds to its annotations.
    pub(in crate::kubelet) seen: &'a str,
    /// Addresses of the pod, the primary one first.
    pub(in crate::kubelet) addresses: &'a [String],
    /// Objects that the pod may refer to.
    pub(in crate::kubelet) objects: &'a ConfigObjects,
}

/// Returns the variables of a container, sorted by name. The last of several with one name wins,
/// and `env` takes precedence over `envFrom` (kubelet: `kubelet_pods.go`:
/// `makeEnvironmentVariables`). Fails if an object, key or file is missing and not optional.
pub(in crate::kubelet) fn variables(
    container: &Container,
    facts: &EnvFacts<'_>,
    read_file: ReadEnvFile<'_>,
) -> Result<Variables, EnvError> {
    let resolve = |object| facts.objects.resolve(&facts.pod.namespace, object);
    let mut known: HashMap<String, Vec<u8>> = HashMap::new();
    for EnvFrom { prefix, object } in &container.env_from {
        let variables = resolve(object)?.into_iter().flat_map(|data| data.variables());
        known.extend(variables.map(|(key, value)| (format!("{prefix}{key}"), value.to_owned())));
    }
    for variable in &container.env {
        let value = match &variable.value {
            VariableValue::Literal(text) => expand_with(text, |name| known.get(name).map(Vec::as_slice)),
            VariableValue::Field(of) => field(of, facts).into_bytes(),
            VariableValue::Resource(of) => resource(of, Some(container), facts).into_bytes(),
            VariableValue::Key { object, key } => {
                let Some(data) = resolve(object)? else { continue };
                let Some(value) = data.variable(key, object.is_optional)? else { continue };
                value.to_owned()
            }
            VariableValue::FileKey(file) => {
                let Some(value) = read_file(file).map_err(EnvError::File)? else { continue };
                value.into_bytes()
            }
        };
        known.insert(variable.name.clone(), value);
    }
    let mut variables: Variables = known.into_iter().collect();
    variables.sort_unstable();
    Ok(variables)
}

/// Returns variables for arguments and paths, which are UTF-8 in the CRI.
pub(in crate::kubelet) fn texts(variables: &[(String, Vec<u8>)]) -> HashMap<String, String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    variables.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// Returns the value of a field of a pod (kubelet: `kubelet_pods.go`:
/// `podFieldSelectorRuntimeValue`).
pub(in crate::kubelet) fn field(field: &EnvField, facts: &EnvFacts<'_>) -> String {
    let EnvFacts { pod, node, addresses, seen, .. } = *facts;
    let get = |texts: &StringMap, key: &String| texts.get(key).cloned().unwrap_or_default();
    let of_host = || vec![node.address.clone()];
    match field {
        EnvField::Name => pod.name.clone(),
        EnvField::Namespace => pod.namespace.clone(),
        EnvField::Uid => pod.uid.clone(),
        EnvField::Label(key) => get(&pod.labels, key),
        EnvField::Annotation(key) if key == CONFIG_SEEN => seen.to_owned(),
        EnvField::Annotation(key) => get(&pod.annotations, key),
        EnvField::Labels => map(&pod.labels),
        EnvField::Annotations => {
            let seen = (CONFIG_SEEN.to_owned(), seen.to_owned());
            map(&pod.annotations.clone().into_iter().chain([seen]).collect())
        }
        EnvField::NodeName => node.name.clone(),
        EnvField::ServiceAccount => pod.written_spec.service_account_name.clone().unwrap_or_default(),
        EnvField::HostIp | EnvField::HostIps => node.address.clone(),
        EnvField::PodIp if pod.host.network => node.address.clone(),
        EnvField::PodIp => addresses.first().cloned().unwrap_or_default(),
        EnvField::PodIps => if pod.host.network { of_host() } else { addresses.to_vec() }.join(","),
    }
}

/// Returns one line per entry, as the kubelet writes maps to files (`pkg/fieldpath/fieldpath.go`:
/// `FormatMap`).
fn map(texts: &StringMap) -> String {
    let line = |(key, text): (&String, &String)| format!("{key}={}", quote(text));
    texts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns a limit or request of a container in units of the divisor, rounded up, for a variable of
/// a container or, with `None`, for a file. A limit that is not set or zero is the limit of the
/// pod, or else the allocatable amount of the node. A variable that names another container gets
/// that amount for regular containers only (kubelet: `kubelet_resources.go`:
/// `defaultPodLimitsForDownwardAPI`; `pkg/api/v1/resource/helpers.go`:
/// `ExtractContainerResourceValue`).
pub(in crate::kubelet) fn resource(
    of: &ResourceField,
    owner: Option<&Container>,
    facts: &EnvFacts<'_>,
) -> String {
    let named = of.container.as_ref().and_then(|name| facts.pod.container(name));
    let container = if of.container.is_some() { named.map(|named| &**named) } else { owner };
    let has_default = of.is_limit
        && (owner.is_none() || named.is_none_or(|named| named.spec.role == ContainerKind::Regular));
    let resources = container.map(|container| &container.resources);
    let map = resources.map(|resources| if of.is_limit { &resources.limits } else { &resources.requests });
    let set = map.and_then(|map| map.get(&of.resource)).copied().filter(|quantity| !quantity.is_zero());
    let default = || {
        // As in the kubelet, the limit of the pod replaces an amount of the node only.
        let of_node = facts.node.allocatable(&of.resource).filter(|_| has_default)?;
        Some(facts.pod.own_limit(&of.resource).unwrap_or(of_node))
    };
    set.or_else(default).unwrap_or_default().div_ceil(of.divisor).to_string()
}
