//! Reads environment variables of a container, and references to fields of its pod.

use crate::manifest::PodSpec;
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{
    DataKind, DataRef, EnvField, EnvFrom, FileKeyRef, ResourceField, Variable, VariableValue, is_huge_page,
};
use crate::manifest::quantity::Quantity;
use crate::manifest::reader::fields::{FieldSet, flag, list, required, text};
use crate::manifest::validation::{
    CONFIG_KEY, DNS_LABEL, DNS_SUBDOMAIN, has_backstep, is_config_key, is_dns_label, is_dns_subdomain,
};

const VARIABLE: FieldSet = FieldSet::only(&["name", "value", "valueFrom"]);

const VALUE_FROM: FieldSet =
    FieldSet::only(&["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"]);

const ENV_FROM: FieldSet = FieldSet::only(&["prefix", "configMapRef", "secretRef"]);

const FIELD_REF: FieldSet = FieldSet { known: &["fieldPath"], ignored: &["apiVersion"], unsupported: &[] };

const RESOURCE_REF: FieldSet = FieldSet::only(&["containerName", "resource", "divisor"]);

const KEY_REF: FieldSet = FieldSet::only(&["name", "key", "optional"]);

const FILE_KEY_REF: FieldSet = FieldSet::only(&["volumeName", "path", "key", "optional"]);

const WHOLE_REF: FieldSet = FieldSet::only(&["name", "optional"]);

/// Error about the name of a variable.
const VARIABLE_NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// Error about several sources of a variable.
const ONE_FIELD: &str = "may not have more than one field specified at a time";

/// Resources to which a variable may refer, in addition to huge pages.
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Errors about divisors.
const CPU_DIVISORS: &str = "only divisor's values 1m and 1 are supported with the cpu resource";
const DIVISORS: &str =
    "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported";

/// Limits and requests to which a variable may refer, for errors.
const RESOURCE_FIELDS: [&str; 8] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.hugepages-SIZE",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.hugepages-SIZE",
    "requests.memory",
];

/// Fields of the pod to which a variable may refer, for errors.
const VARIABLE_FIELDS: [&str; 11] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels['KEY']",
    "metadata.annotations['KEY']",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of the pod to which a file may refer, for errors.
const FILE_FIELDS: [&str; 7] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
    "metadata.labels['KEY']",
    "metadata.annotations['KEY']",
];

/// Reads the variables of a container, in their order.
pub(super) fn variables(
    container: &Cursor<'_>,
    pod: &PodSpec,
    problems: &mut Vec<Violation>,
) -> Vec<Variable> {
    // `spec::read_spec` has reported a value that is not a list.
    let list = list(container, "env", &mut Vec::new());
    list.iter().filter_map(|node| variable(node, pod, problems)).collect()
}

fn variable(node: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<Variable> {
    // `spec::read_spec` has reported names and values that are not strings.
    VARIABLE.check(node, problems);
    let Some(name) = node.field("name") else {
        if node.value().is_object() {
            node.missing("name", "", problems);
        }
        return None;
    };
    let text = name.value().as_str()?;
    if text.is_empty() {
        name.empty("", problems);
    } else if !is_variable_name(text) {
        name.error(VARIABLE_NAME, problems);
    }
    let literal = node.field("value").and_then(|value| value.value().as_str());
    let literal = literal.filter(|value| !value.is_empty()).map(str::to_owned);
    let value = match (node.field("valueFrom"), literal) {
        (None, literal) => VariableValue::Literal(literal.unwrap_or_default()),
        (Some(from), Some(_)) => {
            from.forbidden("may not be specified when `value` is not empty", problems);
            return None;
        }
        (Some(from), None) => value_from(&from, pod, problems)?,
    };
    Some(Variable { name: text.to_owned(), value })
}

fn is_variable_name(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

fn value_from(node: &Cursor<'_>, pod: &PodSpec, problems: &mut Vec<Violation>) -> Option<VariableValue> {
    VALUE_FROM.check(node, problems);
    let there: Vec<Cursor<'_>> = VALUE_FROM.known.iter().filter_map(|name| node.field(name)).collect();
    if there.len() != 1 {
        if !node.value().is_object() {
            return None;
        }
        if there.len() > 1 {
            node.forbidden(ONE_FIELD, problems);
        } else {
            node.empty(
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
                problems,
            );
        }
        return None;
    }
    if let Some(node) = node.field("fieldRef") {
        return field(&node, false, problems).map(VariableValue::Field);
    }
    if let Some(node) = node.field("resourceFieldRef") {
        return resource(&node, false, pod, problems).map(VariableValue::Resource);
    }
    if let Some(node) = node.field("fileKeyRef") {
        return file_key(&node, problems).map(VariableValue::FileKey);
    }
    let (node, kind) = match (node.field("configMapKeyRef"), node.field("secretKeyRef")) {
        (Some(node), _) => (node, DataKind::ConfigMap),
        (None, node) => (node?, DataKind::Secret),
    };
    KEY_REF.check(&node, problems);
    let key = required(&node, "key", "", problems);
    if let Some(at) = node.field("key").filter(|_| key.as_deref().is_some_and(|key| !is_config_key(key))) {
        at.error(CONFIG_KEY, problems);
    }
    let object = named_data_ref(&node, kind, problems)?;
    Some(VariableValue::Key { object, key: key? })
}

/// Reads a reference to a key of a file (`core/validation/validation.go`:
/// `validateFileKeySelector`).
fn file_key(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<FileKeyRef> {
    FILE_KEY_REF.check(node, problems);
    let [key, volume, path] = ["key", "volumeName", "path"].map(|field| required(node, field, "", problems));
    if let Some(at) = node.field("key").filter(|_| key.as_deref().is_some_and(|key| !is_variable_name(key))) {
        at.error(VARIABLE_NAME, problems);
    }
    if let Some(at) =
        node.field("volumeName").filter(|_| volume.as_deref().is_some_and(|it| !is_dns_label(it)))
    {
        at.error(DNS_LABEL, problems);
    }
    if let Some(at) = node.field("path").filter(|_| path.as_deref().is_some_and(has_backstep)) {
        at.error("must not contain '..'", problems);
    }
    let is_optional = flag(node, "optional", problems);
    Some(FileKeyRef { volume: volume?, path: path?, key: key?, is_optional })
}

/// Reads the references to ConfigMaps and Secrets whose keys become variables, in their order.
pub(super) fn env_from(container: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<EnvFrom> {
    let mut all = Vec::new();
    for node in list(container, "envFrom", problems) {
        ENV_FROM.check(&node, problems);
        let prefix = text(&node, "prefix", problems).unwrap_or_default();
        let (from, kind) = match (node.field("configMapRef"), node.field("secretRef")) {
            (Some(from), None) => (from, DataKind::ConfigMap),
            (None, Some(from)) => (from, DataKind::Secret),
            (Some(_), Some(_)) => {
                node.forbidden(ONE_FIELD, problems);
                continue;
            }
            (None, None) => {
                if node.value().is_object() {
                    node.empty("must specify one of: `configMapRef` or `secretRef`", problems);
                }
                continue;
            }
        };
        WHOLE_REF.check(&from, problems);
        all.extend(named_data_ref(&from, kind, problems).map(|object| EnvFrom { prefix, object }));
    }
    all
}

/// Reads a reference to a ConfigMap or Secret. `field` is the field with its name.
pub(super) fn data_ref(
    node: &Cursor<'_>,
    field: &str,
    kind: DataKind,
    problems: &mut Vec<Violation>,
) -> Option<DataRef> {
    let name = required(node, field, "", problems);
    let is_optional = flag(node, "optional", problems);
    Some(DataRef { kind, name: name?, is_optional })
}

/// Reads a reference of a variable, whose name is validated. Those of volumes are not.
fn named_data_ref(node: &Cursor<'_>, kind: DataKind, problems: &mut Vec<Violation>) -> Option<DataRef> {
    let object = data_ref(node, "name", kind, problems)?;
    if let Some(at) = node.field("name").filter(|_| !is_dns_subdomain(&object.name)) {
        at.error(DNS_SUBDOMAIN, problems);
    }
    Some(object)
}

/// Reads a reference to a field of the pod. A file, but not a variable, may have all labels or
/// annotations.
pub(super) fn field(node: &Cursor<'_>, is_file: bool, problems: &mut Vec<Violation>) -> Option<EnvField> {
    FIELD_REF.check(node, problems);
    if let Some(at) = node.field("apiVersion").filter(|at| at.value() != "") {
        at.one_of(&[("v1", ())], problems);
    }
    let path = required(node, "fieldPath", "", problems)?;
    let of_map = |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']");
    let found = match path.as_str() {
        "metadata.name" => Some(EnvField::Name),
        "metadata.namespace" => Some(EnvField::Namespace),
        "metadata.uid" => Some(EnvField::Uid),
        "metadata.labels" if is_file => Some(EnvField::Labels),
        "metadata.annotations" if is_file => Some(EnvField::Annotations),
        "spec.nodeName" if !is_file => Some(EnvField::NodeName),
        "spec.serviceAccountName" if !is_file => Some(EnvField::ServiceAccount),
        "status.hostIP" if !is_file => Some(EnvField::HostIp),
        "status.hostIPs" if !is_file => Some(EnvField::HostIps),
        "status.podIP" if !is_file => Some(EnvField::PodIp),
        "status.podIPs" if !is_file => Some(EnvField::PodIps),
        _ => of_map("metadata.labels")
            .map(|key| EnvField::Label(key.to_owned()))
            .or_else(|| of_map("metadata.annotations").map(|key| EnvField::Annotation(key.to_owned()))),
    };
    if found.is_none() {
        let known = if is_file { &FILE_FIELDS[..] } else { &VARIABLE_FIELDS[..] };
        node.field("fieldPath")?.unknown_value(known, problems);
    }
    found
}

/// Reads a reference to a limit or request. In a file it must name the container.
pub(super) fn resource(
    node: &Cursor<'_>,
    is_file: bool,
    pod: &PodSpec,
    problems: &mut Vec<Violation>,
) -> Option<ResourceField> {
    RESOURCE_REF.check(node, problems);
    let container = if is_file {
        Some(required(node, "containerName", "", problems)?)
    } else {
        text(node, "containerName", problems)
    };
    if let Some(name) = container.as_ref().filter(|name| pod.container(name).is_none()) {
        let names: Vec<&str> = pod.containers.iter().map(|container| container.name.as_str()).collect();
        let detail = format!("the containers of the pod are: {}", names.join(", "));
        node.field("containerName").filter(|at| at.value() == name.as_str())?.not_found(&detail, problems);
    }
    let resource = required(node, "resource", "", problems)?;
    let split = resource.split_once('.').and_then(|(kind, name)| match kind {
        "limits" => Some((true, name)),
        "requests" => Some((false, name)),
        _ => None,
    });
    let is_known = |name: &str| RESOURCES.contains(&name) || is_huge_page(name);
    let Some((is_limit, name)) = split.filter(|(_, name)| is_known(name)) else {
        node.field("resource")?.unknown_value(&RESOURCE_FIELDS, problems);
        return None;
    };
    let divisor = node.field("divisor").map(|divisor| quantity(&divisor, problems));
    let divisor = divisor.map_or(Some(Quantity::ONE), |read| read)?;
    if !is_divisor(name, divisor) {
        let reason = if name == "cpu" { CPU_DIVISORS } else { DIVISORS };
        node.field("divisor")?.error(reason, problems);
    }
    Some(ResourceField { container, is_limit, resource: name.to_owned(), divisor })
}

/// Returns whether a quantity is a valid divisor of a resource, by the rules of the API server
/// (`core/validation/validation.go`: `validateContainerResourceDivisor`). 0 counts as absent.
fn is_divisor(resource: &str, divisor: Quantity) -> bool {
    let is_power = |base: u64| (0..=6).any(|power| divisor == Quantity::from_units(base.pow(power)));
    match resource {
        _ if divisor.is_zero() => true,
        "cpu" => divisor == Quantity::ONE || divisor == Quantity::MILLI,
        _ => is_power(1_000) || is_power(1_024),
    }
}

/// Reads a quantity, which may be a string or a number.
pub(super) fn quantity(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Quantity> {
    let text = match node.value() {
        serde_json::Value::Number(number) => number.to_string(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    // `apimachinery/pkg/api/resource/quantity.go`: `UnmarshalJSON` removes space around a quantity.
    let read = Quantity::parse(text.trim());
    if read.is_none() {
        node.error("must be a non-negative quantity, such as 100m, 0.5 or 128Mi", problems);
    }
    read
}
