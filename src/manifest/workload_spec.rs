//! Workloads, and the pods that probeshim runs for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::manifest::cursor::{Cursor, Level, Violation};
use crate::manifest::pod::Pod;
use crate::manifest::reader::{pod, workload};
use crate::manifest::scale::Scale;
use crate::manifest::workload::{MAX_GENERATED_BASE, SUFFIX_LEN, WorkloadKind, encode};

/// Length of the hash of a template.
const TEMPLATE_HASH_LEN: usize = 10;

/// Variable with the index of a pod of an indexed job.
const COMPLETION_INDEX: &str = "JOB_COMPLETION_INDEX";

/// Label and annotation with the index of a pod of an indexed job.
const COMPLETION_INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// A workload that runs pods of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkloadSpec {
    pub(crate) kind: WorkloadKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) scale: Scale,
    /// Service that gives the pods of a `StatefulSet` their host names.
    service: Option<String>,
    /// Names of the claim templates of a `StatefulSet`.
    claims: Vec<String>,
    template: Arc<Value>,
    /// Hash of all that the pods depend on, except their number.
    hash: String,
    level: Level,
}

/// Position of a pod in its workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PodSlot {
    pub(crate) index: u32,
    /// Number of earlier pods with the same index, which this pod replaces.
    pub(crate) incarnation: u32,
    /// Number of names that would suit the pod and that other pods have.
    pub(crate) taken_names: u32,
}

impl WorkloadSpec {
    /// Creates a workload. `node` is its document, and `template` the template in it.
    pub(crate) fn new(
        kind: WorkloadKind,
        [namespace, name]: [&str; 2],
        scale: Scale,
        node: &Cursor<'_>,
        template: &Cursor<'_>,
    ) -> Self {
        let service = node.at(&["spec", "serviceName"]).and_then(|at| at.value().as_str());
        let service = service.filter(|name| !name.is_empty()).map(str::to_owned);
        let template = json!({"metadata": template.value()["metadata"], "spec": template.value()["spec"]});
        let is_indexed = matches!(&scale, Scale::Job(job) if job.is_indexed);
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            scale,
            hash: encode(&json!([template, service, is_indexed]).to_string(), TEMPLATE_HASH_LEN),
            service,
            claims: workload::claim_templates(Some(kind), node),
            template: Arc::new(template),
            level: if node.is_lenient() { Level::Lenient } else { Level::Strict },
        }
    }

    /// Returns kind, namespace and name.
    pub(crate) fn key(&self) -> (WorkloadKind, &str, &str) {
        (self.kind, &self.namespace, &self.name)
    }

    /// Returns `KIND NAMESPACE/NAME`, which distinguishes the workload from others.
    pub(crate) fn full_name(&self) -> String {
        format!("{} {}/{}", self.kind.name(), self.namespace, self.name)
    }

    /// Returns the hash of all that the pods depend on, except their number.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the slots of the pods that run at the same time if no pod ends.
    pub(crate) fn first_slots(&self) -> impl Iterator<Item = PodSlot> {
        let running = usize::try_from(self.scale.concurrent()).unwrap_or(usize::MAX);
        let mut names = BTreeSet::new();
        self.scale.indices().take(running).map(move |index| {
            let slot = self.free_slot(index, 0, &names);
            names.insert(self.pod_name(slot));
            slot
        })
    }

    /// Returns the slot of a new pod, whose name is not among those of the other pods.
    pub(crate) fn free_slot(&self, index: u32, incarnation: u32, names: &BTreeSet<String>) -> PodSlot {
        let mut slot = PodSlot { index, incarnation, taken_names: 0 };
        // A StatefulSet has one name for each index.
        while self.kind != WorkloadKind::StatefulSet && names.contains(&self.pod_name(slot)) {
            slot.taken_names += 1;
        }
        slot
    }

    /// Returns the name of a pod. Names other than those of a `StatefulSet` end with a suffix that
    /// depends on the template and the slot, where Kubernetes has a random one.
    pub(crate) fn pod_name(&self, slot: PodSlot) -> String {
        let Self { kind, name, hash, .. } = self;
        let base = match kind {
            WorkloadKind::StatefulSet => return format!("{name}-{}", slot.index),
            WorkloadKind::Pod => return name.clone(),
            WorkloadKind::Deployment => format!("{name}-{hash}-"),
            WorkloadKind::Job | WorkloadKind::CronJob if self.is_indexed() => {
                // The index stays when the name is too long.
                let index = format!("-{}-", slot.index);
                format!("{}{index}", prefix(&self.job_name(), MAX_GENERATED_BASE - index.len()))
            }
            WorkloadKind::Job | WorkloadKind::CronJob => format!("{}-", self.job_name()),
            WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController | WorkloadKind::DaemonSet => {
                format!("{name}-")
            }
        };
        let suffix = match slot.taken_names {
            0 => encode(&self.identity(slot), SUFFIX_LEN),
            taken => encode(&format!("{} {taken}", self.identity(slot)), SUFFIX_LEN),
        };
        format!("{}{suffix}", prefix(&base, MAX_GENERATED_BASE))
    }

    /// Returns the name of a job. That of a `CronJob` has the hash of its template, where
    /// Kubernetes has the time at which the job was to start.
    fn job_name(&self) -> String {
        let Self { kind, name, hash, .. } = self;
        if *kind == WorkloadKind::CronJob { format!("{name}-{hash}") } else { name.clone() }
    }

    /// Returns the uid of a pod.
    pub(crate) fn uid(&self, slot: PodSlot) -> String {
        pod::uid_from(&self.identity(slot))
    }

    /// Returns the uid that the job would have in a cluster.
    fn job_uid(&self) -> String {
        let Self { kind, namespace, hash, .. } = self;
        pod::uid_from(&format!("{} {namespace}/{} {hash}", kind.name(), self.job_name()))
    }

    /// Returns a text that identifies a pod among all pods of all workloads.
    fn identity(&self, slot: PodSlot) -> String {
        let PodSlot { index, incarnation, .. } = slot;
        format!("{} {} {index} {incarnation}", self.full_name(), self.hash)
    }

    /// Returns a pod. `None` would be a bug, because the reader of the document has read the first
    /// and the last pod without errors.
    pub(crate) fn pod(&self, slot: PodSlot) -> Option<Arc<Pod>> {
        // The reader of the document has reported what is unsupported.
        self.read_pod(slot, &mut Vec::new()).map(Arc::new)
    }

    /// Returns the errors of the pods that the template has not: those of names that depend on the
    /// name of the workload.
    pub(crate) fn name_problems(&self) -> Vec<Violation> {
        let mut problems = Vec::new();
        let last = self.scale.indices().next_back();
        for index in self.scale.indices().next().into_iter().chain(last) {
            self.read_pod(self.free_slot(index, 0, &BTreeSet::new()), &mut problems);
        }
        problems.retain(|problem| problem.is_error(true));
        problems.dedup();
        problems
    }

    fn read_pod(&self, slot: PodSlot, problems: &mut Vec<Violation>) -> Option<Pod> {
        let (document, name) = (self.document(slot), self.pod_name(slot));
        let root = Cursor::root("", &document).at_level(self.level);
        let pod = pod::read(&root, [&self.namespace, &name], &self.claims, problems)?;
        Some(Pod { has_controller: true, ..pod })
    }

    /// Returns the document of a pod: the template with what a controller adds to it.
    fn document(&self, slot: PodSlot) -> Value {
        let part = |field: &str| self.template[field].as_object().cloned().unwrap_or_default();
        let (mut metadata, mut spec) = (part("metadata"), part("spec"));
        metadata.insert("uid".to_owned(), self.uid(slot).into());
        self.complete_metadata(&mut metadata, slot);
        self.complete_spec(&mut spec, slot);
        json!({"metadata": metadata, "spec": spec})
    }

    /// Adds the labels and annotations that a controller adds to a pod.
    fn complete_metadata(&self, metadata: &mut Map<String, Value>, slot: PodSlot) {
        let (name, hash, index) = (&self.name, &self.hash, slot.index.to_string());
        let labels = match self.kind {
            WorkloadKind::Deployment => vec![("pod-template-hash", hash.clone())],
            WorkloadKind::DaemonSet => {
                vec![("controller-revision-hash", hash.clone()), ("pod-template-generation", "1".to_owned())]
            }
            WorkloadKind::StatefulSet => vec![
                ("controller-revision-hash", format!("{name}-{hash}")),
                ("statefulset.kubernetes.io/pod-name", self.pod_name(slot)),
                ("apps.kubernetes.io/pod-index", index.clone()),
            ],
            WorkloadKind::Job | WorkloadKind::CronJob => {
                let (name, uid) = (self.job_name(), self.job_uid());
                vec![
                    ("batch.kubernetes.io/job-name", name.clone()),
                    ("job-name", name),
                    ("batch.kubernetes.io/controller-uid", uid.clone()),
                    ("controller-uid", uid),
                ]
            }
            WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController | WorkloadKind::Pod => Vec::new(),
        };
        extend(metadata, "labels", &labels);
        if self.is_indexed() {
            for field in ["labels", "annotations"] {
                extend(metadata, field, &[(COMPLETION_INDEX_LABEL, index.clone())]);
            }
        }
    }

    /// Adds what a controller adds to the spec of a pod: the host name of a pod with an index, and
    /// the variable with its index.
    fn complete_spec(&self, spec: &mut Map<String, Value>, slot: PodSlot) {
        if self.kind == WorkloadKind::StatefulSet {
            spec.insert("hostname".to_owned(), self.pod_name(slot).into());
            // The service replaces a subdomain of the template, even if there is none
            // (`pkg/controller/statefulset/stateful_set_utils.go`: `initIdentity`).
            spec.insert("subdomain".to_owned(), self.service.clone().into());
        }
        if self.is_indexed() {
            spec.insert("hostname".to_owned(), format!("{}-{}", self.job_name(), slot.index).into());
            let path = format!("metadata.labels['{COMPLETION_INDEX_LABEL}']");
            let variable = json!({"name": COMPLETION_INDEX, "valueFrom": {"fieldRef": {"fieldPath": path}}});
            for list in ["initContainers", "containers"] {
                for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    add_variable(container, &variable);
                }
            }
        }
    }

    fn is_indexed(&self) -> bool {
        matches!(&self.scale, Scale::Job(job) if job.is_indexed)
    }
}

/// Adds a variable to a container that has no variable of this name.
fn add_variable(container: &mut Value, variable: &Value) {
    let Some(container) = container.as_object_mut() else { return };
    let env = container.entry("env").or_insert(Value::Null);
    if env.is_null() {
        *env = json!([]);
    }
    let Some(env) = env.as_array_mut() else { return };
    if env.iter().all(|known| known["name"] != variable["name"]) {
        env.push(variable.clone());
    }
}

/// Adds entries to a field that is an object, or absent.
fn extend(map: &mut Map<String, Value>, field: &str, entries: &[(&str, String)]) {
    let mut object = map.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    object.extend(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into())));
    map.insert(field.to_owned(), object.into());
}

/// Returns at most `max_len` characters of a name, which is ASCII.
fn prefix(name: &str, max_len: usize) -> &str {
    name.get(..max_len).unwrap_or(name)
}

#[cfg(test)]
mod tests;
