//! Admission of pods: decides whether the node can run a pod beside the pods that it runs already
//! (kubelet: `allocation/allocation_manager.go`: `AddPod`; `lifecycle/predicate.go`: `Admit`).

mod apparmor;
mod node_affinity;
mod ports;
mod rejection;
mod resources;
mod sysctls;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::node::NodeInfo;
use crate::events::reason;
use crate::manifest::pod::{Pod, PodOrigin};

pub(super) use rejection::Rejection;
use resources::insufficient_resources;

/// Label with the operating system, of nodes and of pods.
const OS_LABEL: &str = "kubernetes.io/os";

/// Operating system of this node in the notation of Kubernetes.
const OS: &str = "linux";

/// Decisions about the desired pods of manifests. A decision lasts as long as its pod is desired.
#[derive(Debug, Default)]
pub(super) struct Admission(Mutex<Vec<Decision>>);

/// A desired pod, and whether it is admitted.
#[derive(Debug)]
struct Decision {
    pod: Arc<Pod>,
    /// Reason why the pod is not admitted; `None` if it is.
    rejection: Option<Rejection>,
}

impl Admission {
    /// Decides about pods that were not desired before, in their order, and forgets pods that are
    /// no longer desired. Pods with a uid in `inactive` have ended and need nothing (kubelet:
    /// `HandlePodAdditions`, `GetActivePods`).
    pub(super) fn update(&self, pods: &[Arc<Pod>], inactive: &HashSet<String>, node: &NodeInfo) {
        let mut decisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let desired: HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        decisions.retain(|decision| desired.contains(decision.pod.uid.as_str()));
        for pod in pods.iter().filter(|pod| pod.origin == PodOrigin::Manifest) {
            if let Some(known) = decisions.iter_mut().find(|decision| decision.pod.uid == pod.uid) {
                known.pod = pod.clone();
                continue;
            }
            let active =
                decisions.iter().filter(|it| it.rejection.is_none() && !inactive.contains(&it.pod.uid));
            let active: Vec<&Pod> = active.map(|decision| &*decision.pod).collect();
            let rejection = admit(pod, &active, node).err();
            decisions.push(Decision { pod: pod.clone(), rejection });
        }
    }

    /// Returns the reason why a pod is not admitted; `None` if it is, or if nothing decides about
    /// it, as for orphans and pods of clients.
    pub(super) fn rejection(&self, pod: &Pod) -> Option<Rejection> {
        let decisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = decisions.iter().find(|decision| decision.pod.uid == pod.uid);
        decision.filter(|_| pod.origin == PodOrigin::Manifest)?.rejection.clone()
    }
}

/// Decides whether the node can run a pod beside `active` pods. As with the kubelet, the first
/// check that fails determines the reason.
fn admit(pod: &Pod, active: &[&Pod], node: &NodeInfo) -> Result<(), Rejection> {
    sysctls::check(pod)?;
    check_os(pod)?;
    check_node(pod, active, node)?;
    apparmor::check(pod, node)
}

/// Checks the operating system of a pod. As with the kubelet, a label of the pod counts, and not
/// one in its node selector (`rejectPodAdmissionBasedOnOSSelector`,
/// `rejectPodAdmissionBasedOnOSField`).
fn check_os(pod: &Pod) -> Result<(), Rejection> {
    if pod.labels.get(OS_LABEL).is_some_and(|os| os != OS) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        Err(Rejection::new(reason::POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH, message))
    } else if pod.placement.is_windows {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        Err(Rejection::new(reason::POD_OS_NOT_SUPPORTED, message))
    } else {
        Ok(())
    }
}

/// Checks whether a pod fits the node. Insufficient resources count first for a pod of a workload
/// and last for a pod of a manifest, which is critical, so that the kubelet would preempt other
/// pods for it. It may preempt no other pod of a manifest (`predicate.go`: `Admit`;
/// `preemption.go`: `HandleAdmissionFailure`, `getPodsToPreempt`).
fn check_node(pod: &Pod, active: &[&Pod], node: &NodeInfo) -> Result<(), Rejection> {
    let insufficient = insufficient_resources(pod, active, node);
    if let Some(first) = insufficient.first().filter(|_| pod.has_controller) {
        return Err(Rejection::new(first.reason(), first.to_string()));
    }
    if !node_affinity::matches(&pod.placement, node) {
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return Err(Rejection::new(reason::NODE_AFFINITY, message));
    }
    if ports::has_conflict(pod, active) {
        let message =
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return Err(Rejection::new(reason::NODE_PORTS, message));
    }
    if insufficient.is_empty() {
        return Ok(());
    }
    // The kubelet writes the list this way (`preemption.go`: `admissionRequirementList`).
    let resources = insufficient.iter().fold(String::new(), |text, resource| {
        format!("{text}(res: {}, q: {}), ", resource.name(), resource.missing())
    });
    let message = format!(
        "Unexpected error while attempting to recover from admission failure: preemption: error finding \
         a set of pods to preempt: no set of running pods found to reclaim resources: [{resources}]"
    );
    Err(Rejection::new(reason::UNEXPECTED_ADMISSION_ERROR, message))
}

#[cfg(test)]
mod tests;
