//! Status of a container (kubelet: `kubelet_pods.go`: `convertToAPIContainerStatuses`).

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, ContainerUser,
    LinuxContainerUser, PodStatus,
};

use super::{StatusInputs, time};
use crate::kubelet::pod_dir::message;
use crate::kubelet::pod_status::{
    ContainerStatusExt as _, PodStatusExt as _, non_empty, terminated_state, waiting_state,
};
use crate::kubelet::runtime_status::{ContainerInstance, InstanceState};
use crate::kubelet::worker::compute_actions::should_restart;
use crate::manifest::pod::Container;
use crate::manifest::{ContainerKind, ProbeType};

/// Reason of containers that were removed because all containers are restarted.
pub(super) const RESTARTING_ALL: &str = "RestartingAllContainers";

/// Reason of containers whose end was not observed, and exit code of these and of containers that
/// were removed.
const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
const KILLED: i32 = 137;

impl StatusInputs<'_> {
    /// Returns the status of a container.
    pub(super) fn container(&self, container: &Container) -> ContainerStatus {
        let before = self.before.and_then(|before| of_name(before, &container.name));
        let newest = self.runtime_status.latest(&container.name);
        let mut status = match newest {
            Some(newest) => self.present(container, newest, before),
            None => self.missing(container, before),
        };
        self.set_waiting_reason(container, newest, &mut status);
        (status.started, status.ready) = match newest {
            Some(newest) if status.running().is_some() => {
                let (is_started, is_ready) = self.started_and_ready(container, newest);
                (Some(is_started), is_ready)
            }
            _ => (Some(false), container.spec.role == ContainerKind::Init && has_succeeded(&status)),
        };
        status
    }

    /// Returns whether all containers of the pod are being restarted (kubelet:
    /// `container/helpers.go`: `ShouldAllContainersRestart`).
    pub(super) fn restarts_all(&self) -> bool {
        let before = self.before;
        before.is_some_and(|before| before.is("AllContainersRestarting"))
            || self.pod.containers.iter().any(|container| {
                let newest = self.runtime_status.latest(&container.name);
                let exited = newest.filter(|newest| newest.state == InstanceState::Exited);
                let known = before.and_then(|before| of_name(before, &container.name)?.terminated());
                let codes = [exited.map(|exited| exited.exit_code), known.map(|ended| ended.exit_code)];
                codes.into_iter().flatten().any(|code| container.spec.restarts_all_containers(code))
            })
    }

    /// Returns the status of a container with at least one instance.
    fn present(
        &self,
        container: &Container,
        newest: &ContainerInstance,
        before: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let mut status = self.status_of(container, newest, before);
        if let Some(earlier) = self.runtime_status.all(&container.name).nth(1) {
            status.last_state = self.status_of(container, earlier, before).state;
        }
        status
    }

    /// Converts an instance. What the runtime no longer has is taken from the last status: the
    /// restart count, and the end of an instance that was removed.
    fn status_of(
        &self,
        container: &Container,
        instance: &ContainerInstance,
        before: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let id = self.id(&instance.id);
        let known_restarts = before.map_or(0, |before| before.restart_count);
        let own_restarts = instance.restart_count.try_into().unwrap_or(i32::MAX);
        let (state, restart_count) = match instance.state {
            InstanceState::Running => {
                let follows = before.is_some_and(|before| before.terminated().is_some());
                let is_counted = !follows || known_restarts < own_restarts;
                (running(instance), if is_counted { own_restarts } else { known_restarts.saturating_add(1) })
            }
            InstanceState::Exited => (self.terminated(container, instance), own_restarts),
            InstanceState::Unknown if before.is_some_and(|before| before.running().is_some()) => {
                let reason = if self.restarts_all() { RESTARTING_ALL } else { STATUS_UNKNOWN };
                let message = "The container could not be located when the pod was terminated";
                (terminated_state(KILLED, reason, message), known_restarts.saturating_add(1))
            }
            InstanceState::Created | InstanceState::Unknown => (waiting_state("", ""), own_restarts),
        };
        let last_state = before.and_then(|before| {
            let has_other_id = before.container_id.as_ref() != Some(&id);
            if has_other_id && before.terminated().is_some() {
                before.state.clone()
            } else {
                before.last_state.clone()
            }
        });
        let user = instance.user.as_ref().map(|user| LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: Some(user.supplemental_groups.clone()),
        });
        ContainerStatus {
            name: container.name.clone(),
            state: Some(state),
            last_state: Some(last_state.unwrap_or_default()),
            restart_count: restart_count.max(known_restarts),
            image: instance.image.clone(),
            image_id: instance.image_id.clone(),
            container_id: Some(id),
            user: user.map(|linux| ContainerUser { linux: Some(linux) }),
            ..ContainerStatus::default()
        }
    }

    /// Returns the status of a container without an instance: not yet created, or removed.
    fn missing(&self, container: &Container, before: Option<&ContainerStatus>) -> ContainerStatus {
        let has_init = self.pod.init_containers().next().is_some();
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let waiting = ContainerStatus {
            name: container.name.clone(),
            state: Some(waiting_state(reason, "")),
            last_state: Some(ContainerState::default()),
            image: container.image.clone(),
            ..ContainerStatus::default()
        };
        let Some(before) = before else { return waiting };
        let restart_count = before.restart_count.saturating_add(1);
        if before.waiting().is_none() && self.restarts_all() {
            let message = "The container is removed because RestartAllContainers in place";
            return ContainerStatus {
                state: Some(waiting_state(RESTARTING_ALL, message)),
                last_state: Some(terminated_state(KILLED, RESTARTING_ALL, message)),
                restart_count,
                ..if before.terminated().is_some() { before.clone() } else { waiting }
            };
        }
        if before.terminated().is_some() {
            return before.clone();
        }
        if before.running().is_some() && before.last_terminated().is_none() {
            let message = "The container could not be located when the pod was deleted.  The container used to be Running";
            let is_deleted = self.pod.deletion.is_some();
            return ContainerStatus {
                last_state: Some(terminated_state(KILLED, STATUS_UNKNOWN, message)),
                restart_count: if is_deleted { before.restart_count } else { restart_count },
                ..waiting
            };
        }
        ContainerStatus {
            last_state: before.last_state.clone(),
            restart_count: before.restart_count,
            ..waiting
        }
    }

    /// Shows a container that will be started and could not be yet as waiting, and moves its end to
    /// the last state. Shows a removed init container of an initialized pod as completed.
    fn set_waiting_reason(
        &self,
        container: &Container,
        newest: Option<&ContainerInstance>,
        status: &mut ContainerStatus,
    ) {
        let ended = newest.filter(|newest| newest.state == InstanceState::Exited);
        let is_regular = container.spec.role == ContainerKind::Regular;
        // An init container or sidecar that has succeeded stays terminated, even if it is
        // restarted. The final status shows how containers ended.
        if ended.is_some_and(|ended| self.is_terminal || !is_regular && ended.exit_code == 0) {
            return;
        }
        let was_removed = newest.is_none() && container.spec.role == ContainerKind::Init;
        if was_removed && status.waiting().is_some() && self.has_regular_container() {
            let message = "Unable to get init container status from container runtime and pod has been \
                           initialized, treat it as exited normally";
            status.state = Some(terminated_state(0, "Completed", message));
            return;
        }
        if !self.should_be_restarted(container, newest) {
            return;
        }
        let Some(waiting) = self.reasons.get(&container.name) else { return };
        let waiting = ContainerState { waiting: Some(waiting.clone()), ..ContainerState::default() };
        let state = status.state.replace(waiting);
        if state.as_ref().is_some_and(|state| state.terminated.is_some()) {
            status.last_state = state;
        }
    }

    /// Whether the next sync starts the container (kubelet: `container/helpers.go`:
    /// `ShouldContainerBeRestarted`).
    fn should_be_restarted(&self, container: &Container, newest: Option<&ContainerInstance>) -> bool {
        self.pod.deletion.is_none()
            && newest.is_none_or(|newest| match newest.state {
                InstanceState::Running => false,
                InstanceState::Created | InstanceState::Unknown => true,
                InstanceState::Exited => should_restart(self.pod, container, newest),
            })
    }

    /// Whether a regular container was created (kubelet: `kuberuntime`:
    /// `HasAnyRegularContainerCreated`).
    fn has_regular_container(&self) -> bool {
        self.pod.regular_containers().any(|container| {
            let newest = self.runtime_status.latest(&container.name);
            newest.is_some_and(|newest| newest.state != InstanceState::Unknown)
        })
    }

    fn terminated(&self, container: &Container, instance: &ContainerInstance) -> ContainerState {
        let log = (container.fallback_to_logs_on_error && instance.exit_code != 0)
            .then_some(instance.log.as_path());
        let messages = [instance.message.clone(), message(instance.message_file.as_deref(), log)];
        let text: Vec<String> = messages.into_iter().filter(|message| !message.is_empty()).collect();
        let terminated = ContainerStateTerminated {
            exit_code: instance.exit_code,
            reason: non_empty(&instance.reason),
            message: non_empty(&text.join(": ")),
            started_at: time(instance.started_at),
            finished_at: time(instance.finished_at),
            container_id: Some(self.id(&instance.id)),
            signal: None,
        };
        ContainerState { terminated: Some(terminated), ..ContainerState::default() }
    }

    fn id(&self, id: &str) -> String {
        format!("{}://{id}", self.runtime)
    }

    /// Returns whether a running container has started, and whether it is ready.
    fn started_and_ready(&self, container: &Container, instance: &ContainerInstance) -> (bool, bool) {
        if container.spec.role == ContainerKind::Init {
            return (true, false);
        }
        if let Some(report) = self.report.and_then(|report| report.container(&instance.id)) {
            return (report.is_started, report.is_ready);
        }
        let probe_spec = self.probe_spec.and_then(|probe_spec| probe_spec.container(&container.name));
        let has = |kind| probe_spec.is_some_and(|probe_spec| probe_spec.probe(kind).is_some());
        let is_started = !has(ProbeType::Startup);
        (is_started, is_started && !has(ProbeType::Readiness))
    }
}

/// Returns the status of the container with this name.
fn of_name<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    status.containers().find(|known| known.name == name)
}

fn has_succeeded(status: &ContainerStatus) -> bool {
    status.terminated().is_some_and(|ended| ended.exit_code == 0)
}

fn running(instance: &ContainerInstance) -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning { started_at: time(instance.started_at) }),
        ..ContainerState::default()
    }
}
