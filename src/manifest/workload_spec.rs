//! Workloads, and the pods that probeshim runs for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::manifest::cursor::{Cursor, Level, Violation};
use crate::manifest::pod::Pod;
use crate::manifest::reader::pod;
use crate::manifest::scale::Scale;
use crate::manifest::workload::{MAX_GENERATED_BASE, WorkloadKind};

/// Characters of generated names (`apimachinery/pkg/util/rand/rand.go`). Without vowels, they form
/// no words.
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Length of the suffix that distinguishes the pods of a workload.
const SUFFIX_LEN: usize = 5;

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
    /// Creates a workload. `workload` is its document, and `template` the template in it.
    pub(crate) fn new(
        kind: WorkloadKind,
        [namespace, name]: [&str; 2],
        scale: Scale,
        workload: &Cursor<'_>,
        template: &Cursor<'_>,
    ) -> Self {
        let service = workload.at(&["spec", "serviceName"]).and_then(|at| at.value().as_str());
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
            template: Arc::new(template),
            level: if workload.is_lenient() { Level::Lenient } else { Level::Strict },
        }
    }

    /// Returns kind, namespace and name.
    pub(crate) fn key(&self) -> (WorkloadKind, &str, &str) {
        (self.kind, &self.namespace, &self.name)
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
        let Self { kind, namespace, name, hash, .. } = self;
        let PodSlot { index, incarnation, .. } = slot;
        format!("{} {namespace}/{name} {hash} {index} {incarnation}", kind.name())
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
        problems.retain(|problem| !problem.is_unsupported);
        problems.dedup();
        problems
    }

    fn read_pod(&self, slot: PodSlot, problems: &mut Vec<Violation>) -> Option<Pod> {
        let (document, name) = (self.document(slot), self.pod_name(slot));
        let root = Cursor::root("", &document).at_level(self.level);
        let pod = pod::read(&root, &self.namespace, &name, problems)?;
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

/// Returns the first characters of a text's hash, as they occur in generated names.
fn encode(text: &str, len: usize) -> String {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(len)
        .map(|byte| char::from(NAME_CHARACTERS[usize::from(*byte) % NAME_CHARACTERS.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::pod::{EnvField, VariableValue};
    use crate::manifest::reader::tests::{play, pod_set};
    use crate::manifest::scale::JobSpec;

    fn workload(kind: &str, of_workload: &str) -> Arc<WorkloadSpec> {
        let text = format!(
            "{{kind: {kind}, metadata: {{name: web}}, spec: {{{of_workload} \
             template: {{metadata: {{labels: {{app: a}}}}, spec: {{restartPolicy: Never, containers: [{{name: main, image: i}}]}}}}}}}}"
        );
        let always = text.replace("restartPolicy: Never, ", "");
        pod_set(if kind == "Job" { &text } else { &always }).unwrap().workloads.remove(0)
    }

    #[test]
    fn a_pod_has_the_name_and_labels_that_the_controller_of_its_workload_gives() {
        let slot = PodSlot { index: 2, incarnation: 0, taken_names: 0 };
        for (kind, of_workload, name, label, value) in [
            ("Deployment", "replicas: 3,", "web-xnqlnlpw27-", "pod-template-hash", "xnqlnlpw27"),
            ("ReplicaSet", "replicas: 3,", "web-", "app", "a"),
            ("ReplicationController", "replicas: 3, selector: {app: a},", "web-", "app", "a"),
            ("DaemonSet", "", "web-", "controller-revision-hash", "xnqlnlpw27"),
            ("StatefulSet", "replicas: 3,", "web-2", "statefulset.kubernetes.io/pod-name", "web-2"),
            ("StatefulSet", "replicas: 3,", "web-2", "apps.kubernetes.io/pod-index", "2"),
            ("Job", "completions: 3,", "web-", "batch.kubernetes.io/job-name", "web"),
            ("DaemonSet", "", "web-", "pod-template-generation", "1"),
            ("Job", "completions: 3, completionMode: Indexed,", "web-2-", COMPLETION_INDEX_LABEL, "2"),
        ] {
            let workload = workload(kind, of_workload);
            let pod = workload.pod(slot).unwrap();
            assert!(pod.name.starts_with(name), "{kind}: {}", pod.name);
            assert_eq!(pod.labels.get(label).map(String::as_str), Some(value), "{kind}: {:?}", pod.labels);
            assert_eq!((&pod.labels["app"], &pod.uid), (&"a".to_owned(), &workload.uid(slot)));
            let again = workload.pod(PodSlot { incarnation: 1, ..slot }).unwrap();
            assert_ne!(again.uid, pod.uid);
            assert_eq!(again.name == pod.name, kind == "StatefulSet");
            let owner = crate::manifest::Workload {
                kind: workload.kind,
                namespace: String::new(),
                name: "web".to_owned(),
                uid: None,
                labels: std::collections::BTreeMap::new(),
            };
            assert!(owner.owns_name(&pod.name), "probes of the manifest apply to {}", pod.name);
        }
    }

    #[test]
    fn pods_with_an_index_know_it_by_host_name_and_variable() {
        let slot = PodSlot { index: 1, incarnation: 0, taken_names: 0 };
        let stateful = workload("StatefulSet", "replicas: 2, serviceName: peers,").pod(slot).unwrap();
        let hostname = (stateful.hostname.hostname.as_deref(), stateful.hostname.subdomain.as_deref());
        assert_eq!(hostname, (Some("web-1"), Some("peers")));
        let indexed = "completions: 2, completionMode: Indexed,";
        let job = workload("Job", indexed).pod(slot).unwrap();
        assert_eq!(job.hostname.hostname.as_deref(), Some("web-1"));
        let index = EnvField::Label(COMPLETION_INDEX_LABEL.to_owned());
        assert_eq!(job.containers[0].env[0].value, VariableValue::Field(index));
    }

    #[test]
    fn a_generated_name_has_at_most_63_characters() {
        let text = format!(
            "{{kind: ReplicaSet, metadata: {{name: {}}}, spec: {{template: {{spec: {{containers: [{{name: a, image: i}}]}}}}}}}}",
            "n".repeat(70)
        );
        let slot = PodSlot { index: 0, incarnation: 0, taken_names: 0 };
        let mut workload = WorkloadSpec::clone(&pod_set(&text).unwrap().workloads[0]);
        assert_eq!(workload.pod_name(slot).len(), 63);
        let job = JobSpec {
            completions: Some(1),
            parallelism: 1,
            backoff_limit: 0,
            is_indexed: true,
            active_deadline: None,
            is_suspended: false,
            may_start: true,
        };
        (workload.kind, workload.scale) = (WorkloadKind::Job, Scale::Job(job));
        let name = workload.pod_name(slot);
        assert!(name.len() == 63 && name.contains("n-0-"), "{name}");
    }

    #[test]
    fn a_job_of_a_cron_job_has_one_name() {
        let text = "{kind: CronJob, metadata: {name: web}, spec: {jobTemplate: {spec: {completions: 2, \
                    completionMode: Indexed, template: {spec: {restartPolicy: Never, containers: \
                    [{name: main, image: i}]}}}}}}";
        let workload = pod_set(text).unwrap().workloads.remove(0);
        let pod = workload.pod(PodSlot { index: 1, incarnation: 0, taken_names: 0 }).unwrap();
        let job = format!("web-{}", workload.hash());
        assert_eq!(pod.labels["job-name"], job);
        assert_eq!(pod.hostname.hostname.as_deref(), Some(format!("{job}-1").as_str()));
        assert!(pod.name.starts_with(&format!("{job}-1-")), "{}", pod.name);
        assert_eq!(pod.labels["controller-uid"], pod.labels["batch.kubernetes.io/controller-uid"]);
    }

    #[test]
    fn a_workload_whose_name_its_pods_cannot_have_is_refused() {
        let long = "n".repeat(64);
        let label = "a lowercase RFC 1123 label must consist of";
        for (kind, name, fields, expected) in [
            ("StatefulSet", "my.db", "", label),
            ("StatefulSet", &long[..52], "", ""),
            ("StatefulSet", &long[..53], "", "the StatefulSet would create an invalid pod: metadata.labels"),
            ("StatefulSet", "db", "serviceName: my.svc,", label),
            ("Job", "my.job", "", ""),
            ("Job", "my.job", "completions: 1, completionMode: Indexed,", "invalid pod: spec.hostname"),
            ("Job", &long[..63], "", ""),
            ("Job", &long, "", "the Job would create an invalid pod: metadata.labels"),
            ("Deployment", &long, "", ""),
        ] {
            let policy = if kind == "Job" { "restartPolicy: Never," } else { "" };
            let text = format!(
                "{{kind: {kind}, metadata: {{name: {name}}}, spec: {{{fields} template: {{spec: {{{policy} \
                 containers: [{{name: a, image: i}}]}}}}}}}}"
            );
            match play(&text) {
                Ok(_) => assert_eq!(expected, "", "{kind} {name}"),
                Err(problems) => {
                    let is_expected = problems.iter().all(|it| it.contains(expected));
                    assert!(!expected.is_empty() && is_expected, "{kind} {name}: {problems:?}");
                }
            }
        }
        let text = format!(
            "{{kind: CronJob, metadata: {{name: {}}}, spec: {{jobTemplate: {{spec: {{template: {{spec: \
             {{restartPolicy: Never, containers: [{{name: a, image: i}}]}}}}}}}}}}}}",
            &long[..53]
        );
        assert!(play(&text).unwrap_err()[0].ends_with("must be no more than 52 characters"));
    }

    #[test]
    fn a_pod_with_the_name_of_a_pod_of_a_workload_is_a_conflict() {
        let spec = "spec: {containers: [{name: a, image: i}]}";
        let text = |count: u32| {
            format!(
                "{{kind: Pod, metadata: {{name: db-1}}, {spec}}}\n---\n\
                 {{kind: StatefulSet, metadata: {{name: db}}, spec: {{replicas: {count}, template: {{{spec}}}}}}}"
            )
        };
        assert_eq!(play(&text(2)).unwrap_err(), ["doc 2: Pod default/db-1 already exists in doc 1"]);
        let set = pod_set(&text(1)).unwrap();
        assert_eq!((set.count(), set.is_empty()), (2, false));
        assert!(!pod_set(&text(0)).unwrap().is_empty(), "a workload without pods is a workload");
    }

    #[test]
    fn invalid_numbers_of_pods_are_refused() {
        let template = "template: {metadata: {labels: {a: b}}, spec: {restartPolicy: R, containers: [{name: a, image: i}]}}";
        for (kind, fields, expected) in [
            ("Deployment", "replicas: -1", "spec.replicas: Invalid value: -1: must be an integer between 0"),
            (
                "Deployment",
                "replicas: 1001",
                "spec.replicas: Unsupported by probeshim: 1001: probeshim runs at most 1000 pods",
            ),
            ("Deployment", "replica: 1", "unknown field \"spec.replica\", did you mean \"replicas\"?"),
            (
                "Deployment",
                "selector: {matchLabels: {a: c}}",
                "spec.selector.matchLabels: Invalid value: an object with a: `selector` does not match template `labels`",
            ),
            (
                "Deployment",
                "strategy: {type: Rolling}",
                "spec.strategy.type: Unsupported value: \"Rolling\": supported values: \"Recreate\", \"RollingUpdate\"",
            ),
            ("DaemonSet", "updateStrategy: {type: Recreate}", "spec.updateStrategy.type: Unsupported value"),
            (
                "StatefulSet",
                "podManagementPolicy: Any",
                "spec.podManagementPolicy: Unsupported value: \"Any\"",
            ),
            (
                "StatefulSet",
                "volumeClaimTemplates: [{}]",
                "spec.volumeClaimTemplates: Unsupported by probeshim: requires the storage of a cluster",
            ),
            (
                "Job",
                "completionMode: Indexed, parallelism: 2",
                "spec.completions: Required value: when completion mode is Indexed",
            ),
            (
                "Job",
                "podFailurePolicy: {rules: []}",
                "spec.podFailurePolicy: Unsupported by probeshim: probeshim ends a job by its completions",
            ),
        ] {
            let policy = if kind == "Job" { "Never" } else { "Always" };
            let template = template.replace("Policy: R", &format!("Policy: {policy}"));
            let text = format!("{{kind: {kind}, metadata: {{name: w}}, spec: {{{fields}, {template}}}}}");
            let problems = play(&text).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(expected), "{fields}: {problems:?}");
        }
    }
}
