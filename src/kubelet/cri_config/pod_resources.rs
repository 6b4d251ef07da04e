//! Memory limit of a whole pod.

use crate::manifest::pod::{Pod, Qos, Resources};

/// Returns the memory limit of a pod in bytes; `None` if neither the pod nor each container has a
/// limit (kubelet: `cm/helpers_linux.go`: `ResourceConfigForPod`).
pub(in crate::kubelet) fn memory_limit(pod: &Pod) -> Option<u64> {
    let has_limit = |needed: &Resources| needed.limits.get("memory").is_some_and(|limit| !limit.is_zero());
    let all_have_limits = pod.regular_containers().all(|container| has_limit(&container.resources))
        && Resources::of_initialization(&pod.containers).iter().all(has_limit);
    let is_limited = match pod.qos() {
        Qos::Guaranteed => true,
        Qos::Burstable => all_have_limits || pod.own_limit("memory").is_some(),
        Qos::BestEffort => false,
    };
    let limit = pod.total_resources().limits.get("memory").copied();
    let limit = limit.filter(|limit| is_limited && !limit.is_zero())?;
    let overhead = pod.overhead.as_ref().and_then(|overhead| overhead.get("memory").copied());
    Some((limit + overhead.unwrap_or_default()).units().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::quantity::Quantity;
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
            let total = limited(containers).total_resources();
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
