//! Accessors for the status types of Kubernetes (kubelet: `pkg/api/v1/pod/util.go`,
//! `status/status_manager.go`).

use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Accessors for the status of a pod.
pub trait PodStatusExt {
    /// Returns the phase; an empty text if no phase is set.
    fn phase(&self) -> &str;

    /// Returns whether a condition has the status `True`.
    fn is(&self, condition: &str) -> bool;

    /// Returns whether the pod has the phase Succeeded or Failed.
    fn is_terminal(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Returns the statuses of the containers, init containers first.
    fn containers(&self) -> impl Iterator<Item = &ContainerStatus>;
}

/// Accessors for the status of a container.
pub trait ContainerStatusExt {
    /// Returns the waiting state, if the container is waiting.
    fn waiting(&self) -> Option<&ContainerStateWaiting>;

    /// Returns the running state, if the container is running.
    fn running(&self) -> Option<&ContainerStateRunning>;

    /// Returns the terminated state, if the container has terminated.
    fn terminated(&self) -> Option<&ContainerStateTerminated>;

    /// Returns the terminated state of the previous instance, if there is one.
    fn last_terminated(&self) -> Option<&ContainerStateTerminated>;

    /// Returns whether the container has started, which requires the success of a startup probe.
    fn is_started(&self) -> bool;

    /// Returns the restart count.
    fn restarts(&self) -> u32;

    /// Returns the id in the runtime, without the name of the runtime.
    fn runtime_id(&self) -> Option<&str>;
}

impl PodStatusExt for PodStatus {
    fn phase(&self) -> &str {
        self.phase.as_deref().unwrap_or_default()
    }

    fn is(&self, condition: &str) -> bool {
        self.conditions.iter().flatten().any(|known| known.type_ == condition && known.status == "True")
    }

    fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses.iter().chain(&self.container_statuses).flatten()
    }
}

impl ContainerStatusExt for ContainerStatus {
    fn waiting(&self) -> Option<&ContainerStateWaiting> {
        self.state.as_ref()?.waiting.as_ref()
    }

    fn running(&self) -> Option<&ContainerStateRunning> {
        self.state.as_ref()?.running.as_ref()
    }

    fn terminated(&self) -> Option<&ContainerStateTerminated> {
        self.state.as_ref()?.terminated.as_ref()
    }

    fn last_terminated(&self) -> Option<&ContainerStateTerminated> {
        self.last_state.as_ref()?.terminated.as_ref()
    }

    fn is_started(&self) -> bool {
        self.started == Some(true)
    }

    fn restarts(&self) -> u32 {
        self.restart_count.try_into().unwrap_or(0)
    }

    fn runtime_id(&self) -> Option<&str> {
        self.container_id.as_deref().and_then(|id| id.rsplit('/').next())
    }
}

/// Makes the status of a pod final: containers with an unobserved end count as killed, and a pod
/// without a terminal phase as failed (kubelet: `status_manager.go`: `TerminatePod`).
/// `has_sidecar_last`: the last init container is a sidecar.
pub(super) fn terminate_pod(status: &mut PodStatus, has_sidecar_last: bool) {
    if has_initialized(status, has_sidecar_last) {
        status.container_statuses.iter_mut().flatten().for_each(terminate_container);
    }
    // Init containers after the last started one stay unchanged.
    let init = status.init_container_statuses.as_deref_mut().unwrap_or_default();
    let started = init.iter().rposition(has_left_waiting).map_or(1, |last| last + 1);
    init.iter_mut().take(started).for_each(terminate_container);
    if status.is_terminal() {
        return;
    }
    status.phase = Some("Failed".to_owned());
    for condition in status.conditions.iter_mut().flatten() {
        if matches!(condition.type_.as_str(), "Ready" | "ContainersReady") {
            (condition.status, condition.reason) = ("False".to_owned(), Some("PodFailed".to_owned()));
        }
    }
}

/// Returns whether the init containers have ever finished (kubelet: `status_manager.go`:
/// `hasPodInitialized`).
fn has_initialized(status: &PodStatus, has_sidecar_last: bool) -> bool {
    let Some(last) = status.init_container_statuses.iter().flatten().last() else { return true };
    let is_done = if has_sidecar_last {
        last.running().is_some() && last.is_started()
    } else {
        [last.terminated(), last.last_terminated()].into_iter().flatten().any(|ended| ended.exit_code == 0)
    };
    is_done || status.container_statuses.iter().flatten().any(has_left_waiting)
}

/// Returns whether a container was ever started.
fn has_left_waiting(container: &ContainerStatus) -> bool {
    container.last_terminated().is_some() || container.waiting().is_none()
}

/// Marks a container as killed, unless its end was observed.
fn terminate_container(container: &mut ContainerStatus) {
    if container.terminated().is_some() {
        return;
    }
    let terminated = ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        container_id: container.container_id.clone(),
        ..ContainerStateTerminated::default()
    };
    container.state = Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() });
    (container.ready, container.started) = (false, Some(false));
}

/// Returns a container state that is terminated, of which the runtime knows nothing.
pub(super) fn terminated_state(exit_code: i32, reason: &str, message: &str) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code,
        reason: non_empty(reason),
        message: non_empty(message),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

/// Returns a container state that is waiting.
pub(super) fn waiting_state(reason: &str, message: &str) -> ContainerState {
    ContainerState { waiting: Some(waiting(reason, message)), ..ContainerState::default() }
}

/// Returns a waiting state. Empty texts are left out.
pub(super) fn waiting(reason: &str, message: &str) -> ContainerStateWaiting {
    ContainerStateWaiting { reason: non_empty(reason), message: non_empty(message) }
}

/// Returns a text; `None` if it is empty, because Kubernetes omits empty fields.
pub(super) fn non_empty(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Converts a time to whole seconds, the resolution of times in Kubernetes.
pub(super) fn time_of(time: SystemTime) -> Option<Time> {
    whole_seconds(Timestamp::try_from(time))
}

/// Converts a time to whole seconds; `None` if it is out of range.
pub(super) fn whole_seconds(time: Result<Timestamp, jiff::Error>) -> Option<Time> {
    time.and_then(|time| Timestamp::from_second(time.as_second())).map(Time).ok()
}
