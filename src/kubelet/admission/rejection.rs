//! Rejection of a pod that the node cannot run.

use std::time::SystemTime;

use k8s_openapi::api::core::v1::PodStatus;

use crate::events::Event;
use crate::kubelet::pod_status::time_of;
use crate::manifest::pod::Pod;

/// Reason why a pod is not admitted. Reason and message are the kubelet's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubelet) struct Rejection {
    reason: &'static str,
    message: String,
}

impl Rejection {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Returns the event of the rejection (kubelet: `kubelet.go`: `rejectPod`).
    pub(in crate::kubelet) fn event(&self) -> Event {
        Event::warning(self.reason, self.message.clone())
    }

    /// Returns the status of a rejected pod, which is final (kubelet: `kubelet.go`: `rejectPod`).
    pub(in crate::kubelet) fn status(&self, pod: &Pod, started: SystemTime) -> PodStatus {
        PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(self.reason.to_owned()),
            message: Some(format!("Pod was rejected: {}", self.message)),
            qos_class: Some(pod.qos().name().to_owned()),
            start_time: time_of(started),
            ..PodStatus::default()
        }
    }
}
