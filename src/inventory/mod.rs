//! The sandboxes and containers of the node, computed from calls, events and lists.
//!
//! ```text
//! tap ───────────────► Observations ──┐
//! runtime ──► Watcher ────────────────┴──► Inventory::fold ──► changes, snapshots
//!                │ events, a list every 10 s
//! ```

mod apply;
mod events;
mod label_map;
mod objects;
mod runtime;
mod watcher;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

pub use apply::Change;
pub use label_map::LabelMap;
pub use objects::{Container, Sandbox, Source};
pub use runtime::RuntimeInfo;
pub use watcher::{InspectRequest, RuntimeEvent, Watcher};

/// Maximum number of sandboxes, and of containers, in the inventory. No node has as many, but a
/// client can create calls about more.
const MAX_OBJECTS: usize = 20_000;

/// Maximum number of tombstones of sandboxes, and of containers.
const MAX_TOMBSTONES: usize = 2_048;

/// The sandboxes and containers known to be on the node, and tombstones of removed ones. Clones
/// share the objects.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    sandboxes: HashMap<Arc<str>, Arc<Sandbox>>,
    containers: HashMap<Arc<str>, Arc<Container>>,
    gone_sandboxes: RemovedCache<Sandbox>,
    gone_containers: RemovedCache<Container>,
    /// Number of objects that were ignored because the inventory was full.
    dropped_over_limit: u64,
}

/// The most recently removed objects.
#[derive(Clone, Debug)]
struct RemovedCache<T> {
    last: HashMap<Arc<str>, (Instant, Arc<T>)>,
    order: VecDeque<Arc<str>>,
}

impl Inventory {
    /// Returns a sandbox by its id, even if it was removed recently. If exactly one sandbox on the
    /// node has an id with the prefix `id`, returns that one, as runtimes do.
    #[must_use]
    pub fn sandbox(&self, id: &str) -> Option<&Arc<Sandbox>> {
        self.sandboxes.get(id).or_else(|| self.gone_sandboxes.get(id)).or_else(|| {
            let mut found = self.sandboxes.values().filter(|sandbox| sandbox.id.starts_with(id));
            found.next().filter(|_| !id.is_empty() && found.next().is_none())
        })
    }

    /// Returns the sandbox of a container, if the sandbox is on the node.
    #[must_use]
    pub fn live_sandbox_of(&self, container: &Container) -> Option<&Arc<Sandbox>> {
        self.sandboxes.get(container.sandbox.as_deref()?)
    }

    /// Returns a container by its id, even if it was removed recently. If exactly one container on
    /// the node has an id with the prefix `id`, returns that one, as runtimes do.
    #[must_use]
    pub fn container(&self, id: &str) -> Option<&Arc<Container>> {
        self.containers.get(id).or_else(|| self.gone_containers.get(id)).or_else(|| {
            let mut found = self.containers.values().filter(|container| container.id.starts_with(id));
            found.next().filter(|_| !id.is_empty() && found.next().is_none())
        })
    }

    /// Returns the sandbox of a container, even if the sandbox was removed recently.
    #[must_use]
    pub fn sandbox_of(&self, container: &Container) -> Option<&Arc<Sandbox>> {
        self.sandbox(container.sandbox.as_deref()?)
    }

    /// Returns the sandboxes on the node, in no particular order.
    pub fn sandboxes(&self) -> impl Iterator<Item = &Arc<Sandbox>> {
        self.sandboxes.values()
    }

    /// Returns the containers on the node, in no particular order.
    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.containers.values()
    }

    /// Returns the number of sandboxes and containers that were ignored because the inventory was
    /// full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.dropped_over_limit
    }
}

impl<T> Default for RemovedCache<T> {
    fn default() -> Self {
        Self { last: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> RemovedCache<T> {
    fn get(&self, id: &str) -> Option<&Arc<T>> {
        self.last.get(id).map(|(_, gone)| gone)
    }

    /// Returns the time of an object's removal, if it was removed.
    fn since(&self, id: &str) -> Option<Instant> {
        self.last.get(id).map(|(since, _)| *since)
    }

    fn add(&mut self, id: &Arc<str>, since: Instant, gone: Arc<T>) {
        if self.last.insert(id.clone(), (since, gone)).is_none() {
            self.order.push_back(id.clone());
        }
        if self.order.len() > MAX_TOMBSTONES
            && let Some(oldest) = self.order.pop_front()
        {
            self.last.remove(&oldest);
        }
    }

    /// Forgets the removal of an object that exists again.
    fn forget(&mut self, id: &str) {
        if self.last.remove(id).is_some() {
            self.order.retain(|gone| **gone != *id);
        }
    }
}
