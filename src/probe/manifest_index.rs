//! Many manifests, among which that of a pod is found quickly.

use std::collections::HashMap;

use super::read::manifest::Manifest;
use super::workload::WorkloadKind;
use crate::inventory::Sandbox;

/// Manifests, of which the first one that makes a pod counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifests {
    all: Vec<Manifest>,
    by_namespace: HashMap<String, NamespaceIndex>,
}

/// The places of a namespace's manifests, in their order.
#[derive(Clone, Debug, Default)]
struct NamespaceIndex {
    /// Of pods, by their names.
    pods: HashMap<String, Vec<usize>>,
    /// Of what makes pods.
    others: Vec<usize>,
}

impl Manifests {
    /// All of them, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Manifest> {
        self.all.iter()
    }

    fn sorted(&self) -> Vec<&Manifest> {
        let mut all: Vec<&Manifest> = self.all.iter().collect();
        all.sort_by(|a, b| a.owner.key().cmp(&b.owner.key()));
        all
    }

    /// The first one that makes the pod of a sandbox.
    pub(super) fn for_sandbox(&self, sandbox: &Sandbox) -> Option<&Manifest> {
        let (namespace, name) = sandbox.pod.namespace.as_ref().zip(sandbox.pod.name.as_deref())?;
        let namespace = self.by_namespace.get(namespace)?;
        let has = |place: &&usize| self.all[**place].owner.owns(sandbox);
        // A static pod has the name of its node after its own, which may have a - of its own: the longest name counts.
        let ends = [name.len()].into_iter().chain(name.rmatch_indices('-').map(|(end, _)| end));
        let mut pods = ends.filter_map(|end| namespace.pods.get(&name[..end])).flatten();
        let pod = pods.find(has);
        let other = namespace.others.iter().find(has);
        pod.into_iter().chain(other).min().map(|place| &self.all[*place])
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
