//! The result of an update of a controller.

use tokio::time::Instant;

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
