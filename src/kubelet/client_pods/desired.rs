//! Computes the desired state of client pods from the clients' actions. A pure fold without
//! effects.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cri::RedactedBytes;
use crate::manifest::pod::identity;
use crate::object_ref::PodRef;

/// Reason why a released container is not restarted.
const RELEASED_REASON: &str = "stopped or removed by a client";

/// Maximum number of released containers that are remembered per pod.
const MAX_RELEASED: usize = 64;

/// The request by which a client created an object, in its original bytes, or the reason why these
/// are unknown.
pub(crate) type CapturedRequest = Result<RedactedBytes, String>;

/// Identity of a pod. It has the names in addition to the uid, because people who write pods by
/// hand copy uids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodKey {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// An action that changes the desired state of a client pod. Unless stated otherwise, a client took
/// it through the relay.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientAction {
    /// The client created a sandbox with this id.
    SandboxCreated(Option<String>, CapturedRequest),
    /// probeshim created another sandbox, with this id.
    SandboxRecreated(String),
    /// The client created a container.
    ContainerCreated {
        /// Name of the container.
        name: String,
        /// Id of the container, if it is known.
        id: Option<String>,
        /// The `CreateContainer` request.
        request: CapturedRequest,
    },
    /// The client started the container of this name.
    ContainerStarted(String),
    /// probeshim created another attempt of a container.
    ContainerRecreated {
        /// Name of the container.
        name: String,
        /// Id of the new attempt, if it is known.
        id: Option<String>,
        /// Number of the attempt.
        attempt: u32,
    },
    /// The container of this name and id has ended, and its restart policy does not restart it.
    ContainerCompleted(String, String),
    /// The client stopped or removed the container of this name, which is released.
    ContainerReleased(String),
    /// The client stopped the sandbox: all containers are released.
    PodReleased,
    /// The client removed the sandbox.
    SandboxRemoved,
    /// The sandbox no longer exists. A client or another program has removed it.
    SandboxGone,
}

/// Desired state of all client pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DesiredState(BTreeMap<PodKey, ClientPod>);

/// Desired state of a client pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClientPod {
    pub(super) sandbox: CapturedRequest,
    /// Id of the newest sandbox, created by the client or by probeshim.
    pub(super) sandbox_id: Option<String>,
    /// Containers of the pod, in the order in which the client created them.
    pub(super) containers: Vec<ClientContainer>,
}

/// Desired state of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClientContainer {
    pub(super) name: String,
    pub(super) request: CapturedRequest,
    pub(super) stage: ClientStage,
    /// Id of the instance that the client created. It distinguishes equal requests that were sent
    /// one after the other.
    pub(super) first: Option<String>,
    /// Id of the newest instance, created by the client or by probeshim.
    pub(super) id: Option<String>,
    /// Last attempt that probeshim created; 0 for none.
    pub(super) attempt: u32,
}

/// Stage of a container in the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ClientStage {
    /// The client has created the container.
    Created,
    /// The client has started the container. It is restarted from now on.
    Started,
    /// The container has ended and its policy does not restart it. It stays ended after its
    /// instances have been removed.
    Finished,
    /// The client has stopped or removed the container.
    Released,
}

impl PodKey {
    /// Returns the key of a pod, if its namespace, name and uid are known.
    #[must_use]
    pub fn from_pod_ref(pod: &PodRef) -> Option<Self> {
        let PodRef { namespace, name, uid, .. } = pod;
        Some(Self { namespace: namespace.clone()?, name: name.clone()?, uid: uid.clone()? })
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&identity(&self.namespace, &self.name, &self.uid))
    }
}

impl DesiredState {
    /// Applies an action to a pod.
    pub(super) fn take(&mut self, key: &PodKey, act: ClientAction) {
        match act {
            ClientAction::SandboxCreated(id, request) => {
                let client_pod = ClientPod { sandbox: request, sandbox_id: id, containers: Vec::new() };
                self.0.insert(key.clone(), client_pod);
            }
            ClientAction::SandboxRemoved => drop(self.0.remove(key)),
            ClientAction::SandboxGone => {
                // A pod with a container to restart stays, and gets another sandbox. Other pods no
                // longer exist.
                let lives_on = |it: &ClientContainer| it.is_restartable() && it.stage == ClientStage::Started;
                if !self.0.get(key).is_some_and(|pod| pod.containers.iter().any(lives_on)) {
                    self.0.remove(key);
                }
            }
            ClientAction::ContainerCreated { name, id, request } => self.seen(key).created(name, id, request),
            ClientAction::ContainerStarted(name) => self.seen(key).started(name),
            ClientAction::SandboxRecreated(_)
            | ClientAction::ContainerRecreated { .. }
            | ClientAction::ContainerCompleted(..)
            | ClientAction::ContainerReleased(_)
            | ClientAction::PodReleased => {
                if let Some(pod) = self.0.get_mut(key) {
                    pod.take(act);
                }
            }
        }
    }

    /// Returns a pod, and adds it if it is unknown.
    fn seen(&mut self, key: &PodKey) -> &mut ClientPod {
        let not_seen = || ClientPod {
            sandbox: Err(not_seen("RunPodSandbox")),
            sandbox_id: None,
            containers: Vec::new(),
        };
        self.0.entry(key.clone()).or_insert_with(not_seen)
    }

    /// Returns the desired state of a pod.
    pub(super) fn pod(&self, key: &PodKey) -> Option<&ClientPod> {
        self.0.get(key)
    }

    /// Adds a pod from the state store.
    pub(super) fn restore(&mut self, key: PodKey, client_pod: ClientPod) {
        self.0.insert(key, client_pod);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PodKey, &ClientPod)> {
        self.0.iter()
    }
}

impl ClientContainer {
    /// Whether the container is restarted, or was until it finished.
    pub(super) fn is_restartable(&self) -> bool {
        matches!(self.stage, ClientStage::Started | ClientStage::Finished) && self.request.is_ok()
    }

    /// Releases the container, and forgets its request.
    fn release(&mut self) {
        (self.request, self.stage, self.attempt) =
            (Err(RELEASED_REASON.to_owned()), ClientStage::Released, 0);
    }
}

impl ClientPod {
    /// Applies an action to a pod that is known.
    fn take(&mut self, act: ClientAction) {
        match act {
            ClientAction::SandboxRecreated(id) => self.sandbox_id = Some(id),
            ClientAction::ContainerRecreated { name, id, attempt } => {
                if let Some(container) = self.container(&name) {
                    (container.id, container.attempt) = (id, attempt);
                    if container.stage == ClientStage::Finished {
                        // The container was restarted after all, for example because its restart
                        // policy has changed.
                        container.stage = ClientStage::Started;
                    }
                }
            }
            ClientAction::ContainerCompleted(name, id) => {
                let container = self.container(&name).filter(|it| it.id.as_ref() == Some(&id));
                if let Some(container) = container.filter(|it| it.stage == ClientStage::Started) {
                    container.stage = ClientStage::Finished;
                }
            }
            ClientAction::ContainerReleased(name) => {
                if let Some(container) = self.container(&name) {
                    container.release();
                    self.forget_the_oldest();
                }
            }
            ClientAction::PodReleased => {
                self.sandbox = Err(RELEASED_REASON.to_owned());
                self.containers.iter_mut().for_each(ClientContainer::release);
            }
            ClientAction::SandboxCreated(..)
            | ClientAction::ContainerCreated { .. }
            | ClientAction::ContainerStarted(_)
            | ClientAction::SandboxRemoved
            | ClientAction::SandboxGone => {}
        }
    }

    fn created(&mut self, name: String, id: Option<String>, request: CapturedRequest) {
        let (first, stage) = (id.clone(), ClientStage::Created);
        let container = ClientContainer { name, request, stage, first, id, attempt: 0 };
        match self.container(&container.name) {
            Some(known) => *known = container,
            None => self.containers.push(container),
        }
    }

    fn started(&mut self, name: String) {
        match self.container(&name) {
            Some(known) if known.stage == ClientStage::Created => known.stage = ClientStage::Started,
            Some(_) => {}
            None => {
                let request = Err(not_seen("CreateContainer"));
                let (first, stage) = (None, ClientStage::Started);
                self.containers.push(ClientContainer { name, request, stage, first, id: None, attempt: 0 });
            }
        }
    }

    /// Returns the container of a name.
    pub(super) fn newest(&self, name: &str) -> Option<&ClientContainer> {
        self.containers.iter().find(|known| known.name == name)
    }

    fn container(&mut self, name: &str) -> Option<&mut ClientContainer> {
        self.containers.iter_mut().find(|known| known.name == name)
    }

    /// Removes the oldest released container if there are too many. A sandbox that exists for long
    /// may have containers of ever new names.
    fn forget_the_oldest(&mut self) {
        let is_released = |it: &ClientContainer| it.stage == ClientStage::Released;
        if self.containers.iter().filter(|it| is_released(it)).count() > MAX_RELEASED
            && let Some(oldest) = self.containers.iter().position(is_released)
        {
            self.containers.remove(oldest);
        }
    }

    /// Whether the client has released a container.
    pub(super) fn is_released(&self, container: &str) -> bool {
        self.newest(container).is_some_and(|known| known.stage == ClientStage::Released)
    }

    /// Returns the reason why a container is not restarted when it ends; `None` if it is restarted.
    pub(super) fn not_restartable_reason(&self, container: &str) -> Option<&str> {
        match self.newest(container) {
            None => Some("its CreateContainer was not seen"),
            Some(ClientContainer { request: Err(reason), .. }) => Some(reason),
            Some(ClientContainer { stage: ClientStage::Created, .. }) => {
                Some("its StartContainer was not seen")
            }
            Some(_) => None,
        }
    }
}

fn not_seen(what: &str) -> String {
    format!("its {what} was not seen")
}

#[cfg(test)]
mod tests;
