//! The status of a pod as Kubernetes writes it.

#![allow(missing_docs, reason = "the names are those of Kubernetes")]

use serde::Serialize;
use serde_json::Value;

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: &'static str,
    pub conditions: Vec<PodStatusCondition>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    #[serde(rename = "hostIPs", skip_serializing_if = "Vec::is_empty")]
    pub host_ips: Vec<Address>,
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<Address>,
    pub start_time: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatusV1>,
    pub container_statuses: Vec<ContainerStatusV1>,
    pub qos_class: &'static str,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Address {
    pub ip: String,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatusCondition {
    pub r#type: &'static str,
    /// `True` or `False`.
    pub status: &'static str,
    pub last_probe_time: Option<String>,
    pub last_transition_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatusV1 {
    pub name: String,
    pub state: ContainerState,
    pub last_state: ContainerState,
    pub ready: bool,
    pub restart_count: u32,
    pub image: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    pub started: bool,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub user: Value,
}

/// How far a container has come; none of these where nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

/// It does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waiting {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// It runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub started_at: String,
}

/// It has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminated {
    pub exit_code: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub started_at: String,
    pub finished_at: String,
    #[serde(rename = "containerID")]
    pub container_id: String,
}

impl PodStatus {
    /// Whether a condition is met.
    #[must_use]
    pub fn is(&self, condition: &str) -> bool {
        self.conditions.iter().any(|known| known.r#type == condition && known.status == "True")
    }

    /// Makes the status final: containers whose end was not observed count as killed (kubelet: `status_manager.go`: `TerminatePod`), and a pod
    /// without a terminal phase as failed. `has_sidecar_last`: the last init container is a sidecar.
    pub(super) fn finish(&mut self, has_sidecar_last: bool) {
        if self.is_initialized(has_sidecar_last) {
            self.container_statuses.iter_mut().for_each(ContainerStatusV1::finish);
        }
        // Init containers after the last one that has started stay as they are.
        let has_started = |container: &ContainerStatusV1| {
            container.state.waiting.is_none() || container.last_state.terminated.is_some()
        };
        let started = self.init_container_statuses.iter().rposition(has_started).map_or(1, |last| last + 1);
        self.init_container_statuses.iter_mut().take(started).for_each(ContainerStatusV1::finish);
        if self.is_terminal() {
            return;
        }
        self.phase = "Failed";
        for condition in &mut self.conditions {
            if matches!(condition.r#type, "Ready" | "ContainersReady") {
                (condition.status, condition.reason) = ("False", Some("PodFailed"));
            }
        }
    }

    /// Returns whether the init containers have ever been done (kubelet: `status_manager.go`: `hasPodInitialized`).
    fn is_initialized(&self, has_sidecar_last: bool) -> bool {
        let has_left_waiting = |container: &ContainerStatusV1| {
            container.last_state.terminated.is_some() || container.state.waiting.is_none()
        };
        let Some(last) = self.init_container_statuses.last() else { return true };
        let has_succeeded =
            |state: &ContainerState| state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0);
        let is_done = if has_sidecar_last {
            last.state.running.is_some() && last.started
        } else {
            has_succeeded(&last.state) || has_succeeded(&last.last_state)
        };
        is_done || self.container_statuses.iter().any(has_left_waiting)
    }

    /// Its containers, those that run first before the others.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerStatusV1> {
        self.init_container_statuses.iter().chain(&self.container_statuses)
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.phase == "Succeeded" || self.phase == "Failed"
    }
}

impl ContainerStatusV1 {
    /// Marks the container as killed, unless its end was observed.
    fn finish(&mut self) {
        if self.state.terminated.is_none() {
            self.state = ContainerState::unknown_end(&self.container_id);
            (self.ready, self.started) = (false, false);
        }
    }
}

impl ContainerState {
    /// The state of a container whose end was not observed.
    fn unknown_end(id: &str) -> Self {
        let terminated = Terminated {
            exit_code: 137,
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The container could not be located when the pod was terminated".to_owned(),
            container_id: id.to_owned(),
            ..Terminated::default()
        };
        Self { terminated: Some(terminated), ..Self::default() }
    }

    pub(super) fn waiting(reason: &str, message: &str) -> Self {
        let waiting = Waiting { reason: reason.to_owned(), message: message.to_owned() };
        Self { waiting: Some(waiting), ..Self::default() }
    }
}
