//! Sources of pods (kubelet: `config.PodConfig`).

use std::future::Future;
use std::sync::Arc;

use crate::manifest::ConfigObjects;
use crate::manifest::pod::Pod;
use crate::probe::SpecResolver;

/// Publishes the pods that are to run. The built-in kubelet has one source.
pub(crate) trait PodSource: Send + 'static {
    /// Owner of the pods.
    const OWNER: PodOwner;

    /// Returns the desired pods, and marks them as seen.
    fn desired(&mut self) -> DesiredPods;

    /// Waits until the desired pods change. This method is cancel-safe.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;

    /// Ends the source. Its pods are no longer desired.
    fn end(self)
    where
        Self: Sized,
    {
    }
}

/// The pods that are to run.
#[derive(Debug, Default)]
pub(crate) struct DesiredPods {
    pub(super) pods: Vec<Arc<Pod>>,
    /// Objects that the pods may refer to.
    pub(super) objects: Arc<ConfigObjects>,
    /// Probes of other sources, to which the probes of the pods are added; `None` if the pods
    /// specify none.
    pub(super) specs: Option<SpecResolver>,
}

/// Owner of the pods of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodOwner {
    /// The built-in kubelet: it terminates the pods when it ends, rotates their logs, and removes
    /// the pods of an earlier run.
    Kubelet,
    /// Clients: their pods keep running when the built-in kubelet ends.
    Clients,
}

/// Adds the probes of pods to the probes of other sources.
pub(super) fn with_pods<'a>(specs: &SpecResolver, pods: impl Iterator<Item = &'a Arc<Pod>>) -> SpecResolver {
    let pods = pods.map(|pod| {
        let [namespace, name, uid] = [&pod.namespace, &pod.name, &pod.uid].map(Clone::clone);
        (namespace, name, uid, pod.spec.clone())
    });
    specs.clone().with_pods(pods)
}
