//! Pods as pod workers publish them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::pod_status::{ContainerStatusExt as _, PodStatusExt, terminate_pod};
use super::runtime_status::ContainerInstance;
use crate::manifest::ContainerKind;
use crate::manifest::pod::{Pod, StringMap};
use crate::redact::{path_without_query, without_queries};

/// Annotation with the time at which a pod was removed.
const REMOVED: &str = "probeshim.io/removed";

/// The state of a managed pod, as its pod worker published it last.
#[derive(Clone, Debug)]
pub struct PublishedPod {
    pub(super) pod: Arc<Pod>,
    /// Id of the newest sandbox.
    pub(super) sandbox: Option<String>,
    /// Status of the pod; `None` before the first sync.
    pub(super) status: Option<PodStatus>,
    /// Restart count of each container when it was first observed. The count may begin above 0,
    /// because logs of an earlier run count.
    pub(super) first_seen: BTreeMap<String, u32>,
    /// Attempt in the CRI metadata of each container in the status, by id.
    pub(super) attempts: BTreeMap<String, u32>,
    pub(super) started: SystemTime,
    pub(super) phase: WorkerPhase,
    /// Whether the manifest was removed or changed.
    pub(super) is_deleted: bool,
    /// Reason why the pod has failed, regardless of its containers.
    pub(super) failure: Option<FailureCause>,
    /// Time at which nothing remained of the pod. Its status is then final.
    pub(super) removed: Option<SystemTime>,
}

/// The phase of a pod worker (kubelet: `pod_workers.go`: `PodWorkerState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerPhase {
    /// The pod worker syncs the pod.
    Syncing,
    /// The pod worker stops the containers.
    Terminating,
    /// The containers have stopped, and the status is final.
    Terminated,
}

/// The reason why a pod has failed, regardless of its containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureCause {
    /// The pod exceeded its active deadline (`activeDeadlineSeconds`).
    Deadline,
    /// A container was killed for a failed probe and is not restarted.
    Killed,
}

impl PublishedPod {
    pub(super) fn new(pod: Arc<Pod>, started: SystemTime) -> Self {
        Self {
            pod,
            sandbox: None,
            status: None,
            first_seen: BTreeMap::new(),
            attempts: BTreeMap::new(),
            started,
            phase: WorkerPhase::Syncing,
            is_deleted: false,
            failure: None,
            removed: None,
        }
    }

    /// Returns the namespace and name of the pod.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.pod.namespace, &self.pod.name)
    }

    /// Returns the uid of the pod.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.pod.uid
    }

    /// Returns the labels of the pod.
    #[must_use]
    pub fn labels(&self) -> &StringMap {
        &self.pod.labels
    }

    /// Returns the id of the newest sandbox.
    #[must_use]
    pub fn sandbox(&self) -> Option<&str> {
        self.sandbox.as_deref()
    }

    /// Returns the time since which the pod is managed.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns the phase of the pod worker.
    #[must_use]
    pub fn phase(&self) -> WorkerPhase {
        self.phase
    }

    /// Returns the time at which nothing remained of the pod; `None` before that time.
    #[must_use]
    pub fn removed(&self) -> Option<SystemTime> {
        self.removed
    }

    /// Returns the highest number of restarts of one container since the pod was first synced.
    #[must_use]
    pub fn max_restarts(&self) -> u32 {
        let containers = self.status.iter().flat_map(PodStatusExt::containers);
        let since = |container: &ContainerStatus| {
            container.restarts().saturating_sub(self.first_seen.get(&container.name).copied().unwrap_or(0))
        };
        containers.map(since).max().unwrap_or(0)
    }

    /// Marks the pod as terminated, and makes its status final.
    pub(super) fn finish(&mut self) {
        self.phase = WorkerPhase::Terminated;
        let last_init = self.pod.init_containers().next_back();
        let has_sidecar_last = last_init.is_some_and(|it| it.spec.role == ContainerKind::Sidecar);
        if let Some(status) = &mut self.status {
            terminate_pod(status, has_sidecar_last);
        }
    }

    /// Returns the attempt in the CRI metadata of a container in the status. It differs from the
    /// restart count if a client has replaced the container.
    #[must_use]
    pub fn attempt(&self, container_id: &str) -> Option<u32> {
        self.attempts.get(container_id).copied()
    }

    /// Stores the status that a sync computed from these container instances. Attempts of
    /// containers that the runtime no longer has stay while they are in the status.
    pub(super) fn update(&mut self, status: PodStatus, instances: &[ContainerInstance]) {
        self.attempts.extend(instances.iter().map(|it| (it.id.to_string(), it.attempt)));
        self.attempts.retain(|id, _| status.containers().any(|container| container.runtime_id() == Some(id)));
        for container in status.containers().filter(|container| container.container_id.is_some()) {
            self.first_seen.entry(container.name.clone()).or_insert(container.restarts());
        }
        self.status = Some(status);
    }

    /// Returns whether the pod is to be terminated: its manifest was removed or changed, or a
    /// client has deleted the pod.
    #[must_use]
    pub fn is_unwanted(&self) -> bool {
        self.is_deleted
    }

    /// Returns whether the pod has failed, or a container was killed for a failed probe and is not
    /// restarted.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failure.is_some() || self.status.as_ref().is_some_and(|status| status.phase() == "Failed")
    }

    /// Returns whether the pod has ended and needs nothing of the node (kubelet: `isPodInactive`).
    pub(super) fn is_inactive(&self) -> bool {
        match self.phase {
            WorkerPhase::Syncing => self.status.as_ref().is_some_and(PodStatusExt::is_terminal),
            WorkerPhase::Terminating => false,
            WorkerPhase::Terminated => true,
        }
    }

    /// Returns the status of the pod; `None` before the first sync.
    #[must_use]
    pub fn status(&self) -> Option<&PodStatus> {
        self.status.as_ref()
    }

    /// Returns the pod as the kubelet of the node `node` has it.
    fn to_pod(&self, node: &str) -> corev1::Pod {
        let Pod { name, namespace, uid, labels, annotations, written_spec, .. } = &*self.pod;
        let mut annotations = annotations.clone();
        // This annotation repeats the whole manifest.
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if let Some(removed) = self.removed.and_then(|removed| Timestamp::try_from(removed).ok()) {
            annotations.insert(REMOVED.to_owned(), removed.to_string());
        }
        let non_empty = |texts: StringMap| Some(texts).filter(|texts| !texts.is_empty());
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: Some(uid.clone()),
            labels: non_empty(labels.clone()),
            annotations: non_empty(annotations),
            ..ObjectMeta::default()
        };
        let mut spec = corev1::PodSpec::clone(written_spec);
        // Defaults of fields that the manifest omits.
        spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
        spec.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
        let grace = self.pod.spec.termination_grace_period.map(Into::into);
        spec.termination_grace_period_seconds = spec.termination_grace_period_seconds.or(grace);
        // The pod runs on this node, even if the manifest names another.
        spec.node_name = Some(node.to_owned());
        let pending = || PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() };
        corev1::Pod { metadata, spec: Some(spec), status: Some(self.status.clone().unwrap_or_else(pending)) }
    }

    /// Returns the pod as the kubelet of the node `node` shows it in a list: without `apiVersion`
    /// and `kind`, which k8s-openapi would write. Values of environment variables and headers may
    /// be secret and are left out. `redacts` leaves out commands and query strings as well.
    pub(super) fn to_json(&self, node: &str, redacts: bool) -> Value {
        let corev1::Pod { metadata, spec, status } = self.to_pod(node);
        let (mut spec, mut status) = (json!(spec), json!(status));
        for list in ["initContainers", "containers"] {
            for container in elements(&mut spec, list) {
                for variable in elements(container, "env") {
                    variable.as_object_mut().and_then(|variable| variable.remove("value"));
                }
                redact(container, redacts);
            }
        }
        if redacts {
            redact_messages(&mut status);
        }
        insert_null_times(&mut status);
        json!({"metadata": metadata, "spec": spec, "status": status})
    }
}

/// Adds the missing times that Kubernetes writes as null: k8s-openapi omits them.
fn insert_null_times(status: &mut Value) {
    for condition in elements(status, "conditions") {
        insert_nulls(condition, &["lastProbeTime"]);
    }
    for list in ["initContainerStatuses", "containerStatuses"] {
        for container in elements(status, list) {
            for state in ["state", "lastState"] {
                if let Some(terminated) =
                    container.get_mut(state).and_then(|state| state.get_mut("terminated"))
                {
                    insert_nulls(terminated, &["startedAt", "finishedAt"]);
                }
            }
        }
    }
}

fn insert_nulls(value: &mut Value, fields: &[&str]) {
    let Some(object) = value.as_object_mut() else { return };
    for field in fields {
        object.entry(*field).or_insert(Value::Null);
    }
}

/// Removes the values of headers at any depth, and with `redacts` also commands and query strings.
fn redact(value: &mut Value, redacts: bool) {
    match value {
        Value::Object(object) => {
            for header in object.get_mut("httpHeaders").and_then(Value::as_array_mut).into_iter().flatten() {
                header.as_object_mut().and_then(|header| header.remove("value"));
            }
            if redacts {
                for field in ["command", "args"] {
                    object.remove(field);
                }
                let path = object.get_mut("httpGet").and_then(|http| http.get_mut("path"));
                if let Some(path) = path {
                    let redacted = path.as_str().map(|path| path_without_query(path).into_owned());
                    *path = redacted.into();
                }
            }
            object.values_mut().for_each(|inner| redact(inner, redacts));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| redact(inner, redacts)),
        _ => {}
    }
}

/// Removes query strings from the messages in a status.
fn redact_messages(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(message)) = object.get_mut("message") {
                *message = without_queries(message).into_owned();
            }
            object.values_mut().for_each(redact_messages);
        }
        Value::Array(list) => list.iter_mut().for_each(redact_messages),
        _ => {}
    }
}

fn elements<'a>(value: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}
