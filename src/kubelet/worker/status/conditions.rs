//! Conditions of a pod (kubelet: `status/generate.go`).

use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

use super::StatusInputs;
use crate::gofmt::quote;
use crate::kubelet::pod_status::{ContainerStatusExt as _, PodStatusExt as _, time_of};
use crate::manifest::ContainerKind;
use crate::manifest::pod::Container;
use crate::prober::{self, PodPhase, readiness};

/// Returns the conditions of a pod at the time `now`.
pub(super) fn conditions(
    basis: &StatusInputs<'_>,
    phase: PodPhase,
    status: &PodStatus,
    now: SystemTime,
) -> Vec<PodCondition> {
    let initialised = initialised(basis, status);
    let lasting = basis.pod.containers.iter().filter(|it| it.spec.role != ContainerKind::Init);
    let is_ready = |name: &str| status.containers().any(|it| it.name == name && it.ready);
    let lasting: Vec<(&str, bool)> = lasting.map(|it| (it.name.as_str(), is_ready(&it.name))).collect();
    let [containers_ready, ready] =
        readiness(phase, &lasting).map(|prober::PodCondition { is_met, reason, message, .. }| {
            ConditionStatus { is_met, reason, message }
        });
    let ready = if ready.is_met { gated(&basis.pod.readiness_gates) } else { ready };
    let has_sandbox = basis
        .runtime_status
        .sandbox()
        .is_some_and(|sandbox| sandbox.is_ready && (basis.pod.host.network || !sandbox.addresses.is_empty()));
    let may_reset = basis
        .pod
        .containers
        .iter()
        .any(|container| container.spec.restart_rules.iter().any(|it| it.restarts_all));
    let is_any_left = basis.pod.containers.iter().any(|it| basis.runtime_status.latest(&it.name).is_some());
    let resetting = may_reset.then(|| {
        let status = match phase {
            PodPhase::Succeeded => ConditionStatus::because(false, "PodCompleted"),
            PodPhase::Failed => ConditionStatus::because(false, "PodFailed"),
            _ if is_any_left && basis.restarts_all() => ConditionStatus {
                message: Some("container exited with restart policy rule".to_owned()),
                ..ConditionStatus::because(true, "RestartAllContainersStarted")
            },
            _ => ConditionStatus::new(false),
        };
        ("AllContainersRestarting", status)
    });
    let all: [(&'static str, ConditionStatus); 5] = [
        ("PodReadyToStartContainers", ConditionStatus::new(has_sandbox)),
        ("Initialized", initialised),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", ConditionStatus::new(true)),
    ];
    let condition = |(kind, status): (&'static str, ConditionStatus)| {
        let ConditionStatus { is_met, reason, message } = status;
        let status = if is_met { "True" } else { "False" };
        let mut before = basis.before.into_iter().flat_map(|before| &before.conditions).flatten();
        let unchanged = before.find(|before| before.type_ == kind && before.status == status);
        PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            last_transition_time: unchanged
                .map_or_else(|| time_of(now), |before| before.last_transition_time.clone()),
            reason: reason.map(str::to_owned),
            message,
            ..PodCondition::default()
        }
    };
    all.into_iter().chain(resetting).map(condition).collect()
}

/// Status of a condition, with the reason and message.
#[derive(Default)]
struct ConditionStatus {
    is_met: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionStatus {
    /// Returns a status without a reason.
    fn new(is_met: bool) -> Self {
        Self { is_met, ..Self::default() }
    }

    /// Returns a status with a reason.
    fn because(is_met: bool, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..Self::new(is_met) }
    }
}

/// Returns the readiness of a pod whose containers are ready. Conditions of readiness gates are set
/// in the API server, so that a pod of a manifest never has them (kubelet: `status/generate.go`:
/// `GeneratePodReadyCondition`).
fn gated(gates: &[String]) -> ConditionStatus {
    if gates.is_empty() {
        return ConditionStatus::new(true);
    }
    let missing = |gate: &String| {
        format!("corresponding condition of pod readiness gate {} does not exist.", quote(gate))
    };
    let message = gates.iter().map(missing).collect::<Vec<_>>().join(", ");
    ConditionStatus { message: Some(message), ..ConditionStatus::because(false, "ReadinessGatesNotReady") }
}

/// A pod that was initialized once stays so.
fn initialised(basis: &StatusInputs<'_>, status: &PodStatus) -> ConditionStatus {
    let is_done = |(container, status): (&Arc<Container>, &ContainerStatus)| {
        if container.spec.role == ContainerKind::Sidecar { status.is_started() } else { status.ready }
    };
    let all = basis.pod.init_containers().zip(status.init_container_statuses.iter().flatten());
    let left: Vec<&str> = all.filter(|it| !is_done(*it)).map(|(it, _)| it.name.as_str()).collect();
    let has_started = |status: &ContainerStatus| status.running().is_some() || status.terminated().is_some();
    if status.phase() == "Succeeded" {
        ConditionStatus::because(true, "PodCompleted")
    } else if left.is_empty()
        || status.container_statuses.iter().flatten().any(has_started)
        || basis.before.is_some_and(|before| before.is("Initialized"))
    {
        ConditionStatus::new(true)
    } else {
        let message = Some(format!("containers with incomplete status: [{}]", left.join(" ")));
        ConditionStatus { message, ..ConditionStatus::because(false, "ContainersNotInitialized") }
    }
}
