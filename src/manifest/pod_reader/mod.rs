//! Documents of Kubernetes → the pods that are played. Everything that is wrong is told at once, with its file, document and path.

mod container;
mod env;
mod fields;
mod objects;
mod pod;
mod security;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::objects as objects_of;
use crate::manifest::pod::Pod;
use crate::manifest::{FromDocument, Object, ReadOptions, Source, Workload, WorkloadKind};
use fields::FieldSet;
use objects::{ConfigObject, ConfigObjects};

/// What a document says, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParsedDocument {
    /// Its file, and its number there if there are several.
    at: String,
    kind: DocumentKind,
}

/// What a document says.
#[derive(Clone, Debug, PartialEq)]
enum DocumentKind {
    /// There is a pod.
    Pod {
        namespace: String,
        name: String,
        /// Its metadata and spec.
        template: Arc<Value>,
        /// Something is wrong with it that has been told of.
        is_wrong: bool,
    },
    /// There is something for pods.
    Given(ConfigObject),
    /// The same, with which something is wrong that has been told of: its kind, namespace and name.
    Invalid(&'static str, String, String),
    /// Something that no node knows of.
    Other(String),
}

/// A pod, or the template of one.
const TEMPLATE: FieldSet =
    FieldSet { known: &["metadata", "spec"], ignored: &["apiVersion", "kind", "status"], unsupported: &[] };

/// What all documents together say.
#[derive(Debug, Default)]
pub(crate) struct PodSet {
    /// The pods that are to be, in their order.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// What is wrong with others.
    pub(crate) problems: Vec<String>,
    /// Which these are: `NAMESPACE/NAME`.
    pub(crate) wrong: BTreeSet<String>,
}

impl FromDocument for ParsedDocument {
    fn read(document: &Value, terms: ReadOptions, at: &str, problems: &mut Vec<Violation>) -> Vec<Self> {
        let mut documents = Vec::new();
        objects_of(document, Source::Manifest, terms.redacts, problems, &mut |object, problems| {
            let kind = match object {
                Object::Workload { owner, template } => read_workload(owner, &template, terms, problems),
                Object::Other(kind, node) if objects::KINDS.contains(&kind.as_str()) => {
                    match objects::read(&kind, &node, problems) {
                        Some(given) => Some(DocumentKind::Given(given)),
                        None => objects::called(&kind, &node)
                            .map(|(kind, namespace, name)| DocumentKind::Invalid(kind, namespace, name)),
                    }
                }
                Object::Other(kind, _) => Some(DocumentKind::Other(kind)),
            };
            documents.extend(kind.map(|kind| Self { at: at.to_owned(), kind }));
        });
        documents
    }

    fn is_of_same_object(&self, other: &Self) -> bool {
        // What it said before goes on to count.
        !matches!(self.kind, DocumentKind::Invalid(..)) && self.key() == other.key()
    }
}

/// Checks the template of a pod, as far as it goes without other documents.
fn read_workload(
    owner: Option<Workload>,
    template: &Cursor<'_>,
    terms: ReadOptions,
    problems: &mut Vec<Violation>,
) -> Option<DocumentKind> {
    let mut found = Vec::new();
    template.object(problems)?;
    TEMPLATE.check(template, &mut found);
    if let Some(owner) = &owner {
        restart_policy_for(owner.kind, template, &mut found);
    }
    pod::read(template, &ObjectName::default(), None, &mut found);
    let is_left_out = |problem: &Violation| problem.is_unsupported && terms.ignores_unsupported;
    let is_wrong = !found.iter().all(is_left_out);
    problems.append(&mut found);
    let owner = owner?;
    let name = match owner.kind {
        // Its first pod is called so.
        WorkloadKind::StatefulSet => format!("{}-0", owner.name),
        _ => owner.name,
    };
    let value = template.value();
    let mut template = json!({"metadata": value["metadata"], "spec": value["spec"]});
    if let Some(uid) = &owner.uid {
        template["metadata"]["uid"] = uid.as_str().into();
    }
    Some(DocumentKind::Pod { namespace: owner.namespace, name, template: Arc::new(template), is_wrong })
}

/// What makes pods that end does not take those that do not, and the other way round.
fn restart_policy_for(kind: WorkloadKind, template: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let Some(spec) = template.field("spec").filter(|spec| spec.value().is_object()) else { return };
    let policy = spec.field("restartPolicy");
    let said = policy.as_ref().and_then(|policy| policy.value().as_str());
    let of_jobs = "must be OnFailure or Never for a Job";
    let ends = matches!(kind, WorkloadKind::Job | WorkloadKind::CronJob);
    match (policy, said) {
        _ if kind == WorkloadKind::Pod => {}
        (None, _) if ends => spec.missing("restartPolicy", of_jobs, problems),
        (Some(at), Some("Always")) if ends => at.error(of_jobs, problems),
        (Some(at), Some("OnFailure" | "Never")) if !ends => {
            at.error(format!("must be Always for a {kind:?}"), problems);
        }
        // One that is none of these has been complained of.
        _ => {}
    }
}

/// Whose template it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectName<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl ParsedDocument {
    /// What tells its object apart from others.
    fn key(&self) -> (&str, &str, &str) {
        match &self.kind {
            DocumentKind::Pod { namespace, name, .. } => ("Pod", namespace, name),
            DocumentKind::Given(given) => given.key(),
            DocumentKind::Invalid(kind, namespace, name) => (kind, namespace, name),
            DocumentKind::Other(kind) => (kind, "", ""),
        }
    }

    /// The kind of something that no node knows of.
    pub(crate) fn passed_over(&self) -> Option<&str> {
        match &self.kind {
            DocumentKind::Other(kind) => Some(kind),
            _ => None,
        }
    }
}

/// Joins what documents say: pods with what is for them.
pub(crate) fn merge(documents: &[&ParsedDocument]) -> PodSet {
    let mut wanted = PodSet::default();
    let mut objects = ConfigObjects::default();
    let mut places: BTreeMap<_, &str> = BTreeMap::new();
    for document in documents.iter().filter(|document| document.passed_over().is_none()) {
        let key = document.key();
        if let DocumentKind::Invalid(..) = &document.kind {
            objects.invalid(key);
            continue;
        }
        if let Some(first) = places.get(&key) {
            let (kind, namespace, name) = key;
            let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            wanted.problems.push(format!("{}: {kind} {name} is in {first} already", document.at));
            continue;
        }
        places.insert(key, &document.at);
        if let DocumentKind::Given(given) = &document.kind {
            objects.add(given);
        }
    }
    let mut seen = BTreeSet::new();
    for document in documents {
        let DocumentKind::Pod { namespace, name, template, is_wrong } = &document.kind else { continue };
        if !seen.insert((namespace, name)) {
            continue;
        }
        let (template, named) = (Cursor::root("", template), ObjectName { namespace, name });
        let (mut reported, mut problems) = (Vec::new(), Vec::new());
        if *is_wrong {
            pod::read(&template, &named, None, &mut reported);
        }
        let invalid = objects.missing();
        let pod = pod::read(&template, &named, Some(&objects), &mut problems);
        problems.retain(|problem| !problem.is_unsupported && !reported.contains(problem));
        let is_right = !is_wrong && problems.is_empty() && objects.missing() == invalid;
        match pod.filter(|_| is_right) {
            // Everything of a pod is known by its uid.
            Some(pod) if wanted.pods.iter().any(|known| known.uid == pod.uid) => {
                let (at, uid) = (&document.at, &pod.uid);
                wanted.wrong.insert(pod.full_name());
                wanted
                    .problems
                    .push(format!("{at}: metadata.uid is {uid:?}; it must be the uid of one pod only"));
            }
            Some(pod) => wanted.pods.push(Arc::new(pod)),
            None => {
                wanted.wrong.insert(format!("{namespace}/{name}"));
                wanted.problems.extend(problems.iter().map(|it| format!("{}: {it}", document.at)));
            }
        }
    }
    wanted
}

#[cfg(test)]
pub(crate) mod tests;
