//! The pods that a controller has created for one index of a workload, and their states.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::kubelet::pod_status::{ContainerStatusExt, PodStatusExt as _};
use crate::manifest::pod::Pod;
use crate::manifest::{PodSlot, WorkloadSpec};

/// Delay before the first replacement of a failed pod, which doubles with each further one
/// (`pkg/controller/job/job_controller.go`: `DefaultJobPodFailureBackOff`).
const FIRST_BACKOFF: Duration = Duration::from_secs(10);

/// Maximum delay before a failed pod is replaced (`MaxJobPodFailureBackOff`).
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// The pods that a controller has created for one index.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slot {
    /// Slots of the pods that exist, in the order of `pods`.
    pod_slots: Vec<PodSlot>,
    /// The pods that exist, the newest last. Pods of a job that have ended stay.
    #[serde(skip)]
    pods: Vec<Arc<Pod>>,
    /// Number of pods that were created, which is the incarnation of the next one.
    created: u32,
    /// Number of pods that have failed.
    pub(super) failures: u32,
    /// Whether a pod has succeeded.
    pub(super) has_succeeded: bool,
    /// Whether the newest pod runs or will run.
    pub(super) is_active: bool,
    /// Time at which the newest pod, which has ended, is replaced.
    #[serde(skip)]
    pub(super) replace_at: Option<Instant>,
    /// Whether the slot has changed since it was last saved.
    #[serde(skip)]
    pub(super) is_modified: bool,
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
    /// Returns a slot of an earlier process with its pods.
    pub(super) fn restored(mut self, workload: &WorkloadSpec) -> Self {
        self.pods = self.pod_slots.iter().filter_map(|slot| workload.pod(*slot)).collect();
        self
    }

    /// Returns the pods that exist, the newest last.
    pub(super) fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// Returns the newest pod, if it runs or will run.
    pub(super) fn active(&self) -> Option<&Arc<Pod>> {
        self.pods.last().filter(|_| self.is_active)
    }

    /// Returns whether a pod was ever created.
    pub(super) fn has_started(&self) -> bool {
        self.created > 0
    }

    /// Counts the success or failure of the newest pod once it has ended. A pod that was deleted
    /// before it ended has failed.
    pub(super) fn count_end(&mut self, state: StateOf<'_>) {
        let Some(known) = self.active().map(state).filter(|known| !known.is_active()) else { return };
        if known.has_succeeded() {
            (self.has_succeeded, self.is_active, self.is_modified) = (true, false, true);
        } else {
            self.fail();
        }
    }

    /// Creates the next pod of the index. Adds its name to the names of all pods of the workload.
    pub(super) fn create(&mut self, workload: &WorkloadSpec, index: u32, names: &mut BTreeSet<String>) {
        let slot = workload.free_slot(index, self.created, names);
        names.insert(workload.pod_name(slot));
        if let Some(pod) = workload.pod(slot) {
            self.pod_slots.push(slot);
            self.pods.push(pod);
        }
        self.created += 1;
        (self.is_active, self.is_modified) = (true, true);
    }

    /// Removes the active pod, which has failed then. Returns whether there was one.
    pub(super) fn remove_active(&mut self) -> bool {
        let is_active = self.is_active;
        if is_active {
            self.pods.pop();
            self.pod_slots.pop();
            self.fail();
        }
        is_active
    }

    /// Removes the pods that clients have deleted. Returns whether there was one.
    pub(super) fn remove_deleted(&mut self, state: StateOf<'_>) -> bool {
        let before = self.pods.len();
        let pods = std::mem::take(&mut self.pods).into_iter().zip(std::mem::take(&mut self.pod_slots));
        (self.pods, self.pod_slots) = pods.filter(|(pod, _)| !state(pod).is_deleted).unzip();
        let has_deleted = self.pods.len() < before;
        self.is_modified |= has_deleted;
        has_deleted
    }

    /// Removes all pods of the index, so that the next one can be created.
    pub(super) fn clear(&mut self) {
        self.pods.clear();
        self.pod_slots.clear();
        self.replace_at = None;
        (self.is_active, self.is_modified) = (false, true);
    }

    /// Returns `NAMESPACE/NAME` of the next pod. `names`: names of all pods of the workload.
    pub(super) fn next_name(
        &self,
        workload: &WorkloadSpec,
        index: u32,
        names: &mut BTreeSet<String>,
    ) -> String {
        let name = workload.pod_name(workload.free_slot(index, self.created, names));
        names.insert(name.clone());
        format!("{}/{name}", workload.namespace)
    }

    fn fail(&mut self) {
        self.failures += 1;
        (self.is_active, self.is_modified) = (false, true);
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

/// Returns the delay before the replacement of a pod after this number of failures.
pub(super) fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(MAX_BACKOFF)
}
