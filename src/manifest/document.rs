//! A document of Kubernetes → the pods that it makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::pod_spec::PodSpec;
use crate::manifest::probed_pod;
use crate::manifest::source::Source;
use crate::manifest::validation::{DNS_LABEL, DNS_SUBDOMAIN, is_dns_label, is_dns_subdomain};
use crate::manifest::workload::{Workload, WorkloadKind};

/// The namespace of what names none.
const DEFAULT_NAMESPACE: &str = "default";

/// The pods that a document makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Which pods they are.
    pub(crate) owner: Workload,
    /// What they are.
    pub(crate) pod: Arc<PodSpec>,
}

/// An object of a document.
#[derive(Debug)]
pub(crate) enum Object<'a> {
    /// It makes pods.
    Workload {
        /// Which pods; `None` where that cannot be read.
        owner: Option<Workload>,
        /// What they are.
        template: Cursor<'a>,
    },
    /// It is of another kind.
    Other(String, Cursor<'a>),
}

/// Reads a document. One that makes no pods makes nothing; a list makes what its items make. One with a problem is left out. `redact`: what
/// is written there may be a command, and is not shown.
pub(crate) fn read(
    document: &Value,
    source: Source,
    redact: bool,
    problems: &mut Vec<Violation>,
) -> Vec<Manifest> {
    let mut manifests = Vec::new();
    objects(document, source, redact, problems, &mut |object, problems| {
        let Object::Workload { owner, template } = object else { return };
        let before = problems.len();
        let pod = Arc::new(probed_pod::read(&template, source, problems));
        let made = owner.filter(|_| problems.len() == before);
        manifests.extend(made.map(|owner| Manifest { owner, pod }));
    });
    manifests
}

/// Hands over each object of a document; of a list, its items.
pub(crate) fn objects<F>(
    document: &Value,
    source: Source,
    redact: bool,
    problems: &mut Vec<Violation>,
    take: &mut F,
) where
    F: FnMut(Object<'_>, &mut Vec<Violation>),
{
    let node = Cursor::root("", document);
    let node = if redact { node.secret() } else { node };
    list_items(&node, None, source, problems, take);
}

/// The kinds of a document that make no pods, one for each time.
pub(crate) fn ignored_kinds(document: &Value) -> Vec<String> {
    let Some(kind) = document.get("kind").and_then(Value::as_str) else { return Vec::new() };
    match document.get("items").and_then(Value::as_array).filter(|_| kind.ends_with("List")) {
        Some(items) => items.iter().flat_map(ignored_kinds).collect(),
        None if WorkloadKind::named(kind).is_some() => Vec::new(),
        None => vec![kind.to_owned()],
    }
}

/// `kind`: what it is where it does not say so itself, as the items of some lists do not.
fn list_items<F>(
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
            node.error("must have a kind, such as Pod or Deployment", problems);
            None
        }
    };
    let Some(kind) = kind else { return };
    if let Some(of_items) = kind.strip_suffix("List") {
        let of_items = Some(of_items).filter(|kind| !kind.is_empty());
        let items = node.field("items").map(|items| items.list(problems)).unwrap_or_default();
        for item in items {
            let item = match source {
                Source::Kubelet => item_path(item, of_items),
                _ => item,
            };
            list_items(&item, of_items, source, problems, take);
        }
        return;
    }
    let Some(maker) = WorkloadKind::named(&kind) else {
        return take(Object::Other(kind, node.clone()), problems);
    };
    let before = problems.len();
    version(node, maker.versions(), problems);
    let owner = owner(node, maker, problems);
    let template = match maker {
        WorkloadKind::Pod => Some(node.clone()),
        WorkloadKind::CronJob => node.at(&["spec", "jobTemplate", "spec", "template"]),
        _ => node.at(&["spec", "template"]),
    };
    let Some(template) = template else {
        node.error("must have a pod template in its spec", problems);
        return;
    };
    let labels = labels(&template, problems);
    let owner = owner.filter(|_| problems.len() == before).map(|owner| Workload { labels, ..owner });
    take(Object::Workload { owner, template }, problems);
}

/// An item of a list that is in another order each time: it is called by its name in what is wrong with it.
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

fn owner(node: &Cursor<'_>, kind: WorkloadKind, problems: &mut Vec<Violation>) -> Option<Workload> {
    let Some(named) = node.at(&["metadata", "name"]) else {
        node.error("must have a name in its metadata", problems);
        return None;
    };
    let name = named.text(problems)?;
    if !is_dns_subdomain(&name) {
        named.error(DNS_SUBDOMAIN, problems);
    }
    let mut text = |path: &[&str]| node.at(path).and_then(|node| node.text(problems));
    let namespace = text(&["metadata", "namespace"]);
    let is_wrong = namespace.as_deref().is_some_and(|namespace| !is_dns_label(namespace));
    if let Some(at) = node.at(&["metadata", "namespace"]).filter(|_| is_wrong) {
        at.error(DNS_LABEL, problems);
    }
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let mut text = |path: &[&str]| node.at(path).and_then(|node| node.text(problems));
    let uid = text(&["metadata", "uid"]).filter(|_| kind == WorkloadKind::Pod);
    Some(Workload { kind, name, namespace, uid, labels: BTreeMap::new() })
}

/// Looks whether an object is of one of these versions of the API, as far as it says so.
pub(crate) fn version(node: &Cursor<'_>, known: &[&str], problems: &mut Vec<Violation>) {
    let Some(at) = node.field("apiVersion") else { return };
    if at.text(problems).is_some_and(|version| !known.contains(&version.as_str())) {
        at.error(format!("must be {}", known.first().unwrap_or(&"v1")), problems);
    }
}

fn labels(pod: &Cursor<'_>, problems: &mut Vec<Violation>) -> BTreeMap<String, String> {
    pod.at(&["metadata", "labels"]).map(|labels| labels.map_of_texts(problems)).unwrap_or_default()
}
