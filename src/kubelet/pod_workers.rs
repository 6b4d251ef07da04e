//! The pods that are played, and how others reach them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tracing::info;

use super::published_pod::PublishedPod;
use super::terminated_pods::TerminatedPods;
use super::worker::WorkerSignals;
use crate::manifest::GRACE_PERIOD;
use crate::manifest::pod::{Pod, identity};
use crate::object_ref::PodRef;

/// The pods that are played.
#[derive(Debug)]
pub(super) struct PodWorkers {
    workers: Mutex<BTreeMap<String, PodWorkerHandle>>,
    /// Changes with each of them.
    pub(super) changed: watch::Sender<()>,
    pub(super) terminated: TerminatedPods,
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

impl PodWorkerHandle {
    /// Passes on an update of the pod, in whatever phase its worker is; `None` if it is no longer desired. A pod that terminates is not
    /// resumed: it starts anew once it is gone. So does a pod of another uid, as a static pod whose manifest has changed.
    pub(super) fn update(&mut self, pod: Option<Arc<Pod>>) {
        let known = self.pod.borrow().clone();
        match pod {
            Some(pod) if pod.uid == known.uid && pod.deletion.is_some() => {
                self.successors.clear();
                self.request_termination(pod.deletion.and_then(|deletion| deletion.grace_period));
            }
            Some(pod) if pod.uid == known.uid && !self.signals.terminate.is_cancelled() => {
                self.successors.clear();
                if pod != known {
                    if !pod.is_client_pod() {
                        info!(pod = pod.key(), "the manifest of a pod has changed");
                    }
                    self.pod.send_replace(pod);
                }
            }
            next => {
                self.successors = Vec::from_iter(next);
                self.request_termination(None);
            }
        }
    }

    /// Requests that the pod terminates; with this grace period, if one is given.
    pub(super) fn request_termination(&self, grace_period: Option<u32>) {
        let own = self.pod.borrow().spec.termination_grace_period.unwrap_or(GRACE_PERIOD);
        self.signals.request_termination(grace_period, own);
    }

    /// Returns the status of the pod.
    pub(super) fn published(&self) -> PublishedPod {
        PublishedPod { is_deleted: self.signals.terminate.is_cancelled(), ..self.published.borrow().clone() }
    }
}

impl PodWorkers {
    pub(super) fn new() -> Self {
        Self {
            workers: Mutex::default(),
            changed: watch::Sender::new(()),
            terminated: TerminatedPods::default(),
        }
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
