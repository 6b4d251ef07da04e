//! Computes the status of a pod from its specification, the runtime's state and the probe results
//! (kubelet: `kubelet_pods.go`: `generateAPIPodStatus`, `convertToAPIContainerStatuses`).

use std::collections::HashMap;
use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, HostIP, LinuxContainerUser, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::compute_actions::should_restart;
use crate::kubelet::node::NodeInfo;
use crate::kubelet::pod_dir::message;
use crate::kubelet::pod_status::{ContainerStatusExt as _, PodStatusExt as _, non_empty, waiting_state};
use crate::kubelet::runtime_status::{ContainerInstance, InstanceState, RuntimePodStatus};
use crate::manifest::pod::{Container, Pod};
use crate::manifest::{ContainerKind, PodSpec, ProbeType};
use crate::prober::{self, ContainerProgress, PodPhase, PodReport, phase, readiness};

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
    /// Whether the status is final: no container will run again.
    pub(super) is_terminal: bool,
    /// Whether all containers are being removed because all are restarted.
    pub(super) is_resetting: bool,
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
    let regular: Vec<ContainerStatus> =
        pod.regular_containers().map(|container| basis.container(container)).collect();
    let stage = |name: &str| stage(init.iter().chain(&regular).find(|status| status.name == name));
    let has_initialized =
        pod.regular_containers().any(|it| runtime_status.active().any(|active| active.name == it.name));
    let phase = phase(&pod.spec, basis.is_terminal, has_initialized, stage);
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
    status
}

/// Returns the progress of a container, from which the pod phase is computed.
fn stage(status: Option<&ContainerStatus>) -> ContainerProgress {
    let Some(status) = status else { return ContainerProgress::Waiting };
    match (status.running(), status.terminated(), status.last_terminated()) {
        (Some(_), _, _) => ContainerProgress::Running { is_started: status.is_started() },
        (_, Some(ended), _) => ContainerProgress::Ended(Some(ended.exit_code)),
        (_, _, Some(ended)) => ContainerProgress::BackOff(ended.exit_code),
        _ => ContainerProgress::Waiting,
    }
}

impl StatusInputs<'_> {
    fn container(&self, container: &Container) -> ContainerStatus {
        let name = &container.name;
        let before = self.before.and_then(|before| before.containers().find(|known| known.name == *name));
        let Some(newest) = self.runtime_status.latest(name) else {
            return self.default_waiting(container, before);
        };
        let restart_count = newest.restart_count.try_into().unwrap_or(i32::MAX);
        let user = newest.user.as_ref().map(|user| LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: Some(user.supplemental_groups.clone()),
        });
        let (started, ready) = self.started_and_ready(container, newest);
        let mut status = ContainerStatus {
            name: name.clone(),
            state: Some(self.state(container, newest)),
            ready,
            restart_count: restart_count.max(before.map_or(0, |before| before.restart_count)),
            image: newest.image.clone(),
            image_id: newest.image_id.clone(),
            container_id: Some(self.id(&newest.id)),
            started: Some(started),
            user: user.map(|linux| ContainerUser { linux: Some(linux) }),
            ..ContainerStatus::default()
        };
        let last_state = match (self.runtime_status.all(name).nth(1), before) {
            (Some(earlier), _) => Some(self.state(container, earlier)),
            // The earlier instance has been removed since the last status.
            (None, Some(before)) if before.container_id == status.container_id => before.last_state.clone(),
            (None, Some(before)) if before.terminated().is_some() => before.state.clone(),
            (None, _) => None,
        };
        status.last_state = Some(last_state.unwrap_or_default());
        self.set_waiting_reason(container, newest, &mut status);
        status
    }

    /// Returns the status of a container without an instance, not yet created or already removed.
    fn default_waiting(&self, container: &Container, before: Option<&ContainerStatus>) -> ContainerStatus {
        if let Some(before) =
            before.filter(|it| container.spec.role == ContainerKind::Init && it.terminated().is_some())
        {
            return before.clone();
        }
        let has_init = self.pod.init_containers().next().is_some();
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let reason = if self.is_resetting { "RestartingAllContainers" } else { reason };
        let state = match self.reasons.get(&container.name) {
            Some(waiting) => ContainerState { waiting: Some(waiting.clone()), ..ContainerState::default() },
            None => waiting_state(reason, ""),
        };
        let last_state = before.and_then(|before| match before.terminated() {
            Some(_) => before.state.clone(),
            None => before.last_state.clone(),
        });
        ContainerStatus {
            name: container.name.clone(),
            state: Some(state),
            last_state: Some(last_state.unwrap_or_default()),
            restart_count: before.map_or(0, |before| before.restart_count),
            image: container.image.clone(),
            started: Some(false),
            ..ContainerStatus::default()
        }
    }

    fn state(&self, container: &Container, instance: &ContainerInstance) -> ContainerState {
        match instance.state {
            InstanceState::Running => ContainerState {
                running: Some(ContainerStateRunning { started_at: time(instance.started_at) }),
                ..ContainerState::default()
            },
            InstanceState::Exited => ContainerState {
                terminated: Some(self.terminated(container, instance)),
                ..ContainerState::default()
            },
            InstanceState::Created | InstanceState::Unknown => waiting_state("", ""),
        }
    }

    fn terminated(&self, container: &Container, instance: &ContainerInstance) -> ContainerStateTerminated {
        let log = (container.fallback_to_logs_on_error && instance.exit_code != 0)
            .then_some(instance.log.as_path());
        let messages = [instance.message.clone(), message(instance.message_file.as_deref(), log)];
        let text: Vec<String> = messages.into_iter().filter(|message| !message.is_empty()).collect();
        ContainerStateTerminated {
            exit_code: instance.exit_code,
            reason: non_empty(&instance.reason),
            message: non_empty(&text.join(": ")),
            started_at: time(instance.started_at),
            finished_at: time(instance.finished_at),
            container_id: Some(self.id(&instance.id)),
            signal: None,
        }
    }

    fn id(&self, id: &str) -> String {
        format!("{}://{id}", self.runtime)
    }

    /// Returns whether a container has started, and whether it is ready.
    fn started_and_ready(&self, container: &Container, instance: &ContainerInstance) -> (bool, bool) {
        let is_running = instance.state == InstanceState::Running;
        if container.spec.role == ContainerKind::Init {
            let is_done = instance.state == InstanceState::Exited && instance.exit_code == 0;
            return (is_running, is_done);
        }
        let container_report = self.report.and_then(|report| report.container(&instance.id));
        if let Some(report) = container_report.filter(|_| is_running) {
            return (report.is_started, report.is_ready);
        }
        let probe_spec = self.probe_spec.and_then(|probe_spec| probe_spec.container(&container.name));
        let has = |kind| probe_spec.is_some_and(|probe_spec| probe_spec.probe(kind).is_some());
        let is_started = is_running && !has(ProbeType::Startup);
        (is_started, is_started && !has(ProbeType::Readiness))
    }

    /// Shows a container that could not be started as waiting, and moves its end to the last state.
    fn set_waiting_reason(
        &self,
        container: &Container,
        newest: &ContainerInstance,
        status: &mut ContainerStatus,
    ) {
        let Some(waiting) = self.reasons.get(&container.name) else { return };
        let has_ended = newest.state == InstanceState::Exited;
        // The final status shows how containers ended.
        if self.is_terminal && has_ended {
            return;
        }
        // An init container or sidecar that has succeeded stays terminated, even if it is
        // restarted.
        let is_done = has_ended && container.spec.role != ContainerKind::Regular && newest.exit_code == 0;
        let is_over = has_ended && !should_restart(self.pod, container, newest);
        if newest.state == InstanceState::Running || is_done || is_over {
            return;
        }
        let waiting = ContainerState { waiting: Some(waiting.clone()), ..ContainerState::default() };
        let state = status.state.replace(waiting);
        if state.as_ref().is_some_and(|state| state.terminated.is_some()) {
            status.last_state = state;
        }
    }
}

fn conditions(
    basis: &StatusInputs<'_>,
    phase: PodPhase,
    status: &PodStatus,
    now: SystemTime,
) -> Vec<PodCondition> {
    let initialised = initialised(basis.pod, status);
    let is_lasting = |status: &&ContainerStatus| {
        basis.pod.container(&status.name).is_some_and(|container| container.spec.role != ContainerKind::Init)
    };
    let lasting: Vec<(&str, bool)> =
        status.containers().filter(is_lasting).map(|it| (it.name.as_str(), it.ready)).collect();
    let [containers_ready, ready] =
        readiness(phase, &lasting).map(|prober::PodCondition { is_met, reason, message, .. }| {
            ConditionStatus { is_met, reason, message }
        });
    let has_sandbox = basis
        .runtime_status
        .sandbox()
        .is_some_and(|sandbox| sandbox.is_ready && (basis.pod.host.network || !sandbox.addresses.is_empty()));
    let may_reset = basis
        .pod
        .containers
        .iter()
        .any(|container| container.spec.restart_rules.iter().any(|it| it.restarts_all));
    let resetting = may_reset.then(|| {
        let status = match phase {
            PodPhase::Succeeded => ConditionStatus::because(false, "PodCompleted"),
            PodPhase::Failed => ConditionStatus::because(false, "PodFailed"),
            _ if basis.is_resetting => ConditionStatus {
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

fn initialised(pod: &Pod, status: &PodStatus) -> ConditionStatus {
    let is_done = |(container, status): (&std::sync::Arc<Container>, &ContainerStatus)| {
        if container.spec.role == ContainerKind::Sidecar { status.is_started() } else { status.ready }
    };
    let all = pod.init_containers().zip(status.init_container_statuses.iter().flatten());
    let left: Vec<&str> = all.filter(|it| !is_done(*it)).map(|(it, _)| it.name.as_str()).collect();
    let has_started = |status: &ContainerStatus| {
        status.running().is_some() || status.terminated().is_some() || status.last_terminated().is_some()
    };
    if status.phase() == "Succeeded" {
        ConditionStatus::because(true, "PodCompleted")
    } else if left.is_empty() || status.container_statuses.iter().flatten().any(has_started) {
        ConditionStatus::new(true)
    } else {
        let message = Some(format!("containers with incomplete status: [{}]", left.join(" ")));
        ConditionStatus { message, ..ConditionStatus::because(false, "ContainersNotInitialized") }
    }
}

/// Converts nanoseconds since 1970 to whole seconds, the resolution of times in Kubernetes.
fn time(nanoseconds: i64) -> Option<Time> {
    whole_seconds(Timestamp::from_nanosecond(nanoseconds.into()))
}

/// Converts a time to whole seconds.
fn time_of(time: SystemTime) -> Option<Time> {
    whole_seconds(Timestamp::try_from(time))
}

fn whole_seconds(time: Result<Timestamp, jiff::Error>) -> Option<Time> {
    time.and_then(|time| Timestamp::from_second(time.as_second())).map(Time).ok()
}

#[cfg(test)]
mod tests;
