//! The pods and objects of all documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::config_object::ConfigObjects;
use crate::manifest::document::{Document, DocumentKind};
use crate::manifest::pod::Pod;

/// The pods and objects of all documents.
#[derive(Debug, Default)]
pub(crate) struct PodSet {
    /// Pods to run, in the order of the documents.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Objects to which the pods may refer.
    pub(crate) objects: Arc<ConfigObjects>,
    /// Conflicts between documents, such as two pods of the same name.
    pub(crate) problems: Vec<String>,
    /// Pods with errors, as `NAMESPACE/NAME`.
    pub(crate) invalid: BTreeSet<String>,
}

impl PodSet {
    /// Collects documents. The first of several documents with the same kind, namespace and name
    /// counts.
    pub(crate) fn new<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Self {
        let (mut set, mut objects) = (Self::default(), Vec::new());
        let mut places: BTreeMap<_, &str> = BTreeMap::new();
        for document in documents {
            let is_used = matches!(document.kind, DocumentKind::Pod { .. } | DocumentKind::Config(_));
            if !is_used {
                continue;
            }
            let (kind, namespace, name) = document.key();
            if let Some(first) = places.get(&(kind, namespace, name)) {
                let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
                set.problems.push(format!("{}: {kind} {name} already exists in {first}", document.at));
                continue;
            }
            places.insert((kind, namespace, name), &document.at);
            match &document.kind {
                DocumentKind::Config(object) => objects.push(object.clone()),
                DocumentKind::Pod { pod: Some(pod), .. } => set.add(pod, &document.at),
                _ => drop(set.invalid.insert(format!("{namespace}/{name}"))),
            }
        }
        set.objects = Arc::new(objects.into_iter().collect());
        set
    }

    /// Adds a pod, unless the set has another pod with its uid. A uid identifies one pod only.
    fn add(&mut self, pod: &Arc<Pod>, at: &str) {
        let uid = &pod.uid;
        if self.pods.iter().any(|known| known.uid == *uid) {
            self.invalid.insert(pod.full_name());
            self.problems.push(format!("{at}: metadata.uid: Duplicate value: {uid:?}"));
        } else {
            self.pods.push(pod.clone());
        }
    }
}
