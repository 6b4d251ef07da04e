//! What is seen of clients → what they have done with pods that are kept alive.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tracing::{info, warn};

use crate::config::OperatingMode;
use crate::cri::v1::ContainerState;
use crate::play::{CapturedRequest, ClientAction, ClientPods, Kubelet, PodKey, was_created_after};
use crate::record::{Event, EventHistory};
use crate::relay::CallInfo;
use crate::socket::LockError;
use crate::state::{self, StateError, StateStore};
use crate::tap::{self, DecodedCall, StopRequest};
use crate::terminal::sanitize;
use crate::world::{Container, Inventory, Sandbox};

/// Why what is made is not kept alive, where nothing is.
const NOT_KEPT: &str = "created while --enforce restart was off";

/// How much may be there of which no names are known; of the rest it is only known that it was not seen.
const MAX_UNNAMED: usize = 256;

/// What is told where somebody else has what was kept, or nobody can have it.
const NOT_NOTED: &str = "what clients stop is not noted for --enforce restart";

/// Tells who keeps pods alive what clients do with them.
#[derive(Debug)]
pub(super) struct ClientActionRecorder {
    client_pods: ClientPods,
    /// Who keeps alive what is kept, and where it is told what is lost; `None` where nothing is restarted.
    restarts: Option<(Arc<OnceLock<Kubelet>>, Arc<EventHistory>)>,
    /// What clients were about to stop or remove before the node had been listed.
    before_first_list: Vec<CallTarget>,
    /// What clients have made with requests in which no name could be read, and why.
    awaiting_names: Vec<(CallTarget, String)>,
}

/// What clients have made, and what is to outlive us.
pub(super) struct ClientPodStore {
    pub(super) client_pods: ClientPods,
    /// Where it is kept, and what was there.
    pub(super) state: (StateStore, state::Snapshot),
}

/// What a client stops or removes, by its id or the beginning of that.
#[derive(Debug)]
enum CallTarget {
    Sandbox(String),
    Container(String),
}

/// Takes what is to outlive us, and who knows what clients have made of it. Where pods are only watched, that is taken which was kept alive
/// before, if anything was and nobody else has it: whoever keeps it alive next has to know what its owners have stopped.
pub(super) fn open(
    role: OperatingMode,
    dir: Option<&Path>,
) -> Result<Option<(ClientPods, ClientPodStore)>, StateError> {
    let Some(directory) = dir else { return Ok(None) };
    match role {
        OperatingMode::Restart | OperatingMode::Kubelet => opened(directory).map(Some),
        OperatingMode::Observe if !StateStore::exists(directory) => Ok(None),
        OperatingMode::Observe => match opened(directory) {
            Ok((client_pods, kept)) => {
                Ok((!client_pods.now().keys().is_empty()).then_some((client_pods, kept)))
            }
            Err(error) => {
                if matches!(error, StateError::Locked(LockError::Held { .. })) {
                    info!(%error, "{NOT_NOTED}");
                } else {
                    warn!(%error, "{NOT_NOTED}");
                }
                Ok(None)
            }
        },
    }
}

fn opened(dir: &Path) -> Result<(ClientPods, ClientPodStore), StateError> {
    let (state, kept) = StateStore::open(dir)?;
    let client_pods = ClientPods::new(&kept, state.clone())?;
    Ok((client_pods.clone(), ClientPodStore { client_pods, state: (state, kept) }))
}

impl ClientActionRecorder {
    pub(super) fn new(
        client_pods: ClientPods,
        restarts: Option<(Arc<OnceLock<Kubelet>>, Arc<EventHistory>)>,
    ) -> Self {
        Self { client_pods, restarts, before_first_list: Vec::new(), awaiting_names: Vec::new() }
    }

    /// Somebody is about to stop or remove something. Before the node has been listed it is not known yet what.
    pub(super) fn stopping(&mut self, world: &Inventory, stopping: &StopRequest, is_listed: bool) {
        let StopRequest { pid, sandbox, container, .. } = stopping;
        if is_own_process(*pid) {
            return;
        }
        let sandbox = sandbox.clone().map(CallTarget::Sandbox);
        let Some(target) = sandbox.or_else(|| container.clone().map(CallTarget::Container)) else { return };
        match self.release(world, &target) {
            Some((key, act)) => self.client_pods.record(&key, act),
            None if !is_listed => self.before_first_list.push(target),
            None => {}
        }
    }

    /// A call has ended.
    pub(super) fn ended(&mut self, world: &Inventory, ended: &mut DecodedCall) {
        if let Some((key, act)) = self.on_call_ended(world, ended) {
            self.client_pods.record(&key, act);
        } else if let Some(unnamed) = unnamed(ended) {
            // Some may have gone before their names were known.
            self.awaiting_names.drain(..self.awaiting_names.len().saturating_sub(MAX_UNNAMED));
            self.awaiting_names.push(unnamed);
            self.changed(world);
        }
    }

    /// Something has become of the node: names may be known that were not.
    pub(super) fn changed(&mut self, world: &Inventory) {
        self.awaiting_names.retain(|(target, reason)| {
            let request = Err(reason.clone());
            let made = match target {
                CallTarget::Sandbox(id) => world.sandbox(id).and_then(|sandbox| {
                    Some((
                        PodKey::from_pod_ref(&sandbox.pod)?,
                        ClientAction::SandboxCreated(Some(id.clone()), request),
                    ))
                }),
                CallTarget::Container(id) => world.container(id).and_then(|container| {
                    let (key, name) = names(world, container)?;
                    Some((key, ClientAction::ContainerCreated { name, id: Some(id.clone()), request }))
                }),
            };
            made.map(|(key, act)| self.client_pods.record(&key, act)).is_none()
        });
    }

    /// The node has been listed for the first time: what was done before is known now, and what is not there any more.
    pub(super) fn listed(&mut self, world: &Inventory) {
        for target in std::mem::take(&mut self.before_first_list) {
            if let Some((key, act)) = self.release(world, &target) {
                self.client_pods.record(&key, act);
            }
        }
        for container in world.containers() {
            self.has_started(world, container);
        }
        let there: HashSet<PodKey> =
            world.sandboxes().filter_map(|it| PodKey::from_pod_ref(&it.pod)).collect();
        for key in self.client_pods.now().keys().iter().filter(|key| !there.contains(key)) {
            self.client_pods.record(key, ClientAction::SandboxGone);
        }
    }

    /// A container runs, or has run. Where its owner has made it, the owner has started it, though that may not have been seen.
    pub(super) fn has_started(&self, world: &Inventory, container: &Container) {
        let has_run = match container.state {
            ContainerState::ContainerRunning => true,
            ContainerState::ContainerExited => container.started_at != 0,
            ContainerState::ContainerCreated | ContainerState::ContainerUnknown => false,
        };
        if !has_run {
            return;
        }
        let Some((key, name)) = names(world, container) else { return };
        let kept = self.client_pods.now();
        if kept.is_created_only(&key, &name) && kept.newest(&key, &name) == Some(&container.id) {
            self.client_pods.record(&key, ClientAction::ContainerStarted(name));
        }
    }

    /// A sandbox is not there any more.
    pub(super) fn on_sandbox_gone(&self, world: &Inventory, sandbox: &Sandbox) {
        if let Some(key) =
            PodKey::from_pod_ref(&sandbox.pod).filter(|_| self.is_newest_sandbox(world, sandbox))
        {
            self.client_pods.record(&key, ClientAction::SandboxGone);
        }
    }

    /// A container has ended: tells why it is not started again, where others are.
    pub(super) fn exited(&self, world: &Inventory, container: &Arc<Container>) {
        let Some((play, events)) = &self.restarts else { return };
        if play.get().is_none_or(Kubelet::is_paused) || !self.is_newest(world, container) {
            return;
        }
        let Some((key, name)) = names(world, container) else { return };
        let kept = self.client_pods.now();
        if let Some(reason) = kept.obstacle(&key, &name).filter(|_| !kept.is_released(&key, &name)) {
            let event = Event::not_restartable(container, world, &reason);
            warn!(pod = %key, container = name, "{}", sanitize(&event.message));
            events.push(event);
        }
    }

    /// What a call has done that has ended.
    fn on_call_ended(&self, world: &Inventory, ended: &mut DecodedCall) -> Option<(PodKey, ClientAction)> {
        if !ended.is_ok() {
            return None;
        }
        let (method, call) = (ended.call.method.label(), &ended.call);
        let sandbox = call.pod.as_ref().and_then(|pod| pod.id.as_ref());
        let container = call.container.as_ref();
        // A sandbox may be older than we are, and its pod known of the call alone.
        let of_sandbox = || {
            let known = world.sandbox(sandbox?).and_then(|sandbox| PodKey::from_pod_ref(&sandbox.pod));
            known.or_else(|| PodKey::from_pod_ref(call.pod.as_ref()?))
        };
        let act = match (method, is_internal(&ended.info)) {
            ("RunPodSandbox", true) => (of_sandbox()?, ClientAction::SandboxRecreated(sandbox?.clone())),
            ("CreateContainer", true) => {
                let tap::ContainerRef { name, id, attempt } = &**container?;
                let act = ClientAction::ContainerRecreated {
                    name: name.clone()?,
                    id: id.clone(),
                    attempt: (*attempt)?,
                };
                (of_sandbox()?, act)
            }
            ("RunPodSandbox", false) => {
                let (key, id) = (PodKey::from_pod_ref(call.pod.as_ref()?)?, sandbox.cloned());
                (key, ClientAction::SandboxCreated(id, captured(ended)))
            }
            ("CreateContainer", false) => {
                let tap::ContainerRef { name, id, .. } = &**container?;
                let (key, name, id) = (of_sandbox()?, name.clone()?, id.clone());
                (key, ClientAction::ContainerCreated { name, id, request: captured(ended) })
            }
            ("StartContainer", false) => {
                let (key, name) = names(world, world.container(container?.id.as_ref()?)?)?;
                (key, ClientAction::ContainerStarted(name))
            }
            // What was announced as well is known by then; what was not is known now.
            ("StopContainer" | "RemoveContainer", false) => {
                self.release(world, &CallTarget::Container(container?.id.clone()?))?
            }
            ("StopPodSandbox", false) => self.release(world, &CallTarget::Sandbox(sandbox?.clone()))?,
            ("RemovePodSandbox", false) => {
                let sandbox = world.sandbox(sandbox?).filter(|it| self.is_newest_sandbox(world, it))?;
                (PodKey::from_pod_ref(&sandbox.pod)?, ClientAction::SandboxRemoved)
            }
            _ => return None,
        };
        Some(act)
    }

    /// A client has stopped or removed something, or is about to: it is its own again, unless there is a later one.
    fn release(&self, world: &Inventory, target: &CallTarget) -> Option<(PodKey, ClientAction)> {
        match target {
            CallTarget::Sandbox(id) => {
                let sandbox = world.sandbox(id).filter(|sandbox| self.is_newest_sandbox(world, sandbox))?;
                Some((PodKey::from_pod_ref(&sandbox.pod)?, ClientAction::PodReleased))
            }
            CallTarget::Container(id) => {
                let container = world.container(id).filter(|container| self.is_newest(world, container))?;
                let (key, name) = names(world, container)?;
                Some((key, ClientAction::ContainerReleased(name)))
            }
        }
    }

    /// Whether there is no later one of a container: what has ended before is tidied up by many. Attempts do not tell, since clients begin with 0
    /// again when they replace something; but what was made last is known.
    fn is_newest(&self, world: &Inventory, container: &Container) -> bool {
        let Some((key, name)) = names(world, container) else { return true };
        let kept = self.client_pods.now();
        match kept.newest(&key, &name).and_then(|newest| world.container(newest)) {
            Some(newest) => {
                let made = |it: &Container| (it.container_ref.attempt, it.created_at);
                newest.id == container.id
                    || newest.created_at != 0 && was_created_after(made(container), made(newest))
            }
            None => !world.containers().any(|other| {
                other.container_ref.attempt > container.container_ref.attempt
                    && other.container_ref.name == container.container_ref.name
                    && names(world, other).is_some_and(|(of, _)| of == key)
            }),
        }
    }

    fn is_newest_sandbox(&self, world: &Inventory, sandbox: &Sandbox) -> bool {
        let Some(key) = PodKey::from_pod_ref(&sandbox.pod) else { return true };
        let kept = self.client_pods.now();
        match kept.newest_sandbox(&key).and_then(|newest| world.sandbox(newest)) {
            Some(newest) => {
                let made = |it: &Sandbox| (it.attempt, it.created_at);
                newest.id == sandbox.id
                    || newest.created_at != 0 && was_created_after(made(sandbox), made(newest))
            }
            None => !world.sandboxes().any(|other| {
                other.attempt > sandbox.attempt && PodKey::from_pod_ref(&other.pod).as_ref() == Some(&key)
            }),
        }
    }
}

/// The request of a call that has made something, or why it is not kept.
fn captured(ended: &mut DecodedCall) -> CapturedRequest {
    if ended.info.is_from_kubelet() {
        // It keeps them itself, and what is in them is not for our disk.
        return Err("a kubelet has made it".to_owned());
    }
    match ended.request.take() {
        Some(Err(why)) => Err(format!("its {} was not seen whole: {why}", ended.call.method.label())),
        Some(Ok(request)) => Ok(request),
        None => Err(NOT_KEPT.to_owned()),
    }
}

/// What a call has made that went well, but of which no names are known.
fn unnamed(ended: &mut DecodedCall) -> Option<(CallTarget, String)> {
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

/// The pod of a container, and its own name.
fn names(world: &Inventory, container: &Container) -> Option<(PodKey, String)> {
    let key = PodKey::from_pod_ref(&world.sandbox_of(container)?.pod)?;
    Some((key, container.container_ref.name.clone()?))
}

/// Whether a call is one that we have made.
fn is_internal(head: &CallInfo) -> bool {
    is_own_process(head.peer.as_ref().and_then(|peer| peer.pid))
}

fn is_own_process(pid: Option<i32>) -> bool {
    pid.is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()))
}
