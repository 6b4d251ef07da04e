//! The pods that are played, and how others reach them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::published_pod::PublishedPod;
use super::worker::WorkerSignals;
use crate::manifest::pod::{Pod, identity};
use crate::object_ref::PodRef;

/// The pods that are played.
#[derive(Debug)]
pub(super) struct PodWorkers {
    workers: Mutex<BTreeMap<String, PodWorkerHandle>>,
    /// Changes with each of them.
    pub(super) changed: watch::Sender<()>,
}

/// A pod that is played.
#[derive(Debug)]
pub(super) struct PodWorkerHandle {
    pub(super) pod: watch::Sender<Arc<Pod>>,
    pub(super) signals: Arc<WorkerSignals>,
    pub(super) published: watch::Receiver<PublishedPod>,
    /// What comes after it, once it is gone: another pod of its name, or of its uid.
    pub(super) successors: Vec<Arc<Pod>>,
}

impl PodWorkers {
    pub(super) fn new() -> Self {
        Self { workers: Mutex::default(), changed: watch::Sender::new(()) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PodWorkerHandle>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pods that are there, but these.
    pub(super) fn except(&self, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let workers = self.lock();
        let there = workers.values().map(|worker| worker.pod.borrow().clone());
        there.filter(|known| !pods.iter().any(|pod| pod.uid == known.uid)).collect()
    }

    /// Does something with a pod that is played.
    pub(super) fn update<T>(&self, pod: &PodRef, what: impl FnOnce(&PodWorkerHandle) -> T) -> Option<T> {
        let (namespace, name) = (pod.namespace.as_deref()?, pod.name.as_deref()?);
        let uid = pod.uid.as_deref()?;
        let workers = self.lock();
        let named = workers.get(&format!("{namespace}/{name}"));
        let named = named.filter(|worker| worker.pod.borrow().uid == uid);
        named.or_else(|| workers.get(&identity(namespace, name, uid))).map(what)
    }

    /// Who is told, by the identities of pods.
    pub(super) fn senders(&self) -> Vec<(String, Arc<WorkerSignals>)> {
        let workers = self.lock();
        workers.values().map(|it| (it.pod.borrow().identity(), it.signals.clone())).collect()
    }
}
