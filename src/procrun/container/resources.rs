//! Resources of a container. They are recorded and returned, but not enforced.

use crate::cri::v1::LinuxContainerResources;

/// Returns the resources after an update. Values that the update does not set are kept.
pub(super) fn updated(old: LinuxContainerResources, new: LinuxContainerResources) -> LinuxContainerResources {
    let number = |new: i64, old: i64| if new == 0 { old } else { new };
    let text = |new: String, old: String| if new.is_empty() { old } else { new };
    let mut unified = old.unified;
    unified.extend(new.unified);
    LinuxContainerResources {
        cpu_period: number(new.cpu_period, old.cpu_period),
        cpu_quota: number(new.cpu_quota, old.cpu_quota),
        cpu_shares: number(new.cpu_shares, old.cpu_shares),
        memory_limit_in_bytes: number(new.memory_limit_in_bytes, old.memory_limit_in_bytes),
        oom_score_adj: number(new.oom_score_adj, old.oom_score_adj),
        cpuset_cpus: text(new.cpuset_cpus, old.cpuset_cpus),
        cpuset_mems: text(new.cpuset_mems, old.cpuset_mems),
        hugepage_limits: if new.hugepage_limits.is_empty() {
            old.hugepage_limits
        } else {
            new.hugepage_limits
        },
        unified,
        memory_swap_limit_in_bytes: number(new.memory_swap_limit_in_bytes, old.memory_swap_limit_in_bytes),
    }
}
