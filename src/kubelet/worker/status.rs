//! Computes the status of a pod from its specification, the runtime's state and the probe results
//! (kubelet: `kubelet_pods.go`: `generateAPIPodStatus`, `convertToAPIContainerStatuses`).

mod conditions;
mod container_status;

use std::collections::HashMap;
use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, HostIP, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::events::reason;
use crate::kubelet::node::NodeInfo;
use crate::kubelet::pod_status::{
    ContainerStatusExt as _, PodStatusExt as _, non_empty, time_of, whole_seconds,
};
use crate::kubelet::runtime_status::RuntimePodStatus;
use crate::manifest::PodSpec;
use crate::manifest::pod::Pod;
use crate::prober::{ContainerProgress, PodPhase, PodReport, phase};

use conditions::conditions;
use container_status::RESTARTING_ALL;

/// Reason and message of a pod whose active deadline has passed (kubelet: `active_deadline.go`).
pub(super) const DEADLINE_EXCEEDED: (&str, &str) =
    (reason::DEADLINE_EXCEEDED, "Pod was active on the node longer than the specified deadline");

/// Largest number of bytes of the termination messages of a pod, which its containers share
/// (kubelet: `container/runtime.go`: `MaxPodTerminationMessageLogLength`).
const MAX_POD_MESSAGE_BYTES: usize = 12 << 10;

/// Reasons why containers have not been started, by container names.
pub(super) type WaitingReasons = HashMap<String, ContainerStateWaiting>;

/// Inputs of the computation.
pub(super) struct StatusInputs<'a> {
    pub(super) pod: &'a Pod,
    pub(super) node: &'a NodeInfo,
    pub(super) runtime_status: &'a RuntimePodStatus,
    /// Report of the prober, if the pod has probes.
    pub(super) report: Option<&'a PodReport>,
    /// Probe spec of the pod from all sources; `None` without a prober.
    pub(super) probe_spec: Option<&'a PodSpec>,
    pub(super) reasons: &'a WaitingReasons,
    /// Last published status of the pod.
    pub(super) before: Option<&'a PodStatus>,
    /// Whether the active deadline of the pod has passed.
    pub(super) is_past_deadline: bool,
    /// Whether the status is final: no container will run again.
    pub(super) is_terminal: bool,
    /// Name of the runtime, the prefix of container ids.
    pub(super) runtime: &'a str,
    /// Start time of the pod: when the built-in kubelet saw it first.
    pub(super) started: SystemTime,
}

/// Computes the status of a pod at the time `now`.
pub(super) fn status(basis: &StatusInputs<'_>, now: SystemTime) -> PodStatus {
    let StatusInputs { pod, node, runtime_status, before, .. } = *basis;
    let init: Vec<ContainerStatus> =
        pod.init_containers().map(|container| basis.container(container)).collect();
    let mut regular: Vec<ContainerStatus> =
        pod.regular_containers().map(|container| basis.container(container)).collect();
    regular.sort_by(|first, second| first.name.cmp(&second.name));
    let stage = |name: &str| stage(init.iter().chain(&regular).find(|status| status.name == name));
    let has_initialized =
        pod.regular_containers().any(|it| runtime_status.active().any(|active| active.name == it.name));
    let phase = phase(&pod.spec, basis.is_terminal, has_initialized, stage);
    // The deadline determines the phase before the conditions follow from it (kubelet:
    // `generateAPIPodStatus`: `ShouldEvict`).
    let (phase, cause) =
        if basis.is_past_deadline { (PodPhase::Failed, Some(DEADLINE_EXCEEDED)) } else { (phase, None) };
    let addresses = if pod.host.network {
        vec![node.address.clone()]
    } else {
        let known =
            runtime_status.sandbox().filter(|sandbox| sandbox.is_ready).map(|it| it.addresses.clone());
        // A pod whose sandbox has ended keeps its addresses.
        known
            .or_else(|| {
                before.map(|before| before.pod_ips.iter().flatten().map(|it| it.ip.clone()).collect())
            })
            .unwrap_or_default()
    };
    let mut status = PodStatus {
        phase: Some(phase.name().to_owned()),
        reason: cause.map(|(reason, _)| reason.to_owned()),
        message: cause.map(|(_, message)| message.to_owned()),
        host_ip: non_empty(&node.address),
        host_ips: Some(vec![HostIP { ip: node.address.clone() }]),
        pod_ip: addresses.first().and_then(|ip| non_empty(ip)),
        pod_ips: Some(addresses.into_iter().map(|ip| PodIP { ip }).collect())
            .filter(|ips: &Vec<_>| !ips.is_empty()),
        start_time: time_of(basis.started),
        init_container_statuses: Some(init).filter(|init| !init.is_empty()),
        container_statuses: Some(regular),
        qos_class: Some(pod.qos().name().to_owned()),
        ..PodStatus::default()
    };
    status.conditions = Some(conditions(basis, phase, &status, now));
    cut_messages(&mut status);
    status
}

/// Cuts the termination messages to the equal share of each container (kubelet:
/// `status_manager.go`: `normalizeStatus`).
fn cut_messages(status: &mut PodStatus) {
    let limit = MAX_POD_MESSAGE_BYTES / status.containers().count().max(1);
    let lists = [&mut status.init_container_statuses, &mut status.container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        for state in [&mut container.state, &mut container.last_state].into_iter().flatten() {
            let Some(message) = state.terminated.as_mut().and_then(|it| it.message.as_mut()) else {
                continue;
            };
            while message.len() > limit {
                message.pop();
            }
        }
    }
}

/// Returns the progress of a container, from which the pod phase is computed.
fn stage(status: Option<&ContainerStatus>) -> ContainerProgress {
    let Some(status) = status else { return ContainerProgress::Waiting };
    match (status.running(), status.terminated(), status.last_terminated()) {
        (Some(_), _, _) => ContainerProgress::Running { is_started: status.is_started() },
        (_, Some(ended), _) | (_, None, Some(ended)) if ended.reason.as_deref() == Some(RESTARTING_ALL) => {
            ContainerProgress::RestartingAll
        }
        (_, Some(ended), _) => ContainerProgress::Ended(Some(ended.exit_code)),
        (_, _, Some(ended)) => ContainerProgress::BackOff(ended.exit_code),
        _ => ContainerProgress::Waiting,
    }
}

/// Converts nanoseconds since 1970 to whole seconds, the resolution of times in Kubernetes.
fn time(nanoseconds: i64) -> Option<Time> {
    whole_seconds(Timestamp::from_nanosecond(nanoseconds.into()))
}

#[cfg(test)]
mod tests;
