//! Resources of the node that pods request (Kubernetes:
//! `pkg/scheduler/framework/plugins/noderesources/fit.go`: `fitsRequest`).

use std::fmt;

use crate::events::reason;
use crate::kubelet::node::NodeInfo;
use crate::manifest::pod::{Amounts, Pod, is_extended_resource};
use crate::manifest::quantity::Quantity;

/// Largest number of pods on a node (kubelet: `maxPods`, by default).
const MAX_PODS: i64 = 110;

/// Resources that the kubelet compares first, in this order.
const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// A resource of which the node has too little for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InsufficientResource {
    name: String,
    // Amounts are thousandths of a CPU, and whole units of other resources.
    requested: i64,
    used: i64,
    capacity: i64,
}

impl InsufficientResource {
    /// Returns the name of the resource.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the reason why a pod of a workload is not admitted (`predicate.go`:
    /// `InsufficientResourcePrefix`). Huge pages of other sizes have a common reason.
    pub(super) fn reason(&self) -> &'static str {
        match self.name.as_str() {
            "cpu" => reason::OUT_OF_CPU,
            "memory" => reason::OUT_OF_MEMORY,
            "ephemeral-storage" => reason::OUT_OF_EPHEMERAL_STORAGE,
            "pods" => reason::OUT_OF_PODS,
            "hugepages-2Mi" => reason::OUT_OF_HUGE_PAGES_2MI,
            "hugepages-1Gi" => reason::OUT_OF_HUGE_PAGES_1GI,
            _ => reason::UNEXPECTED_ADMISSION_ERROR,
        }
    }

    /// Returns the amount that is missing.
    pub(super) fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

impl fmt::Display for InsufficientResource {
    /// Writes the resource as the kubelet does (`predicate.go`: `InsufficientResourceError`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, requested, used, capacity } = self;
        write!(
            f,
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }
}

/// Returns the resources of which the node has too little to run a pod beside others. Resources of
/// device plugins that the node lacks are not needed (kubelet: `removeMissingExtendedResources`).
pub(super) fn insufficient_resources(
    pod: &Pod,
    others: &[&Pod],
    node: &NodeInfo,
) -> Vec<InsufficientResource> {
    let mut insufficient = Vec::new();
    let mut compare = |name: &str, requested: i64, used: i64, capacity: i64| {
        let resource = InsufficientResource { name: name.to_owned(), requested, used, capacity };
        if requested > 0 && resource.missing() > 0 {
            insufficient.push(resource);
        }
    };
    compare("pods", 1, i64::try_from(others.len()).unwrap_or(i64::MAX), MAX_PODS);
    let requests = pod.requests();
    let of_others: Vec<Amounts> = others.iter().map(|other| other.requests()).collect();
    let is_other = |name: &&str| !FIRST.contains(name) && !is_extended_resource(name);
    let others = requests.keys().map(String::as_str).filter(is_other);
    for name in FIRST.into_iter().chain(others) {
        let used = of_others.iter().map(|requests| amount(requests, name));
        compare(name, amount(&requests, name), used.fold(0, i64::saturating_add), allocatable(node, name));
    }
    insufficient
}

/// Returns the amount of a resource: thousandths of a CPU, and whole units of other resources.
fn amount(amounts: &Amounts, name: &str) -> i64 {
    amounts.get(name).map_or(0, |amount| in_units_of(name, *amount))
}

/// Returns the amount of a resource that pods may use. Huge pages are not reserved.
fn allocatable(node: &NodeInfo, name: &str) -> i64 {
    let known = node.allocatable(name).or_else(|| node.huge_pages.get(name).copied());
    known.map_or(0, |amount| in_units_of(name, amount))
}

fn in_units_of(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" { amount.thousandths() } else { amount.units() }
}
