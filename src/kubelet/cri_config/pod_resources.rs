//! Requests and limits of a whole pod (`k8s.io/component-helpers/resource/helpers.go`:
//! `PodRequests`, `PodLimits`).

use std::collections::BTreeMap;

use crate::manifest::ContainerKind;
use crate::manifest::pod::{Container, Pod, Qos, Resources};
use crate::manifest::quantity::Quantity;

/// Returns the requests and limits of a pod: the sum of the containers that run together, regular
/// containers and sidecars, or what an init container needs together with the sidecars before it,
/// where that is higher.
pub(super) fn total(pod: &Pod) -> Resources {
    let regular = pod.regular_containers().map(|container| &container.resources);
    let sidecars = pod.init_containers().filter(|container| is_sidecar(container));
    let lasting = regular.chain(sidecars.map(|sidecar| &sidecar.resources)).fold(Resources::default(), add);
    initialization(pod).into_iter().fold(lasting, |total, needed| Resources {
        requests: max(total.requests, needed.requests),
        limits: max(total.limits, needed.limits),
    })
}

/// Returns the memory limit of a pod in bytes; `None` if a container has no limit and the pod thus
/// has none either (kubelet: `cm/helpers_linux.go`: `ResourceConfigForPod`).
pub(in crate::kubelet) fn memory_limit(pod: &Pod) -> Option<u64> {
    let has_limit = |needed: &Resources| needed.limits.get("memory").is_some_and(|limit| !limit.is_zero());
    let all_have_limits = pod.regular_containers().all(|container| has_limit(&container.resources))
        && initialization(pod).iter().all(has_limit);
    let is_limited = match pod.qos() {
        Qos::Guaranteed => true,
        Qos::Burstable => all_have_limits,
        Qos::BestEffort => false,
    };
    let limit = total(pod).limits.get("memory").map_or(0, |limit| limit.units().unsigned_abs());
    Some(limit).filter(|limit| is_limited && *limit > 0)
}

/// Returns the resources that are needed when each init container or sidecar has been started:
/// those of the sidecars so far, together with those of the init container.
fn initialization(pod: &Pod) -> Vec<Resources> {
    let mut sidecars = Resources::default();
    let needed = pod.init_containers().map(|container| {
        let needed = add(sidecars.clone(), &container.resources);
        if is_sidecar(container) {
            sidecars = needed.clone();
        }
        needed
    });
    needed.collect()
}

fn is_sidecar(container: &Container) -> bool {
    container.spec.role == ContainerKind::Sidecar
}

fn add(mut sum: Resources, more: &Resources) -> Resources {
    for (into, more) in [(&mut sum.requests, &more.requests), (&mut sum.limits, &more.limits)] {
        for (name, quantity) in more {
            let known = into.entry(name.clone()).or_default();
            *known = *known + *quantity;
        }
    }
    sum
}

fn max(
    mut left: BTreeMap<String, Quantity>,
    right: BTreeMap<String, Quantity>,
) -> BTreeMap<String, Quantity> {
    for (name, quantity) in right {
        let known = left.entry(name).or_default();
        *known = (*known).max(quantity);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::reader::tests::pod;

    /// Returns a pod of containers that are written as their kind and their memory limit.
    fn limited(containers: &[(&str, &str)]) -> Pod {
        let written = |wanted: fn(&str) -> bool| {
            let containers = containers.iter().enumerate().filter(|(_, (kind, _))| wanted(kind));
            let text = |(index, (kind, limit)): (usize, &(&str, &str))| {
                let policy = if *kind == "sidecar" { ", restartPolicy: Always" } else { "" };
                let limits = if limit.is_empty() { String::new() } else { format!("memory: {limit}") };
                format!("{{name: c{index}, image: i{policy}, resources: {{limits: {{{limits}}}}}}}")
            };
            containers.map(text).collect::<Vec<_>>().join(", ")
        };
        let (init, regular) = (written(|kind| kind != "regular"), written(|kind| kind == "regular"));
        pod(&format!("{{initContainers: [{init}], containers: [{regular}]}}"))
    }

    #[test]
    fn a_pod_needs_what_its_init_containers_need_together_with_the_sidecars_before_them() {
        for (containers, expected) in [
            (&[("regular", "1"), ("regular", "2")][..], 3),
            (&[("sidecar", "4"), ("regular", "1")], 5),
            (&[("init", "9"), ("regular", "1")], 9),
            (&[("sidecar", "4"), ("init", "9"), ("regular", "1")], 13),
            (&[("init", "9"), ("sidecar", "4"), ("regular", "1")], 9),
            (&[("sidecar", "4"), ("init", "2"), ("sidecar", "8"), ("regular", "1")], 13),
        ] {
            let total = total(&limited(containers));
            for amounts in [total.requests, total.limits] {
                assert_eq!(amounts["memory"], Quantity::from_units(expected), "{containers:?}");
            }
        }
    }

    #[test]
    fn a_pod_has_a_memory_limit_if_all_its_containers_have_one() {
        for (containers, expected) in [
            (&[("regular", "1"), ("regular", "2")][..], Some(3)),
            (&[("regular", "1"), ("regular", "")], None),
            (&[("regular", "1"), ("regular", "0")], None),
            (&[("init", ""), ("regular", "1")], None),
            // As with the kubelet, an init container counts together with the sidecars before it.
            (&[("sidecar", "4"), ("init", ""), ("regular", "1")], Some(5)),
            (&[("regular", "")], None),
        ] {
            assert_eq!(memory_limit(&limited(containers)), expected, "{containers:?}");
        }
    }
}
