//! The pod lifecycle event generator: relists the containers and sandboxes of the node every
//! second, and wakes the pod workers with changes (kubelet: `pleg/generic.go`: `GenericPLEG`).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::context::WorkerContext;
use super::pod_workers::PodWorkers;
use super::runtime_clients::log_failure;

/// Interval from the end of one relist to the start of the next.
const RELIST_INTERVAL: Duration = Duration::from_secs(1);

/// Relists forever.
pub(super) async fn run(context: Arc<WorkerContext>, pod_workers: Arc<PodWorkers>) {
    let mut is_reported = false;
    loop {
        let started = Instant::now();
        match context.runtime.list_all().await {
            Ok(mut records) => {
                is_reported = false;
                context
                    .stores
                    .probe_killed
                    .retain(|id| records.values().any(|record| record.contains_key(id)));
                for (pod, signals) in pod_workers.senders() {
                    if context.pleg_cache.set(&pod, records.remove(&pod).unwrap_or_default()) {
                        signals.sync.notify_one();
                    }
                }
            }
            Err(status) => {
                is_reported = is_reported || log_failure(&status, "relist failed");
            }
        }
        // A failed relist counts too: the sync that follows reports the error of the runtime.
        context.pleg_cache.mark_relisted(started);
        sleep(RELIST_INTERVAL).await;
    }
}
