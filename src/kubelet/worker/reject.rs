//! Rejects a pod that the node cannot run.

use super::PodWorker;
use crate::kubelet::admission::Rejection;
use crate::kubelet::published_pod::PublishedPod;

impl PodWorker {
    /// Publishes that the pod has failed, and removes it once it is no longer desired. An earlier
    /// probeshim may have admitted the pod, and its containers are stopped (kubelet: `rejectPod`,
    /// `HandlePodCleanups`). Returns whether nothing of the pod is left.
    pub(super) async fn reject(&self, rejection: &Rejection) -> bool {
        self.record_event(None, rejection.event());
        self.published.send_modify(|published| {
            published.update(rejection.status(&self.pod, published.started), &[]);
        });
        if !self.context.stores.registry.is_new(&self.pod.uid) {
            return self.end().await;
        }
        self.published.send_modify(PublishedPod::finish);
        self.record_termination().await;
        self.cleanup().await
    }
}
