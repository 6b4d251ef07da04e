//! Reads security contexts of pods and containers.

use std::collections::BTreeSet;

use crate::cri::v1::security_profile::ProfileType;
use crate::cri::v1::{SeLinuxOption, SecurityProfile};
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{APPARMOR_ANNOTATION, CommonSecurity, PodSecurity, Security};
use crate::manifest::pod_spec::PodSpec;
use crate::manifest::reader::fields::{FieldSet, flag, id, list, required, text};
use crate::manifest::validation;

/// Directory of the kubelet for seccomp profiles of type Localhost.
const PROFILES: &str = "/var/lib/kubelet/seccomp/";

const OF_POD: FieldSet = FieldSet {
    known: &[
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "seLinuxOptions",
        "seccompProfile",
        "appArmorProfile",
        "fsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "fsGroupChangePolicy",
        "seLinuxChangePolicy",
        "sysctls",
    ],
    // `os` checks the options for Windows.
    ignored: &["windowsOptions"],
    unsupported: &[],
};

const OF_CONTAINER: FieldSet = FieldSet {
    known: &[
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "seLinuxOptions",
        "seccompProfile",
        "appArmorProfile",
        "capabilities",
        "privileged",
        "allowPrivilegeEscalation",
        "readOnlyRootFilesystem",
        "procMount",
    ],
    ignored: &["windowsOptions"],
    unsupported: &[],
};

const CAPABILITIES: FieldSet = FieldSet::only(&["add", "drop"]);

const PROFILE: FieldSet = FieldSet::only(&["type", "localhostProfile"]);

const SELINUX: FieldSet = FieldSet::only(&["user", "role", "type", "level"]);

const SYSCTL: FieldSet = FieldSet::only(&["name", "value"]);

/// Reads the security context of a pod.
pub(super) fn read_pod_security(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> PodSecurity {
    let Some(node) = spec.field("securityContext") else { return PodSecurity::default() };
    OF_POD.check(&node, problems);
    let groups = list(&node, "supplementalGroups", problems);
    let groups = groups.iter().filter_map(|group| group.non_negative(problems));
    let supplemental_groups = groups.collect();
    // probeshim changes no owners of files and has no SELinux labels for volumes.
    let policies = [
        ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ];
    for (field, known) in policies {
        node.field(field).and_then(|at| at.one_of(&known.map(|known| (known, ())), problems));
    }
    let policy = node.field("supplementalGroupsPolicy");
    let policy = policy.and_then(|policy| policy.one_of(&[("Merge", false), ("Strict", true)], problems));
    let sysctls = sysctls(spec, &node, problems);
    PodSecurity {
        fs_group: id(&node, "fsGroup", problems),
        supplemental_groups,
        is_strict_about_groups: policy.unwrap_or(false),
        sysctls,
        common: common(&node, problems),
    }
}

/// Reads the kernel parameters of a pod. The node decides whether it allows them.
fn sysctls(spec: &Cursor<'_>, security: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<(String, String)> {
    // `pod::read` reports values that are not booleans.
    let is = |field: &str| spec.field(field).is_some_and(|flag| flag.value() == true);
    let (is_host_network, is_host_ipc) = (is("hostNetwork"), is("hostIPC"));
    let (mut sysctls, mut seen) = (Vec::new(), BTreeSet::new());
    for node in list(security, "sysctls", problems) {
        SYSCTL.check(&node, problems);
        let written = required(&node, "name", "", problems);
        // An absent value is an empty one.
        let value = node.field("value").map_or(Some(String::new()), |value| value.text(problems));
        let (Some(written), Some(at)) = (written, node.field("name")) else { continue };
        let name = sysctl_name(&written);
        let is_of_ipc = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];
        if !validation::is_sysctl(&written) {
            at.error(validation::SYSCTL, problems);
        } else if !seen.insert(name.clone()) {
            node.duplicate("name", &written, problems);
        } else if is_host_network && name.starts_with("net.") {
            at.error("may not be specified when 'hostNetwork' is true", problems);
        } else if is_host_ipc && is_of_ipc.iter().any(|group| name.starts_with(group)) {
            at.error("may not be specified when 'hostIPC' is true", problems);
        } else {
            sysctls.extend(value.map(|value| (name, value)));
        }
    }
    sysctls
}

/// Returns the name of a kernel parameter in the notation with dots. In the notation with slashes a
/// dot is part of a name, such as that of a network interface (`pkg/sysctl`:
/// `NormalizeName`).
fn sysctl_name(written: &str) -> String {
    if written.find(['.', '/']).is_none_or(|first| written[first..].starts_with('.')) {
        return written.to_owned();
    }
    let swap = |character: char| match character {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    written.chars().map(swap).collect()
}

/// Reports annotations with AppArmor profiles that name no container of the pod or no valid profile
/// (`core/validation/validation.go`: `ValidateAppArmorPodAnnotations`).
pub(super) fn check_apparmor_annotations(
    metadata: &Cursor<'_>,
    pod: &PodSpec,
    problems: &mut Vec<Violation>,
) {
    let Some(annotations) = metadata.field("annotations") else { return };
    for key in annotations.value().as_object().into_iter().flat_map(|object| object.keys()) {
        let Some(container) = key.strip_prefix(APPARMOR_ANNOTATION) else { continue };
        let Some(at) = annotations.field(key) else { continue };
        if pod.container(container).is_none() {
            at.error(format!("container {container:?} not found"), problems);
        }
        let is_valid = |profile: &str| {
            ["", "runtime/default", "unconfined"].contains(&profile) || profile.starts_with("localhost/")
        };
        if at.value().as_str().is_some_and(|profile| !is_valid(profile)) {
            at.error("invalid AppArmor profile name", problems);
        }
    }
}

/// Reads the security context of a container. `has_user_namespace`: the pod has its own
/// (`hostUsers: false`).
pub(super) fn read_container_security(
    container: &Cursor<'_>,
    has_user_namespace: bool,
    problems: &mut Vec<Violation>,
) -> Security {
    let Some(node) = container.field("securityContext") else { return Security::default() };
    OF_CONTAINER.check(&node, problems);
    if let Some(capabilities) = node.field("capabilities") {
        CAPABILITIES.check(&capabilities, problems);
    }
    let capabilities = |which: &str, problems: &mut Vec<Violation>| {
        let list = node.at(&["capabilities", which]);
        list.map(|list| list.string_list(problems)).unwrap_or_default()
    };
    let is_privileged = flag(&node, "privileged", problems);
    let may_gain = node.field("allowPrivilegeEscalation");
    let may_gain_privileges = may_gain.as_ref().and_then(|may| may.flag(problems));
    let add = capabilities("add", problems);
    if let Some(may_gain) = may_gain.filter(|_| may_gain_privileges == Some(false)) {
        if is_privileged {
            may_gain
                .error("cannot set `allowPrivilegeEscalation` to false and `privileged` to true", problems);
        }
        // The API server knows this spelling of the capability only.
        if add.iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            let reason =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            may_gain.error(reason, problems);
        }
    }
    let mount = node.field("procMount");
    let is_unmasked =
        mount.as_ref().and_then(|it| it.one_of(&[("Default", false), ("Unmasked", true)], problems));
    if let Some(at) = mount.filter(|_| is_unmasked == Some(true) && !has_user_namespace) {
        at.error("`hostUsers` must be false to use `Unmasked`", problems);
    }
    Security {
        common: common(&node, problems),
        add,
        drop: capabilities("drop", problems),
        is_privileged,
        may_gain_privileges,
        has_read_only_root: flag(&node, "readOnlyRootFilesystem", problems),
        sees_all_of_proc: is_unmasked.unwrap_or(false),
    }
}

fn common(node: &Cursor<'_>, problems: &mut Vec<Violation>) -> CommonSecurity {
    let selinux = node.field("seLinuxOptions").map(|options| {
        SELINUX.check(&options, problems);
        let mut part = |field: &str| text(&options, field, problems).unwrap_or_default();
        SeLinuxOption { user: part("user"), role: part("role"), r#type: part("type"), level: part("level") }
    });
    CommonSecurity {
        user: id(node, "runAsUser", problems),
        group: id(node, "runAsGroup", problems),
        is_not_root: node.field("runAsNonRoot").and_then(|flag| flag.flag(problems)),
        selinux,
        seccomp: profile(node, "seccompProfile", PROFILES, problems),
        apparmor: profile(node, "appArmorProfile", "", problems),
    }
}

/// Reads a seccomp or AppArmor profile. `place` is the prefix of the names of local profiles.
fn profile(
    node: &Cursor<'_>,
    field: &str,
    place: &str,
    problems: &mut Vec<Violation>,
) -> Option<SecurityProfile> {
    let node = node.field(field)?;
    PROFILE.check(&node, problems);
    let kinds = [
        ("RuntimeDefault", ProfileType::RuntimeDefault),
        ("Unconfined", ProfileType::Unconfined),
        ("Localhost", ProfileType::Localhost),
    ];
    if !node.value().is_object() {
        return None;
    }
    let Some(kind) = node.field("type") else {
        node.missing("type", "supported values: \"RuntimeDefault\", \"Unconfined\", \"Localhost\"", problems);
        return None;
    };
    let kind = kind.one_of(&kinds, problems)?;
    let named = node.field("localhostProfile");
    let localhost_ref = match (kind, named) {
        (ProfileType::Localhost, named) => {
            // The name of a seccomp profile may be empty, which the runtime then reports.
            let is_empty = !place.is_empty() && named.is_some_and(|named| named.value() == "");
            let reason = "must be set when type is Localhost";
            let name =
                if is_empty { String::new() } else { required(&node, "localhostProfile", reason, problems)? };
            format!("{place}{name}")
        }
        (_, Some(named)) => {
            named.error("can only be set when type is Localhost", problems);
            return None;
        }
        (_, None) => String::new(),
    };
    Some(SecurityProfile { profile_type: kind.into(), localhost_ref })
}
