//! Runs the pods of manifests: pods as they are, and the pods that the controllers of Kubernetes
//! would create for workloads.
//!
//! ```text
//! manifest_source ──► ManifestPods ──► Kubelet ──► pod workers
//!                      │    ▲                           │
//!                controller └── states of the pods ─────┘
//! ```

mod controller;
mod job;
mod replicas;
mod slot;
#[cfg(test)]
mod tests;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::context::WorkerContext;
use super::manifest_source::ManifestWatch;
use super::pod_source::{DesiredPods, PodOwner, PodSource};
use super::pod_workers::PodWorkers;
use crate::manifest::PodSet;
use crate::manifest::pod::Pod;
use controller::Controller;
use slot::PodState;

/// The pods of manifests and of the workloads in them.
#[derive(Debug)]
pub(super) struct ManifestPods {
    manifests: ManifestWatch,
    pod_set: Arc<PodSet>,
    controllers: Vec<Controller>,
    context: Arc<WorkerContext>,
    pod_workers: Arc<PodWorkers>,
    /// Notified when the status of a pod changes.
    pod_changes: watch::Receiver<()>,
    /// Time at which a controller has something to do, if no pod changes before.
    next: Option<Instant>,
}

impl ManifestPods {
    /// Returns the pods of manifests. The controllers continue with the pods that an earlier
    /// process has created.
    pub(super) fn new(
        manifests: ManifestWatch,
        context: Arc<WorkerContext>,
        pod_workers: Arc<PodWorkers>,
    ) -> Self {
        let pod_changes = pod_workers.changed.subscribe();
        let mut pods = Self {
            manifests,
            pod_set: Arc::default(),
            controllers: Vec::new(),
            context,
            pod_workers,
            pod_changes,
            next: None,
        };
        pods.set_manifests();
        pods.update();
        pods
    }

    /// Takes the current manifests. The controller of a workload that has not changed stays.
    fn set_manifests(&mut self) {
        self.pod_set = self.manifests.pod_set();
        let mut earlier = std::mem::take(&mut self.controllers);
        for workload in &self.pod_set.workloads {
            let known = earlier.iter().position(|controller| controller.continues(workload));
            let store = &self.context.stores.workloads;
            self.controllers.push(match known {
                Some(place) => earlier.swap_remove(place).scaled(workload.clone()),
                None => Controller::new(workload.clone(), store.take(&workload.full_name()), Instant::now()),
            });
        }
        self.forget(&earlier);
    }

    /// Removes the saved progress of controllers that are gone.
    fn forget(&self, gone: &[Controller]) {
        for controller in gone {
            self.context.stores.workloads.remove(&controller.workload().full_name());
        }
    }

    /// Lets the controllers act on the states of their pods. Returns whether the desired pods have
    /// changed.
    fn update(&mut self) -> bool {
        self.pod_changes.borrow_and_update();
        let (states, now) = (self.pod_states(), Instant::now());
        let state = |pod: &Arc<Pod>| {
            let state = states.get(&pod.uid).copied().unwrap_or_default();
            PodState { is_deleted: self.pod_workers.deleted.contains(pod), ..state }
        };
        let mut has_changed = false;
        for controller in &mut self.controllers {
            has_changed |= controller.update(&state, now);
            let key = controller.workload().full_name();
            if let Some(progress) = controller.changed_progress() {
                self.context.stores.workloads.save(&key, progress);
            }
        }
        self.next = self.controllers.iter().filter_map(Controller::next).min();
        let statuses = self.controllers.iter().map(|controller| controller.status().clone()).collect();
        self.pod_workers.set_workloads(statuses);
        has_changed
    }

    /// Returns the state of each pod that has a worker, by uid.
    fn pod_states(&self) -> BTreeMap<String, PodState> {
        let workers = self.pod_workers.lock();
        let states = workers.values().map(|worker| {
            let published = worker.published.borrow();
            let state = published.status().map(PodState::of).unwrap_or_default();
            (published.uid().to_owned(), state)
        });
        states.collect()
    }

    /// Returns all pods.
    fn pods(&self) -> Vec<Arc<Pod>> {
        let of_workloads = self.controllers.iter().flat_map(Controller::pods);
        let mut taken = BTreeSet::new();
        // A pod of a manifest has precedence over a pod of the same name that a controller creates.
        let pods = self.pod_set.pods.iter().chain(of_workloads);
        pods.filter(|pod| taken.insert(pod.full_name())).cloned().collect()
    }
}

impl PodSource for ManifestPods {
    const OWNER: PodOwner = PodOwner::Kubelet;

    fn desired(&mut self) -> DesiredPods {
        DesiredPods {
            pods: self.pods(),
            objects: self.pod_set.objects.clone(),
            specs: Some(self.manifests.specs().clone()),
        }
    }

    async fn changed(&mut self) {
        loop {
            let next = self.next;
            tokio::select! {
                () = self.manifests.changed() => {
                    self.set_manifests();
                    self.update();
                    return;
                }
                Ok(()) = self.pod_changes.changed(), if !self.controllers.is_empty() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
            if self.update() {
                return;
            }
        }
    }

    fn end(self) {
        self.forget(&self.controllers);
        self.context.stores.workloads.remove_others();
    }
}
