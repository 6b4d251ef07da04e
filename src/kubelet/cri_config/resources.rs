//! Resources of containers and pods in terms of the kernel: CPU shares and quota, memory, OOM score
//! (kubelet: `kuberuntime/kuberuntime_container_linux.go`, `cm/helpers_linux.go`).

use std::collections::HashMap;

use crate::cri::v1::{HugepageLimit, LinuxContainerResources};
use crate::kubelet::node::NodeInfo;
use crate::manifest::ContainerKind;
use crate::manifest::pod::{Amounts, Container, Pod, Qos, Resources};

/// CFS quota period in microseconds.
const PERIOD: i64 = 100_000;

/// Minimum CFS quota in microseconds that the kernel accepts.
const MIN_QUOTA_PERIOD: i64 = 1_000;

/// Setting of a cgroup of version 2. With the value 1, the kernel kills all processes of the
/// container when one of them exceeds the memory limit.
const OOM_GROUP: &str = "memory.oom.group";

/// CPU shares of one processor, and the minimum and maximum that the kernel accepts.
const SHARES_PER_CPU: i64 = 1_024;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// OOM score adjustments by QoS class; minimum and maximum for Burstable (kubelet:
/// `qos/policy.go`: `GetContainerOOMScoreAdjust`).
const GUARANTEED_OOM_SCORE_ADJ: i64 = -997;
const BEST_EFFORT_OOM_SCORE_ADJ: i64 = 1_000;
const BURSTABLE_OOM_SCORE_ADJ: (i64, i64) = (3, 999);

/// Returns the overhead of a pod, whose requests are its limits as well (kubelet:
/// `kuberuntime/kuberuntime_sandbox_linux.go`: `convertOverheadToLinuxResources`).
pub(super) fn overhead(pod: &Pod, node: &NodeInfo) -> LinuxContainerResources {
    let Some(overhead) = &pod.overhead else { return LinuxContainerResources::default() };
    let amount = |name: &str| (name.to_owned(), overhead.get(name).copied().unwrap_or_default());
    let amounts = Amounts::from(["cpu", "memory"].map(amount));
    linux_resources(&Resources { requests: amounts.clone(), limits: amounts }, node)
}

/// Returns the resources of a container.
pub(super) fn container_resources(
    pod: &Pod,
    container: &Container,
    node: &NodeInfo,
) -> LinuxContainerResources {
    let Resources { requests, limits } = &container.resources;
    let limit = |page_size: &String| {
        // Kubernetes writes 2Mi; the CRI writes 2MB.
        let key = format!("hugepages-{}i", page_size.trim_end_matches('B'));
        let limit = limits.get(&key).copied().or_else(|| pod.own_limit(&key)).unwrap_or_default();
        HugepageLimit { page_size: page_size.clone(), limit: limit.units().unsigned_abs() }
    };
    // A container without a limit has that of the pod (kubelet: `getCPULimit`, `getMemoryLimit`).
    let mut limits = limits.clone();
    for name in ["cpu", "memory"] {
        if limits.get(name).is_none_or(|limit| limit.is_zero())
            && let Some(limit) = pod.own_limit(name)
        {
            limits.insert(name.to_owned(), limit);
        }
    }
    let common = linux_resources(&Resources { requests: requests.clone(), limits }, node);
    LinuxContainerResources {
        oom_score_adj: oom_score(pod, container, node),
        hugepage_limits: node.page_sizes.iter().map(limit).collect(),
        // Swap and memory together have the memory limit: the container gets no swap.
        memory_swap_limit_in_bytes: common.memory_limit_in_bytes,
        ..common
    }
}

/// Returns the resources of a pod (kubelet: `kuberuntime/kuberuntime_sandbox_linux.go`:
/// `calculateSandboxResources`).
pub(super) fn pod_resources(pod: &Pod, node: &NodeInfo) -> LinuxContainerResources {
    linux_resources(&pod.total_resources(), node)
}

/// Converts resources (kubelet: `kuberuntime_container_linux.go`: `calculateLinuxResources`).
fn linux_resources(resources: &Resources, node: &NodeInfo) -> LinuxContainerResources {
    let Resources { requests, limits } = resources;
    let cpu = requests.get("cpu").or_else(|| limits.get("cpu"));
    let shares = cpu.map_or(MIN_SHARES, |cpu| cpu.thousandths().saturating_mul(SHARES_PER_CPU) / 1_000);
    let limit = limits.get("cpu").filter(|limit| !limit.is_zero());
    let quota =
        limit.map_or(0, |limit| (limit.thousandths().saturating_mul(PERIOD) / 1_000).max(MIN_QUOTA_PERIOD));
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota,
        cpu_shares: shares.clamp(MIN_SHARES, MAX_SHARES),
        memory_limit_in_bytes: limits.get("memory").map_or(0, |limit| limit.units()),
        unified: if node.is_cgroup_v2 { oom_group() } else { HashMap::new() },
        ..LinuxContainerResources::default()
    }
}

/// Returns the cgroup settings that let an OOM kill end the container as a whole. The kubelet sets
/// them unless `singleProcessOOMKill` is configured (`kubelet.go`: `NewMainKubelet`).
fn oom_group() -> HashMap<String, String> {
    HashMap::from([(OOM_GROUP.to_owned(), "1".to_owned())])
}

fn oom_score(pod: &Pod, container: &Container, node: &NodeInfo) -> i64 {
    match pod.qos() {
        _ if pod.is_node_critical => GUARANTEED_OOM_SCORE_ADJ,
        Qos::Guaranteed => GUARANTEED_OOM_SCORE_ADJ,
        Qos::BestEffort => BEST_EFFORT_OOM_SCORE_ADJ,
        Qos::Burstable => {
            let requested = |container: &Container| {
                let request = container.resources.requests.get("memory");
                request.map_or(0, |request| request.units())
            };
            let shared = unrequested_memory_per_container(pod);
            let mut requested_here = requested(container) + shared;
            if container.spec.role == ContainerKind::Sidecar {
                // A sidecar must not be killed before the containers that depend on it.
                let least = pod.regular_containers().map(|regular| requested(regular)).min();
                requested_here = requested_here.max(least.unwrap_or(0) + shared);
            }
            let memory = i64::try_from(node.memory).unwrap_or(i64::MAX).max(1);
            let share = i128::from(requested_here) * 1_000 / i128::from(memory);
            let score = 1_000 - i64::try_from(share).unwrap_or(i64::MAX).min(1_000);
            score.clamp(BURSTABLE_OOM_SCORE_ADJ.0, BURSTABLE_OOM_SCORE_ADJ.1)
        }
    }
}

/// Returns the memory that a pod requests beyond its containers, divided by their number (kubelet:
/// `qos/helpers.go`: `remainingPodMemReqPerContainer`).
fn unrequested_memory_per_container(pod: &Pod) -> i64 {
    let memory = |resources: &Resources| resources.requests.get("memory").map_or(0, |amount| amount.units());
    let requested = pod.resources.as_ref().map(memory).filter(|requested| *requested > 0);
    let count = i64::try_from(pod.containers.len()).unwrap_or(i64::MAX).max(1);
    requested.map_or(0, |requested| (requested - memory(&Resources::of_containers(&pod.containers))) / count)
}
