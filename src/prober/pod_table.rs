//! The pods of the node, with their sandboxes and containers from the inventory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::pod::{Age, ContainerUpdate, Effects, InventoryObject, PodState, ProbedPod};
use super::probe_state::ObservedState;
use crate::cri::labels::CONTAINER_HASH;
use crate::cri::v1::ContainerState;
use crate::inventory::{self, Change, InspectRequest, Inventory, Sandbox};
use crate::manifest::PodSpec;
use crate::net::node_ip;
use crate::object_ref::PodRef;
use crate::probe::SpecResolver;

/// Pods of the node.
#[derive(Debug)]
pub(super) struct PodTable {
    /// Time of the first full list of the node, and the start of the prober before that. Pods in
    /// that list are older than the prober.
    pub(super) since: Instant,
    pub(super) is_listed: bool,
    /// Whether workers start immediately, because the node is assumed to have been up for long.
    pub(super) is_settled: bool,
    pub(super) specs: SpecResolver,
    pub(super) pods: HashMap<Arc<str>, PodEntry>,
    /// Containers whose sandbox is not known yet, by sandbox ID.
    pub(super) orphans: HashMap<Arc<str>, Vec<Arc<inventory::Container>>>,
    /// Time at which a kubelet last used the runtime.
    pub(super) kubelet_seen: Option<Instant>,
    pub(super) is_over: bool,
}

/// A pod of the node. `pod` is set once a container of the pod has a probe.
#[derive(Debug)]
pub(super) struct PodEntry {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) containers: Vec<Arc<inventory::Container>>,
    pub(super) pod: Option<Arc<ProbedPod>>,
}

impl PodTable {
    /// Applies a change. Returns the key of the pod that has to be updated, if there is one.
    pub(super) fn apply(&mut self, inventory: &Inventory, change: &Change) -> Option<Arc<str>> {
        if self.is_over {
            return None;
        }
        match change {
            Change::SandboxStarted(sandbox)
            | Change::SandboxStopped(sandbox)
            | Change::SandboxUpdated(sandbox) => self.sandbox(sandbox),
            Change::SandboxRemoved(sandbox) => {
                let key = key_of(&sandbox.pod, &sandbox.id);
                let is_last = self.pods.get(&key).is_some_and(|entry| entry.sandbox.id == sandbox.id);
                let entry = if is_last { self.pods.remove(&key) } else { None };
                if let Some(pod) = entry.and_then(|entry| entry.pod) {
                    pod.lock().stop_workers();
                }
                None
            }
            Change::ContainerCreated(container)
            | Change::ContainerStarted(container)
            | Change::ContainerExited(container)
            | Change::ContainerUpdated(container) => {
                let Some(sandbox) = inventory.live_sandbox_of(container).cloned() else {
                    let sandbox = container.sandbox.clone()?;
                    upsert_container(self.orphans.entry(sandbox).or_default(), container);
                    return None;
                };
                let key = self.sandbox(&sandbox)?;
                upsert_container(&mut self.pods.get_mut(&key)?.containers, container);
                Some(key)
            }
            Change::ContainerRemoved(container) => {
                if let Some(waiting) = self.orphans.get_mut(container.sandbox.as_ref()?) {
                    waiting.retain(|known| known.id != container.id);
                }
                let sandbox = inventory.sandbox_of(container)?;
                let key = key_of(&sandbox.pod, &sandbox.id);
                let entry = self.pods.get_mut(&key)?;
                entry.containers.retain(|known| known.id != container.id);
                if let Some(pod) = &entry.pod {
                    pod.lock().remove_container(&container.id);
                }
                Some(key)
            }
        }
    }

    /// Adds a pod that has no sandbox yet. Returns its key.
    pub(super) fn expect(&mut self, sandbox: &Arc<Sandbox>) -> Option<Arc<str>> {
        let key = key_of(&sandbox.pod, &sandbox.id);
        if self.is_over {
            return None;
        }
        // An existing sandbox takes precedence over one that does not exist yet.
        if self.pods.contains_key(&key) { Some(key) } else { self.sandbox(sandbox) }
    }

    /// Removes a pod, and stops its workers.
    pub(super) fn forget(&mut self, names: &PodRef) {
        if let Some(pod) = self.pods.remove(&key_of(names, "")).and_then(|entry| entry.pod) {
            pod.lock().stop_workers();
        }
    }

    /// Returns the pod with these names, if it is probed.
    pub(super) fn pod_named(&self, names: &PodRef) -> Option<Arc<ProbedPod>> {
        self.pods.get(&key_of(names, ""))?.pod.clone()
    }

    /// Returns the specification of the pod of a sandbox, whether the sandbox is on the node or
    /// not.
    pub(super) fn spec_of(&self, sandbox: &Sandbox) -> PodSpec {
        match self.pods.get(&key_of(&sandbox.pod, "")) {
            Some(entry) => self.specs.resolve_pod(&entry.sandbox, &entry.containers),
            None => self.specs.resolve_pod(sandbox, []),
        }
    }

    /// Returns the pod of a sandbox, if it is probed. A prefix of the sandbox ID is sufficient, as
    /// it is for runtimes.
    pub(super) fn pod_of_sandbox(&self, id: &str) -> Option<Arc<ProbedPod>> {
        let is_it = |entry: &&PodEntry| !id.is_empty() && entry.sandbox.id.starts_with(id);
        self.pods.values().find(is_it)?.pod.clone()
    }

    /// Returns the pod of a container, if it is probed, and the full ID of the container.
    pub(super) fn pod_of_container(&self, id: &str) -> Option<(Arc<ProbedPod>, Arc<str>)> {
        let is_it = |known: &&Arc<inventory::Container>| !id.is_empty() && known.id.starts_with(id);
        let of =
            |entry: &PodEntry| Some((entry.pod.clone()?, entry.containers.iter().find(is_it)?.id.clone()));
        self.pods.values().find_map(of)
    }

    /// Records a sandbox, if it is the newest of its pod. Returns the key of the pod.
    fn sandbox(&mut self, sandbox: &Arc<Sandbox>) -> Option<Arc<str>> {
        let key = key_of(&sandbox.pod, &sandbox.id);
        match self.pods.get_mut(&key) {
            None => {
                let containers = self.orphans.remove(&sandbox.id).unwrap_or_default();
                let entry = PodEntry { sandbox: sandbox.clone(), containers, pod: None };
                self.pods.insert(key.clone(), entry);
            }
            Some(entry) if entry.sandbox.id == sandbox.id || sandbox.attempt >= entry.sandbox.attempt => {
                entry.sandbox = sandbox.clone();
            }
            Some(_) => return None,
        }
        Some(key)
    }
}

impl PodEntry {
    /// Updates the state of a pod from its sandbox, its containers and its specification.
    pub(super) fn update_pod(&self, pod: &mut PodState, spec: PodSpec, now: Instant, effects: &mut Effects) {
        pod.names = self.sandbox.pod.clone();
        pod.has_ended = !self.sandbox.is_ready;
        if pod.has_ended {
            pod.explained_by_end(effects);
        }
        pod.set_sandbox(&self.sandbox.id);
        pod.address = address(&self.sandbox);
        pod.sandbox_address = self.sandbox.addresses.first().map(|address| address.as_str().into());
        if *pod.spec != spec {
            pod.specify(spec);
        }
        for container in &self.containers {
            if let Some(state) = state(container, now) {
                let (names, id) = (container.container_ref.clone(), container.id.clone());
                let attempt = container.container_ref.attempt.unwrap_or(0);
                let age = Age { attempt, created_at: container.created_at, seen: container.seen };
                let object = InventoryObject { sandbox: self.sandbox.clone(), container: container.clone() };
                let hash = container.annotations.get(CONTAINER_HASH).map(str::to_owned);
                let sandbox = container.sandbox.clone();
                let update = ContainerUpdate { names, id, sandbox, age, state, object, hash };
                pod.upsert_container(update, effects);
            }
        }
        pod.sync(now, effects);
    }

    /// Returns inspect requests for the information that is missing about the pod.
    pub(super) fn missing_info(&self) -> Vec<InspectRequest> {
        let Some(pod) = &self.pod else { return Vec::new() };
        let is_unknown = |container: &&Arc<inventory::Container>| match container.state {
            ContainerState::ContainerRunning => container.started_at == 0,
            ContainerState::ContainerExited => container.exit.is_none(),
            _ => false,
        };
        let containers = self.containers.iter().filter(is_unknown);
        let mut unknown: Vec<_> = containers.map(|it| InspectRequest::Container(it.id.clone())).collect();
        let has_none = !self.sandbox.id.is_empty() && self.sandbox.lacks_addresses();
        if self.sandbox.is_ready && has_none && pod.lock().spec.needs_address() {
            unknown.push(InspectRequest::Sandbox(self.sandbox.id.clone()));
        }
        unknown
    }
}

/// Adds a container, or replaces the known state of it.
fn upsert_container(containers: &mut Vec<Arc<inventory::Container>>, container: &Arc<inventory::Container>) {
    match containers.iter_mut().find(|known| known.id == container.id) {
        Some(known) => *known = container.clone(),
        None => containers.push(container.clone()),
    }
}

/// Returns the key of a pod: its uid, namespace and name, because hand-written pods may share a
/// copied uid. A pod without uid has the ID of its sandbox as its key.
fn key_of(pod: &PodRef, sandbox: &str) -> Arc<str> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match pod.uid.as_deref().filter(|uid| !uid.is_empty()) {
        Some(uid) => format!("{uid}/{}/{}", text(&pod.namespace), text(&pod.name)).into(),
        None => sandbox.into(),
    }
}

/// Returns the address of a pod, once it is known.
fn address(sandbox: &Sandbox) -> Option<Arc<str>> {
    match sandbox.addresses.first() {
        Some(address) => Some(address.as_str().into()),
        None if sandbox.is_host_network == Some(true) => Some(node_ip().into()),
        None => None,
    }
}

/// Returns the state of a container; `None` if a part of it is unknown or the container has not
/// been started. The kubelet starts a container right after its creation and never sees it in
/// between. Here, the failure that a waiting container gets would count as a probe result once the
/// container runs.
fn state(container: &inventory::Container, now: Instant) -> Option<ObservedState> {
    match container.state {
        ContainerState::ContainerRunning => {
            Some(ObservedState::Running(started(container.started_at, SystemTime::now(), now)?))
        }
        ContainerState::ContainerExited => {
            Some(ObservedState::Terminated(container.exit.as_ref().map(|(code, _)| *code)))
        }
        ContainerState::ContainerCreated | ContainerState::ContainerUnknown => None,
    }
}

/// Returns the start time of a container on the monotonic clock. As in the kubelet, the fraction of
/// a second of the wall-clock time is cut off.
fn started(started_at: i64, wall: SystemTime, now: Instant) -> Option<Instant> {
    let seconds = u64::try_from(started_at / 1_000_000_000).ok().filter(|seconds| *seconds > 0)?;
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    match wall.duration_since(started) {
        Ok(age) => now.checked_sub(age),
        Err(early) => now.checked_add(early.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_of_a_container_is_cut_to_whole_seconds() {
        let now = Instant::now() + Duration::from_secs(10);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_900);
        assert_eq!(started(1_000_500_000_000, wall, now), Some(now - Duration::from_millis(900)));
        assert_eq!(started(0, wall, now), None, "the time is not known");
    }
}
