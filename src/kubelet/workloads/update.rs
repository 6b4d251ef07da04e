//! The result of an update of a controller.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::slot::Slot;
use crate::kubelet::workload_status::WorkloadStatus;

/// Result of an update.
#[derive(Debug, Default)]
pub(super) struct Update {
    /// Whether pods were created or removed.
    pub(super) has_changed: bool,
    pub(super) status: WorkloadStatus,
    /// Time of the next update, if no pod changes before.
    pub(super) next: Option<Instant>,
}

/// Returns the names of all pods of a workload.
pub(super) fn names(slots: &BTreeMap<u32, Slot>) -> BTreeSet<String> {
    slots.values().flat_map(Slot::pods).map(|pod| pod.name.clone()).collect()
}
