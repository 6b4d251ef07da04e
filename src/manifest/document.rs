//! Reads the objects of a Kubernetes manifest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::manifest::config_object::ConfigObject;
use crate::manifest::cursor::{Cursor, Level, Violation};
use crate::manifest::object_identity::{DEFAULT_NAMESPACE, check_kind, custom_group, owner};
use crate::manifest::pod::Pod;
use crate::manifest::pod_spec::PodSpec;
use crate::manifest::reader::fields::{FieldSet, check_api_version};
use crate::manifest::reader::{config_object, pod, spec, workload};
use crate::manifest::source::Source;
use crate::manifest::workload::{Workload, WorkloadKind};
use crate::manifest::workload_spec::WorkloadSpec;

/// Fields of a pod with containers that have commands and probes.
pub(super) const CONTAINER_FIELDS: [&str; 2] = ["initContainers", "containers"];

/// Fields of a workload.
const WORKLOAD: FieldSet = FieldSet::only(&["apiVersion", "kind", "metadata", "spec", "status"]);

/// Kinds of other groups whose objects create pods, with or without a template.
const CREATORS: [&str; 4] = [
    "DeploymentConfig.apps.openshift.io",
    "Job.batch.volcano.sh",
    "Rollout.argoproj.io",
    "Service.serving.knative.dev",
];

/// A pod, or a workload with the spec of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The pod or workload, which identifies the pods on the node.
    pub(crate) owner: Workload,
    /// Spec of the pods.
    pub(crate) pod: Arc<PodSpec>,
}

/// An object of a manifest file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    /// Path of the file, and the first line of the document, as `PATH:LINE`.
    pub(crate) at: String,
    pub(crate) kind: DocumentKind,
}

/// Content of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DocumentKind {
    /// Pods that others run and probeshim probes.
    Probed(Manifest),
    /// A pod that probeshim runs; `pod` is `None` if errors were reported.
    Pod { namespace: String, name: String, pod: Option<Arc<Pod>> },
    /// A workload that probeshim runs; `spec` is `None` if errors were reported.
    Workload { kind: WorkloadKind, namespace: String, name: String, spec: Option<Arc<WorkloadSpec>> },
    /// A ConfigMap, Secret or RuntimeClass for pods that probeshim runs.
    Config(ConfigObject),
    /// Kind, namespace and name of a ConfigMap, Secret or RuntimeClass for which errors were
    /// reported.
    InvalidConfig(&'static str, String, String),
    /// An object that is ignored.
    Ignored(IgnoredObject),
}

/// An object that is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IgnoredObject {
    /// `KIND`, or `KIND.GROUP` if the group has a dot, as those of custom resources have.
    pub(crate) kind: String,
    /// Namespace; empty if the object names none.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether the object has a pod template, so that its controller creates pods.
    pub(crate) has_template: bool,
}

/// Options for reading documents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadOptions {
    /// Purpose for which pods are read.
    pub(crate) purpose: Purpose,
    /// Whether errors omit values, which may be commands.
    pub(crate) redact: bool,
    /// Whether unsupported fields are left out with a warning. Otherwise they are errors.
    pub(crate) ignore_unsupported: bool,
    /// Whether a container must have a command, because images have none.
    pub(crate) needs_commands: bool,
    /// Strictness: `Strict` for documents that a person wrote, `Lenient` for those that an API
    /// server has validated.
    pub(crate) level: Level,
    /// Source of the probes.
    pub(crate) source: Source,
}

/// Purpose for which pods are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Probing pods that others run. Only the fields that probes, hooks and restarts depend on are
    /// read.
    #[default]
    Probe,
    /// Running the pods. All fields are read.
    Run,
    /// Validating the pods as for `Run`, and reading their probes as for `Probe`.
    Check,
}

/// An object of a document, before its content is read.
pub(super) enum Object<'a> {
    /// A workload or pod. `owner` is `None` if its identity could not be read, which was reported.
    Workload { owner: Option<Workload>, template: Cursor<'a>, node: Cursor<'a> },
    /// An object of another kind.
    Other(String, Cursor<'a>),
}

impl Document {
    /// Returns kind, namespace and name, which identify the object.
    pub(crate) fn key(&self) -> (&str, &str, &str) {
        match &self.kind {
            DocumentKind::Probed(Manifest { owner, .. }) => {
                (owner.kind.name(), &owner.namespace, &owner.name)
            }
            DocumentKind::Pod { namespace, name, .. } => ("Pod", namespace, name),
            DocumentKind::Workload { kind, namespace, name, .. } => (kind.name(), namespace, name),
            DocumentKind::Config(object) => object.key(),
            DocumentKind::InvalidConfig(kind, namespace, name) => (kind, namespace, name),
            DocumentKind::Ignored(IgnoredObject { kind, namespace, name, .. }) => (kind, namespace, name),
        }
    }

    /// Returns whether this document replaces `earlier`, an earlier version of the file's content.
    /// A document with errors does not: the earlier content remains in effect.
    pub(crate) fn replaces(&self, earlier: &Self) -> bool {
        match (&self.kind, &earlier.kind) {
            (DocumentKind::Probed(one), DocumentKind::Probed(other)) => one.owner.key() == other.owner.key(),
            (DocumentKind::InvalidConfig(..), _) => false,
            _ => self.key() == earlier.key(),
        }
    }
}

/// Reads the objects of a document, and reports all errors. `at` is the document's `PATH:LINE`.
pub(crate) fn read(
    document: &Value,
    options: ReadOptions,
    at: &str,
    problems: &mut Vec<Violation>,
) -> Vec<Document> {
    let mut documents = Vec::new();
    let root = root(document, options.level, options.redact);
    list_items(&root, None, options.source, problems, &mut |object, problems| {
        let kind = match object {
            Object::Workload { owner, template, node } => match options.purpose {
                Purpose::Probe => {
                    read_manifest(owner, &template, options.source, problems).map(DocumentKind::Probed)
                }
                Purpose::Run => read_pods(owner, &node, &template, options, problems),
                Purpose::Check => {
                    // `read_pods` reports the same errors, and more.
                    let probed = read_manifest(owner.clone(), &template, options.source, &mut Vec::new());
                    let kind = probed.map(DocumentKind::Probed);
                    documents.extend(kind.map(|kind| Document { at: at.to_owned(), kind }));
                    read_pods(owner, &node, &template, options, problems)
                }
            },
            Object::Other(kind, node)
                if options.purpose != Purpose::Probe && config_object::KINDS.contains(&kind.as_str()) =>
            {
                check_is_versioned(&node, problems);
                match config_object::read(&kind, &node, problems) {
                    Some(object) => Some(DocumentKind::Config(object)),
                    None => config_object::key(&kind, &node)
                        .map(|(kind, namespace, name)| DocumentKind::InvalidConfig(kind, namespace, name)),
                }
            }
            Object::Other(kind, node) => {
                let before = problems.len();
                if options.purpose != Purpose::Probe {
                    check_kind(&kind, &node, problems);
                }
                if problems.len() > before {
                    return;
                }
                let text = |field| node.at(&["metadata", field])?.value().as_str().map(str::to_owned);
                let [namespace, name] = ["namespace", "name"].map(|field| text(field).unwrap_or_default());
                let has_template = node.at(&["spec", "template", "spec", "containers"]).is_some()
                    || CREATORS.contains(&kind.as_str());
                Some(DocumentKind::Ignored(IgnoredObject { kind, namespace, name, has_template }))
            }
        };
        documents.extend(kind.map(|kind| Document { at: at.to_owned(), kind }));
    });
    documents
}

/// Reads the pods and workloads of a document for probing. An object with errors is left out, and
/// does not affect other objects. `redact` keeps values, which may be commands, out of the errors.
pub(crate) fn read_manifests(
    document: &Value,
    source: Source,
    redact: bool,
    problems: &mut Vec<Violation>,
) -> Vec<Manifest> {
    let mut manifests = Vec::new();
    let root = root(document, source.level(), redact);
    list_items(&root, None, source, problems, &mut |object, problems| {
        let Object::Workload { owner, template, .. } = object else { return };
        manifests.extend(read_manifest(owner, &template, source, problems));
    });
    manifests
}

fn read_manifest(
    owner: Option<Workload>,
    template: &Cursor<'_>,
    source: Source,
    problems: &mut Vec<Violation>,
) -> Option<Manifest> {
    let before = problems.len();
    let pod = Arc::new(spec::read(template, source, problems));
    owner.filter(|_| problems.len() == before).map(|owner| Manifest { owner, pod })
}

/// Reads a pod, or a workload and the template of its pods, for running it.
fn read_pods(
    owner: Option<Workload>,
    node: &Cursor<'_>,
    template: &Cursor<'_>,
    options: ReadOptions,
    problems: &mut Vec<Violation>,
) -> Option<DocumentKind> {
    let mut found = Vec::new();
    template.object(problems)?;
    let kind = owner.as_ref().map(|owner| owner.kind);
    check_is_versioned(node, &mut found);
    if let Some(kind) = kind {
        check_is_served(kind, node, &mut found);
        if kind != WorkloadKind::Pod {
            WORKLOAD.check(node, &mut found);
            node.field("metadata").inspect(|metadata| pod::check_metadata(metadata, &mut found));
        }
    }
    let own_names = (kind == Some(WorkloadKind::StatefulSet)).then(|| without_host_names(template.value()));
    let template = &own_names.as_ref().map_or_else(|| template.clone(), |value| template.with_value(value));
    pod::check_template(kind, template, &mut found);
    let (namespace, name) = owner.map(|owner| (owner.namespace, owner.name)).unwrap_or_default();
    let scale = kind.map(|kind| workload::scale(kind, node, &mut found));
    let claims = workload::claim_templates(kind, node);
    let pod = pod::read(template, [&namespace, &name], &claims, &mut found);
    if options.needs_commands {
        check_commands(template, &mut found);
    }
    let pod = pod.filter(|_| !found.iter().any(|problem| problem.is_error(options.ignore_unsupported)));
    problems.append(&mut found);
    Some(match kind? {
        WorkloadKind::Pod => DocumentKind::Pod { namespace, name, pod: pod.map(Arc::new) },
        kind => {
            let new = |scale| WorkloadSpec::new(kind, [&namespace, &name], scale, node, template);
            let spec = scale.filter(|_| pod.is_some()).map(new);
            let spec = spec.filter(|spec| {
                let invalid = spec.name_problems();
                for problem in &invalid {
                    let detail = format!("the {} would create an invalid pod: {problem}", kind.name());
                    node.at(&["metadata", "name"]).inspect(|name| name.error(detail, problems));
                }
                invalid.is_empty()
            });
            DocumentKind::Workload { kind, namespace, name, spec: spec.map(Arc::new) }
        }
    })
}

/// Returns the template of a `StatefulSet` without its host name and subdomain, in whose place its
/// controller puts others. The API server does not check them
/// (`pkg/apis/apps/validation/validation.go`: `ValidateStatefulSetSpec`).
fn without_host_names(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, value| {
            !(value.is_string() && ["hostname", "subdomain"].contains(&field.as_str()))
        });
    }
    template
}

/// Reports an object without an API version. An item of a typed list has none.
fn check_is_versioned(node: &Cursor<'_>, problems: &mut Vec<Violation>) {
    if node.field("kind").is_some() && node.field("apiVersion").is_none() {
        node.missing("apiVersion", "for example v1 or apps/v1", problems);
    }
}

/// Reports a version of an API that Kubernetes had, and that 1.36 no longer serves.
fn check_is_served(kind: WorkloadKind, node: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let Some(at) = node.field("apiVersion") else { return };
    let Some(version) = at.value().as_str().filter(|_| !at.has_error(problems)) else { return };
    if version != kind.version() {
        let (kind, served) = (kind.name(), kind.version());
        at.error(
            format!("no matches for kind {kind:?} in version {version:?}; Kubernetes 1.36 has {served:?}"),
            problems,
        );
    }
}

/// Reports each container without a command.
fn check_commands(template: &Cursor<'_>, problems: &mut Vec<Violation>) {
    for container in CONTAINER_FIELDS.into_iter().flat_map(|field| template.items(&["spec", field])) {
        // A field with another type has an error already.
        let is_given = |field: &str| {
            container
                .field(field)
                .is_some_and(|list| list.value().as_array().is_none_or(|items| !items.is_empty()))
        };
        if !is_given("command") && !is_given("args") {
            container.missing("command", "images of procrun have no command", problems);
        }
    }
}

/// Returns the root of a document. `redact` keeps values out of errors.
pub(super) fn root(document: &Value, level: Level, redact: bool) -> Cursor<'_> {
    let node = Cursor::root("", document).at_level(level);
    if redact { node.secret() } else { node }
}

/// Passes each object of a node to `take`: the items of a list, or else the node itself. `kind` is
/// the kind of a node without a `kind` field, such as an item of a `PodList`.
pub(super) fn list_items<F>(
    node: &Cursor<'_>,
    kind: Option<&str>,
    source: Source,
    problems: &mut Vec<Violation>,
    take: &mut F,
) where
    F: FnMut(Object<'_>, &mut Vec<Violation>),
{
    if node.object(problems).is_none() {
        return;
    }
    let kind = match (node.field("kind"), kind) {
        (Some(kind), _) => kind.text(problems),
        (None, Some(kind)) => Some(kind.to_owned()),
        (None, None) => {
            node.missing("kind", "for example Pod or Deployment", problems);
            None
        }
    };
    let Some(kind) = kind else { return };
    if let Some(of_items) = kind.strip_suffix("List") {
        let of_items = Some(of_items).filter(|kind| !kind.is_empty());
        let items = node.field("items").map(|items| items.list(problems)).unwrap_or_default();
        for item in items {
            let item = if source.is_server() { item_path(item, of_items) } else { item };
            list_items(&item, of_items, source, problems, take);
        }
        return;
    }
    let kind = match custom_group(&kind, node) {
        Some(group) => format!("{kind}.{group}"),
        None => kind,
    };
    let Some(maker) = WorkloadKind::named(&kind) else {
        return take(Object::Other(kind, node.clone()), problems);
    };
    let before = problems.len();
    check_api_version(node, maker.known_versions(), maker.version(), problems);
    let owner = owner(node, maker, problems);
    let path: &[&str] = match maker {
        WorkloadKind::Pod => &[],
        WorkloadKind::CronJob => &["spec", "jobTemplate", "spec", "template"],
        _ => &["spec", "template"],
    };
    let Some(template) = node.at(path) else {
        node.missing(&path.join("."), "", problems);
        return;
    };
    let labels = labels(&template, problems);
    let owner = owner.filter(|_| problems.len() == before).map(|owner| Workload { labels, ..owner });
    take(Object::Workload { owner, template, node: node.clone() }, problems);
}

/// Identifies a list item in errors by kind, namespace and name instead of its index, because the
/// order of a kubelet's list varies.
fn item_path<'a>(item: Cursor<'a>, kind: Option<&str>) -> Cursor<'a> {
    let text = |path: &[&str]| item.at(path).and_then(|node| node.value().as_str());
    let (kind, name) = (text(&["kind"]).or(kind), text(&["metadata", "name"]));
    match kind.zip(name) {
        Some((kind, name)) => {
            let namespace = text(&["metadata", "namespace"]).unwrap_or(DEFAULT_NAMESPACE);
            item.with_path(&format!("{kind} {namespace}/{name}: "))
        }
        None => item,
    }
}

fn labels(pod: &Cursor<'_>, problems: &mut Vec<Violation>) -> BTreeMap<String, String> {
    pod.at(&["metadata", "labels"]).map(|labels| labels.map_of_texts(problems)).unwrap_or_default()
}
