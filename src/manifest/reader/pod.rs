//! Reads a pod or a pod template.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::hex::hex;
use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod::{Container, Deletion, Pod, PodOrigin, RuntimeHandler};
use crate::manifest::pod_spec::{ContainerKind, ContainerSpec};
use crate::manifest::reader::container::{self, PodContext, UniqueNames};
use crate::manifest::reader::fields::{FieldSet, check_keys, list, object_name, required, text};
use crate::manifest::reader::hostname::hostname;
use crate::manifest::reader::namespaces::{self, PodNamespaces};
use crate::manifest::reader::placement::placement;
use crate::manifest::reader::spec::{SpecReading, read_spec};
use crate::manifest::reader::{file_volume, network, resources, security, volume, written};
use crate::manifest::source::Source;
use crate::manifest::validation::{POSITIVE, QUALIFIED_NAME, is_qualified_name};
use crate::manifest::workload::WorkloadKind;

const TEMPLATE: FieldSet =
    FieldSet { known: &["metadata", "spec"], ignored: &["apiVersion", "kind", "status"], unsupported: &[] };

const METADATA: FieldSet = FieldSet {
    known: &[
        "name",
        "namespace",
        "uid",
        "labels",
        "annotations",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ],
    ignored: &[
        "generateName",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "ownerReferences",
        "finalizers",
        "managedFields",
        "selfLink",
    ],
    unsupported: &[],
};

/// Reason why probeshim does not support resource claims.
const SCHEDULER: &str = "the scheduler of a cluster allocates resource claims";

const SPEC: FieldSet = FieldSet {
    known: &[
        "containers",
        "initContainers",
        "volumes",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostname",
        "subdomain",
        "setHostnameAsFQDN",
        "hostnameOverride",
        "readinessGates",
        "overhead",
        "resources",
        "hostAliases",
        "dnsPolicy",
        "dnsConfig",
        "securityContext",
        "runtimeClassName",
        "priorityClassName",
        "imagePullSecrets",
        "serviceAccountName",
        "serviceAccount",
        "hostUsers",
        "os",
        "nodeSelector",
        "affinity",
    ],
    ignored: &[
        "enableServiceLinks",
        "automountServiceAccountToken",
        "nodeName",
        "tolerations",
        "topologySpreadConstraints",
        "schedulerName",
        "priority",
        "preemptionPolicy",
        "schedulingGroup",
        "workloadRef",
    ],
    unsupported: &[
        (
            "ephemeralContainers",
            "the API server adds them to a running pod, and a kubelet refuses them in a file too",
        ),
        ("resourceClaims", SCHEDULER),
        (
            "schedulingGates",
            "a pod waits until a controller removes them, and a kubelet refuses them in a file",
        ),
    ],
};

const PULL_SECRET: FieldSet = FieldSet::only(&["name"]);

const READINESS_GATE: FieldSet = FieldSet::only(&["conditionType"]);

/// Priority class of pods that a node cannot do without.
const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";

/// Annotation with the source of a pod. The value `file` marks a static pod, which the API server
/// does not know.
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// Reports unknown fields of a template, and a restart policy that its kind of workload does not
/// allow.
pub(in crate::manifest) fn check_template(
    kind: Option<WorkloadKind>,
    template: &Cursor<'_>,
    problems: &mut Vec<Violation>,
) {
    TEMPLATE.check(template, problems);
    if let Some(kind) = kind {
        check_restart_policy(kind, template, problems);
    }
}

/// Reports unknown fields of metadata, and invalid labels, annotations and times.
pub(in crate::manifest) fn check_metadata(metadata: &Cursor<'_>, problems: &mut Vec<Violation>) {
    if metadata.object(problems).is_none() {
        return;
    }
    METADATA.check(metadata, problems);
    uid(metadata, problems);
    for (field, is_label) in [("labels", true), ("annotations", false)] {
        metadata.field(field).inspect(|texts| check_keys(texts, is_label, problems));
    }
    if let Some(at) = metadata.field("creationTimestamp") {
        let is_time = at.value().as_str().is_some_and(|text| text.parse::<Timestamp>().is_ok());
        if !is_time {
            at.error("must be a time, such as 2026-01-31T12:00:00Z", problems);
        }
    }
}

/// Reports restart policies `OnFailure` and `Never` in workloads whose pods do not end, and
/// `Always` in jobs.
fn check_restart_policy(kind: WorkloadKind, template: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let Some(spec) = template.field("spec").filter(|spec| spec.value().is_object()) else { return };
    // An empty text is the default.
    let policy = spec.field("restartPolicy").filter(|policy| policy.value() != "");
    let said = policy.as_ref().and_then(|policy| policy.value().as_str());
    let ends = matches!(kind, WorkloadKind::Job | WorkloadKind::CronJob);
    match (policy, said) {
        _ if kind == WorkloadKind::Pod => {}
        (None, _) if ends => {
            spec.missing("restartPolicy", "valid values: \"OnFailure\", \"Never\"", problems);
        }
        (Some(at), Some("Always")) if ends => at.unknown_value(&["OnFailure", "Never"], problems),
        (Some(at), Some("OnFailure" | "Never")) if !ends => at.unknown_value(&["Always"], problems),
        // `read_spec` reports other values.
        _ => {}
    }
}

/// Reads a pod or a pod template, and gives the pod this namespace and name. Returns `None` if
/// there are errors other than unsupported fields. Referenced objects are looked up when the pod
/// runs. `claims` are the names of the claim templates of its `StatefulSet`.
pub(in crate::manifest) fn read(
    pod: &Cursor<'_>,
    [namespace, name]: [&str; 2],
    claims: &[String],
    problems: &mut Vec<Violation>,
) -> Option<Pod> {
    let before = problems.len();
    // `field` treats absent and null alike.
    let metadata = pod.field("metadata");
    if let Some(metadata) = &metadata {
        check_metadata(metadata, problems);
    }
    let texts = |field: &str, problems: &mut Vec<Violation>| {
        let texts = metadata.as_ref().and_then(|metadata| metadata.field(field));
        texts.map(|texts| texts.map_of_texts(problems)).unwrap_or_default()
    };
    // `document` has reported errors in labels.
    let labels = texts("labels", &mut Vec::new());
    let annotations = texts("annotations", problems);
    let deletion = metadata.as_ref().and_then(|metadata| deletion(metadata, problems));
    // `document` has reported a uid that is not a string.
    let own_uid = metadata.as_ref().and_then(|metadata| text(metadata, "uid", &mut Vec::new()));
    let Some(spec) = pod.field("spec") else {
        pod.missing("spec", "", problems);
        return None;
    };
    let SpecReading { spec: pod_spec, containers: nodes } = read_spec(pod, &spec, Source::Manifest, problems);
    SPEC.check(&spec, problems);
    if let Some(metadata) = &metadata {
        security::check_apparmor_annotations(metadata, &pod_spec, problems);
    }
    let volumes = volume::volumes(&spec, &pod_spec, claims, problems);
    let PodNamespaces { host, shares_processes, has_user_namespace } = namespaces::read(&spec, problems);
    service_account(&spec, problems);
    let around =
        PodContext { spec: &pod_spec, volumes: &volumes, is_host_network: host.network, has_user_namespace };
    let containers = containers(nodes, &around, problems);
    let is_list = spec.field("containers").is_none_or(|list| list.value().is_array());
    if spec.value().is_object() && is_list && list(&spec, "containers", &mut Vec::new()).is_empty() {
        spec.missing("containers", "", problems);
    }
    let hostname = hostname(&spec, host.network, problems);
    let readiness_gates = readiness_gates(&spec, problems);
    let overhead = spec.field("overhead").map(|at| resources::amounts(&at, problems));
    let resources = resources::of_pod(&spec, &containers, problems);
    let deadline = spec.field("activeDeadlineSeconds");
    let active_deadline = deadline.and_then(|at| at.number(1..=i32::MAX.into(), POSITIVE, problems));
    let host_aliases = network::host_aliases(&spec, problems);
    let dns = network::dns(&spec, problems);
    let security = security::read_pod_security(&spec, problems);
    let placement = placement(&spec, problems);
    let runtime_class = object_name(&spec, "runtimeClassName", problems);
    let is_node_critical = is_node_critical(&spec, problems);
    let pull_secrets = pull_secrets(&spec, problems);
    if problems[before..].iter().any(|problem| problem.is_error(true)) {
        return None;
    }
    let written_spec = written::pod_spec(&spec, problems)?;
    let manifest = json!({"metadata": pod.value()["metadata"], "spec": pod.value()["spec"]});
    let mut pod = Pod {
        origin: PodOrigin::Manifest,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: own_uid.unwrap_or_else(|| uid_from(&format!("{namespace}/{name}\n{manifest}"))),
        labels,
        annotations,
        spec: Arc::new(pod_spec),
        containers,
        volumes: volumes.there,
        host,
        shares_processes,
        has_user_namespace,
        hostname,
        host_aliases,
        dns,
        security,
        placement,
        readiness_gates,
        overhead,
        resources,
        active_deadline,
        deletion,
        runtime_handler: runtime_class.map_or_else(RuntimeHandler::default, RuntimeHandler::OfClass),
        is_node_critical,
        has_controller: false,
        pull_secrets,
        written_spec: Arc::new(written_spec),
    };
    // The kubelet adds these annotations to pods from files (`config/config.go`,
    // `config/common.go`). The hash is the uid, also one that the manifest has.
    pod.annotations.insert(CONFIG_SOURCE.to_owned(), "file".to_owned());
    pod.annotations.insert("kubernetes.io/config.hash".to_owned(), pod.uid.clone());
    Some(pod)
}

/// Reads the containers of a pod: init containers and sidecars, then regular containers.
fn containers(
    nodes: Vec<(Cursor<'_>, Arc<ContainerSpec>)>,
    context: &PodContext<'_>,
    problems: &mut Vec<Violation>,
) -> Vec<Arc<Container>> {
    let (mut containers, mut taken) = (Vec::new(), UniqueNames::default());
    let (regular, init): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|(_, spec)| spec.role == ContainerKind::Regular);
    let mut read = |node: &Cursor<'_>, spec, taken: &mut UniqueNames| {
        containers.extend(container::read(node, spec, context, taken, problems).map(Arc::new));
    };
    for (node, spec) in init {
        read(&node, spec, &mut taken);
        // The API server checks the host ports of an init container against its own only.
        taken.host_ports.clear();
    }
    for (node, spec) in regular {
        read(&node, spec, &mut taken);
    }
    containers
}

/// Reads the deletion of a pod, which is unsupported in a manifest that a person wrote.
fn deletion(metadata: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<Deletion> {
    let [since, seconds] =
        ["deletionTimestamp", "deletionGracePeriodSeconds"].map(|name| metadata.field(name));
    if !metadata.is_lenient() {
        for at in since.iter().chain(&seconds) {
            at.unsupported("the pod is being deleted", problems);
        }
        return None;
    }
    let grace_period = seconds.and_then(|at| at.non_negative(problems));
    since.map(|_| Deletion { grace_period })
}

/// Reports a uid that cannot be the name of a directory.
fn uid(metadata: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_uid =
        |text: &str| (1..=128).contains(&text.len()) && text.bytes().all(is_known) && !text.starts_with('.');
    let uid = metadata.field("uid");
    if let Some(at) = uid.filter(|at| at.value().as_str().is_some_and(|text| !is_uid(text))) {
        at.error(
            "must consist of alphanumeric characters, '-', '_' or '.', must not start with '.', and must be no more than 128 characters",
            problems,
        );
    }
}

/// Returns the uid of a pod without one in its manifest: the hash of a text that distinguishes the
/// pod from others, and from earlier versions of its manifest.
pub(in crate::manifest) fn uid_from(text: &str) -> String {
    hex(&Sha256::digest(text)[..16])
}

/// Reports a service account other than the default one. A pod runs without it.
fn service_account(spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    // `serviceAccount` is the earlier name of the field, which an API server fills in, too.
    let accounts =
        ["serviceAccountName", "serviceAccount"].map(|field| (field, object_name(spec, field, problems)));
    let named = accounts.iter().find(|(_, name)| name.as_deref().is_some_and(|name| name != "default"));
    if let Some(at) = named.and_then(|(field, _)| spec.field(field)) {
        problems.push(at.repeated_remark(file_volume::SERVICE_ACCOUNTS));
    }
}

/// Reads the types of the conditions on which the readiness of the pod depends as well.
fn readiness_gates(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<String> {
    let mut types = Vec::new();
    for node in list(spec, "readinessGates", problems) {
        READINESS_GATE.check(&node, problems);
        let Some(condition) = required(&node, "conditionType", "", problems) else { continue };
        if !is_qualified_name(&condition) {
            node.field("conditionType").inspect(|at| at.error(QUALIFIED_NAME, problems));
        }
        types.push(condition);
    }
    types
}

/// Returns whether a pod has the priority class of node-critical pods. For a static pod, and for a
/// pod that an API server admitted, the class alone decides (kubelet: `types/pod_update.go`:
/// `IsNodeCriticalPod`).
fn is_node_critical(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> bool {
    let class = object_name(spec, "priorityClassName", problems);
    class.as_deref() == Some(SYSTEM_NODE_CRITICAL)
}

fn pull_secrets(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Vec<String> {
    let mut names = Vec::new();
    for node in list(spec, "imagePullSecrets", problems) {
        PULL_SECRET.check(&node, problems);
        // The API server accepts an empty name, and the kubelet ignores it.
        names.extend(text(&node, "name", problems));
    }
    names
}
