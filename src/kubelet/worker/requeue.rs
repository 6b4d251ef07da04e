//! Delays between the syncs of a pod.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::{debug, warn};

use super::{SyncError, SyncResult};
use crate::manifest::pod::Pod;

/// Delay before a failed sync is repeated (`kubelet.go`: `backOffPeriod`).
const SYNC_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Delay before a sync is repeated that failed because the network is not ready (`pod_workers.go`:
/// `backOffOnTransientErrorPeriod`).
const NETWORK_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Largest random addition to a delay, as a fraction of the delay (`pod_workers.go`:
/// `workerResyncIntervalJitterFactor`).
const JITTER: f64 = 0.5;

/// Delay until the next sync if nothing happens.
pub(super) const SYNC_FREQUENCY: Duration = Duration::from_secs(60);

/// Delay after a sync that changed something. It doubles with each further one, at most
/// `MAX_SHORT_DELAYS` times.
const SHORT_DELAY: Duration = Duration::from_millis(5);
const MAX_SHORT_DELAYS: u32 = 8;

/// Computes the delays between the syncs of a pod. The growing delay protects a runtime that
/// reports success without doing the work from endless calls.
#[derive(Debug, Default)]
pub(super) struct Requeue {
    /// Number of consecutive syncs that changed something.
    in_a_row: u32,
}

/// Delay until the next sync.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequeueDelay {
    /// A fixed delay that no event shortens.
    Short(Duration),
    /// A delay until this time, or until an event.
    Until(Instant),
}

impl Requeue {
    /// Returns the delay after a sync.
    pub(super) fn after(&mut self, synced: Result<SyncResult, SyncError>, pod: &Pod) -> RequeueDelay {
        let wait = match synced {
            Ok(SyncResult::Changed) => {
                let breath = SHORT_DELAY * (1 << self.in_a_row);
                self.in_a_row = (self.in_a_row + 1).min(MAX_SHORT_DELAYS);
                return RequeueDelay::Short(breath);
            }
            Ok(SyncResult::NoChange | SyncResult::Terminal) => SYNC_FREQUENCY,
            Ok(SyncResult::Retry(until)) => {
                let left = until.map(|until| until.duration_since(SystemTime::now()).unwrap_or_default());
                left.unwrap_or(SYNC_RETRY_DELAY).min(SYNC_FREQUENCY)
            }
            Err(error) => {
                if error.is_of_node() {
                    // An event about the runtime reports it, and all pods retry.
                    debug!(pod = pod.full_name(), "pod sync failed: {error}");
                } else {
                    warn!(pod = pod.full_name(), "pod sync failed: {error}");
                }
                match error {
                    SyncError::NetworkNotReady(_) => NETWORK_RETRY_DELAY,
                    _ => SYNC_RETRY_DELAY,
                }
            }
        };
        self.in_a_row = 0;
        RequeueDelay::Until(Instant::now() + wait.mul_f64(1.0 + JITTER * fastrand::f64()))
    }
}
