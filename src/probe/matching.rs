//! Finds the manifest of a pod on the node.

use crate::inventory::Sandbox;
use crate::manifest::{Manifest, Manifests, Workload, WorkloadKind};

impl Workload {
    /// Returns whether a sandbox belongs to a pod of this workload.
    pub(crate) fn owns(&self, sandbox: &Sandbox) -> bool {
        let pod = &*sandbox.pod;
        let (Some(namespace), Some(name)) = (&pod.namespace, &pod.name) else { return false };
        *namespace == self.namespace
            && match self.kind {
                WorkloadKind::Pod => self.is_pod(name, pod.uid.as_deref(), sandbox),
                _ => self.has_labels(sandbox) && self.owns_name(name),
            }
    }

    /// Returns whether a sandbox belongs to this pod. The kubelet appends the node's name to the
    /// name of a static pod, and generates its uid. A specification from the kubelet has both.
    fn is_pod(&self, name: &str, uid: Option<&str>, sandbox: &Sandbox) -> bool {
        if *name == self.name && self.uid.is_some() && self.uid.as_deref() == uid {
            return true;
        }
        let config_source = sandbox.annotations.get("kubernetes.io/config.source");
        if config_source.is_some_and(|from| from == "file" || from == "http") {
            let node = name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-'));
            return node.is_some_and(|node| !node.is_empty());
        }
        *name == self.name && self.uid.as_deref().is_none_or(|own| Some(own) == uid)
    }

    fn has_labels(&self, sandbox: &Sandbox) -> bool {
        self.labels.iter().all(|(key, value)| sandbox.labels.get(key) == Some(value.as_str()))
    }
}

impl Manifests {
    /// Returns the first manifest whose pods include the pod of a sandbox.
    pub(super) fn for_sandbox(&self, sandbox: &Sandbox) -> Option<&Manifest> {
        let (namespace, name) = sandbox.pod.namespace.as_ref().zip(sandbox.pod.name.as_deref())?;
        let namespace = self.by_namespace.get(namespace)?;
        let has = |place: &&usize| self.all[**place].owner.owns(sandbox);
        // A static pod has the name of its node as a suffix, which may contain `-`. The longest
        // matching name counts.
        let ends = [name.len()].into_iter().chain(name.rmatch_indices('-').map(|(end, _)| end));
        let mut pods = ends.filter_map(|end| namespace.pods.get(&name[..end])).flatten();
        let pod = pods.find(has);
        let other = namespace.others.iter().find(has);
        pod.into_iter().chain(other).min().map(|place| &self.all[*place])
    }
}
