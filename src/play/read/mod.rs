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

use super::spec::Pod;
use crate::probe::node::{Cursor, Violation};
use crate::probe::{
    FromDocument, Object, ReadOptions, Source, Workload, WorkloadKind, objects as objects_of,
};
use fields::Fields;
use objects::{Given, Objects};

/// What a document says, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    /// Its file, and its number there if there are several.
    at: String,
    says: Says,
}

/// What a document says.
#[derive(Clone, Debug, PartialEq)]
enum Says {
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
    Given(Given),
    /// The same, with which something is wrong that has been told of: its kind, namespace and name.
    Misread(&'static str, String, String),
    /// Something that no node knows of.
    Other(String),
}

/// A pod, or the template of one.
const TEMPLATE: Fields =
    Fields { read: &["metadata", "spec"], for_others: &["apiVersion", "kind", "status"], unsupported: &[] };

/// What all documents together say.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// The pods that are to be, in their order.
    pub(super) pods: Vec<Arc<Pod>>,
    /// What is wrong with others.
    pub(super) problems: Vec<String>,
    /// Which these are: `NAMESPACE/NAME`.
    pub(super) wrong: BTreeSet<String>,
}

impl FromDocument for Document {
    fn read(document: &Value, terms: ReadOptions, at: &str, problems: &mut Vec<Violation>) -> Vec<Self> {
        let mut documents = Vec::new();
        objects_of(document, Source::Manifest, terms.redacts, problems, &mut |object, problems| {
            let says = match object {
                Object::Workload { owner, template } => of_maker(owner, &template, terms, problems),
                Object::Other(kind, node) if objects::KINDS.contains(&kind.as_str()) => {
                    match objects::read(&kind, &node, problems) {
                        Some(given) => Some(Says::Given(given)),
                        None => objects::called(&kind, &node)
                            .map(|(kind, namespace, name)| Says::Misread(kind, namespace, name)),
                    }
                }
                Object::Other(kind, _) => Some(Says::Other(kind)),
            };
            documents.extend(says.map(|says| Self { at: at.to_owned(), says }));
        });
        documents
    }

    fn is_of_same_object(&self, other: &Self) -> bool {
        // What it said before goes on to count.
        !matches!(self.says, Says::Misread(..)) && self.key() == other.key()
    }
}

/// Checks the template of a pod, as far as it goes without other documents.
fn of_maker(
    owner: Option<Workload>,
    template: &Cursor<'_>,
    terms: ReadOptions,
    problems: &mut Vec<Violation>,
) -> Option<Says> {
    let mut found = Vec::new();
    template.object(problems)?;
    TEMPLATE.check(template, &mut found);
    if let Some(owner) = &owner {
        policy(owner.kind, template, &mut found);
    }
    pod::read(template, &Named::default(), None, &mut found);
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
    Some(Says::Pod { namespace: owner.namespace, name, template: Arc::new(template), is_wrong })
}

/// What makes pods that end does not take those that do not, and the other way round.
fn policy(kind: WorkloadKind, template: &Cursor<'_>, problems: &mut Vec<Violation>) {
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
pub(super) struct Named<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Document {
    /// What tells its object apart from others.
    fn key(&self) -> (&str, &str, &str) {
        match &self.says {
            Says::Pod { namespace, name, .. } => ("Pod", namespace, name),
            Says::Given(given) => given.key(),
            Says::Misread(kind, namespace, name) => (kind, namespace, name),
            Says::Other(kind) => (kind, "", ""),
        }
    }

    /// The kind of something that no node knows of.
    pub(super) fn passed_over(&self) -> Option<&str> {
        match &self.says {
            Says::Other(kind) => Some(kind),
            _ => None,
        }
    }
}

/// Joins what documents say: pods with what is for them.
pub(super) fn joined(documents: &[&Document]) -> Wanted {
    let mut wanted = Wanted::default();
    let mut objects = Objects::default();
    let mut places: BTreeMap<_, &str> = BTreeMap::new();
    for document in documents.iter().filter(|document| document.passed_over().is_none()) {
        let key = document.key();
        if let Says::Misread(..) = &document.says {
            objects.misread(key);
            continue;
        }
        if let Some(first) = places.get(&key) {
            let (kind, namespace, name) = key;
            let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            wanted.problems.push(format!("{}: {kind} {name} is in {first} already", document.at));
            continue;
        }
        places.insert(key, &document.at);
        if let Says::Given(given) = &document.says {
            objects.add(given);
        }
    }
    let mut seen = BTreeSet::new();
    for document in documents {
        let Says::Pod { namespace, name, template, is_wrong } = &document.says else { continue };
        if !seen.insert((namespace, name)) {
            continue;
        }
        let (template, named) = (Cursor::root("", template), Named { namespace, name });
        let (mut told, mut problems) = (Vec::new(), Vec::new());
        if *is_wrong {
            pod::read(&template, &named, None, &mut told);
        }
        let misread = objects.missed();
        let pod = pod::read(&template, &named, Some(&objects), &mut problems);
        problems.retain(|problem| !problem.is_unsupported && !told.contains(problem));
        let is_right = !is_wrong && problems.is_empty() && objects.missed() == misread;
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
pub(super) mod tests;
