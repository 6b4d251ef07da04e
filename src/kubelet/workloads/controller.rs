//! The controller of one workload: decides which pods exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::job::{self, JobProgress};
use super::replicas;
use super::slot::{Slot, StateOf};
use super::update::Update;
use crate::kubelet::workload_status::WorkloadStatus;
use crate::manifest::pod::Pod;
use crate::manifest::{Scale, WorkloadSpec};

/// The controller of a workload.
#[derive(Debug)]
pub(super) struct Controller {
    workload: Arc<WorkloadSpec>,
    /// Pods by their indices.
    slots: BTreeMap<u32, Slot>,
    job: JobProgress,
    status: WorkloadStatus,
    next: Option<Instant>,
}

impl Controller {
    /// Creates the controller of a workload. `is_known` recognises the uids of the pods that an
    /// earlier process has created.
    pub(super) fn new(workload: Arc<WorkloadSpec>, is_known: &dyn Fn(&str) -> bool) -> Self {
        let restore = |index| (index, Slot::restore(&workload, index, is_known));
        let slots = workload.scale.indices().map(restore).collect();
        Self { workload, slots, job: JobProgress::default(), status: WorkloadStatus::default(), next: None }
    }

    /// Returns whether the pods of `workload` are those of this controller: at most the number of
    /// pods has changed.
    pub(super) fn continues(&self, workload: &WorkloadSpec) -> bool {
        self.workload.has_same_pods(workload)
    }

    /// Changes the number of pods.
    pub(super) fn scaled(mut self, workload: Arc<WorkloadSpec>) -> Self {
        let indices = workload.scale.indices();
        self.slots.retain(|index, _| indices.contains(index));
        for index in indices {
            self.slots.entry(index).or_default();
        }
        Self { workload, ..self }
    }

    /// Creates and replaces pods according to their states.
    pub(super) fn update(&mut self, state: StateOf<'_>, now: Instant) -> bool {
        let Update { has_changed, status, next } = match &self.workload.scale {
            Scale::Replicas { is_ordered, .. } => {
                replicas::update(&self.workload, *is_ordered, &mut self.slots, state, now)
            }
            Scale::Job(job) => job::update(&self.workload, job, &mut self.slots, &mut self.job, state, now),
        };
        (self.status, self.next) = (status, next);
        has_changed
    }

    /// Returns the pods that exist.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.slots.values().flat_map(|slot| &slot.pods)
    }

    pub(super) fn status(&self) -> &WorkloadStatus {
        &self.status
    }

    /// Returns the time of the next update, if no pod changes before.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }
}
