//! Turns observed calls of clients into actions on client pods.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use tracing::warn;

use super::{CapturedRequest, ClientAction, ClientPods, PodKey};
use crate::cri::v1::ContainerState;
use crate::events::{Event, EventRecorder, reason};
use crate::inventory::{Container, Inventory, Sandbox};
use crate::kubelet::{Kubelet, was_created_after};
use crate::object_ref::ContainerRef;
use crate::relay::CallInfo;
use crate::tap::{DecodedCall, StopRequest};
use crate::terminal::sanitize;

/// Reason why an object is not restarted if its request was not captured.
const RESTART_WAS_OFF: &str = "created while --enforce restart was off";

/// Maximum number of objects whose names are unknown. The oldest beyond it are dropped; for their
/// containers only the fact is known that the request was not seen.
const MAX_UNNAMED: usize = 256;

/// Records the actions of clients on their pods, for the built-in kubelet that restarts them.
#[derive(Debug)]
pub(crate) struct ClientActionRecorder {
    client_pods: ClientPods,
    /// Restarts client pods; `None` without `--enforce restart`.
    restarter: Option<Restarter>,
    /// Targets of stop and remove requests that were sent before the node had been listed.
    stopped_before_first_list: Vec<CallTarget>,
    /// Objects that clients created with unreadable requests, and why these are unreadable.
    awaiting_names: Vec<(CallTarget, String)>,
}

/// The built-in kubelet that restarts client pods, and the recorder of its events.
#[derive(Debug)]
pub(crate) struct Restarter {
    /// The built-in kubelet, once it runs.
    pub(crate) kubelet: Arc<OnceLock<Kubelet>>,
    /// Records events about containers that cannot be restarted.
    pub(crate) events: Arc<EventRecorder>,
}

/// Target of a stop or remove request: an id, or a prefix of it.
#[derive(Debug)]
enum CallTarget {
    Sandbox(String),
    Container(String),
}

impl ClientActionRecorder {
    pub(crate) fn new(client_pods: ClientPods, restarter: Option<Restarter>) -> Self {
        Self { client_pods, restarter, stopped_before_first_list: Vec::new(), awaiting_names: Vec::new() }
    }

    /// Called when a client sends a stop or remove request. Before the first list its target may be
    /// unknown.
    pub(crate) fn on_stop_requested(
        &mut self,
        inventory: &Inventory,
        request: &StopRequest,
        is_listed: bool,
    ) {
        let StopRequest { pid, sandbox, container, .. } = request;
        if is_own_process(*pid) {
            return;
        }
        let sandbox = sandbox.clone().map(CallTarget::Sandbox);
        let Some(target) = sandbox.or_else(|| container.clone().map(CallTarget::Container)) else { return };
        match self.release(inventory, &target) {
            Some((key, action)) => self.client_pods.record(&key, action),
            None if !is_listed => self.stopped_before_first_list.push(target),
            None => {}
        }
    }

    /// Called when a call has ended.
    pub(crate) fn on_call_ended(&mut self, inventory: &Inventory, ended: &mut DecodedCall) {
        if let Some((key, action)) = self.client_action(inventory, ended) {
            self.client_pods.record(&key, action);
        } else if let Some(unnamed_target) = unnamed_target(ended) {
            // Objects may have been removed before their names were known.
            self.awaiting_names.drain(..self.awaiting_names.len().saturating_sub(MAX_UNNAMED));
            self.awaiting_names.push(unnamed_target);
            self.record_named(inventory);
        }
    }

    /// Records the actions whose targets have names now.
    pub(crate) fn record_named(&mut self, inventory: &Inventory) {
        self.awaiting_names.retain(|(target, reason)| {
            let request = Err(reason.clone());
            let action = match target {
                CallTarget::Sandbox(id) => inventory.sandbox(id).and_then(|sandbox| {
                    Some((
                        PodKey::from_pod_ref(&sandbox.pod)?,
                        ClientAction::SandboxCreated(Some(id.clone()), request),
                    ))
                }),
                CallTarget::Container(id) => inventory.container(id).and_then(|container| {
                    let (key, name) = names(inventory, container)?;
                    Some((key, ClientAction::ContainerCreated { name, id: Some(id.clone()), request }))
                }),
            };
            action.map(|(key, action)| self.client_pods.record(&key, action)).is_none()
        });
    }

    /// Called after the first complete list. Records the earlier stops, and the client pods without
    /// a sandbox.
    pub(crate) fn on_first_list(&mut self, inventory: &Inventory) {
        for target in std::mem::take(&mut self.stopped_before_first_list) {
            if let Some((key, action)) = self.release(inventory, &target) {
                self.client_pods.record(&key, action);
            }
        }
        for container in inventory.containers() {
            self.on_started(inventory, container);
        }
        let present: HashSet<PodKey> =
            inventory.sandboxes().filter_map(|it| PodKey::from_pod_ref(&it.pod)).collect();
        for key in self.client_pods.snapshot().keys().iter().filter(|key| !present.contains(key)) {
            self.client_pods.record(key, ClientAction::SandboxGone);
        }
    }

    /// Called when a container runs or has run. If a client created it, the client also started it,
    /// although the call may not have been seen.
    pub(crate) fn on_started(&self, inventory: &Inventory, container: &Container) {
        let has_run = match container.state {
            ContainerState::ContainerRunning => true,
            ContainerState::ContainerExited => container.started_at != 0,
            ContainerState::ContainerCreated | ContainerState::ContainerUnknown => false,
        };
        if !has_run {
            return;
        }
        let Some((key, name)) = names(inventory, container) else { return };
        let snapshot = self.client_pods.snapshot();
        if snapshot.is_created_only(&key, &name) && snapshot.newest(&key, &name) == Some(&container.id) {
            self.client_pods.record(&key, ClientAction::ContainerStarted(name));
        }
    }

    /// Called when a sandbox has been removed.
    pub(crate) fn on_sandbox_removed(&self, inventory: &Inventory, sandbox: &Sandbox) {
        if let Some(key) =
            PodKey::from_pod_ref(&sandbox.pod).filter(|_| self.is_newest_sandbox(inventory, sandbox))
        {
            self.client_pods.record(&key, ClientAction::SandboxGone);
        }
    }

    /// Called when a container has exited. Records why it is not restarted, if containers are
    /// restarted at all.
    pub(crate) fn on_exited(&self, inventory: &Inventory, container: &Arc<Container>) {
        let Some(Restarter { kubelet, events }) = &self.restarter else { return };
        if kubelet.get().is_none_or(Kubelet::is_paused) || !self.is_newest(inventory, container) {
            return;
        }
        let Some((key, name)) = names(inventory, container) else { return };
        let snapshot = self.client_pods.snapshot();
        if let Some(obstacle) = snapshot.obstacle(&key, &name).filter(|_| !snapshot.is_released(&key, &name))
        {
            let message = format!("The container has ended and is not restarted: {obstacle}");
            warn!(pod = %key, container = name, "{}", sanitize(&message));
            events.record(
                inventory.with_container_refs(container, Event::warning(reason::NOT_RESTARTABLE, message)),
            );
        }
    }

    /// Returns the action that a successful call implies.
    fn client_action(
        &self,
        inventory: &Inventory,
        ended: &mut DecodedCall,
    ) -> Option<(PodKey, ClientAction)> {
        if !ended.is_ok() {
            return None;
        }
        let (method, call) = (ended.call.method.label(), &ended.call);
        let sandbox = call.pod.as_ref().and_then(|pod| pod.id.as_ref());
        let container = call.container.as_ref();
        // The sandbox may be older than this process; then only the call names its pod.
        let pod_key = || {
            let known = inventory.sandbox(sandbox?).and_then(|sandbox| PodKey::from_pod_ref(&sandbox.pod));
            known.or_else(|| PodKey::from_pod_ref(call.pod.as_ref()?))
        };
        let action = match (method, is_internal(&ended.info)) {
            ("RunPodSandbox", true) => (pod_key()?, ClientAction::SandboxRecreated(sandbox?.clone())),
            ("CreateContainer", true) => {
                let ContainerRef { name, id, attempt } = &**container?;
                let action = ClientAction::ContainerRecreated {
                    name: name.clone()?,
                    id: id.clone(),
                    attempt: (*attempt)?,
                };
                (pod_key()?, action)
            }
            ("RunPodSandbox", false) => {
                let (key, id) = (PodKey::from_pod_ref(call.pod.as_ref()?)?, sandbox.cloned());
                (key, ClientAction::SandboxCreated(id, captured(ended)))
            }
            ("CreateContainer", false) => {
                let ContainerRef { name, id, .. } = &**container?;
                let (key, name, id) = (pod_key()?, name.clone()?, id.clone());
                (key, ClientAction::ContainerCreated { name, id, request: captured(ended) })
            }
            ("StartContainer", false) => {
                let (key, name) = names(inventory, inventory.container(container?.id.as_ref()?)?)?;
                (key, ClientAction::ContainerStarted(name))
            }
            // Usually recorded when the request was sent. This covers targets that were unknown
            // then.
            ("StopContainer" | "RemoveContainer", false) => {
                self.release(inventory, &CallTarget::Container(container?.id.clone()?))?
            }
            ("StopPodSandbox", false) => self.release(inventory, &CallTarget::Sandbox(sandbox?.clone()))?,
            ("RemovePodSandbox", false) => {
                let sandbox =
                    inventory.sandbox(sandbox?).filter(|it| self.is_newest_sandbox(inventory, it))?;
                (PodKey::from_pod_ref(&sandbox.pod)?, ClientAction::SandboxRemoved)
            }
            _ => return None,
        };
        Some(action)
    }

    /// Returns the release that a stop or remove request implies. Older instances are not released.
    fn release(&self, inventory: &Inventory, target: &CallTarget) -> Option<(PodKey, ClientAction)> {
        match target {
            CallTarget::Sandbox(id) => {
                let sandbox =
                    inventory.sandbox(id).filter(|sandbox| self.is_newest_sandbox(inventory, sandbox))?;
                Some((PodKey::from_pod_ref(&sandbox.pod)?, ClientAction::PodReleased))
            }
            CallTarget::Container(id) => {
                let container =
                    inventory.container(id).filter(|container| self.is_newest(inventory, container))?;
                let (key, name) = names(inventory, container)?;
                Some((key, ClientAction::ContainerReleased(name)))
            }
        }
    }

    /// Whether a container is the newest of its name. Clients and garbage collection also remove
    /// older instances, which is no release. Attempts alone do not decide, because clients begin
    /// with 0 again when they replace a container; the last created instance is known.
    fn is_newest(&self, inventory: &Inventory, container: &Container) -> bool {
        let Some((key, name)) = names(inventory, container) else { return true };
        let snapshot = self.client_pods.snapshot();
        match snapshot.newest(&key, &name).and_then(|newest| inventory.container(newest)) {
            Some(newest) => {
                let creation = |it: &Container| (it.container_ref.attempt, it.created_at);
                newest.id == container.id
                    || newest.created_at != 0 && was_created_after(creation(container), creation(newest))
            }
            None => !inventory.containers().any(|other| {
                other.container_ref.attempt > container.container_ref.attempt
                    && other.container_ref.name == container.container_ref.name
                    && names(inventory, other).is_some_and(|(of, _)| of == key)
            }),
        }
    }

    fn is_newest_sandbox(&self, inventory: &Inventory, sandbox: &Sandbox) -> bool {
        let Some(key) = PodKey::from_pod_ref(&sandbox.pod) else { return true };
        let snapshot = self.client_pods.snapshot();
        match snapshot.newest_sandbox(&key).and_then(|newest| inventory.sandbox(newest)) {
            Some(newest) => {
                let creation = |it: &Sandbox| (it.attempt, it.created_at);
                newest.id == sandbox.id
                    || newest.created_at != 0 && was_created_after(creation(sandbox), creation(newest))
            }
            None => !inventory.sandboxes().any(|other| {
                other.attempt > sandbox.attempt && PodKey::from_pod_ref(&other.pod).as_ref() == Some(&key)
            }),
        }
    }
}

/// Returns the request of a call that created an object, or the reason why it is not stored.
fn captured(ended: &mut DecodedCall) -> CapturedRequest {
    if ended.info.is_from_kubelet() {
        // A kubelet restarts its pods itself, and their requests may hold secrets that must not be
        // written to disk.
        return Err("created by a kubelet".to_owned());
    }
    match ended.request.take() {
        Some(Err(why)) => Err(format!("its {} was not captured: {why}", ended.call.method.label())),
        Some(Ok(request)) => Ok(request),
        None => Err(RESTART_WAS_OFF.to_owned()),
    }
}

/// Returns the object that a successful call created, if its request is unknown, with the reason.
fn unnamed_target(ended: &mut DecodedCall) -> Option<(CallTarget, String)> {
    if !ended.is_ok() || is_internal(&ended.info) {
        return None;
    }
    let call = &ended.call;
    let target = match call.method.label() {
        "RunPodSandbox" => CallTarget::Sandbox(call.pod.as_ref()?.id.clone()?),
        "CreateContainer" => CallTarget::Container(call.container.as_ref()?.id.clone()?),
        _ => return None,
    };
    captured(ended).err().map(|reason| (target, reason))
}

/// Returns the pod and the name of a container.
fn names(inventory: &Inventory, container: &Container) -> Option<(PodKey, String)> {
    let key = PodKey::from_pod_ref(&inventory.sandbox_of(container)?.pod)?;
    Some((key, container.container_ref.name.clone()?))
}

/// Whether probeshim made the call itself.
fn is_internal(head: &CallInfo) -> bool {
    is_own_process(head.peer.as_ref().and_then(|peer| peer.pid))
}

fn is_own_process(pid: Option<i32>) -> bool {
    pid.is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()))
}
