//! Tests of errors in documents: each fault has one error.

use crate::manifest::reader::tests::{problems, problems_of};

fn container(more: &str) -> String {
    format!("{{containers: [{{name: a, image: i{more}}}]}}")
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn each_mistake_is_reported_once_with_its_path() {
    for (spec, expected) in [
        ("{}".to_owned(), "spec.containers is missing; it must have at least one container"),
        ("{containers: {}}".into(), "spec.containers is an empty object; it must be a list"),
        (container(", ports: 5"), "ports is 5; it must be a list"),
        (container(", env: 5"), "env is 5; it must be a list"),
        (container(", volumeMounts: [5]"), "volumeMounts[0] is 5; it must be an object"),
        ("{containers: []}".into(), "spec.containers is missing; it must have at least one container"),
        (
            "{tolerations: {key: a}, containers: [{name: a, image: i}]}".into(),
            "spec.tolerations is an object with key; it must have the types that Kubernetes defines: a sequence is expected",
        ),
        (
            "{nodeSelector: {a: true}, containers: [{name: a, image: i}]}".into(),
            "spec.nodeSelector is an object with a; it must have the types that Kubernetes defines: a string is expected",
        ),
        (
            "{containers: [{image: i}]}".into(),
            "spec.containers[0] is an object with image; it must have a name",
        ),
        (
            "{containers: [{name: a}]}".into(),
            "spec.containers[0].image is missing; it must be the name of an image",
        ),
        (
            "{containers: [{name: A, image: i}]}".into(),
            "spec.containers[0].name is \"A\"; it must be a name of up to 63",
        ),
        (
            "{containers: [{name: a, image: i}, {name: a, image: i}]}".into(),
            "spec.containers[1].name is \"a\"; it must be the name of one container only",
        ),
        (
            container(", comand: [x]"),
            "spec.containers[0].comand is a list; it must not be there: known fields are",
        ),
        (
            container(", livenessprobe: {tcpSocket: {port: 80}}"),
            "livenessprobe is an object with tcpSocket; it must not be there: the probes are startupProbe",
        ),
        (
            container(", imagePullPolicy: Often"),
            "imagePullPolicy is \"Often\"; it must be one of Always, IfNotPresent, Never",
        ),
        (container(", env: [{value: x}]"), "env[0].name is missing; it must be the name of a variable"),
        (container(", env: [{name: A, value: 1}]"), "env[0].value is something else; it must be a string"),
        (
            container(", env: [{name: A, valueFrom: {}}]"),
            "env[0].valueFrom is an empty object; it must have one of",
        ),
        (
            container(", env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]"),
            "env[0].valueFrom.fieldRef.fieldPath is \"spec.x\"; it must be one of metadata.name",
        ),
        (
            container(", ports: [{containerPort: 0}]"),
            "ports[0].containerPort is 0; it must be a port's number",
        ),
        (
            container(", resources: {limits: {cpu: lots}}"),
            "resources.limits.cpu is \"lots\"; it must be a quantity",
        ),
        (
            container(", resources: {limits: {cpu: 1}, requests: {cpu: 2}}"),
            "resources.requests.cpu is 2; it must not be more than the limit",
        ),
        (
            container(", volumeMounts: [{name: v, mountPath: /v}]"),
            "volumeMounts[0].name is \"v\"; it must be the name of a volume of the pod, which has none",
        ),
        (
            container(", securityContext: {privileged: true, allowPrivilegeEscalation: false}"),
            "allowPrivilegeEscalation is false; it must not be false where privileged is true",
        ),
        (
            container(", livenessProbe: {tcpSocket: {port: 0}}"),
            "livenessProbe.tcpSocket.port is 0; it must be",
        ),
        (
            "{dnsPolicy: None, containers: [{name: a, image: i}]}".into(),
            "spec.dnsPolicy is \"None\"; it must not be None where dnsConfig has no nameservers",
        ),
        (
            "{volumes: [{name: v}], containers: [{name: a, image: i}]}".into(),
            "spec.volumes[0] is an object with name; it must have one of emptyDir, hostPath",
        ),
        (
            "{volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}], containers: [{name: a, image: i}]}"
                .into(),
            "spec.volumes[0] is an object with",
        ),
        (
            "{volumes: [{name: v, configMap: {name: c, items: [{key: k, path: a}, {key: l, path: a/b}]}}], \
              containers: [{name: a, image: i}]}"
                .into(),
            "spec.volumes[0].configMap is an object with items, name; it must not have a file at \"a\" and one at \"a/b\"",
        ),
        (
            "{volumes: [{name: v, secret: {}}], containers: [{name: a, image: i}]}".into(),
            "spec.volumes[0].secret.secretName is missing; it must name it",
        ),
        (
            container(", ports: [{name: Web, containerPort: 80}]"),
            "ports[0].name is \"Web\"; it must be a name of up to 15",
        ),
        (
            container(
                ", env: [{name: A, valueFrom: {resourceFieldRef: {containerName: b, resource: limits.cpu}}}]",
            ),
            "resourceFieldRef.containerName is \"b\"; it must be the name of a container of the pod, which has a",
        ),
        (
            container(", lifecycle: {preStop: {httpGet: {port: 80, scheem: HTTPS}}}"),
            "preStop.httpGet.scheem is \"HTTPS\"; it must not be there",
        ),
        (
            container(", lifecycle: {preStop: {exec: {command: [x], timeoutSeconds: 5}}}"),
            "preStop.exec.timeoutSeconds is 5; it must not be there",
        ),
        (
            container(
                ", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, value: [42]}}]",
            ),
            "exitCodes.value is a list; it must not be there",
        ),
        (
            "{hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 80}]}, {name: b, image: i, \
              ports: [{containerPort: 80}]}]}"
                .into(),
            "spec.containers[1].ports[0] is an object with containerPort; it must not be another one with the host's port 80",
        ),
        (
            container(", resources: {requests: {hugepages-2Mi: 2Mi}}"),
            "requests.hugepages-2Mi is \"2Mi\"; it must be as much as the limit",
        ),
        (
            container(", lifecycle: {preStop: {sleep: {seconds: 31}}}"),
            "preStop.sleep.seconds is 31; it must not be more than terminationGracePeriodSeconds, which is 30 here",
        ),
        (
            "{dnsConfig: {nameservers: [here]}, containers: [{name: a, image: i}]}".into(),
            "spec.dnsConfig.nameservers[0] is \"here\"; it must be an address",
        ),
        (
            "{dnsConfig: {searches: [a b]}, containers: [{name: a, image: i}]}".into(),
            "spec.dnsConfig.searches[0] is \"a b\"; it must be a domain",
        ),
        (
            "{hostAliases: [{ip: 127.0.0.1, hostnames: [A]}], containers: [{name: a, image: i}]}".into(),
            "spec.hostAliases[0].hostnames[0] is \"A\"; it must be a name",
        ),
        (
            "{securityContext: {sysctls: [{name: A, value: '1'}]}, containers: [{name: a, image: i}]}".into(),
            "sysctls[0].name is \"A\"; it must be the name of a kernel parameter",
        ),
        (
            "{hostNetwork: true, securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: '1'}]}, \
              containers: [{name: a, image: i}]}"
                .into(),
            "sysctls[0].name is \"net.ipv4.tcp_rmem\"; it must not be there where hostNetwork is true",
        ),
        (
            "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, \
              mountPath: /v, recursiveReadOnly: Enabled}]}]}"
                .into(),
            "recursiveReadOnly is \"Enabled\"; it must be Disabled, unless readOnly is true",
        ),
    ] {
        let all = problems_of("", &spec);
        assert!(
            all.len() == 1 && all[0].starts_with("doc 1: ") && all[0].contains(expected),
            "{spec}: {all:?}"
        );
    }
}

/// Each document has one fault outside the spec of its pod.
#[test]
fn all_mistakes_around_a_pod_spec_are_reported() {
    const SPEC: &str = "{containers: [{name: a, image: i}]}";
    let pod = |metadata: &str| format!("{{kind: Pod, metadata: {{name: p, {metadata}}}, spec: {SPEC}}}");
    let made = |kind: &str, policy: &str| {
        format!(
            "{{kind: {kind}, metadata: {{name: p}}, spec: {{template: {{spec: {{{policy}containers: [{{name: a, image: i}}]}}}}}}}}"
        )
    };
    for (text, expected) in [
        (pod("labels: {a b: c}"), "metadata.labels.a b is \"c\"; it must have a key of up to 63"),
        (pod("labels: {a: b c}"), "metadata.labels.a is \"b c\"; it must be empty, or up to 63"),
        (pod("annotations: {a b: c}"), "metadata.annotations.a b is \"c\"; it must have a key"),
        (
            format!("{{apiVersion: v2, kind: Pod, metadata: {{name: p}}, spec: {SPEC}}}"),
            "apiVersion is \"v2\"; it must be v1",
        ),
        (
            format!("{{kind: Pod, metadata: {{name: p}}, spec: {SPEC}, specs: 1}}"),
            "specs is 1; it must not be there",
        ),
        (
            made("Job", ""),
            "spec.template.spec.restartPolicy is missing; it must be OnFailure or Never for a Job",
        ),
        (
            made("DaemonSet", "restartPolicy: Never, "),
            "spec.template.spec.restartPolicy is \"Never\"; it must be Always for a DaemonSet",
        ),
        (
            "{kind: Deployment, metadata: {name: p}, spec: {template: 5}}".into(),
            "spec.template is 5; it must be an object",
        ),
        ("{kind: ConfigMap, metadata: {name: A_B}}".into(), "metadata.name is \"A_B\"; it must be a name"),
        (
            "{kind: Secret, metadata: {name: a, namespace: A}}".into(),
            "metadata.namespace is \"A\"; it must be a name",
        ),
        (
            "{kind: ConfigMap, metadata: {name: a}, data: {a: b}, binaryData: {a: Yg==}}".into(),
            "data.a is something else; it must not be in binaryData as well",
        ),
        (
            "{kind: RuntimeClass, metadata: {name: a}, handler: A B}".into(),
            "handler is \"A B\"; it must be a name",
        ),
        (
            "{kind: Deployment, metadata: {name: p, namespace: ../x}, spec: {template: {spec: {containers: [{name: a, image: i}]}}}}".into(),
            "metadata.namespace is \"../x\"; it must be a name",
        ),
        ("{kind: ConfigMap, metadata: {name: a}, data: {'': x}}".into(), "data. is something else; it must be a key"),
        (
            "{kind: Deployment, metadata: {name: p}, spec: {template: {metadata: 5, spec: {containers: [{name: a, image: i}]}}}}".into(),
            "spec.template.metadata is 5; it must be an object",
        ),
    ] {
        let all = problems(&text);
        assert!(all.len() == 1 && all[0].contains(expected), "{text}: {all:?}");
    }
}
