//! Looks once a second what has become of the containers and sandboxes of the node, and wakes the pods to which something has happened
//! (as the kubelet's PLEG).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

use super::cast::Cast;
use super::means::Means;
use crate::terminal::sanitize;

/// From the end of one look to the next.
const RELIST: Duration = Duration::from_secs(1);

/// Looks again and again.
pub(super) async fn run(means: Arc<Means>, cast: Arc<Cast>) {
    let mut is_told = false;
    loop {
        match means.list().await {
            Ok(mut records) => {
                is_told = false;
                means.condemned.keep(|id| records.values().any(|record| record.contains_key(id)));
                for (pod, signals) in cast.signals() {
                    if means.records.take(&pod, records.remove(&pod).unwrap_or_default()) {
                        signals.wake.notify_one();
                    }
                }
            }
            Err(status) => {
                if !std::mem::replace(&mut is_told, true) {
                    warn!("the runtime does not tell what is on the node: {}", sanitize(status.message()));
                }
            }
        }
        sleep(RELIST).await;
    }
}
