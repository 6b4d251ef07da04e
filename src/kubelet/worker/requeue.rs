//! When a pod is looked at again.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::warn;

use super::{SyncError, SyncResult};
use crate::manifest::pod::Pod;

/// The delay before a failed sync is repeated (`kubelet.go`: `backOffPeriod`).
const SYNC_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Up to this part of each delay is added by chance (`pod_workers.go`: `workerResyncIntervalJitterFactor`).
const JITTER: f64 = 0.5;

/// The delay until the next sync if nothing happens.
pub(super) const SYNC_FREQUENCY: Duration = Duration::from_secs(60);

/// What is waited after a sync that has done something, and how often twice as long if there is another and another.
const SHORT_DELAY: Duration = Duration::from_millis(5);
const MAX_SHORT_DELAYS: u32 = 8;

/// Says when. A runtime that says it has done what it has not must not be asked without end.
#[derive(Debug, Default)]
pub(super) struct Requeue {
    /// Syncs in a row that have done something.
    in_a_row: u32,
}

/// For how long.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequeueDelay {
    /// So long, whatever happens.
    Short(Duration),
    /// Until then, or until something happens.
    Until(Instant),
}

impl Requeue {
    /// After a sync of a pod.
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
                warn!(pod = pod.full_name(), "a pod was not synced: {error}");
                SYNC_RETRY_DELAY
            }
        };
        self.in_a_row = 0;
        RequeueDelay::Until(Instant::now() + wait.mul_f64(1.0 + JITTER * fastrand::f64()))
    }
}
