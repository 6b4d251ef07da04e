//! Actions on the pods that the built-in kubelet runs, for other modules.

use super::Kubelet;
use crate::manifest::pod::PodOrigin;
use crate::object_ref::PodRef;

impl Kubelet {
    /// Forces the termination of all pods that are terminating.
    pub fn force_terminate(&self) {
        for worker in self.pod_workers.lock().values() {
            worker.signals.force.cancel();
        }
    }

    /// Deletes a pod of a manifest: terminates it with this grace period in seconds, or else the
    /// pod's own. It stays deleted until its manifest changes, and a pod of a workload is
    /// replaced. Returns `false` if there is no such pod.
    #[must_use]
    pub fn delete(&self, pod: &PodRef, grace_period: Option<u32>) -> bool {
        let deleted = self.pod_workers.update(pod, |worker| {
            let pod = worker.pod.borrow().clone();
            let is_of_manifest = pod.origin == PodOrigin::Manifest;
            if is_of_manifest {
                let changed = worker.successors.iter().find(|next| next.full_name() == pod.full_name());
                self.pod_workers.deleted.add(changed.unwrap_or(&pod).clone());
                worker.request_termination(grace_period);
            }
            is_of_manifest
        });
        deleted.unwrap_or(false)
    }

    /// Wakes the worker of a pod for a sync.
    pub fn wake(&self, pod: &PodRef) {
        self.pod_workers.update(pod, |worker| worker.signals.sync.notify_one());
    }

    pub(super) fn wake_all(&self) {
        for worker in self.pod_workers.lock().values() {
            worker.signals.sync.notify_one();
        }
    }

    /// Called when a kubelet was seen to use the runtime. Pauses the built-in kubelet.
    pub fn on_kubelet_seen(&self) {
        if self.context.stores.kubelet_presence.observed() {
            self.context.record_paused();
        }
    }
}
