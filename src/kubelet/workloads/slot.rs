//! The pods that a controller has created for one index of a workload, and their states.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::manifest::pod::Pod;
use crate::manifest::{PodSlot, WorkloadSpec};

/// Delay before the first replacement of a failed pod, which doubles with each further one
/// (`pkg/controller/job/job_controller.go`: `DefaultJobPodFailureBackOff`).
const FIRST_BACKOFF: Duration = Duration::from_secs(10);

/// Maximum delay before a failed pod is replaced (`MaxJobPodFailureBackOff`).
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// Number of incarnations among which the pods of an earlier process are looked for.
const MAX_RESTORED: u32 = 100;

/// The pods that a controller has created for one index.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The pods that exist, the newest last. Failed pods of a job stay.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Number of pods that the newest one has replaced, or that the next one replaces.
    pub(super) incarnation: u32,
    /// Time at which the newest pod, which has ended, is replaced.
    pub(super) replace_at: Option<Instant>,
}

/// State of a pod that a controller has created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodState {
    /// Phase of the pod; empty before its first sync.
    pub(super) phase: String,
    pub(super) is_ready: bool,
    /// Number of restarts of all containers.
    pub(super) restarts: u32,
    /// Whether a client has deleted the pod.
    pub(super) is_deleted: bool,
}

/// Returns the state of a pod.
pub(super) type StateOf<'a> = &'a dyn Fn(&Arc<Pod>) -> PodState;

impl Slot {
    /// Returns the pods of an index that an earlier process has created. `is_known` recognises
    /// their uids.
    pub(super) fn restore(workload: &WorkloadSpec, index: u32, is_known: &dyn Fn(&str) -> bool) -> Self {
        let mut slot = Self::default();
        for incarnation in 0..MAX_RESTORED {
            let place = PodSlot { index, incarnation };
            if is_known(&workload.uid(place)) {
                slot.pods.extend(workload.pod(place));
                slot.incarnation = incarnation;
            }
        }
        slot
    }

    /// Returns the newest pod.
    pub(super) fn newest(&self) -> Option<&Arc<Pod>> {
        self.pods.last()
    }

    /// Creates the first or the next pod of the index.
    pub(super) fn create(&mut self, workload: &WorkloadSpec, index: u32) {
        if !self.pods.is_empty() {
            self.incarnation += 1;
        }
        self.pods.extend(workload.pod(PodSlot { index, incarnation: self.incarnation }));
    }

    /// Removes all pods of the index, so that the next one can be created.
    pub(super) fn clear(&mut self) {
        self.pods.clear();
        self.incarnation += 1;
        self.replace_at = None;
    }

    /// Returns the name of the next pod.
    pub(super) fn next_name(&self, workload: &WorkloadSpec, index: u32) -> String {
        let incarnation = self.incarnation + u32::from(!self.pods.is_empty());
        format!("{}/{}", workload.namespace, workload.pod_name(PodSlot { index, incarnation }))
    }
}

impl PodState {
    pub(super) fn has_succeeded(&self) -> bool {
        self.phase == "Succeeded"
    }

    pub(super) fn has_failed(&self) -> bool {
        self.phase == "Failed"
    }

    /// Returns whether the pod runs or will run.
    pub(super) fn is_active(&self) -> bool {
        !self.has_succeeded() && !self.has_failed() && !self.is_deleted
    }
}

/// Returns the delay before the replacement of a pod after this number of earlier replacements.
pub(super) fn backoff(replacements: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(replacements)).min(MAX_BACKOFF)
}
