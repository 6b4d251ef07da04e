//! Specifications from sources that were found without configuration. They name the calls of a
//! kubelet. A user did not choose them, so probeshim never runs their probes.

use std::sync::Arc;

use crate::inventory::Sandbox;
use crate::manifest::{Manifests, PodSpec, Source};

/// Specifications that only name calls.
#[derive(Clone, Debug, Default)]
pub(super) struct NamesOnly {
    read_only_port: Arc<Manifests>,
    static_pods: Arc<Manifests>,
}

impl NamesOnly {
    /// Replaces the pods of a source. Returns whether they have changed.
    pub(super) fn set_pods(&mut self, source: Source, pods: Manifests) -> bool {
        let manifests = match source {
            Source::ReadOnlyPort => &mut self.read_only_port,
            Source::StaticPods => &mut self.static_pods,
            _ => return false,
        };
        let is_new = **manifests != pods;
        if is_new {
            *manifests = Arc::new(pods);
        }
        is_new
    }

    /// Returns the specifications of a pod with their sources, in the order of precedence.
    pub(super) fn specs_by_source(&self, sandbox: &Sandbox) -> impl Iterator<Item = (Source, Arc<PodSpec>)> {
        let manifests =
            [(Source::ReadOnlyPort, &self.read_only_port), (Source::StaticPods, &self.static_pods)];
        manifests
            .into_iter()
            .filter_map(|(source, all)| Some((source, all.for_sandbox(sandbox)?.pod.clone())))
    }
}
