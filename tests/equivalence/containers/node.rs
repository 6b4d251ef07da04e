//! Kinds of containers that need a node with AppArmor, all controllers of cgroup v2 and
//! `CAP_SYS_RESOURCE`, and a runtime handler with limits.

use probeshim::cri::v1::security_profile::ProfileType;
use probeshim::cri::v1::{Capability, Int64Value, LinuxContainerResources};

use super::{ContainerKind, profile};
use crate::behaviours::{AT_MEMORY_LIMIT, AT_PIDS_LIMIT, LIGHT};

/// End of the name of the runtime handler with limits: its base specification has resource limits
/// and a umask.
pub(crate) const LIMITED: &str = "-limited";

/// Names of AppArmor profiles of the node: one that denies, and one that complains.
pub(crate) const APPARMOR_PROFILES: [&str; 2] = ["equivalence-denies", "equivalence-complains"];

/// Memory limit of containers that reach it.
const MEMORY_LIMIT: i64 = 64 << 20;

/// Pids limit of containers that reach it. Before, a container needs some for a command that the
/// OCI runtime starts, which has several threads.
const PIDS_LIMIT: usize = 64;

/// Returns all kinds.
pub(crate) fn kinds() -> Vec<ContainerKind> {
    [apparmor_profiles(), resource_limits(), handler_limits()].into_iter().flatten().collect()
}

/// AppArmor profiles. The other kinds have that of containerd.
fn apparmor_profiles() -> Vec<ContainerKind> {
    let with = |name: &str, kind: ProfileType, profile_name: &str| {
        let profile = Some(profile(kind, profile_name));
        ContainerKind::new(name).context(|context| context.apparmor = profile)
    };
    let [denies, complains] = APPARMOR_PROFILES;
    let mut kinds = vec![
        with("AppArmor default", ProfileType::RuntimeDefault, ""),
        with("AppArmor unconfined", ProfileType::Unconfined, ""),
        with("AppArmor profile that complains", ProfileType::Localhost, complains),
    ];
    for uid in [0, 1000] {
        for no_new_privs in [false, true] {
            let privileges = if no_new_privs { ", no_new_privs" } else { "" };
            let name = format!("AppArmor profile that denies{privileges}, as {uid}");
            kinds.push(with(&name, ProfileType::Localhost, denies).context(|context| {
                context.run_as_user = Some(Int64Value { value: uid });
                context.no_new_privs = no_new_privs;
            }));
        }
    }
    kinds.push(with("AppArmor profile without seccomp", ProfileType::Localhost, denies).context(|context| {
        context.no_new_privs = true;
        context.seccomp = Some(profile(ProfileType::Unconfined, ""));
    }));
    kinds
}

/// Limits of memory, processes and processors, and the order in which the kernel kills.
fn resource_limits() -> Vec<ContainerKind> {
    let none = LinuxContainerResources::default;
    let memory = || LinuxContainerResources { memory_limit_in_bytes: MEMORY_LIMIT, ..none() };
    let pids = [("pids.max".to_owned(), PIDS_LIMIT.to_string())];
    // The file is in the page cache, which counts, and makes room for a command. A shell that
    // cannot fork ends, so one more process fits after the loop.
    let cache = format!(
        "dd if=/dev/zero of=/tmp/cache bs=1048576 count={}; sleep 2147483647 & true",
        2 * (MEMORY_LIMIT >> 20)
    );
    let processes = "(while true; do sleep 2147483647 & done); sleep 2147483647 & true";
    vec![
        ContainerKind::new("memory limit").resources(memory()).in_turn(AT_MEMORY_LIMIT),
        ContainerKind::new("memory limit reached").resources(memory()).fills(&cache).in_turn(AT_MEMORY_LIMIT),
        ContainerKind::new("pids limit").resources(LinuxContainerResources {
            unified: [("pids.max".to_owned(), "2048".to_owned())].into(),
            ..none()
        }),
        ContainerKind::new("pids limit reached")
            .resources(LinuxContainerResources { unified: pids.into(), ..none() })
            .fills(processes)
            .in_turn(AT_PIDS_LIMIT),
        ContainerKind::new("CPU limit")
            .resources(LinuxContainerResources { cpu_period: 100_000, cpu_quota: 20_000, ..none() })
            .in_turn(LIGHT),
        ContainerKind::new("CPU shares").resources(LinuxContainerResources { cpu_shares: 2, ..none() }),
        ContainerKind::new("one processor")
            .resources(LinuxContainerResources { cpuset_cpus: "1".to_owned(), ..none() }),
        ContainerKind::new("killed first")
            .resources(LinuxContainerResources { oom_score_adj: 1000, ..none() }),
        ContainerKind::new("killed last")
            .resources(LinuxContainerResources { oom_score_adj: -997, ..none() }),
    ]
}

/// Resource limits and the umask of a runtime handler.
fn handler_limits() -> Vec<ContainerKind> {
    let limited = |kind: ContainerKind| ContainerKind { handler_suffix: LIMITED, ..kind };
    let mut kinds = vec![
        limited(ContainerKind::new("resource limits and umask, privileged").privileged()),
        limited(ContainerKind::new("resource limits and umask, without capabilities").context(|context| {
            context.capabilities =
                Some(Capability { drop_capabilities: vec!["ALL".to_owned()], ..Capability::default() });
        })),
    ];
    for uid in [0, 1000] {
        let kind = ContainerKind::new(format!("resource limits and umask, as {uid}"));
        kinds.push(limited(kind.context(|context| context.run_as_user = Some(Int64Value { value: uid }))));
    }
    kinds
}
