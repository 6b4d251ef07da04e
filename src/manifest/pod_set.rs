//! The pods and objects of all documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::config_object::ConfigObjects;
use crate::manifest::document::{Document, DocumentKind};
use crate::manifest::pod::Pod;
use crate::manifest::workload::WorkloadKind;
use crate::manifest::workload_spec::WorkloadSpec;

/// The pods and objects of all documents.
#[derive(Debug, Default)]
pub(crate) struct PodSet {
    /// Pods to run, in the order of the documents.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Workloads to run, in the order of the documents.
    pub(crate) workloads: Vec<Arc<WorkloadSpec>>,
    /// Objects to which the pods may refer.
    pub(crate) objects: Arc<ConfigObjects>,
    /// Conflicts between documents, such as two pods of the same name.
    pub(crate) problems: Vec<String>,
    /// Kinds, namespaces and names of the pods and workloads with errors.
    pub(crate) invalid: BTreeSet<(WorkloadKind, String, String)>,
}

impl PodSet {
    /// Collects documents. The first of several documents with the same kind, namespace and name
    /// counts.
    pub(crate) fn new<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Self {
        let (mut set, mut objects, mut workloads) = (Self::default(), Vec::new(), Vec::new());
        let mut places: BTreeMap<_, &str> = BTreeMap::new();
        for document in documents {
            let is_used = matches!(
                document.kind,
                DocumentKind::Pod { .. } | DocumentKind::Workload { .. } | DocumentKind::Config(_)
            );
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
                DocumentKind::Workload { spec: Some(spec), .. } => workloads.push((spec, &document.at)),
                DocumentKind::Workload { kind, .. } => set.add_invalid(*kind, namespace, name),
                _ => set.add_invalid(WorkloadKind::Pod, namespace, name),
            }
        }
        for (spec, at) in workloads {
            for name in spec.first_slots().map(|slot| spec.pod_name(slot)) {
                if let Some(first) = places.get(&("Pod", &spec.namespace, &name)) {
                    let namespace = &spec.namespace;
                    set.problems.push(format!("{at}: Pod {namespace}/{name} already exists in {first}"));
                }
            }
            set.workloads.push(spec.clone());
        }
        set.objects = Arc::new(objects.into_iter().collect());
        set
    }

    /// Adds a pod, unless the set has another pod with its uid. A uid identifies one pod only.
    fn add(&mut self, pod: &Arc<Pod>, at: &str) {
        let uid = &pod.uid;
        if self.pods.iter().any(|known| known.uid == *uid) {
            self.add_invalid(WorkloadKind::Pod, &pod.namespace, &pod.name);
            self.problems.push(format!("{at}: metadata.uid: Duplicate value: {uid:?}"));
        } else {
            self.pods.push(pod.clone());
        }
    }

    fn add_invalid(&mut self, kind: WorkloadKind, namespace: &str, name: &str) {
        self.invalid.insert((kind, namespace.to_owned(), name.to_owned()));
    }

    /// Keeps the pods and workloads of an earlier set whose documents have errors now.
    pub(crate) fn keep_earlier(&mut self, earlier: &Self) {
        let is_invalid = |kind: WorkloadKind, namespace: &str, name: &str| {
            self.invalid.contains(&(kind, namespace.to_owned(), name.to_owned()))
        };
        let pods = earlier.pods.iter().filter(|pod| is_invalid(WorkloadKind::Pod, &pod.namespace, &pod.name));
        let workloads =
            earlier.workloads.iter().filter(|spec| is_invalid(spec.kind, &spec.namespace, &spec.name));
        let (pods, workloads): (Vec<_>, Vec<_>) = (pods.cloned().collect(), workloads.cloned().collect());
        self.pods.extend(pods);
        self.workloads.extend(workloads);
    }

    /// Returns whether there are neither pods nor workloads.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.workloads.is_empty()
    }

    /// Returns the number of pods, and of those with which the workloads begin.
    pub(crate) fn count(&self) -> usize {
        let of_workloads = self.workloads.iter().map(|spec| spec.first_slots().count());
        self.pods.len() + of_workloads.sum::<usize>()
    }

    /// Returns the number of pods if none fails, with those that have ended.
    pub(crate) fn total(&self) -> usize {
        let of_workloads = self.workloads.iter().map(|spec| usize::try_from(spec.scale.total()));
        of_workloads.fold(self.pods.len(), |sum, count| sum.saturating_add(count.unwrap_or(usize::MAX)))
    }

    /// Returns the name of each pod with the name of each of its containers, and those of the pods
    /// with which the workloads begin.
    pub(crate) fn container_names(&self) -> impl Iterator<Item = (String, String)> {
        let of_pods = self.pods.iter().map(|pod| (pod.clone(), vec![pod.name.clone()]));
        // All pods of a workload have the same containers.
        let of_workloads = self.workloads.iter().filter_map(|spec| {
            let names = spec.first_slots().map(|slot| spec.pod_name(slot)).collect();
            Some((spec.pod(spec.first_slots().next()?)?, names))
        });
        of_pods.chain(of_workloads).flat_map(|(pod, names)| {
            let of_pod = |name: String| {
                let containers = pod.containers.iter().map(|container| container.name.clone());
                containers.map(|container| (name.clone(), container)).collect::<Vec<_>>()
            };
            names.into_iter().flat_map(of_pod).collect::<Vec<_>>()
        })
    }
}
