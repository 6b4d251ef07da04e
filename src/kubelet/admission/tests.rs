//! Tests of the decisions, with the kubelet's reasons and messages.

use std::path::PathBuf;
use std::time::SystemTime;

use super::*;
use crate::manifest::pod::NodeSelectorOperator::{Gt, Lt};
use crate::manifest::quantity::Quantity;
use crate::manifest::reader::tests::pod;

/// Returns a node with two CPUs, 1,000 MiB of memory for pods and no AppArmor.
fn node() -> NodeInfo {
    NodeInfo {
        name: "node-1".to_owned(),
        cpus: 2,
        memory: 1_100 << 20,
        huge_pages: [("hugepages-2Mi".to_owned(), Quantity::from_units(0))].into(),
        has_apparmor: false,
        ..NodeInfo::detect(PathBuf::new(), false, PathBuf::new(), String::new())
    }
}

/// Returns a pod with these fields of its spec and of its container.
fn with(of_pod: &str, of_container: &str) -> Pod {
    pod(&format!("{{{of_pod}containers: [{{name: a, image: i{of_container}}}]}}"))
}

/// Returns a pod with a host port.
fn with_port(port: &str) -> Pod {
    with("", &format!(", ports: [{{containerPort: 80, {port}}}]"))
}

/// Returns reason and message of the status of a pod; empty texts if the pod is admitted.
fn reason_and_message(pod: &Pod, active: &[&Pod]) -> (String, String) {
    let status = admit(pod, active, &node()).err().map(|it| it.status(pod, SystemTime::now()));
    let status = status.unwrap_or_default();
    let message = status.message.unwrap_or_default();
    (status.reason.unwrap_or_default(), message.trim_start_matches("Pod was rejected: ").to_owned())
}

#[test]
fn unsafe_sysctls_other_operating_systems_and_missing_apparmor_are_rejected() {
    let sysctls = |names: &[&str]| {
        let sysctls: Vec<String> = names.iter().map(|name| format!("{{name: {name}, value: '1'}}")).collect();
        with(&format!("securityContext: {{sysctls: [{}]}}, ", sysctls.join(", ")), "")
    };
    let forbidden = "forbidden sysctl: \"net.ipv4.ip_forward\" not allowlisted";
    let mut labelled = with("", "");
    labelled.labels.insert("kubernetes.io/os".to_owned(), "windows".to_owned());
    let mut annotated = with("", "");
    annotated
        .annotations
        .insert("container.apparmor.security.beta.kubernetes.io/a".to_owned(), "runtime/default".to_owned());
    let apparmor = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    for (pod, reason, message) in [
        (with("", ""), "", ""),
        (sysctls(&["net.ipv4.tcp_rmem", "kernel/shm_rmid_forced"]), "", ""),
        (sysctls(&["net/ipv4/ip_forward"]), "SysctlForbidden", forbidden),
        (
            sysctls(&["net.ipv4.tcp_rmem", "net.ipv4.ip_forward", "kernel.msgmax"]),
            "SysctlForbidden",
            forbidden,
        ),
        (
            labelled,
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ),
        (with("os: {name: linux}, ", ""), "", ""),
        (
            with("os: {name: windows}, ", ""),
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ),
        (with("securityContext: {appArmorProfile: {type: RuntimeDefault}}, ", ""), "AppArmor", apparmor),
        (with("", ", securityContext: {appArmorProfile: {type: RuntimeDefault}}"), "AppArmor", apparmor),
        (with("securityContext: {appArmorProfile: {type: Unconfined}}, ", ""), "", ""),
        (annotated, "AppArmor", apparmor),
    ] {
        assert_eq!(reason_and_message(&pod, &[]), (reason.to_owned(), message.to_owned()), "{pod:?}");
    }
    let node = NodeInfo { has_apparmor: true, ..node() };
    let confined = with("", ", securityContext: {appArmorProfile: {type: RuntimeDefault}}");
    assert_eq!(admit(&confined, &[], &node), Ok(()));
}

#[test]
fn a_pod_is_rejected_unless_the_node_matches_its_selector_and_affinity() {
    let affinity = |terms: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             {{nodeSelectorTerms: [{terms}]}}}}}}, "
        )
    };
    let label = |requirement: &str| affinity(&format!("{{matchExpressions: [{{{requirement}}}]}}"));
    let name =
        |requirement: &str| affinity(&format!("{{matchFields: [{{key: metadata.name, {requirement}}}]}}"));
    for (is_admitted, spec) in [
        (true, "nodeSelector: {kubernetes.io/os: linux, kubernetes.io/hostname: node-1}, ".to_owned()),
        (false, "nodeSelector: {kubernetes.io/os: linux, disk: ssd}, ".to_owned()),
        (false, "nodeSelector: {kubernetes.io/os: windows}, ".to_owned()),
        (true, label("key: kubernetes.io/os, operator: In, values: [windows, linux]")),
        (false, label("key: disk, operator: In, values: [ssd]")),
        (false, label("key: kubernetes.io/os, operator: NotIn, values: [linux]")),
        (true, label("key: disk, operator: NotIn, values: [ssd]")),
        (true, label("key: beta.kubernetes.io/arch, operator: Exists")),
        (false, label("key: disk, operator: Exists")),
        (true, label("key: disk, operator: DoesNotExist")),
        (false, label("key: kubernetes.io/os, operator: DoesNotExist")),
        (false, label("key: kubernetes.io/os, operator: Gt, values: ['1']")),
        (true, name("operator: In, values: [node-1]")),
        (false, name("operator: NotIn, values: [node-1]")),
        (false, affinity("{}")),
        (true, affinity("{}, {matchExpressions: [{key: kubernetes.io/os, operator: Exists}]}")),
        (
            false,
            affinity(
                "{matchExpressions: [{key: kubernetes.io/os, operator: Exists}], \
                 matchFields: [{key: metadata.name, operator: In, values: [node-2]}]}",
            ),
        ),
        (false, format!("nodeSelector: {{disk: ssd}}, {}", name("operator: In, values: [node-1]"))),
    ] {
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        let expected = if is_admitted { ("", "") } else { ("NodeAffinity", message) };
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        assert_eq!(reason_and_message(&with(&spec, ""), &[]), expected, "{spec}");
    }
}

#[test]
fn numbers_in_labels_are_compared_as_integers() {
    let mut placement = with(
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
              [{matchExpressions: [{key: kubernetes.io/hostname, operator: Gt, values: ['9']}]}]}}}, ",
        "",
    )
    .placement;
    let mut matches = |name: &str, operator| {
        let terms = placement.node_affinity.as_mut().unwrap();
        terms[0].labels[0].operator = operator;
        node_affinity::matches(&placement, &NodeInfo { name: name.to_owned(), ..node() })
    };
    assert!(matches("10", Gt) && !matches("10", Lt) && matches("8", Lt) && !matches("9", Gt));
    assert!(!matches("ten", Gt) && !matches("ten", Lt));
}

#[test]
fn a_pod_is_rejected_if_another_pod_uses_its_host_port() {
    let used = with_port("hostPort: 8080, hostIP: 192.0.2.1");
    let everywhere = with_port("hostPort: 8081");
    let mut in_host_network = with("hostNetwork: true, ", ", ports: [{containerPort: 8082}]");
    in_host_network.name = "host".to_owned();
    let init = pod("{initContainers: [{name: b, image: i, ports: [{containerPort: 1, hostPort: 8083}]}], \
         containers: [{name: a, image: i}]}");
    let sidecar = pod(
        "{initContainers: [{name: b, image: i, restartPolicy: Always, ports: [{containerPort: 1, hostPort: 8084}]}], \
         containers: [{name: a, image: i}]}",
    );
    let active = [&used, &everywhere, &in_host_network, &init, &sidecar];
    for (is_admitted, port) in [
        (false, "hostPort: 8080"),
        (false, "hostPort: 8080, hostIP: 0.0.0.0"),
        (false, "hostPort: 8080, hostIP: 192.0.2.1"),
        (true, "hostPort: 8080, hostIP: 192.0.2.2"),
        (true, "hostPort: 8080, protocol: UDP"),
        (false, "hostPort: 8081, hostIP: 192.0.2.2"),
        (false, "hostPort: 8082"),
        (true, "hostPort: 8083"),
        (false, "hostPort: 8084"),
        (true, "name: http"),
    ] {
        let message =
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        let expected = if is_admitted { ("", "") } else { ("NodePorts", message) };
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        assert_eq!(reason_and_message(&with_port(port), &active), expected, "{port}");
    }
}

#[test]
fn a_pod_is_rejected_if_the_node_lacks_resources_and_no_pod_can_be_preempted_for_it() {
    let requests = |requests: &str| with("", &format!(", resources: {{requests: {{{requests}}}}}"));
    let limits = |limits: &str| with("", &format!(", resources: {{limits: {{{limits}}}}}"));
    let active = [&requests("cpu: 500m, memory: 100Mi"), &requests("cpu: 1")];
    for (pod, missing) in [
        (with("", ""), ""),
        (requests("cpu: 500m, memory: 900Mi"), ""),
        (requests("cpu: 600m"), "(res: cpu, q: 100), "),
        (requests("memory: 901Mi, cpu: 3"), "(res: cpu, q: 2500), (res: memory, q: 1048576), "),
        (with("overhead: {cpu: 400m}, ", ", resources: {requests: {cpu: 200m}}"), "(res: cpu, q: 100), "),
        (limits("hugepages-2Mi: 4Mi, cpu: 100m"), "(res: hugepages-2Mi, q: 4194304), "),
        (limits("hugepages-1Gi: 1Gi, cpu: 100m"), "(res: hugepages-1Gi, q: 1073741824), "),
        (limits("example.com/device: 1"), ""),
    ] {
        let message = format!(
            "Unexpected error while attempting to recover from admission failure: preemption: error finding \
             a set of pods to preempt: no set of running pods found to reclaim resources: [{missing}]"
        );
        let expected =
            if missing.is_empty() { ("", String::new()) } else { ("UnexpectedAdmissionError", message) };
        assert_eq!(reason_and_message(&pod, &active), (expected.0.to_owned(), expected.1), "{pod:?}");
    }
    let empty = with("", "");
    let (admitted, rejected) = (vec![&empty; 109], vec![&empty; 110]);
    assert_eq!(reason_and_message(&empty, &admitted).0, "");
    assert!(reason_and_message(&empty, &rejected).1.ends_with("[(res: pods, q: 1), ]"));
}

#[test]
fn a_pod_of_a_workload_is_rejected_first_for_a_resource_that_the_node_lacks() {
    let of_workload = |pod: Pod| Pod { has_controller: true, ..pod };
    let active = [&with("", ", resources: {requests: {cpu: 1500m}}")];
    for (fields, resource, amounts) in [
        ("cpu: 600m", "cpu", "requested: 600, used: 1500, capacity: 2000"),
        ("memory: 2Gi", "memory", "requested: 2147483648, used: 0, capacity: 1048576000"),
    ] {
        let pod =
            of_workload(with("nodeSelector: {a: b}, ", &format!(", resources: {{requests: {{{fields}}}}}")));
        let message = format!("Node didn't have enough resource: {resource}, {amounts}");
        assert_eq!(reason_and_message(&pod, &active), (format!("OutOf{resource}"), message));
    }
    let empty = of_workload(with("", ""));
    assert_eq!(reason_and_message(&empty, &vec![&empty; 110]).0, "OutOfpods");
}

/// The kubelet returns other reasons than insufficient resources first, because it could preempt
/// pods.
#[test]
fn the_first_failed_check_determines_the_reason() {
    let port = ", ports: [{containerPort: 80, hostPort: 80}], resources: {requests: {cpu: 9}}";
    let active = with("", port);
    let all = "securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}, nodeSelector: {a: b}, ";
    for (spec, expected) in
        [(all, "SysctlForbidden"), ("nodeSelector: {a: b}, ", "NodeAffinity"), ("", "NodePorts")]
    {
        assert_eq!(reason_and_message(&with(spec, port), &[&active]).0, expected);
    }
}

#[test]
fn a_rejected_pod_has_the_status_of_the_kubelet() {
    let pod = with("os: {name: windows}, ", ", resources: {requests: {cpu: 1}}");
    let rejection = admit(&pod, &[], &node()).unwrap_err();
    let status = serde_json::to_value(rejection.status(&pod, SystemTime::UNIX_EPOCH)).unwrap();
    let expected = serde_json::json!({
        "phase": "Failed",
        "reason": "PodOSNotSupported",
        "message": "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
        "qosClass": "Burstable",
        "startTime": "1970-01-01T00:00:00Z",
    });
    assert_eq!(status, expected);
    assert_eq!(rejection.event().message, "Failed to admit pod as the OS field doesn't match node OS");
}

#[test]
fn a_decision_lasts_as_long_as_the_pod_is_desired_and_ended_pods_need_nothing() {
    let named = |name: &str| {
        let pod = with_port("hostPort: 80");
        Arc::new(Pod { name: name.to_owned(), uid: name.to_owned(), ..pod })
    };
    let [first, second, third] = ["first", "second", "third"].map(named);
    let (admission, node, running) = (Admission::default(), node(), HashSet::new());
    let rejected = |admission: &Admission| -> Vec<bool> {
        [&first, &second, &third].map(|pod| admission.rejection(pod).is_some()).into()
    };
    admission.update(&[first.clone(), second.clone()], &running, &node);
    assert_eq!(rejected(&admission), [false, true, false]);
    // The port is free, and the rejected pod stays rejected.
    admission.update(std::slice::from_ref(&second), &running, &node);
    assert_eq!(rejected(&admission), [false, true, false]);
    // A pod that is desired again is decided about again.
    admission.update(&[], &running, &node);
    admission.update(&[second.clone(), first.clone()], &running, &node);
    assert_eq!(rejected(&admission), [true, false, false]);
    admission.update(
        &[second.clone(), first.clone(), third.clone()],
        &HashSet::from(["second".to_owned()]),
        &node,
    );
    assert_eq!(rejected(&admission), [true, false, false]);
    let orphan = Pod { origin: PodOrigin::Orphan, ..Pod::clone(&first) };
    assert_eq!(admission.rejection(&orphan), None);
}
