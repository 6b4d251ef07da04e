//! Reads the operating system of a pod.

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::reader::fields::{FieldSet, list};

const OS: FieldSet = FieldSet::only(&["name"]);

/// Fields of a pod that only Linux has.
const LINUX_FIELDS_OF_POD: [&[&str]; 15] = [
    &["securityContext", "appArmorProfile"],
    &["securityContext", "seLinuxOptions"],
    &["hostUsers"],
    &["hostPID"],
    &["hostIPC"],
    &["securityContext", "seccompProfile"],
    &["securityContext", "fsGroup"],
    &["securityContext", "fsGroupChangePolicy"],
    &["securityContext", "sysctls"],
    &["shareProcessNamespace"],
    &["securityContext", "runAsUser"],
    &["securityContext", "runAsGroup"],
    &["securityContext", "supplementalGroups"],
    &["securityContext", "supplementalGroupsPolicy"],
    &["securityContext", "seLinuxChangePolicy"],
];

/// Fields of the security context of a container that only Linux has.
const LINUX_FIELDS_OF_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Returns whether a pod is for Windows. Reports fields that the operating system of the pod does
/// not have (Kubernetes: `core/validation/validation.go`: `validateOS`, `validateLinux`,
/// `validateWindows`).
pub(super) fn is_windows(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> bool {
    let os = spec.field("os");
    if let Some(os) = &os {
        OS.check(os, problems);
    }
    let name = os.as_ref().and_then(|os| os.field("name"));
    if os.is_some_and(|os| os.value().is_object() && name.is_none()) {
        spec.missing("os.name", "supported values: \"linux\", \"windows\"", problems);
    }
    let is_windows = name.and_then(|name| name.one_of(&[("linux", false), ("windows", true)], problems));
    match is_windows {
        Some(true) => forbid_linux_fields(spec, problems),
        Some(false) => {
            for at in windows_options(spec) {
                at.forbidden("windows options cannot be set for a linux pod", problems);
            }
        }
        None => {
            for at in windows_options(spec) {
                at.unsupported("only Linux is supported", problems);
            }
        }
    }
    is_windows == Some(true)
}

/// Reports fields of a pod for Windows that only Linux has.
fn forbid_linux_fields(spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    // A flag of the host's namespaces that is false counts as absent.
    let is_set =
        |path: &[&str], at: &Cursor<'_>| !matches!(path, ["hostPID" | "hostIPC"]) || at.value() != false;
    let of_pod = LINUX_FIELDS_OF_POD.iter().filter_map(|path| spec.at(path).filter(|at| is_set(path, at)));
    let containers = containers(spec);
    let of_containers = containers.iter().filter_map(|container| container.field("securityContext"));
    let of_containers = of_containers.flat_map(|security| {
        LINUX_FIELDS_OF_CONTAINER.iter().filter_map(move |field| security.field(field)).collect::<Vec<_>>()
    });
    for at in of_pod.chain(of_containers) {
        at.forbidden("cannot be set for a windows pod", problems);
    }
}

/// Returns the options for Windows of a pod and its containers.
fn windows_options<'a>(spec: &Cursor<'a>) -> impl Iterator<Item = Cursor<'a>> {
    let all = containers(spec).into_iter().chain([spec.clone()]);
    all.filter_map(|node| node.at(&["securityContext", "windowsOptions"]))
}

/// Returns the nodes of all containers. Other functions report lists of another type.
fn containers<'a>(spec: &Cursor<'a>) -> Vec<Cursor<'a>> {
    ["initContainers", "containers"].iter().flat_map(|field| list(spec, field, &mut Vec::new())).collect()
}
