//! The controller of one workload: decides which pods exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
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
    progress: Progress,
    /// The progress of the job when it was last saved.
    saved_job: JobProgress,
    status: WorkloadStatus,
    next: Option<Instant>,
}

/// Progress of a workload, which a later process continues.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Hash of the workload.
    hash: String,
    /// Pods by their indices.
    slots: BTreeMap<u32, Slot>,
    job: JobProgress,
}

impl Controller {
    /// Creates the controller of a workload. `progress` is that of an earlier process, which counts
    /// unless the pods of the workload have changed since then.
    pub(super) fn new(workload: Arc<WorkloadSpec>, progress: Option<Progress>, now: Instant) -> Self {
        let hash = workload.hash().to_owned();
        let progress = match progress.filter(|progress| progress.hash == hash) {
            Some(Progress { slots, job, .. }) => Progress {
                hash,
                slots: slots.into_iter().map(|(index, slot)| (index, slot.restored(&workload))).collect(),
                job: job.restored(now),
            },
            None => Progress { hash, ..Progress::default() },
        };
        let (saved_job, status) = (progress.job, WorkloadStatus::default());
        Self { workload: workload.clone(), progress, saved_job, status, next: None }.scaled(workload)
    }

    /// Returns whether the pods of `workload` are those of this controller: at most the number of
    /// pods has changed.
    pub(super) fn continues(&self, workload: &WorkloadSpec) -> bool {
        self.workload.key() == workload.key() && self.workload.hash() == workload.hash()
    }

    /// Changes the number of pods.
    pub(super) fn scaled(mut self, workload: Arc<WorkloadSpec>) -> Self {
        let indices = workload.scale.indices();
        // Pods without an index count as successes or failures of their job, whatever its size.
        let counts =
            |slot: &Slot| matches!(&workload.scale, Scale::Job(job) if !job.is_indexed) && slot.has_started();
        self.progress.slots.retain(|index, slot| indices.contains(index) || counts(slot));
        for index in indices {
            self.progress.slots.entry(index).or_default();
        }
        Self { workload, ..self }
    }

    /// Creates and replaces pods according to their states. Returns whether pods were created or
    /// removed.
    pub(super) fn update(&mut self, state: StateOf<'_>, now: Instant) -> bool {
        let Progress { slots, job: progress, .. } = &mut self.progress;
        let Update { has_changed, status, next } = match &self.workload.scale {
            Scale::Replicas { is_ordered, .. } => {
                replicas::update(&self.workload, *is_ordered, slots, state, now)
            }
            Scale::Job(job) => job::update(&self.workload, job, slots, progress, state, now),
        };
        (self.status, self.next) = (status, next);
        has_changed
    }

    /// Returns the progress if it has changed since the last call.
    pub(super) fn changed_progress(&mut self) -> Option<&Progress> {
        let mut has_changed = std::mem::replace(&mut self.saved_job, self.progress.job) != self.progress.job;
        for slot in self.progress.slots.values_mut() {
            has_changed |= std::mem::take(&mut slot.is_modified);
        }
        has_changed.then_some(&self.progress)
    }

    /// Returns the workload.
    pub(super) fn workload(&self) -> &WorkloadSpec {
        &self.workload
    }

    /// Returns the pods that exist.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.progress.slots.values().flat_map(Slot::pods)
    }

    pub(super) fn status(&self) -> &WorkloadStatus {
        &self.status
    }

    /// Returns the time of the next update, if no pod changes before.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }
}
