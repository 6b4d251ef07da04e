//! Applies observations to the inventory, and returns the changes.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::objects::{Container, Sandbox, Source};
use super::{Inventory, MAX_OBJECTS};
use crate::cri::{ContainerObservation, SandboxObservation, v1};
use crate::tap::Observation;

/// A change of a sandbox or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A sandbox was observed for the first time, and is ready.
    SandboxStarted(Arc<Sandbox>),
    /// A sandbox has stopped.
    SandboxStopped(Arc<Sandbox>),
    /// A sandbox has been removed.
    SandboxRemoved(Arc<Sandbox>),
    /// A container has been created, or is seen for the first time.
    ContainerCreated(Arc<Container>),
    /// A container runs.
    ContainerStarted(Arc<Container>),
    /// A container has exited.
    ContainerExited(Arc<Container>),
    /// A container has been removed.
    ContainerRemoved(Arc<Container>),
    /// Properties of a sandbox have changed or become known.
    SandboxUpdated(Arc<Sandbox>),
    /// Properties of a container have changed or become known.
    ContainerUpdated(Arc<Container>),
}

impl Inventory {
    /// Applies observations. `source` is their source, `since` is the time at which the observing
    /// call began, and `now` is the current time. A shared inventory is copied first, and only if
    /// something changes.
    pub fn fold(
        self: &mut Arc<Self>,
        source: Source,
        since: Instant,
        now: Instant,
        facts: Vec<Observation>,
    ) -> Vec<Change> {
        let mut fold = InventoryUpdate { inventory: self, source, since, now, changes: Vec::new() };
        for fact in facts {
            fold.take(fact);
        }
        fold.changes
    }
}

struct InventoryUpdate<'a> {
    inventory: &'a mut Arc<Inventory>,
    source: Source,
    since: Instant,
    now: Instant,
    changes: Vec<Change>,
}

impl InventoryUpdate<'_> {
    fn take(&mut self, fact: Observation) {
        match fact {
            Observation::Sandbox(sandbox) => self.sandbox(&sandbox),
            Observation::Container(container) => self.container(&container),
            Observation::SandboxRemoved(id) => self.sandbox_gone(&id),
            Observation::ContainerRemoved(id) => self.container_gone(&id),
            Observation::SandboxList(all) => {
                for sandbox in &all {
                    self.sandbox(sandbox);
                }
                self.remove_unlisted_sandboxes(&all.iter().map(|sandbox| sandbox.id.as_str()).collect());
            }
            Observation::ContainerList(all) => {
                for container in &all {
                    self.container(container);
                }
                self.remove_unlisted_containers(&all.iter().map(|container| container.id.as_str()).collect());
            }
        }
    }

    fn sandbox(&mut self, fact: &SandboxObservation) {
        let id = fact.id.as_str();
        if id.is_empty() || self.inventory.gone_sandboxes.since(id).is_some_and(|gone| gone >= self.since) {
            return;
        }
        let known = self.inventory.sandboxes.get(id).cloned();
        if known.is_none() && fact.metadata.is_none() {
            return;
        }
        if known.is_none() && self.inventory.sandboxes.len() >= MAX_OBJECTS {
            Arc::make_mut(self.inventory).dropped_over_limit += 1;
            return;
        }
        let before = known.clone().unwrap_or_else(|| Arc::new(Sandbox::new(id, self.source, self.now)));
        let next = match (before.with(fact, self.source), &known) {
            (None, Some(_)) => return,
            (None, None) => before.clone(),
            (Some(next), _) => Arc::new(next),
        };
        let inventory = Arc::make_mut(self.inventory);
        inventory.gone_sandboxes.forget(id);
        inventory.sandboxes.insert(next.id.clone(), next.clone());
        self.changes.push(match (known.is_none(), before.is_ready, next.is_ready) {
            (true, _, true) => Change::SandboxStarted(next),
            (false, true, false) => Change::SandboxStopped(next),
            _ => Change::SandboxUpdated(next),
        });
    }

    fn container(&mut self, fact: &ContainerObservation) {
        // Clients may name a sandbox by a prefix of its id.
        let whole = fact.sandbox.as_ref().and_then(|sandbox| self.inventory.sandbox(sandbox));
        let whole = whole.filter(|sandbox| fact.sandbox.as_deref() != Some(&*sandbox.id));
        let whole = whole
            .map(|sandbox| ContainerObservation { sandbox: Some(sandbox.id.to_string()), ..fact.clone() });
        let fact = whole.as_ref().unwrap_or(fact);
        let id = fact.id.as_str();
        if id.is_empty() || self.inventory.gone_containers.since(id).is_some_and(|gone| gone >= self.since) {
            return;
        }
        let known = self.inventory.containers.get(id).cloned();
        if known.is_none() && fact.metadata.is_none() {
            // The event is about an unknown container, or about the process that holds a sandbox.
            if fact.state == Some(v1::ContainerState::ContainerExited)
                && self.inventory.sandboxes.contains_key(id)
            {
                let stopped = SandboxObservation {
                    id: fact.id.clone(),
                    is_ready: Some(false),
                    ..SandboxObservation::default()
                };
                self.sandbox(&stopped);
            }
            return;
        }
        if known.is_none() && self.inventory.containers.len() >= MAX_OBJECTS {
            Arc::make_mut(self.inventory).dropped_over_limit += 1;
            return;
        }
        let before = known.clone().unwrap_or_else(|| Arc::new(Container::new(id, self.source, self.now)));
        let next = match (before.with(fact, self.source), &known) {
            (None, Some(_)) => return,
            (None, None) => before.clone(),
            (Some(next), _) => Arc::new(next),
        };
        let inventory = Arc::make_mut(self.inventory);
        inventory.gone_containers.forget(id);
        inventory.containers.insert(next.id.clone(), next.clone());
        if known.is_none() {
            self.changes.push(Change::ContainerCreated(next.clone()));
        }
        self.changes.push(match (before.state == next.state, next.state) {
            (false, v1::ContainerState::ContainerRunning) => Change::ContainerStarted(next),
            (false, v1::ContainerState::ContainerExited) => Change::ContainerExited(next),
            _ => Change::ContainerUpdated(next),
        });
    }

    fn sandbox_gone(&mut self, id: &str) {
        let of_it = |container: &&Arc<Container>| container.sandbox.as_deref() == Some(id);
        let containers: Vec<Arc<str>> =
            self.inventory.containers.values().filter(of_it).map(|container| container.id.clone()).collect();
        for container in containers {
            self.container_gone(&container);
        }
        if self.inventory.sandboxes.contains_key(id) {
            let inventory = Arc::make_mut(self.inventory);
            if let Some(sandbox) = inventory.sandboxes.remove(id) {
                inventory.gone_sandboxes.add(&sandbox.id, self.now, sandbox.clone());
                self.changes.push(Change::SandboxRemoved(sandbox));
            }
        }
    }

    fn container_gone(&mut self, id: &str) {
        if self.inventory.containers.contains_key(id) {
            let inventory = Arc::make_mut(self.inventory);
            if let Some(container) = inventory.containers.remove(id) {
                inventory.gone_containers.add(&container.id, self.now, container.clone());
                self.changes.push(Change::ContainerRemoved(container));
            }
        }
    }

    /// Removes the sandboxes that were known before the list was requested and that the list lacks.
    fn remove_unlisted_sandboxes(&mut self, there: &HashSet<&str>) {
        let known = self.inventory.sandboxes.values();
        let is_gone = |sandbox: &&Arc<Sandbox>| sandbox.seen < self.since && !there.contains(&*sandbox.id);
        let gone: Vec<Arc<str>> = known.filter(is_gone).map(|sandbox| sandbox.id.clone()).collect();
        for id in gone {
            self.sandbox_gone(&id);
        }
    }

    /// Removes the containers that were known before the list was requested and that the list
    /// lacks.
    fn remove_unlisted_containers(&mut self, there: &HashSet<&str>) {
        let known = self.inventory.containers.values();
        let is_gone =
            |container: &&Arc<Container>| container.seen < self.since && !there.contains(&*container.id);
        let gone: Vec<Arc<str>> = known.filter(is_gone).map(|container| container.id.clone()).collect();
        for id in gone {
            self.container_gone(&id);
        }
    }
}

#[cfg(test)]
mod tests;
