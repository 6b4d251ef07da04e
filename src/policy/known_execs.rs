//! The probes and hooks of containers, which are resolved once for each version of a container and
//! of the specs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::inventory::{Container, Sandbox};
use crate::manifest::KnownExec;
use crate::probe::SpecResolver;

/// Maximum number of containers in the cache.
const MAX_CONTAINERS: usize = 10_000;

/// The probes and hooks of containers.
#[derive(Debug, Default)]
pub struct KnownExecs(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    /// The specs from which the entries were resolved.
    specs: Option<watch::Receiver<SpecResolver>>,
    containers: HashMap<Arc<str>, Resolved>,
}

#[derive(Debug)]
struct Resolved {
    sandbox: Arc<Sandbox>,
    container: Arc<Container>,
    execs: Arc<[KnownExec]>,
    /// Probes and hooks of the sources that do more than name calls.
    configured: Arc<[KnownExec]>,
}

impl KnownExecs {
    /// Returns the probes and hooks of a container, from all sources.
    pub(super) fn get(
        &self,
        specs: &watch::Receiver<SpecResolver>,
        sandbox: &Arc<Sandbox>,
        container: &Arc<Container>,
    ) -> Arc<[KnownExec]> {
        self.resolve(specs, sandbox, container, |known| &known.execs)
    }

    /// Returns the probes and hooks of a container, without those of sources that only name calls.
    pub(super) fn configured(
        &self,
        specs: &watch::Receiver<SpecResolver>,
        sandbox: &Arc<Sandbox>,
        container: &Arc<Container>,
    ) -> Arc<[KnownExec]> {
        self.resolve(specs, sandbox, container, |known| &known.configured)
    }

    fn resolve(
        &self,
        specs: &watch::Receiver<SpecResolver>,
        sandbox: &Arc<Sandbox>,
        container: &Arc<Container>,
        select: impl Fn(&Resolved) -> &Arc<[KnownExec]>,
    ) -> Arc<[KnownExec]> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Cache { specs: seen, containers } = &mut *cache;
        let seen = seen.get_or_insert_with(|| specs.clone());
        // Without a sender, the specs do not change any more.
        if seen.has_changed().unwrap_or(false) || containers.len() >= MAX_CONTAINERS {
            containers.clear();
        }
        let id = &container.id;
        if let Some(known) = containers.get(id)
            && Arc::ptr_eq(&known.sandbox, sandbox)
            && Arc::ptr_eq(&known.container, container)
        {
            return select(known).clone();
        }
        let specs = seen.borrow_and_update();
        let execs = specs.known_execs(sandbox, container).into();
        let configured = specs.configured_execs(sandbox, container).into();
        let (sandbox, container) = (sandbox.clone(), container.clone());
        let resolved = Resolved { sandbox, container, execs, configured };
        let selected = select(&resolved).clone();
        containers.insert(id.clone(), resolved);
        selected
    }
}
