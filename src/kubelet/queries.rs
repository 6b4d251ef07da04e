//! Reads the status of pods, for other modules.

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::Value;
use tokio::sync::watch;

use super::pod_workers::PodWorkerHandle;
use super::published_pod::PublishedPod;
use super::workload_status::WorkloadStatus;
use super::{Kubelet, cri_config, pod_dir};
use crate::manifest::GRACE_PERIOD;
use crate::object_ref::PodRef;

impl Kubelet {
    /// Returns the longest grace period of all pods.
    #[must_use]
    pub fn max_grace_period(&self) -> Duration {
        let workers = self.pod_workers.lock();
        let periods = workers
            .values()
            .map(|worker| worker.pod.borrow().spec.termination_grace_period.unwrap_or(GRACE_PERIOD));
        Duration::from_secs(periods.max().unwrap_or(0).into())
    }

    /// Returns the status of all pods, by namespace and name, then the final status of the pods
    /// that were removed in the last five minutes.
    #[must_use]
    pub fn published_pods(&self) -> Vec<PublishedPod> {
        let workers = self.pod_workers.lock();
        let mut pods: Vec<PublishedPod> = workers.values().map(PodWorkerHandle::published).collect();
        // A worker that ends meanwhile is listed once, because the lock is held.
        pods.extend(self.pod_workers.terminated.all());
        pods
    }

    /// Returns the status of each workload of the manifests.
    #[must_use]
    pub fn workloads(&self) -> Vec<WorkloadStatus> {
        self.pod_workers.workloads()
    }

    /// Returns all pods in the form of the kubelet's `/pods`.
    #[must_use]
    pub fn to_json(&self) -> Vec<Value> {
        let redacts = self.context.executor.redacts();
        let node = &self.context.node.name;
        self.published_pods().iter().map(|published| published.to_json(node, redacts)).collect()
    }

    /// Returns the last lines of a container's log, at most `count`: of the newest instance, or of
    /// the one before if that has written nothing.
    #[must_use]
    pub fn last_log_lines(&self, pod: &PublishedPod, status: &ContainerStatus, count: usize) -> Vec<String> {
        let dir = cri_config::log_dir(&pod.pod, &self.context.node.logs).join(&status.name);
        // The number of a log is the attempt, which is below the restart count if a client removed
        // a container with its log.
        let files = fs::read_dir(&dir).into_iter().flatten().flatten();
        let attempt = |name: &OsStr| name.to_str()?.strip_suffix(".log")?.parse::<u32>().ok();
        let Some(newest) = files.filter_map(|file| attempt(&file.file_name())).max() else {
            return Vec::new();
        };
        let logs = [Some(newest), newest.checked_sub(1)].into_iter().flatten();
        let mut lines = logs.map(|attempt| pod_dir::last_lines(&dir.join(format!("{attempt}.log")), count));
        lines.find(|lines| !lines.is_empty()).unwrap_or_default()
    }

    /// Returns a receiver that is notified when the status of a pod changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.pod_workers.changed.subscribe()
    }

    /// Whether a client has deleted pods whose manifests have not changed since.
    #[must_use]
    pub fn has_deleted_pods(&self) -> bool {
        self.pod_workers.deleted.is_any()
    }

    /// Whether a pod has a worker.
    #[must_use]
    pub fn manages(&self, pod: &PodRef) -> bool {
        self.pod_workers.update(pod, |_| ()).is_some()
    }

    /// Whether the built-in kubelet starts and stops nothing, because a kubelet uses the runtime.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.context.stores.kubelet_presence.is_active()
    }
}
