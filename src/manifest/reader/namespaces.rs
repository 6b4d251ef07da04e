//! Reads which namespaces a pod shares with the host or among its containers.

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::HostNamespaces;
use crate::manifest::reader::fields::flag;

/// The namespaces of a pod.
pub(super) struct PodNamespaces {
    pub(super) host: HostNamespaces,
    pub(super) shares_processes: bool,
    pub(super) has_user_namespace: bool,
}

/// Reads the namespaces of a pod. Reports combinations that are invalid (Kubernetes:
/// `core/validation/validation.go`: `validateHostUsers`, `validatePodSpecSecurityContext`).
pub(super) fn read(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> PodNamespaces {
    let mut is = |field: &str| flag(spec, field, problems);
    let host = HostNamespaces { network: is("hostNetwork"), pid: is("hostPID"), ipc: is("hostIPC") };
    let shares_processes = is("shareProcessNamespace");
    if let Some(at) = spec.field("shareProcessNamespace").filter(|_| shares_processes && host.pid) {
        at.error("ShareProcessNamespace and HostPID cannot both be enabled", problems);
    }
    let users = spec.field("hostUsers").and_then(|users| users.flag(problems));
    let has_user_namespace = users == Some(false);
    for (field, is_set) in [("hostNetwork", host.network), ("hostPID", host.pid), ("hostIPC", host.ipc)] {
        if let Some(at) = spec.field(field).filter(|_| has_user_namespace && is_set) {
            at.forbidden("when `hostUsers` is false", problems);
        }
    }
    PodNamespaces { host, shares_processes, has_user_namespace }
}
