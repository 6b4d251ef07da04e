//! Many manifests, among which that of a pod is found quickly.

use std::collections::HashMap;

use crate::manifest::document::Manifest;
use crate::manifest::workload::WorkloadKind;

/// Manifests, of which the first one that makes a pod counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifests {
    pub(crate) all: Vec<Manifest>,
    pub(crate) by_namespace: HashMap<String, NamespaceIndex>,
}

/// The places of a namespace's manifests, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceIndex {
    /// Of pods, by their names.
    pub(crate) pods: HashMap<String, Vec<usize>>,
    /// Of what makes pods.
    pub(crate) others: Vec<usize>,
}

impl Manifests {
    /// All of them, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Manifest> {
        self.all.iter()
    }

    fn sorted(&self) -> Vec<&Manifest> {
        let mut all: Vec<&Manifest> = self.all.iter().collect();
        all.sort_by(|a, b| a.owner.key().cmp(&b.owner.key()));
        all
    }
}

impl PartialEq for Manifests {
    /// Whatever their order: a kubelet tells of its pods in another one each time.
    fn eq(&self, other: &Self) -> bool {
        self.all.len() == other.all.len() && self.sorted() == other.sorted()
    }
}

impl FromIterator<Manifest> for Manifests {
    fn from_iter<T: IntoIterator<Item = Manifest>>(manifests: T) -> Self {
        let all: Vec<Manifest> = manifests.into_iter().collect();
        let mut by_namespace: HashMap<String, NamespaceIndex> = HashMap::new();
        for (place, Manifest { owner, .. }) in all.iter().enumerate() {
            let namespace = by_namespace.entry(owner.namespace.clone()).or_default();
            match owner.kind {
                WorkloadKind::Pod => namespace.pods.entry(owner.name.clone()).or_default().push(place),
                _ => namespace.others.push(place),
            }
        }
        Self { all, by_namespace }
    }
}
