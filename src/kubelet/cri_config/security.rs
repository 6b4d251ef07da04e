//! Security contexts of sandboxes and containers. Settings of a container take precedence over
//! those of its pod (kubelet: `kuberuntime/security_context.go`).

use crate::cri::v1::security_profile::ProfileType;
use crate::cri::v1::{
    Capability, Image, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, SecurityProfile, SupplementalGroupsPolicy, UserNamespace,
};
use crate::kubelet::node::NodeInfo;
use crate::manifest::pod::{APPARMOR_ANNOTATION, Container, Pod};

/// Paths of `/proc` and `/sys` that are hidden from containers on every node, and paths that are
/// read-only (kubelet: `pkg/securitycontext/util.go`).
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn sandbox_security(pod: &Pod, user_namespace: UserNamespace) -> LinuxSandboxSecurityContext {
    let pod_context = &pod.security.common;
    LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, user_namespace)),
        selinux_options: pod_context.selinux.clone(),
        run_as_user: value(pod_context.user),
        run_as_group: value(pod_context.group),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        privileged: pod.containers.iter().any(|container| container.security.is_privileged),
        seccomp: Some(profile(ProfileType::RuntimeDefault)),
        ..LinuxSandboxSecurityContext::default()
    }
}

/// Returns the security context of a container. Without `runAsUser` the container runs as the user
/// of its image.
pub(super) fn container_security(
    pod: &Pod,
    container: &Container,
    node: &NodeInfo,
    image: Option<&Image>,
    user_namespace: UserNamespace,
) -> LinuxContainerSecurityContext {
    let (container_context, pod_context) = (&container.security, &pod.security.common);
    let user = container_context.common.user.or(pod_context.user);
    let of_image = image.filter(|_| user.is_none());
    let has_capabilities = !container_context.add.is_empty() || !container_context.drop.is_empty();
    let apparmor = apparmor(pod, container);
    let is_masked = !container_context.sees_all_of_proc;
    LinuxContainerSecurityContext {
        capabilities: has_capabilities.then(|| Capability {
            add_capabilities: container_context.add.clone(),
            drop_capabilities: container_context.drop.clone(),
            ..Capability::default()
        }),
        privileged: container_context.is_privileged,
        namespace_options: Some(namespaces(pod, user_namespace)),
        selinux_options: container_context.common.selinux.clone().or_else(|| pod_context.selinux.clone()),
        run_as_user: value(user).or_else(|| of_image.and_then(user_of)),
        run_as_username: of_image.map(|image| image.username.clone()).unwrap_or_default(),
        run_as_group: value(container_context.common.group.or(pod_context.group)),
        readonly_rootfs: container_context.has_read_only_root,
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: container_context.may_gain_privileges == Some(false),
        masked_paths: if is_masked { masked_paths(node) } else { Vec::new() },
        readonly_paths: if is_masked { READ_ONLY.map(str::to_owned).to_vec() } else { Vec::new() },
        seccomp: Some(
            container_context
                .common
                .seccomp
                .clone()
                .or_else(|| pod_context.seccomp.clone())
                .unwrap_or_else(|| profile(ProfileType::Unconfined)),
        ),
        apparmor_profile: apparmor.as_ref().map(superseded_profile).unwrap_or_default(),
        apparmor,
        ..LinuxContainerSecurityContext::default()
    }
}

/// Returns the AppArmor profile of a container: of its field, else of its annotation, else of the
/// pod's field (`pkg/security/apparmor/helpers.go`: `GetProfile`).
fn apparmor(pod: &Pod, container: &Container) -> Option<SecurityProfile> {
    let annotation = || pod.annotations.get(&format!("{APPARMOR_ANNOTATION}{}", container.name));
    let own = container.security.common.apparmor.clone();
    own.or_else(|| annotation().and_then(|text| annotated_profile(text)))
        .or_else(|| pod.security.common.apparmor.clone())
}

/// Parses the value of an annotation with an AppArmor profile.
fn annotated_profile(text: &str) -> Option<SecurityProfile> {
    match text {
        "runtime/default" => Some(profile(ProfileType::RuntimeDefault)),
        "unconfined" => Some(profile(ProfileType::Unconfined)),
        other => other.strip_prefix("localhost/").map(|name| SecurityProfile {
            localhost_ref: name.to_owned(),
            ..profile(ProfileType::Localhost)
        }),
    }
}

/// Returns a profile in the notation of the annotation, for runtimes that do not know the field
/// `apparmor` (kubelet: `kuberuntime/helpers.go`: `getAppArmorProfile`).
fn superseded_profile(profile: &SecurityProfile) -> String {
    match profile.profile_type() {
        ProfileType::RuntimeDefault => "runtime/default".to_owned(),
        ProfileType::Unconfined => "unconfined".to_owned(),
        ProfileType::Localhost => format!("localhost/{}", profile.localhost_ref),
    }
}

/// Returns the paths that are hidden from containers.
fn masked_paths(node: &NodeInfo) -> Vec<String> {
    MASKED.map(str::to_owned).into_iter().chain(node.thermal_throttle.iter().cloned()).collect()
}

/// Returns the uid of an image's user; root if the image names none.
fn user_of(image: &Image) -> Option<Int64Value> {
    image.uid.or_else(|| image.username.is_empty().then_some(Int64Value { value: 0 }))
}

fn namespaces(pod: &Pod, user_namespace: UserNamespace) -> NamespaceOption {
    let of_host = |is: bool| if is { NamespaceMode::Node } else { NamespaceMode::Pod };
    let processes = match (pod.host.pid, pod.shares_processes) {
        (true, _) => NamespaceMode::Node,
        (false, true) => NamespaceMode::Pod,
        (false, false) => NamespaceMode::Container,
    };
    NamespaceOption {
        network: of_host(pod.host.network).into(),
        pid: processes.into(),
        ipc: of_host(pod.host.ipc).into(),
        target_id: String::new(),
        userns_options: Some(user_namespace),
    }
}

fn groups(pod: &Pod) -> Vec<i64> {
    pod.security.fs_group.into_iter().chain(pod.security.supplemental_groups.iter().copied()).collect()
}

fn groups_policy(pod: &Pod) -> i32 {
    let is_strict = pod.security.is_strict_about_groups;
    if is_strict { SupplementalGroupsPolicy::Strict } else { SupplementalGroupsPolicy::Merge }.into()
}

fn value(number: Option<i64>) -> Option<Int64Value> {
    number.map(|value| Int64Value { value })
}

fn profile(kind: ProfileType) -> SecurityProfile {
    SecurityProfile { profile_type: kind.into(), localhost_ref: String::new() }
}
