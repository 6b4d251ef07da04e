//! A workload whose pods a command means, written KIND/NAME as in kubectl.

use std::collections::BTreeMap;

use crate::admin::api::StatusPod;
use crate::manifest::{Workload, WorkloadKind};

/// A workload by which a command refers to its pods.
#[derive(Debug)]
pub(super) struct WorkloadArg<'a> {
    kind: WorkloadKind,
    name: &'a str,
}

impl<'a> WorkloadArg<'a> {
    /// Reads `KIND/NAME`, where the kind is one of the names that kubectl knows, such as `deploy`
    /// or `deployment.apps`. Returns `None` for another text.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (kind, name) = text.split_once('/')?;
        let kind = kind.split_once('.').map_or(kind, |(kind, _)| kind).to_ascii_lowercase();
        let kind = match kind.as_str() {
            "deployment" | "deployments" | "deploy" => WorkloadKind::Deployment,
            "replicaset" | "replicasets" | "rs" => WorkloadKind::ReplicaSet,
            "replicationcontroller" | "replicationcontrollers" | "rc" => WorkloadKind::ReplicationController,
            "statefulset" | "statefulsets" | "sts" => WorkloadKind::StatefulSet,
            "daemonset" | "daemonsets" | "ds" => WorkloadKind::DaemonSet,
            "job" | "jobs" => WorkloadKind::Job,
            "cronjob" | "cronjobs" | "cj" => WorkloadKind::CronJob,
            _ => return None,
        };
        Some(Self { kind, name })
    }

    /// Returns whether a pod exists whose name its controller would generate.
    pub(super) fn has(&self, pod: &StatusPod) -> bool {
        let workload = Workload {
            kind: self.kind,
            namespace: pod.namespace.clone().unwrap_or_default(),
            name: self.name.to_owned(),
            is_generated: false,
            uid: None,
            labels: BTreeMap::new(),
        };
        pod.removed.is_none() && pod.name.as_deref().is_some_and(|name| workload.owns_name(name))
    }
}
