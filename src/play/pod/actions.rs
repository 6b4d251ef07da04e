//! What is to be done for a pod: from what it is to be, what the runtime says of it, and what its probes say (as the kubelet's
//! `computePodActions`). It decides, and does nothing itself.

use std::sync::Arc;

use crate::play::configs::hash;
use crate::play::seen::{Instance, Sandbox, Seen, State};
use crate::play::spec::{Container, Pod};
use crate::probe::{ContainerKind, PodSpec, ProbeType, RestartPolicy};
use crate::prober::ProbeResult;

/// What is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Actions {
    /// Everything is stopped.
    pub(super) kills_pod: bool,
    /// There is to be a sandbox, of this attempt.
    pub(super) creates_sandbox: Option<u32>,
    /// The sandbox that there is, or was.
    pub(super) sandbox: Option<Arc<str>>,
    /// Containers that are stopped, one after the other.
    pub(super) kills: Vec<Doomed>,
    /// Containers that are stopped and removed, for all to start again.
    pub(super) resets: Vec<Doomed>,
    /// Containers that run before the regular ones, in their order, to be started.
    pub(super) starts_init: Vec<String>,
    /// Regular ones.
    pub(super) starts: Vec<String>,
}

/// A container that is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doomed {
    pub(super) id: Arc<str>,
    pub(super) name: String,
    /// What the kubelet's event says.
    pub(super) message: String,
    pub(super) reason: Reason,
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A probe of its has failed.
    Probe(ProbeType),
    /// It is started again with all others: at once.
    Reset,
    /// Something else.
    Other,
}

/// What a probe is held to say of a container, if anything.
pub(super) type Verdicts<'a> = dyn Fn(&str, ProbeType) -> Option<ProbeResult> + 'a;

/// What is looked at.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) pod: &'a Pod,
    pub(super) seen: &'a Seen,
    pub(super) verdicts: &'a Verdicts<'a>,
    /// What is probed, by all sources; `None` where nothing is.
    pub(super) probed: Option<&'a PodSpec>,
    /// Whether a container is ended for a probe, or has been, by its id.
    pub(super) condemned: &'a dyn Fn(&str) -> bool,
}

impl View<'_> {
    /// What a probe is held to say of a container that runs beside the others; `None` where there is no such probe.
    fn verdict_beside(&self, container: &Container, id: &str, kind: ProbeType) -> Option<ProbeResult> {
        let probed = self.probed?.container(&container.name)?;
        probed.probe(kind).map(|_| (self.verdicts)(id, kind).unwrap_or(ProbeResult::Unknown))
    }
}

/// What is to be done for a pod that goes on.
pub(super) fn compute(view: View<'_>) -> Actions {
    let View { pod, seen, .. } = view;
    let resets = resets(view);
    if !resets.is_empty() {
        let sandbox = seen.sandbox().map(|sandbox| sandbox.id.clone());
        return Actions { sandbox, resets, ..Actions::default() };
    }
    let (is_new, attempt) = next_sandbox(pod, seen);
    let mut actions = Actions {
        kills_pod: is_new,
        creates_sandbox: is_new.then_some(attempt),
        sandbox: seen.sandbox().map(|sandbox| sandbox.id.clone()),
        ..Actions::default()
    };
    if is_new {
        from_the_start(view, attempt, &mut actions);
        actions.kills_pod &= !pod.is_kept() || actions.creates_sandbox.is_some();
        return actions;
    }
    let is_initialised = init_containers(view, &mut actions);
    if !actions.kills_pod && is_initialised {
        regular_containers(view, &mut actions);
    }
    // What else is in a client's sandbox is the client's own, and so is the sandbox.
    actions.kills_pod &= !pod.is_kept();
    actions
}

/// Whether a container was made for another manifest. Of a client's nothing is noted.
fn is_changed(container: &Container, instance: &Instance) -> bool {
    container.own.is_none() && hash(container) != instance.hash
}

/// Whether there has to be another sandbox, and of which attempt the one that counts is.
fn next_sandbox(pod: &Pod, seen: &Seen) -> (bool, u32) {
    let Some(newest) = seen.sandbox() else { return (true, 0) };
    let ready = seen.sandboxes.iter().filter(|sandbox| sandbox.is_ready).count();
    let Sandbox { attempt, is_ready, is_host_network, addresses, .. } = newest;
    let is_as_written = *is_host_network == pod.host.network && (pod.host.network || !addresses.is_empty());
    // A client's is as the client wants it, and so are others of that name.
    let is_good = *is_ready && (pod.is_kept() || ready == 1 && is_as_written);
    let highest = seen.sandboxes.iter().map(|sandbox| sandbox.attempt).max().unwrap_or(*attempt);
    if is_good { (false, *attempt) } else { (true, highest.saturating_add(1)) }
}

/// Everything is made anew, unless there is nothing left to do.
fn from_the_start(view: View<'_>, attempt: u32, actions: &mut Actions) {
    let View { pod, seen, .. } = view;
    let policy = pod.restart_policy();
    if attempt != 0 && policy == RestartPolicy::Never && !seen.containers.is_empty() {
        actions.creates_sandbox = None;
        return;
    }
    // Those that are to succeed once, and have. What else containers say of themselves does not count here.
    let is_done = |container: &&Arc<Container>| {
        let newest = seen.newest(&container.name);
        container.spec.restart_policy.unwrap_or(policy) == RestartPolicy::OnFailure
            && newest.is_some_and(|instance| instance.state == State::Exited && instance.exit_code == 0)
    };
    let starts: Vec<String> = pod
        .regular_containers()
        .filter(|container| !is_done(container))
        .filter(|container| seen.newest(&container.name).is_some() || !pod.is_over(container))
        .map(|container| container.name.clone())
        .collect();
    let is_initialised = pod.regular_containers().any(|container| seen.newest(&container.name).is_some());
    if starts.is_empty() && (is_initialised || pod.is_kept()) {
        actions.creates_sandbox = None;
        return;
    }
    match pod.init_containers().next() {
        Some(first) => actions.starts_init.push(first.name.clone()),
        None => actions.starts = starts,
    }
}

/// Containers that run before the regular ones. Tells whether the regular ones may start.
fn init_containers(view: View<'_>, actions: &mut Actions) -> bool {
    let View { pod, seen, .. } = view;
    let containers: Vec<&Arc<Container>> = pod.init_containers().collect();
    let is_there = |container: &Arc<Container>| {
        let state = seen.newest(&container.name).map(|instance| instance.state);
        matches!(state, Some(State::Created | State::Running))
    };
    let was_initialised = pod.regular_containers().any(is_there);
    let (mut is_initialised, mut is_past) = (was_initialised || containers.is_empty(), was_initialised);
    let mut starts: Vec<usize> = Vec::new();
    // The last one that is there tells how far it has come; of those before it, only sidecars are kept running.
    for (place, container) in containers.iter().enumerate().rev() {
        let is_sidecar = container.role == ContainerKind::Sidecar;
        let Some(instance) = seen.newest(&container.name) else {
            if is_past && is_sidecar {
                starts.push(place);
            }
            continue;
        };
        if is_past && !is_sidecar {
            continue;
        }
        let has_next = place + 1 < containers.len();
        let mut goes_on = || {
            if !has_next {
                is_initialised = true;
            } else if !is_past {
                starts.push(place + 1);
            }
        };
        match instance.state {
            State::Created => starts.push(place),
            State::Running if is_sidecar => {
                let verdict = |kind| view.verdict_beside(container, &instance.id, kind);
                let fault = match verdict(ProbeType::Startup) {
                    Some(ProbeResult::Failure) => {
                        Some(("failed startup probe", Reason::Probe(ProbeType::Startup)))
                    }
                    Some(ProbeResult::Unknown) => None,
                    Some(ProbeResult::Success) | None => {
                        goes_on();
                        if is_changed(container, instance) {
                            Some(("definition changed", Reason::Other))
                        } else if verdict(ProbeType::Liveness) == Some(ProbeResult::Failure) {
                            Some(("failed liveness probe", Reason::Probe(ProbeType::Liveness)))
                        } else {
                            None
                        }
                    }
                };
                if let Some((what, reason)) = fault {
                    let message = format!("Init container {} {what}", container.name);
                    actions.kills.push(doomed(instance, message, reason));
                    starts.push(place);
                }
            }
            State::Running => {}
            State::Exited if is_sidecar => starts.push(place),
            State::Exited if has_failed(instance) => {
                if !is_restarted(pod, container, instance) {
                    actions.kills_pod = true;
                    return false;
                }
                starts.push(place);
            }
            State::Exited => goes_on(),
            State::Unknown => {
                if !is_sidecar && !is_restarted(pod, container, instance) {
                    actions.kills_pod = true;
                    return false;
                }
                let message =
                    "Init container is in \"unknown\" state, try killing it before restart".to_owned();
                actions.kills.push(doomed(instance, message, Reason::Other));
                starts.push(place);
            }
        }
        is_past = true;
    }
    if !is_past && !containers.is_empty() {
        starts.push(0);
    }
    starts.sort_unstable();
    starts.dedup();
    actions.starts_init = starts.into_iter().map(|place| containers[place].name.clone()).collect();
    is_initialised
}

fn regular_containers(view: View<'_>, actions: &mut Actions) {
    let View { pod, seen, verdicts, condemned, .. } = view;
    let mut kept = 0;
    for container in pod.regular_containers() {
        let name = &container.name;
        let running = match seen.newest(name) {
            Some(instance) if instance.state == State::Running => instance,
            other => {
                let is_condemned = |instance: &Instance| condemned(&instance.id);
                let is_back = |it: &Instance| is_started_again(pod, container, it, is_condemned(it));
                if other.map_or(!pod.is_over(container), is_back) {
                    actions.starts.push(name.clone());
                    if let Some(instance) = other.filter(|instance| instance.state == State::Unknown) {
                        let message = "Container is in \"unknown\" state, try killing it before restart";
                        actions.kills.push(doomed(instance, message.to_owned(), Reason::Other));
                    }
                }
                continue;
            }
        };
        // Rules do not count: there is no exit code yet.
        let policy = container.spec.restart_policy.unwrap_or(pod.restart_policy());
        let failed = |kind| verdicts(&running.id, kind) == Some(ProbeResult::Failure);
        let (what, reason, is_restarted) = if is_changed(container, running) {
            ("definition changed".to_owned(), Reason::Other, true)
        } else if let Some(kind) =
            [ProbeType::Liveness, ProbeType::Startup].into_iter().find(|it| failed(*it))
        {
            (format!("failed {} probe", kind.name()), Reason::Probe(kind), policy != RestartPolicy::Never)
        } else {
            kept += 1;
            continue;
        };
        let ending = if is_restarted { ", will be restarted" } else { "" };
        let message = format!("Container {name} {what}{ending}");
        if is_restarted {
            actions.starts.push(name.clone());
        }
        actions.kills.push(doomed(running, message, reason));
    }
    if kept == 0 && actions.starts.is_empty() && !pod.is_kept() {
        // All of it is ended as a whole, and what runs beside, which would keep it alive, is not started again.
        (actions.kills_pod, actions.kills, actions.starts_init) = (true, Vec::new(), Vec::new());
    }
}

/// Where a container has ended in a way that makes all start again: everything that is there, and last what made it so.
fn resets(view: View<'_>) -> Vec<Doomed> {
    let View { pod, seen, .. } = view;
    let makes_it_so = |instance: &Instance| {
        let is_newest = seen.newest(&instance.name).is_some_and(|newest| newest.id == instance.id);
        let container = pod.container(&instance.name);
        instance.state == State::Exited
            && is_newest
            && container.is_some_and(|container| container.spec.restarts_all_containers(instance.exit_code))
    };
    if !seen.containers.iter().any(makes_it_so) {
        return Vec::new();
    }
    let (last, first): (Vec<&Instance>, Vec<&Instance>) =
        seen.containers.iter().partition(|instance| makes_it_so(instance));
    let message = |instance: &Instance| format!("Container {} is restarted with all others", instance.name);
    first.into_iter().chain(last).map(|instance| doomed(instance, message(instance), Reason::Reset)).collect()
}

/// Whether a container that does not run is started. What was ended for a probe is, whatever its exit code, unless nothing ever is: so it is
/// where it is started in the sync that ends it, and so it has to be where that sync was cut short.
fn is_started_again(pod: &Pod, container: &Container, instance: &Instance, is_condemned: bool) -> bool {
    match instance.state {
        State::Running => false,
        State::Created | State::Unknown => true,
        State::Exited => is_back(pod, container, instance, is_condemned),
    }
}

/// Whether one that has ended is started again, where it may have been ended for a probe.
pub(super) fn is_back(pod: &Pod, container: &Container, instance: &Instance, is_condemned: bool) -> bool {
    let policy = container.spec.restart_policy.unwrap_or(pod.restart_policy());
    is_restarted(pod, container, instance) || is_condemned && policy != RestartPolicy::Never
}

/// Whether one that has ended is started again.
pub(super) fn is_restarted(pod: &Pod, container: &Container, instance: &Instance) -> bool {
    container.spec.is_restarted(pod.restart_policy(), instance.exit_code)
}

fn has_failed(instance: &Instance) -> bool {
    instance.exit_code != 0 || instance.reason == "OOMKilled"
}

fn doomed(instance: &Instance, message: String, reason: Reason) -> Doomed {
    Doomed { id: instance.id.clone(), name: instance.name.clone(), message, reason }
}

#[cfg(test)]
pub(super) mod tests;
