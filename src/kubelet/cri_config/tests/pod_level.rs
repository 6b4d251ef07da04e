//! Host name, overhead and resources of a whole pod.

use super::super::*;
use super::{inputs, made, node};
use crate::cri::v1::LinuxContainerResources;
use crate::manifest::reader::tests::pod;

#[test]
fn the_host_name_in_the_kernel_has_the_domain_only_with_set_hostname_as_fqdn() {
    let long = "a".repeat(60);
    for (fields, kernel, hosts) in [
        ("", Ok("p"), "p"),
        ("hostname: web,", Ok("web"), "web"),
        ("subdomain: sub,", Ok("p"), "p.sub.test.svc. p"),
        ("setHostnameAsFQDN: true,", Ok("p"), "p"),
        ("subdomain: sub, setHostnameAsFQDN: true,", Ok("p.sub.test.svc."), "p.sub.test.svc. p"),
        (
            "hostname: web, subdomain: sub, hostnameOverride: other.example.com,",
            Ok("other.example.com"),
            "other.example.com",
        ),
        (&format!("hostname: {long}, subdomain: sub, setHostnameAsFQDN: true,"), Err(()), ""),
    ] {
        let pod = pod(&format!("{{{fields} containers: [{{name: a, image: i}}]}}"));
        let config = sandbox(&pod, &node(), &inputs(&Dns::default()));
        match kernel {
            Ok(kernel) => {
                assert_eq!(config.unwrap().hostname, kernel, "{fields}");
                assert_eq!(host_names(&pod).join(" "), hosts, "{fields}");
            }
            Err(()) => assert_eq!(
                config.unwrap_err().to_string(),
                format!(
                    "failed to construct FQDN from pod hostname and cluster domain, FQDN {long}.sub.test.svc. is too long (64 characters is the max, 74 characters requested)"
                )
            ),
        }
    }
}

#[test]
fn the_overhead_of_a_pod_is_beside_the_resources_of_its_sandbox() {
    let pod = pod("{overhead: {cpu: 250m, memory: 64Mi}, \
         containers: [{name: a, image: i, resources: {limits: {cpu: 1, memory: 128Mi}}}]}");
    let linux = sandbox(&pod, &node(), &inputs(&Dns::default())).unwrap().linux.unwrap();
    let amounts = |it: LinuxContainerResources| (it.cpu_shares, it.cpu_quota, it.memory_limit_in_bytes);
    assert_eq!(amounts(linux.overhead.unwrap()), (256, 25_000, 64 << 20));
    assert_eq!(amounts(linux.resources.unwrap()), (1_024, 100_000, 128 << 20));
    assert_eq!(memory_limit(&pod), Some(192 << 20));
}

/// The expected numbers follow from the kubelet's source. A kubelet without cgroups per QoS class,
/// as in the comparison, panics on such a pod.
#[test]
fn containers_share_the_resources_of_their_pod() {
    let own = "{limits: {cpu: 2, memory: 2Gi, hugepages-2Mi: 4Mi}, requests: {cpu: 1, memory: 1Gi}}";
    let pod = pod(&format!(
        "{{resources: {own}, containers: [
            {{name: free, image: i}},
            {{name: bound, image: i, resources: {{limits: {{cpu: 500m, memory: 512Mi}}, requests: {{cpu: 100m, memory: 256Mi}}}}}}]}}"
    ));
    let resources = |name: &str| made(&pod, name).linux.unwrap().resources.unwrap();
    let amounts = |it: &LinuxContainerResources| (it.cpu_shares, it.cpu_quota, it.memory_limit_in_bytes);
    // A container without its own limits has those of the pod.
    assert_eq!(amounts(&resources("free")), (2_048, 200_000, 2 << 30));
    assert_eq!(amounts(&resources("bound")), (102, 50_000, 512 << 20));
    assert_eq!(resources("free").hugepage_limits[0].limit, 4 << 20);
    // 768 Mi are requested by no container. Each has the half of it, of 25 Gi.
    assert_eq!((resources("free").oom_score_adj, resources("bound").oom_score_adj), (985, 975));
    let linux = sandbox(&pod, &node(), &inputs(&Dns::default())).unwrap().linux.unwrap();
    assert_eq!(amounts(&linux.resources.unwrap()), (1_024, 200_000, 2 << 30));
    assert_eq!((pod.qos().name(), memory_limit(&pod)), ("Burstable", Some(2 << 30)));
}

#[test]
fn the_resources_of_a_pod_have_defaults_and_determine_its_qos_class() {
    for (own, requests, class) in [
        // Requests default to those of the containers, or else to the limits of the pod.
        ("{limits: {cpu: 2, memory: 1Gi}}", "cpu 300 memory 1073741824000", "Burstable"),
        ("{limits: {cpu: 300m, memory: 1Gi}}", "cpu 300 memory 1073741824000", "Guaranteed"),
        ("{requests: {cpu: 1}}", "cpu 1000", "Burstable"),
        // The resources of containers do not count beside an empty object.
        ("{}", "", "BestEffort"),
    ] {
        let pod = pod(&format!(
            "{{resources: {own}, containers: [{{name: a, image: i, resources: {{requests: {{cpu: 300m}}}}}}]}}"
        ));
        let own = &pod.resources.as_ref().unwrap().requests;
        let shown: Vec<String> =
            own.iter().map(|(name, amount)| format!("{name} {}", amount.thousandths())).collect();
        assert_eq!((shown.join(" ").as_str(), pod.qos().name()), (requests, class));
    }
}
