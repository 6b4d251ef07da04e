//! How a pod that is played stands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as corev1;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::pod_status::{ContainerStatusExt as _, PodStatusExt, terminate_pod};
use crate::manifest::ContainerKind;
use crate::manifest::pod::{Pod, StringMap};
use crate::redact::{path_without_query, without_queries};

/// Annotation with the time at which a pod was removed.
const REMOVED: &str = "probeshim.io/removed";

/// How a pod stands.
#[derive(Clone, Debug)]
pub struct PublishedPod {
    pub(super) pod: Arc<Pod>,
    /// Its newest sandbox.
    pub(super) sandbox: Option<String>,
    /// `None` before it was looked at for the first time.
    pub(super) status: Option<PodStatus>,
    /// What the restarts of its containers were counted as when they were seen first: logs of earlier times count.
    pub(super) first_seen: BTreeMap<String, u32>,
    pub(super) started: SystemTime,
    pub(super) phase: WorkerPhase,
    /// Its manifest is gone, or says something else.
    pub(super) is_deleted: bool,
    /// Why it has failed, whatever its containers say.
    pub(super) failure: Option<FailureCause>,
    /// When nothing was left of it: its status is final.
    pub(super) removed: Option<SystemTime>,
}

/// The phase of a pod worker (kubelet: `pod_workers.go`: `PodWorkerState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerPhase {
    /// The pod is set up and kept running.
    Syncing,
    /// Its containers are being stopped.
    Terminating,
    /// They have stopped: its status is final.
    Terminated,
}

/// Why a pod has failed, whatever its containers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureCause {
    /// It has run for too long.
    Deadline,
    /// A probe has had a container killed that is not started again.
    Killed,
}

impl PublishedPod {
    pub(super) fn new(pod: Arc<Pod>, started: SystemTime) -> Self {
        let (sandbox, status, first_seen, failure) = (None, None, BTreeMap::new(), None);
        let phase = WorkerPhase::Syncing;
        Self { pod, sandbox, status, first_seen, started, phase, is_deleted: false, failure, removed: None }
    }

    /// Its namespace and name.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.pod.namespace, &self.pod.name)
    }

    /// Its uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.pod.uid
    }

    /// Its newest sandbox.
    #[must_use]
    pub fn sandbox(&self) -> Option<&str> {
        self.sandbox.as_deref()
    }

    /// Since when it is played.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns the phase of its worker.
    #[must_use]
    pub fn phase(&self) -> WorkerPhase {
        self.phase
    }

    /// Returns when nothing was left of the pod, if its final status is shown.
    #[must_use]
    pub fn removed(&self) -> Option<SystemTime> {
        self.removed
    }

    /// How often the one of its containers has been restarted that has been most often, since it is played.
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

    /// Takes what it was found to be.
    pub(super) fn update(&mut self, status: PodStatus) {
        for container in status.containers().filter(|container| container.container_id.is_some()) {
            self.first_seen.entry(container.name.clone()).or_insert(container.restarts());
        }
        self.status = Some(status);
    }

    /// Whether its manifest is gone, or says something else: it is on its way out.
    #[must_use]
    pub fn is_unwanted(&self) -> bool {
        self.is_deleted
    }

    /// Whether it has failed, or a probe has had a container killed that is not started again.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failure.is_some() || self.status.as_ref().is_some_and(|status| status.phase() == "Failed")
    }

    /// Its status, once it was looked at.
    #[must_use]
    pub fn status(&self) -> Option<&PodStatus> {
        self.status.as_ref()
    }

    /// Returns the pod as the kubelet of a node has it.
    fn to_pod(&self, node: &str) -> corev1::Pod {
        let Pod { name, namespace, uid, labels, annotations, written_spec, .. } = &*self.pod;
        let mut annotations = annotations.clone();
        // It says all of it once more.
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
        // What was not written, and counts.
        spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
        spec.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
        let grace = self.pod.spec.termination_grace_period.map(Into::into);
        spec.termination_grace_period_seconds = spec.termination_grace_period_seconds.or(grace);
        // Wherever it was to be, it is here.
        spec.node_name = Some(node.to_owned());
        let pending = || PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() };
        corev1::Pod { metadata, spec: Some(spec), status: Some(self.status.clone().unwrap_or_else(pending)) }
    }

    /// Returns the pod as the kubelet of a node shows it in a list: without apiVersion and kind, which k8s-openapi would write. Values of variables
    /// and headers are for nobody else, and are left out. `redacts` leaves out commands and query strings as well.
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

/// Writes missing times as null where Kubernetes does: k8s-openapi leaves them out.
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

/// Leaves out, wherever they are, values of headers, and commands and query strings where that is wanted.
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

/// Leaves out query strings of the messages in a status.
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
