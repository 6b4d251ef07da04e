//! The pod workers and their handles (kubelet: `pod_workers.go`).

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tracing::info;

use super::deleted_pods::DeletedPods;
use super::published_pod::PublishedPod;
use super::terminated_pods::TerminatedPods;
use super::worker::WorkerSignals;
use super::workload_status::WorkloadStatus;
use crate::manifest::GRACE_PERIOD;
use crate::manifest::pod::{Pod, identity};
use crate::object_ref::PodRef;

/// Handles of all pod workers, by pod keys.
#[derive(Debug)]
pub(super) struct PodWorkers {
    workers: Mutex<BTreeMap<String, PodWorkerHandle>>,
    /// Notified when the status of a pod changes.
    pub(super) changed: watch::Sender<()>,
    pub(super) terminated: TerminatedPods,
    pub(super) deleted: DeletedPods,
    workloads: Mutex<Vec<WorkloadStatus>>,
}

/// Handle of a pod worker.
#[derive(Debug)]
pub(super) struct PodWorkerHandle {
    pub(super) pod: watch::Sender<Arc<Pod>>,
    pub(super) signals: Arc<WorkerSignals>,
    pub(super) published: watch::Receiver<PublishedPod>,
    /// Pods that start when the worker has ended: pods of the same name, or of the same uid.
    pub(super) successors: Vec<Arc<Pod>>,
}

impl PodWorkerHandle {
    /// Passes an update of the pod to its worker, in any worker phase; `None` if the pod is no
    /// longer desired. A terminating pod is not resumed: the update becomes its successor. So does
    /// a pod of another uid, such as a static pod whose manifest has changed.
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
                        info!(pod = pod.key(), "pod manifest changed");
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

    /// Requests that the pod terminates, with this grace period in seconds, or else the pod's own.
    pub(super) fn request_termination(&self, grace_period: Option<u32>) {
        let own = self.pod.borrow().spec.termination_grace_period.unwrap_or(GRACE_PERIOD);
        self.signals.request_termination(grace_period, own);
    }

    /// Returns the status of the pod.
    pub(super) fn published(&self) -> PublishedPod {
        PublishedPod { is_deleted: self.signals.terminate.is_cancelled(), ..self.published.borrow().clone() }
    }
}

/// Returns the uids of the pods that have ended and need nothing of the node.
pub(super) fn inactive_pods(workers: &BTreeMap<String, PodWorkerHandle>) -> HashSet<String> {
    let published = workers.values().map(|worker| worker.published.borrow());
    published.filter(|it| it.is_inactive()).map(|it| it.pod.uid.clone()).collect()
}

impl PodWorkers {
    pub(super) fn new() -> Self {
        Self {
            workers: Mutex::default(),
            changed: watch::Sender::new(()),
            terminated: TerminatedPods::default(),
            deleted: DeletedPods::default(),
            workloads: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PodWorkerHandle>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the status of each workload.
    pub(super) fn set_workloads(&self, statuses: Vec<WorkloadStatus>) {
        let mut workloads = self.workloads.lock().unwrap_or_else(PoisonError::into_inner);
        if *workloads != statuses {
            *workloads = statuses;
            drop(workloads);
            self.changed.send_replace(());
        }
    }

    /// Returns the status of each workload.
    pub(super) fn workloads(&self) -> Vec<WorkloadStatus> {
        self.workloads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the current pods, except those with the uids of `pods`.
    pub(super) fn except(&self, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let workers = self.lock();
        let there = workers.values().map(|worker| worker.pod.borrow().clone());
        there.filter(|known| !pods.iter().any(|pod| pod.uid == known.uid)).collect()
    }

    /// Calls `what` with the handle of a pod. Returns `None` if the pod has no worker.
    pub(super) fn update<T>(&self, pod: &PodRef, what: impl FnOnce(&PodWorkerHandle) -> T) -> Option<T> {
        let (namespace, name) = (pod.namespace.as_deref()?, pod.name.as_deref()?);
        let uid = pod.uid.as_deref()?;
        let workers = self.lock();
        let named = workers.get(&format!("{namespace}/{name}"));
        let named = named.filter(|worker| worker.pod.borrow().uid == uid);
        named.or_else(|| workers.get(&identity(namespace, name, uid))).map(what)
    }

    /// Returns the signals of all workers, by pod identities.
    pub(super) fn senders(&self) -> Vec<(String, Arc<WorkerSignals>)> {
        let workers = self.lock();
        workers.values().map(|it| (it.pod.borrow().identity(), it.signals.clone())).collect()
    }
}
