//! Finds orphaned pods (kubelet: `HandlePodCleanups`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::context::WorkerContext;
use super::pod_registry::orphan_pod;
use crate::cri::labels::{POD_NAME, POD_NAMESPACE, POD_UID};
use crate::manifest::pod::Pod;

/// Interval between requests to a runtime that does not respond.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Orphans: pods of an earlier run that are in no manifest.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Pods with a sandbox in the runtime.
    pub(super) running: Vec<Arc<Pod>>,
    /// Registered pods without a sandbox.
    pub(super) removed: Vec<Arc<Pod>>,
}

/// Finds orphans as soon as the runtime responds.
pub(super) async fn find_orphans(context: Arc<WorkerContext>, wanted: Vec<Arc<Pod>>) -> Orphans {
    let there = loop {
        match context.runtime.list_managed(&context.node.state).await {
            Ok(there) => break there,
            // The PLEG reports that the runtime does not respond.
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    };
    let mut seen = HashSet::new();
    let mut orphans = Orphans::default();
    for labels in there {
        let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
        let uid = label(POD_UID);
        if !wanted.iter().any(|pod| pod.uid == uid) && seen.insert(uid.to_owned()) {
            orphans.running.push(orphan_pod(label(POD_NAMESPACE), label(POD_NAME), uid));
        }
    }
    orphans.removed = context.stores.registry.not_desired(&wanted, |_| true);
    orphans.removed.retain(|pod| !seen.contains(&pod.uid) && !wanted.iter().any(|it| it.uid == pod.uid));
    orphans
}
