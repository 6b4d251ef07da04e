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

/// Sandboxes, and as many containers, that are kept at most. No node has as many; a client could invent more.
const MAX_OBJECTS: usize = 20_000;

/// What is kept at most of what is gone.
const MAX_TOMBSTONES: usize = 2_048;

/// Everything that is known to be on the node, and for a while what has been. Copies share what is in them.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    sandboxes: HashMap<Arc<str>, Arc<Sandbox>>,
    containers: HashMap<Arc<str>, Arc<Container>>,
    gone_sandboxes: RemovedCache<Sandbox>,
    gone_containers: RemovedCache<Container>,
    /// Things that there was no room for.
    dropped_over_limit: u64,
}

/// What has been, as much of it as there is room for.
#[derive(Clone, Debug)]
struct RemovedCache<T> {
    last: HashMap<Arc<str>, (Instant, Arc<T>)>,
    order: VecDeque<Arc<str>>,
}

impl Inventory {
    /// A sandbox by its id, also one that has been removed a while ago; or by the beginning of its id, which runtimes take for it, if there
    /// is one such sandbox.
    #[must_use]
    pub fn sandbox(&self, id: &str) -> Option<&Arc<Sandbox>> {
        self.sandboxes.get(id).or_else(|| self.gone_sandboxes.get(id)).or_else(|| {
            let mut found = self.sandboxes.values().filter(|sandbox| sandbox.id.starts_with(id));
            found.next().filter(|_| !id.is_empty() && found.next().is_none())
        })
    }

    /// The sandbox of a container, if both are there.
    #[must_use]
    pub fn live_sandbox_of(&self, container: &Container) -> Option<&Arc<Sandbox>> {
        self.sandboxes.get(container.sandbox.as_deref()?)
    }

    /// A container by its id, also one that has been removed a while ago; or by the beginning of its id, which runtimes take for it,
    /// if there is one such container.
    #[must_use]
    pub fn container(&self, id: &str) -> Option<&Arc<Container>> {
        self.containers.get(id).or_else(|| self.gone_containers.get(id)).or_else(|| {
            let mut found = self.containers.values().filter(|container| container.id.starts_with(id));
            found.next().filter(|_| !id.is_empty() && found.next().is_none())
        })
    }

    /// The sandbox of a container.
    #[must_use]
    pub fn sandbox_of(&self, container: &Container) -> Option<&Arc<Sandbox>> {
        self.sandbox(container.sandbox.as_deref()?)
    }

    /// The sandboxes that are there, in no order.
    pub fn sandboxes(&self) -> impl Iterator<Item = &Arc<Sandbox>> {
        self.sandboxes.values()
    }

    /// The containers that are there, in no order.
    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.containers.values()
    }

    /// How many sandboxes and containers there was no room for.
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

    /// When it went, if it did.
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

    /// It is there after all.
    fn forget(&mut self, id: &str) {
        if self.last.remove(id).is_some() {
            self.order.retain(|gone| **gone != *id);
        }
    }
}
