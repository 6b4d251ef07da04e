//! Computes the pod actions from the desired pod, the runtime's state and the probe results
//! (kubelet: `kuberuntime_manager.go`: `computePodActions`). Performs no effects.

use std::sync::Arc;

use crate::kill::{KillCause, message};
use crate::kubelet::cri_config::hash;
use crate::kubelet::runtime_status::{ContainerInstance, InstanceState, RuntimePodStatus, SandboxInstance};
use crate::manifest::pod::{Container, Pod};
use crate::manifest::{ContainerKind, PodSpec, ProbeType, RestartPolicy};
use crate::prober::ProbeResult;

/// Actions of one sync, in the order of their execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodActions {
    /// Whether all containers and sandboxes are stopped.
    pub(super) kill_pod: bool,
    /// Attempt of the sandbox to create, if one is needed.
    pub(super) create_sandbox: Option<u32>,
    /// Id of the newest sandbox, running or not.
    pub(super) sandbox: Option<Arc<str>>,
    /// Containers to stop, one after the other.
    pub(super) containers_to_kill: Vec<ContainerToKill>,
    /// Containers to stop and remove, because all containers of the pod are restarted.
    pub(super) containers_to_reset: Vec<ContainerToKill>,
    /// Names of the init containers and sidecars to start, in their order.
    pub(super) init_containers_to_start: Vec<String>,
    /// Names of the regular containers to start.
    pub(super) containers_to_start: Vec<String>,
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerToKill {
    pub(super) id: Arc<str>,
    pub(super) name: String,
    /// Message of the `Killing` event.
    pub(super) message: String,
    pub(super) reason: KillReason,
}

/// Reason of a kill, which determines the grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillReason {
    /// A probe of this type has failed.
    Probe(ProbeType),
    /// All containers are restarted. The grace period is 0.
    Reset,
    /// Another reason, such as a changed definition.
    Other,
}

/// Returns the probe result of a container, by its id and the probe type.
pub(super) type ProbeResults<'a> = dyn Fn(&str, ProbeType) -> Option<ProbeResult> + 'a;

/// Inputs of the computation.
#[derive(Clone, Copy)]
pub(super) struct ActionInputs<'a> {
    pub(super) pod: &'a Pod,
    pub(super) runtime_status: &'a RuntimePodStatus,
    pub(super) probe_result: &'a ProbeResults<'a>,
    /// Probe spec of the pod from all sources; `None` without a prober.
    pub(super) probe_spec: Option<&'a PodSpec>,
    /// Whether the container with this id was killed because of a probe, and the sync of the kill
    /// has not tried its restart.
    pub(super) restart_pending: &'a dyn Fn(&str) -> bool,
}

impl ActionInputs<'_> {
    /// Returns the probe result of a sidecar; `None` if it has no such probe.
    fn sidecar_probe_result(&self, container: &Container, id: &str, kind: ProbeType) -> Option<ProbeResult> {
        let probe_spec = self.probe_spec?.container(&container.name)?;
        probe_spec.probe(kind).map(|_| (self.probe_result)(id, kind).unwrap_or(ProbeResult::Unknown))
    }
}

/// Computes the actions for a pod that is not terminating.
pub(super) fn compute_pod_actions(view: ActionInputs<'_>) -> PodActions {
    let ActionInputs { pod, runtime_status, .. } = view;
    let containers_to_reset = resets(view);
    if !containers_to_reset.is_empty() {
        let sandbox = runtime_status.sandbox().map(|sandbox| sandbox.id.clone());
        return PodActions { sandbox, containers_to_reset, ..PodActions::default() };
    }
    let (is_new, attempt) = pod_sandbox_changed(pod, runtime_status);
    let mut actions = PodActions {
        kill_pod: is_new,
        create_sandbox: is_new.then_some(attempt),
        sandbox: runtime_status.sandbox().map(|sandbox| sandbox.id.clone()),
        ..PodActions::default()
    };
    if is_new {
        compute_for_new_sandbox(view, attempt, &mut actions);
        actions.kill_pod &= !pod.is_client_pod() || actions.create_sandbox.is_some();
        return actions;
    }
    let is_initialised = compute_init_container_actions(view, &mut actions);
    if !actions.kill_pod && is_initialised {
        regular_containers(view, &mut actions);
    }
    // The sandbox of a client pod, and all other containers in it, belong to the client.
    actions.kill_pod &= !pod.is_client_pod();
    actions
}

/// Whether a container was created from another definition. Containers of clients have no hash to
/// compare.
fn is_changed(container: &Container, instance: &ContainerInstance) -> bool {
    container.client_request.is_none() && hash(container) != instance.hash
}

/// Whether the pod needs another sandbox, and the attempt of the current or next one (kubelet:
/// `kuberuntime/util/util.go`: `PodSandboxChanged`).
fn pod_sandbox_changed(pod: &Pod, runtime_status: &RuntimePodStatus) -> (bool, u32) {
    let Some(newest) = runtime_status.sandbox() else { return (true, 0) };
    let ready = runtime_status.sandboxes.iter().filter(|sandbox| sandbox.is_ready).count();
    let SandboxInstance { attempt, is_ready, is_host_network, addresses, .. } = newest;
    let is_as_written = *is_host_network == pod.host.network && (pod.host.network || !addresses.is_empty());
    // The network of a client's sandbox, and other ready sandboxes of its name, are the client's
    // choice.
    let is_good = *is_ready && (pod.is_client_pod() || ready == 1 && is_as_written);
    let highest = runtime_status.sandboxes.iter().map(|sandbox| sandbox.attempt).max().unwrap_or(*attempt);
    if is_good { (false, *attempt) } else { (true, highest.saturating_add(1)) }
}

/// Starts everything in a new sandbox, unless no container is left to run.
fn compute_for_new_sandbox(view: ActionInputs<'_>, attempt: u32, actions: &mut PodActions) {
    let ActionInputs { pod, runtime_status, .. } = view;
    let policy = pod.restart_policy();
    if attempt != 0 && policy == RestartPolicy::Never && !runtime_status.containers.is_empty() {
        actions.create_sandbox = None;
        return;
    }
    // Containers with OnFailure that have succeeded. Restart rules do not count here, as with the
    // kubelet.
    let is_done = |container: &&Arc<Container>| {
        let newest = runtime_status.latest(&container.name);
        policy_of(pod, container) == RestartPolicy::OnFailure
            && newest
                .is_some_and(|instance| instance.state == InstanceState::Exited && instance.exit_code == 0)
    };
    let starts: Vec<String> = pod
        .regular_containers()
        .filter(|container| !is_done(container))
        .filter(|container| runtime_status.latest(&container.name).is_some() || !pod.is_over(container))
        .map(|container| container.name.clone())
        .collect();
    let is_initialised =
        pod.regular_containers().any(|container| runtime_status.latest(&container.name).is_some());
    if starts.is_empty() && (is_initialised || pod.is_client_pod()) {
        actions.create_sandbox = None;
        return;
    }
    match pod.init_containers().next() {
        Some(first) => actions.init_containers_to_start.push(first.name.clone()),
        None => actions.containers_to_start = starts,
    }
}

/// Computes the actions for init containers and sidecars. Returns whether the regular containers
/// may start.
fn compute_init_container_actions(view: ActionInputs<'_>, actions: &mut PodActions) -> bool {
    let ActionInputs { pod, runtime_status, .. } = view;
    let containers: Vec<&Arc<Container>> = pod.init_containers().collect();
    let is_there = |container: &Arc<Container>| {
        let state = runtime_status.latest(&container.name).map(|instance| instance.state);
        matches!(state, Some(InstanceState::Created | InstanceState::Running))
    };
    let was_initialised = pod.regular_containers().any(is_there);
    let (mut is_initialised, mut is_past) = (was_initialised || containers.is_empty(), was_initialised);
    let mut starts: Vec<usize> = Vec::new();
    // The last init container with an instance shows the progress. Of the earlier ones, only
    // sidecars are kept running.
    for (context, container) in containers.iter().enumerate().rev() {
        let is_sidecar = container.spec.role == ContainerKind::Sidecar;
        let Some(instance) = runtime_status.latest(&container.name) else {
            if is_past && is_sidecar {
                starts.push(context);
            }
            continue;
        };
        if is_past && !is_sidecar {
            continue;
        }
        let has_next = context + 1 < containers.len();
        let mut goes_on = || {
            if !has_next {
                is_initialised = true;
            } else if !is_past {
                starts.push(context + 1);
            }
        };
        match instance.state {
            InstanceState::Created => starts.push(context),
            InstanceState::Running if is_sidecar => {
                let verdict = |kind| view.sidecar_probe_result(container, &instance.id, kind);
                let fault = match verdict(ProbeType::Startup) {
                    Some(ProbeResult::Failure) => {
                        let cause = KillCause::FailedProbe(ProbeType::Startup);
                        Some((cause, KillReason::Probe(ProbeType::Startup)))
                    }
                    Some(ProbeResult::Unknown) => None,
                    Some(ProbeResult::Success) | None => {
                        goes_on();
                        if is_changed(container, instance) {
                            Some((KillCause::DefinitionChanged, KillReason::Other))
                        } else if verdict(ProbeType::Liveness) == Some(ProbeResult::Failure) {
                            let cause = KillCause::FailedProbe(ProbeType::Liveness);
                            Some((cause, KillReason::Probe(ProbeType::Liveness)))
                        } else {
                            None
                        }
                    }
                };
                if let Some((cause, reason)) = fault {
                    let message = message::init_container(&container.name, cause);
                    actions.containers_to_kill.push(container_to_kill(instance, message, reason));
                    starts.push(context);
                }
            }
            InstanceState::Running => {}
            InstanceState::Exited if is_sidecar => starts.push(context),
            InstanceState::Exited if has_failed(instance) => {
                if !should_restart(pod, container, instance) {
                    actions.kill_pod = true;
                    return false;
                }
                starts.push(context);
            }
            InstanceState::Exited => goes_on(),
            InstanceState::Unknown => {
                // Restart rules do not apply, because the container may not have exited.
                if !is_sidecar && policy_of(pod, container) == RestartPolicy::Never {
                    actions.kill_pod = true;
                    return false;
                }
                let message = message::UNKNOWN_INIT_CONTAINER.to_owned();
                actions.containers_to_kill.push(container_to_kill(instance, message, KillReason::Other));
                starts.push(context);
            }
        }
        is_past = true;
    }
    if !is_past && !containers.is_empty() {
        starts.push(0);
    }
    starts.sort_unstable();
    starts.dedup();
    actions.init_containers_to_start =
        starts.into_iter().map(|context| containers[context].name.clone()).collect();
    is_initialised
}

fn regular_containers(view: ActionInputs<'_>, actions: &mut PodActions) {
    let ActionInputs { pod, runtime_status, probe_result, restart_pending, .. } = view;
    let mut kept = 0;
    for container in pod.regular_containers() {
        let name = &container.name;
        let running = match runtime_status.latest(name) {
            Some(instance) if instance.state == InstanceState::Running => instance,
            other => {
                let is_back =
                    |it: &ContainerInstance| should_start(pod, container, it, restart_pending(&it.id));
                if other.map_or(!pod.is_over(container), is_back) {
                    actions.containers_to_start.push(name.clone());
                    if let Some(instance) = other.filter(|instance| instance.state == InstanceState::Unknown)
                    {
                        let message = message::UNKNOWN_CONTAINER.to_owned();
                        actions.containers_to_kill.push(container_to_kill(
                            instance,
                            message,
                            KillReason::Other,
                        ));
                    }
                }
                continue;
            }
        };
        // Restart rules do not apply, because there is no exit code yet.
        let policy = policy_of(pod, container);
        let failed = |kind| probe_result(&running.id, kind) == Some(ProbeResult::Failure);
        let (cause, reason, is_restarted) = if is_changed(container, running) {
            (KillCause::DefinitionChanged, KillReason::Other, true)
        } else if let Some(kind) =
            [ProbeType::Liveness, ProbeType::Startup].into_iter().find(|it| failed(*it))
        {
            (KillCause::FailedProbe(kind), KillReason::Probe(kind), policy != RestartPolicy::Never)
        } else {
            kept += 1;
            continue;
        };
        let message = message::container(name, cause, is_restarted);
        if is_restarted {
            actions.containers_to_start.push(name.clone());
        }
        actions.containers_to_kill.push(container_to_kill(running, message, reason));
    }
    if kept == 0 && actions.containers_to_start.is_empty() && !pod.is_client_pod() {
        // No regular container is left to run: the pod is killed as a whole. Sidecars, which would
        // keep it alive, are not restarted.
        (actions.kill_pod, actions.containers_to_kill, actions.init_containers_to_start) =
            (true, Vec::new(), Vec::new());
    }
}

/// Returns all containers if one has exited in a way that restarts all (action
/// `RestartAllContainers`). The containers that triggered the restart come last.
fn resets(view: ActionInputs<'_>) -> Vec<ContainerToKill> {
    let ActionInputs { pod, runtime_status, .. } = view;
    let makes_it_so = |instance: &ContainerInstance| {
        let is_newest = runtime_status.latest(&instance.name).is_some_and(|newest| newest.id == instance.id);
        let container = pod.container(&instance.name);
        instance.state == InstanceState::Exited
            && is_newest
            && container.is_some_and(|container| container.spec.restarts_all_containers(instance.exit_code))
    };
    if !runtime_status.containers.iter().any(makes_it_so) {
        return Vec::new();
    }
    let (last, first): (Vec<&ContainerInstance>, Vec<&ContainerInstance>) =
        runtime_status.containers.iter().partition(|instance| makes_it_so(instance));
    first
        .into_iter()
        .chain(last)
        .map(|instance| container_to_kill(instance, message::RESTARTING_ALL.to_owned(), KillReason::Reset))
        .collect()
}

/// Whether a container that does not run is started. The sync that kills a container because of a
/// probe starts it whatever its exit code, unless its policy is Never. With `restart_pending` the
/// same rule applies, because that sync was interrupted after the kill.
fn should_start(
    pod: &Pod,
    container: &Container,
    instance: &ContainerInstance,
    restart_pending: bool,
) -> bool {
    match instance.state {
        InstanceState::Running => false,
        InstanceState::Created | InstanceState::Unknown => true,
        InstanceState::Exited => should_restart_after_kill(pod, container, instance, restart_pending),
    }
}

/// Whether an exited container is restarted. `restart_pending`: it was killed because of a probe,
/// and the sync of the kill has not tried its restart. After that only policy and rules count, as
/// with the kubelet (`container/helpers.go`: `ShouldContainerBeRestarted`).
pub(super) fn should_restart_after_kill(
    pod: &Pod,
    container: &Container,
    instance: &ContainerInstance,
    restart_pending: bool,
) -> bool {
    should_restart(pod, container, instance)
        || restart_pending && policy_of(pod, container) != RestartPolicy::Never
}

/// Whether an exited container is restarted, by its restart policy and restart rules.
pub(super) fn should_restart(pod: &Pod, container: &Container, instance: &ContainerInstance) -> bool {
    container.spec.is_restarted(pod.restart_policy(), instance.exit_code)
}

/// Returns the restart policy of a container, or that of its pod.
fn policy_of(pod: &Pod, container: &Container) -> RestartPolicy {
    container.spec.restart_policy.unwrap_or(pod.restart_policy())
}

fn has_failed(instance: &ContainerInstance) -> bool {
    instance.exit_code != 0 || instance.reason == "OOMKilled"
}

fn container_to_kill(instance: &ContainerInstance, message: String, reason: KillReason) -> ContainerToKill {
    ContainerToKill { id: instance.id.clone(), name: instance.name.clone(), message, reason }
}

#[cfg(test)]
pub(super) mod tests;
