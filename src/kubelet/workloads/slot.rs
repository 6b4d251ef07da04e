//! The pods that a controller has created for one index of a workload, and their states.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use tokio::time::Instant;

use crate::kubelet::pod_status::{ContainerStatusExt, PodStatusExt as _};
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
    /// Number of pods that were created, which is the incarnation of the next one.
    pub(super) created: u32,
    /// Time at which the newest pod, which has ended, is replaced.
    pub(super) replace_at: Option<Instant>,
}

/// State of a pod that a controller has created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PodState {
    /// Whether the containers have succeeded, if they have ended for good.
    pub(super) outcome: Option<bool>,
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
                slot.created = incarnation + 1;
            }
        }
        slot
    }

    /// Returns the newest pod.
    pub(super) fn newest(&self) -> Option<&Arc<Pod>> {
        self.pods.last()
    }

    /// Creates the next pod of the index.
    pub(super) fn create(&mut self, workload: &WorkloadSpec, index: u32) {
        self.pods.extend(workload.pod(self.next(index)));
        self.created += 1;
    }

    /// Removes all pods of the index, so that the next one can be created.
    pub(super) fn clear(&mut self) {
        self.pods.clear();
        self.replace_at = None;
    }

    /// Returns `NAMESPACE/NAME` of the next pod.
    pub(super) fn next_name(&self, workload: &WorkloadSpec, index: u32) -> String {
        format!("{}/{}", workload.namespace, workload.pod_name(self.next(index)))
    }

    fn next(&self, index: u32) -> PodSlot {
        PodSlot { index, incarnation: self.created }
    }
}

impl PodState {
    /// Returns the state of a pod with this status.
    pub(super) fn of(status: &PodStatus) -> Self {
        Self {
            outcome: status.is_terminal().then(|| status.phase() == "Succeeded"),
            is_ready: status.is("Ready"),
            restarts: status.containers().map(ContainerStatusExt::restarts).sum(),
            is_deleted: false,
        }
    }

    pub(super) fn has_succeeded(self) -> bool {
        self.outcome == Some(true)
    }

    /// Returns whether the pod runs or will run.
    pub(super) fn is_active(self) -> bool {
        self.outcome.is_none() && !self.is_deleted
    }
}

/// Returns the delay before the replacement of a pod after this number of earlier replacements.
pub(super) fn backoff(replacements: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(replacements)).min(MAX_BACKOFF)
}
