//! Group, namespace and name of an object.

use std::collections::BTreeMap;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::reader::config_object;
use crate::manifest::validation::{DNS_LABEL, DNS_SUBDOMAIN, is_dns_label, is_dns_subdomain};
use crate::manifest::workload::{Workload, WorkloadKind, generate_name};
use crate::suggest::did_you_mean;

/// Namespace of objects that name none.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// Returns the group of an object, if it is one that can define a kind with the name of another
/// one: groups of custom resources have a dot.
pub(super) fn custom_group<'a>(kind: &str, node: &Cursor<'a>) -> Option<&'a str> {
    let (group, _) = node.value().get("apiVersion")?.as_str()?.split_once('/')?;
    let is_own = kind == config_object::RUNTIME_CLASS_KIND && group == config_object::RUNTIME_CLASS_GROUP;
    Some(group).filter(|group| group.contains('.') && is_dns_subdomain(group) && !is_own)
}

/// Kinds that the groups of pods and workloads have in Kubernetes 1.36.
const KINDS: [(&str, &[&str]); 3] = [
    (
        "v1",
        &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "List",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("apps/v1", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("batch/v1", &["CronJob", "Job"]),
];

/// Reports a kind that its group does not have.
pub(super) fn check_kind(kind: &str, node: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let version = node.value()["apiVersion"].as_str();
    let Some((version, known)) = KINDS.iter().find(|(group, _)| Some(*group) == version) else { return };
    if let Some(at) = node.field("kind").filter(|_| !known.contains(&kind)) {
        let hint = did_you_mean(kind, known.iter().copied());
        at.error(format!("no matches for kind {kind:?} in version {version:?}{hint}"), problems);
    }
}

/// Returns the identity of a workload or pod, without labels; `None` if it has none, which is
/// reported.
pub(super) fn owner(
    node: &Cursor<'_>,
    kind: WorkloadKind,
    problems: &mut Vec<Violation>,
) -> Option<Workload> {
    let generated = generated_name(node, problems);
    let name = match node.at(&["metadata", "name"]).filter(|name| name.value() != "") {
        Some(at) => {
            let name = at.text(problems)?;
            if !is_dns_subdomain(&name) {
                at.error(DNS_SUBDOMAIN, problems);
            }
            name
        }
        None if generated.is_some() => generated.clone()?,
        None => {
            node.missing("metadata.name", "name or generateName is required", problems);
            return None;
        }
    };
    let mut text = |path: &[&str]| node.at(path).and_then(|node| node.text(problems));
    let namespace = text(&["metadata", "namespace"]).filter(|namespace| !namespace.is_empty());
    let is_wrong = namespace.as_deref().is_some_and(|namespace| !is_dns_label(namespace));
    if let Some(at) = node.at(&["metadata", "namespace"]).filter(|_| is_wrong) {
        at.error(DNS_LABEL, problems);
    }
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let mut text = |path: &[&str]| node.at(path).and_then(|node| node.text(problems));
    let uid = text(&["metadata", "uid"]).filter(|_| kind == WorkloadKind::Pod);
    let is_generated = generated.is_some_and(|generated| generated == name);
    Some(Workload { kind, name, is_generated, namespace, uid, labels: BTreeMap::new() })
}

/// Returns a name that begins with `generateName`. Where an API server has random characters, it
/// has some that depend on the object.
fn generated_name(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<String> {
    let at = node.at(&["metadata", "generateName"]).filter(|at| at.value() != "")?;
    let begin = at.text(problems)?;
    // The end is not the end of the name (`apimachinery/pkg/api/validation/generic.go`:
    // `maskTrailingDash`).
    let masked = begin.strip_suffix('-').filter(|begin| !begin.is_empty());
    if !is_dns_subdomain(&masked.map_or(begin.clone(), |begin| format!("{begin}a"))) {
        at.error(DNS_SUBDOMAIN, problems);
    }
    Some(generate_name(&begin, &node.value().to_string()))
}
