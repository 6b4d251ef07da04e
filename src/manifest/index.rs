//! Manifests, indexed by namespace and pod name.

use std::collections::HashMap;

use crate::manifest::document::Manifest;
use crate::manifest::workload::WorkloadKind;

/// Manifests in order of precedence: the first one that matches a pod applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifests {
    pub(crate) all: Vec<Manifest>,
    pub(crate) by_namespace: HashMap<String, NamespaceIndex>,
}

/// Indices into [`Manifests::all`] of the manifests of one namespace, in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceIndex {
    /// Indices of pods, by pod name.
    pub(crate) pods: HashMap<String, Vec<usize>>,
    /// Indices of workloads.
    pub(crate) others: Vec<usize>,
}

impl Manifests {
    /// Returns all manifests in order of precedence.
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
    /// Compares without regard to order, because the kubelet lists its pods in another order each
    /// time.
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
                WorkloadKind::Pod if !owner.is_generated => {
                    namespace.pods.entry(owner.name.clone()).or_default().push(place);
                }
                _ => namespace.others.push(place),
            }
        }
        Self { all, by_namespace }
    }
}
