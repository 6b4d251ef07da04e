//! What is to be done for a pod: from what it is to be, what the runtime says of it, and what its probes say (as the kubelet's
//! `computePodActions`). It decides, and does nothing itself.

use std::sync::Arc;

use crate::kill::{KillCause, message};
use crate::kubelet::cri_config::hash;
use crate::kubelet::runtime_status::{ContainerInstance, InstanceState, RuntimePodStatus, SandboxInstance};
use crate::manifest::pod::{Container, Pod};
use crate::manifest::{ContainerKind, PodSpec, ProbeType, RestartPolicy};
use crate::prober::ProbeResult;

/// What is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodActions {
    /// Everything is stopped.
    pub(super) kill_pod: bool,
    /// There is to be a sandbox, of this attempt.
    pub(super) create_sandbox: Option<u32>,
    /// The sandbox that there is, or was.
    pub(super) sandbox: Option<Arc<str>>,
    /// Containers that are stopped, one after the other.
    pub(super) containers_to_kill: Vec<ContainerToKill>,
    /// Containers that are stopped and removed, for all to start again.
    pub(super) containers_to_reset: Vec<ContainerToKill>,
    /// Containers that run before the regular ones, in their order, to be started.
    pub(super) init_containers_to_start: Vec<String>,
    /// Regular ones.
    pub(super) containers_to_start: Vec<String>,
}

/// A container that is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerToKill {
    pub(super) id: Arc<str>,
    pub(super) name: String,
    /// What the kubelet's event says.
    pub(super) message: String,
    pub(super) reason: KillReason,
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillReason {
    /// A probe of its has failed.
    Probe(ProbeType),
    /// It is started again with all others: at once.
    Reset,
    /// Something else.
    Other,
}

/// What a probe is held to say of a container, if anything.
pub(super) type ProbeResults<'a> = dyn Fn(&str, ProbeType) -> Option<ProbeResult> + 'a;

/// What is looked at.
#[derive(Clone, Copy)]
pub(super) struct ActionInputs<'a> {
    pub(super) pod: &'a Pod,
    pub(super) runtime_status: &'a RuntimePodStatus,
    pub(super) probe_result: &'a ProbeResults<'a>,
    /// What is probed, by all sources; `None` where nothing is.
    pub(super) probe_spec: Option<&'a PodSpec>,
    /// Whether a container is ended for a probe, or has been, by its id.
    pub(super) probe_killed: &'a dyn Fn(&str) -> bool,
}

impl ActionInputs<'_> {
    /// What a probe is held to say of a container that runs beside the others; `None` where there is no such probe.
    fn sidecar_probe_result(&self, container: &Container, id: &str, kind: ProbeType) -> Option<ProbeResult> {
        let probe_spec = self.probe_spec?.container(&container.name)?;
        probe_spec.probe(kind).map(|_| (self.probe_result)(id, kind).unwrap_or(ProbeResult::Unknown))
    }
}

/// What is to be done for a pod that goes on.
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
    // What else is in a client's sandbox is the client's own, and so is the sandbox.
    actions.kill_pod &= !pod.is_client_pod();
    actions
}

/// Whether a container was made for another manifest. Of a client's nothing is noted.
fn is_changed(container: &Container, instance: &ContainerInstance) -> bool {
    container.client_request.is_none() && hash(container) != instance.hash
}

/// Whether there has to be another sandbox, and of which attempt the one that counts is.
fn pod_sandbox_changed(pod: &Pod, runtime_status: &RuntimePodStatus) -> (bool, u32) {
    let Some(newest) = runtime_status.sandbox() else { return (true, 0) };
    let ready = runtime_status.sandboxes.iter().filter(|sandbox| sandbox.is_ready).count();
    let SandboxInstance { attempt, is_ready, is_host_network, addresses, .. } = newest;
    let is_as_written = *is_host_network == pod.host.network && (pod.host.network || !addresses.is_empty());
    // A client's is as the client wants it, and so are others of that name.
    let is_good = *is_ready && (pod.is_client_pod() || ready == 1 && is_as_written);
    let highest = runtime_status.sandboxes.iter().map(|sandbox| sandbox.attempt).max().unwrap_or(*attempt);
    if is_good { (false, *attempt) } else { (true, highest.saturating_add(1)) }
}

/// Everything is made anew, unless there is nothing left to do.
fn compute_for_new_sandbox(view: ActionInputs<'_>, attempt: u32, actions: &mut PodActions) {
    let ActionInputs { pod, runtime_status, .. } = view;
    let policy = pod.restart_policy();
    if attempt != 0 && policy == RestartPolicy::Never && !runtime_status.containers.is_empty() {
        actions.create_sandbox = None;
        return;
    }
    // Those that are to succeed once, and have. What else containers say of themselves does not count here.
    let is_done = |container: &&Arc<Container>| {
        let newest = runtime_status.latest(&container.name);
        container.spec.restart_policy.unwrap_or(policy) == RestartPolicy::OnFailure
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

/// Containers that run before the regular ones. Tells whether the regular ones may start.
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
    // The last one that is there tells how far it has come; of those before it, only sidecars are kept running.
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
                if !is_sidecar && !should_restart(pod, container, instance) {
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
    let ActionInputs { pod, runtime_status, probe_result, probe_killed, .. } = view;
    let mut kept = 0;
    for container in pod.regular_containers() {
        let name = &container.name;
        let running = match runtime_status.latest(name) {
            Some(instance) if instance.state == InstanceState::Running => instance,
            other => {
                let is_probe_killed = |instance: &ContainerInstance| probe_killed(&instance.id);
                let is_back = |it: &ContainerInstance| should_start(pod, container, it, is_probe_killed(it));
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
        // Rules do not count: there is no exit code yet.
        let policy = container.spec.restart_policy.unwrap_or(pod.restart_policy());
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
        // All of it is ended as a whole, and what runs beside, which would keep it alive, is not started again.
        (actions.kill_pod, actions.containers_to_kill, actions.init_containers_to_start) =
            (true, Vec::new(), Vec::new());
    }
}

/// Where a container has ended in a way that makes all start again: everything that is there, and last what made it so.
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
        .map(|instance| {
            container_to_kill(instance, message::restarting_all(&instance.name), KillReason::Reset)
        })
        .collect()
}

/// Whether a container that does not run is started. What was ended for a probe is, whatever its exit code, unless nothing ever is: so it is
/// where it is started in the sync that ends it, and so it has to be where that sync was cut short.
fn should_start(
    pod: &Pod,
    container: &Container,
    instance: &ContainerInstance,
    is_probe_killed: bool,
) -> bool {
    match instance.state {
        InstanceState::Running => false,
        InstanceState::Created | InstanceState::Unknown => true,
        InstanceState::Exited => should_restart_after_kill(pod, container, instance, is_probe_killed),
    }
}

/// Whether one that has ended is started again, where it may have been ended for a probe.
pub(super) fn should_restart_after_kill(
    pod: &Pod,
    container: &Container,
    instance: &ContainerInstance,
    is_probe_killed: bool,
) -> bool {
    let policy = container.spec.restart_policy.unwrap_or(pod.restart_policy());
    should_restart(pod, container, instance) || is_probe_killed && policy != RestartPolicy::Never
}

/// Whether one that has ended is started again.
pub(super) fn should_restart(pod: &Pod, container: &Container, instance: &ContainerInstance) -> bool {
    container.spec.is_restarted(pod.restart_policy(), instance.exit_code)
}

fn has_failed(instance: &ContainerInstance) -> bool {
    instance.exit_code != 0 || instance.reason == "OOMKilled"
}

fn container_to_kill(instance: &ContainerInstance, message: String, reason: KillReason) -> ContainerToKill {
    ContainerToKill { id: instance.id.clone(), name: instance.name.clone(), message, reason }
}

#[cfg(test)]
pub(super) mod tests;
