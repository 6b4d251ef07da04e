//! Tests of errors in the specs of pods: each fault has one error.

use crate::manifest::reader::tests::problems_of;

fn container(more: &str) -> String {
    format!("{{containers: [{{name: a, image: i{more}}}]}}")
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn each_manifest_error_is_reported_once_with_its_path() {
    for (spec, expected) in [
        ("{}".to_owned(), "spec.containers: Required value"),
        (
            "{readinessGates: [{conditionType: a b}], containers: [{name: a, image: i}]}".into(),
            "spec.readinessGates[0].conditionType: Invalid value: \"a b\": name part must consist",
        ),
        (
            "{readinessGates: [{}], containers: [{name: a, image: i}]}".into(),
            "spec.readinessGates[0].conditionType: Required value",
        ),
        (
            "{securityContext: {fsGroupChangePolicy: Never}, containers: [{name: a, image: i}]}".into(),
            "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"Never\"",
        ),
        (
            container(", env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: a b}}}]"),
            "spec.containers[0].env[0].valueFrom.secretKeyRef.key: Invalid value: \"a b\": a valid config key",
        ),
        (
            "{runtimeClassName: A_b, containers: [{name: a, image: i}]}".into(),
            "spec.runtimeClassName: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain",
        ),
        (
            "{subdomain: a.b, containers: [{name: a, image: i}]}".into(),
            "spec.subdomain: Invalid value: \"a.b\": a lowercase RFC 1123 label",
        ),
        (
            "{hostnameOverride: A, containers: [{name: a, image: i}]}".into(),
            "spec.hostnameOverride: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        ),
        (
            "{hostnameOverride: a, setHostnameAsFQDN: true, containers: [{name: a, image: i}]}".into(),
            "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
        ),
        (
            "{hostnameOverride: a, hostNetwork: true, containers: [{name: a, image: i}]}".into(),
            "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
        ),
        (
            format!("{{hostnameOverride: {}, containers: [{{name: a, image: i}}]}}", "a".repeat(65)),
            "spec.hostnameOverride: Invalid value: ",
        ),
        (
            "{overhead: {cpu: -1}, containers: [{name: a, image: i}]}".into(),
            "spec.overhead.cpu: Invalid value: -1: must be a non-negative quantity",
        ),
        (
            "{overhead: {disk: 1}, containers: [{name: a, image: i}]}".into(),
            "spec.overhead: Invalid value: \"disk\": must be a standard resource for containers",
        ),
        (
            "{resources: {limits: {ephemeral-storage: 1}}, containers: [{name: a, image: i}]}".into(),
            "spec.resources.limits: Invalid value: \"ephemeral-storage\": a pod can have the resources",
        ),
        (
            "{resources: {claims: [{name: c}]}, containers: [{name: a, image: i}]}".into(),
            "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
        ),
        (
            "{resources: {requests: {cpu: 2}, limits: {cpu: 1}}, containers: [{name: a, image: i}]}".into(),
            "spec.resources.requests.cpu: Invalid value: 2: must be less than or equal to cpu limit",
        ),
        (
            "{resources: {requests: {cpu: 1}}, containers: [{name: a, image: i, resources: {requests: {cpu: 2}}}]}".into(),
            "spec.resources.requests.cpu: Invalid value: 1: must be greater than or equal to aggregate container requests",
        ),
        (
            "{resources: {limits: {cpu: 1}}, containers: [{name: a, image: i, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}".into(),
            "spec.resources.limits.cpu: Invalid value: 1: must not be less than the limit of container \"a\"",
        ),
        (
            "{volumes: [{name: v, emptyDir: {medium: Tape}}], containers: [{name: a, image: i}]}".into(),
            "emptyDir.medium: Unsupported value: \"Tape\": supported values: \"Memory\", \"HugePages\", \"HugePages-SIZE\"",
        ),
        (
            container(", env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]"),
            "env[0].valueFrom.fileKeyRef.volumeName: Not found: \"v\": the volumes of the pod are: none",
        ),
        (
            "{volumes: [{name: v, hostPath: {path: /}}], containers: [{name: a, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]}]}".into(),
            "env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"v\": referenced volume must be of type emptyDir",
        ),
        (
            "{volumes: [{name: v}], containers: [{name: a, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: ../p, key: k}}}]}]}".into(),
            "env[0].valueFrom.fileKeyRef.path: Invalid value: \"../p\": must not contain '..'",
        ),
        (
            "{volumes: [{name: v}], containers: [{name: a, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: 'k='}}}]}]}".into(),
            "env[0].valueFrom.fileKeyRef.key: Invalid value: \"k=\": a valid environment variable name",
        ),
        (
            "{volumes: [{name: v}], containers: [{name: a, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p}}}]}]}".into(),
            "env[0].valueFrom.fileKeyRef.key: Required value",
        ),
        (
            container(", resources: {limits: {hugepages-2Mi: 3Mi, cpu: 1}}"),
            "resources.limits.hugepages-2Mi: Invalid value: \"3Mi\": is not positive integer multiple of hugepages-2Mi",
        ),
        (
            container(", resources: {limits: {hugepages-2Mi: 2Mi}}"),
            "resources: Forbidden: HugePages require cpu or memory",
        ),
        (
            container(", resources: {limits: {vendor/x: 500m}}"),
            "resources.limits.vendor/x: Invalid value: \"500m\": must be an integer",
        ),
        (
            container(", resources: {requests: {vendor/x: 1}}"),
            "resources.limits.vendor/x: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            container(", resources: {requests: {vendor/x: 1}, limits: {vendor/x: 2}}"),
            "resources.requests.vendor/x: Invalid value: 1: must be equal to vendor/x limit",
        ),
        (
            container(", resources: {limits: {disk: 1}}"),
            "resources.limits: Invalid value: \"disk\": must be a standard resource for containers",
        ),
        ("{containers: {}}".into(), "spec.containers: Invalid value: an empty object: must be a list"),
        (container(", ports: 5"), "ports: Invalid value: 5: must be a list"),
        (container(", env: 5"), "env: Invalid value: 5: must be a list"),
        (container(", volumeMounts: [5]"), "volumeMounts[0]: Invalid value: 5: must be an object"),
        ("{containers: []}".into(), "spec.containers: Required value"),
        (
            "{tolerations: {key: a}, containers: [{name: a, image: i}]}".into(),
            "spec.tolerations: Invalid value: an object with key: must be a list",
        ),
        (
            "{schedulerName: true, containers: [{name: a, image: i}]}".into(),
            "spec.schedulerName: Invalid value: true: must be a string",
        ),
        (
            "{containers: [{image: i}]}".into(),
            "spec.containers[0].name: Required value",
        ),
        (
            "{containers: [{name: a}]}".into(),
            "spec.containers[0].image: Required value",
        ),
        (
            "{containers: [{name: A, image: i}]}".into(),
            "spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must",
        ),
        (
            "{containers: [{name: a, image: i}, {name: a, image: i}]}".into(),
            "spec.containers[1].name: Duplicate value: \"a\"",
        ),
        (
            container(", comand: [x]"),
            "unknown field \"spec.containers[0].comand\", did you mean \"command\"?",
        ),
        (
            container(", livenessprobe: {tcpSocket: {port: 80}}"),
            "unknown field \"spec.containers[0].livenessprobe\", did you mean \"livenessProbe\"?",
        ),
        (
            container(", imagePullPolicy: Often"),
            "imagePullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (container(", env: [{value: x}]"), "env[0].name: Required value"),
        (container(", env: [{name: A, value: 1}]"), "env[0].value: Invalid value: must be a string"),
        (
            container(", env: [{name: A, valueFrom: {}}]"),
            "env[0].valueFrom: Required value: must specify one of: `fieldRef`",
        ),
        (
            container(", env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]"),
            "env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"spec.x\": supported values: \"metadata.name\"",
        ),
        (
            container(", ports: [{containerPort: 0}]"),
            "ports[0].containerPort: Invalid value: 0: must be an integer between 1 and 65535, inclusive",
        ),
        (
            container(", resources: {limits: {cpu: lots}}"),
            "resources.limits.cpu: Invalid value: \"lots\": must be a non-negative quantity",
        ),
        (
            container(", resources: {limits: {cpu: 1}, requests: {cpu: 2}}"),
            "resources.requests.cpu: Invalid value: 2: must be less than or equal to cpu limit",
        ),
        (
            container(", volumeMounts: [{name: v, mountPath: /v}]"),
            "volumeMounts[0].name: Not found: \"v\": the volumes of the pod are: none",
        ),
        (
            container(", securityContext: {privileged: true, allowPrivilegeEscalation: false}"),
            "allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and",
        ),
        (
            container(", livenessProbe: {tcpSocket: {port: 0}}"),
            "livenessProbe.tcpSocket.port: Invalid value: 0: must be",
        ),
        (
            container(", env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}}}]"),
            "resourceFieldRef.divisor: Invalid value: \"1Mi\": only divisor's values 1m and 1 are supported",
        ),
        (
            container(", env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 5}}}]"),
            "resourceFieldRef.divisor: Invalid value: 5: only divisor's values 1, 1k",
        ),
        (
            container(", securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}"),
            "allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        ),
        (
            container(", securityContext: {procMount: Unmasked}"),
            "securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
        ),
        (
            "{hostUsers: false, hostNetwork: true, containers: [{name: a, image: i}]}".into(),
            "spec.hostNetwork: Forbidden: when `hostUsers` is false",
        ),
        (
            "{hostUsers: false, hostPID: true, containers: [{name: a, image: i}]}".into(),
            "spec.hostPID: Forbidden: when `hostUsers` is false",
        ),
        (
            "{hostUsers: false, hostIPC: true, containers: [{name: a, image: i}]}".into(),
            "spec.hostIPC: Forbidden: when `hostUsers` is false",
        ),
        (
            "{dnsPolicy: None, containers: [{name: a, image: i}]}".into(),
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        (
            "{volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}], containers: [{name: a, image: i}]}"
                .into(),
            "spec.volumes[0]: Forbidden: may not specify more than 1 volume type",
        ),
        (
            "{volumes: [{name: v, image: {}}], containers: [{name: a, image: i}]}".into(),
            "spec.volumes[0].image.reference: Required value",
        ),
        (
            "{volumes: [{name: v, image: {reference: i, pullPolicy: Once}}], containers: [{name: a, image: i}]}".into(),
            "spec.volumes[0].image.pullPolicy: Unsupported value: \"Once\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            "{volumes: [{name: v, configMap: {name: c, items: [{key: k, path: a}, {key: l, path: a/b}]}}], \
              containers: [{name: a, image: i}]}"
                .into(),
            "spec.volumes[0].configMap: Invalid value: an object with items, name: conflicting duplicate paths \"a\" and \"a/b\"",
        ),
        (
            container(", resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]"),
            "resizePolicy[1].resourceName: Duplicate value: \"cpu\"",
        ),
        (
            container(", resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]"),
            "resizePolicy[0].resourceName: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\"",
        ),
        (
            "{restartPolicy: Never, containers: [{name: a, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: \
              RestartContainer}]}]}"
                .into(),
            "resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
        ),
        (
            "{volumes: [{name: v, projected: {sources: [{secret: {name: s, items: [{key: k, path: a}]}}, \
              {configMap: {name: c, items: [{key: k, path: a}]}}]}}], containers: [{name: a, image: i}]}"
                .into(),
            "conflicting duplicate paths \"a\" and \"a\"",
        ),
        (
            container(", envFrom: [{secretRef: {name: A}}]"),
            "envFrom[0].secretRef.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        ),
        (
            "{volumes: [{name: v, secret: {}}], containers: [{name: a, image: i}]}".into(),
            "spec.volumes[0].secret.secretName: Required value",
        ),
        (
            container(", ports: [{name: Web, containerPort: 80}]"),
            "ports[0].name: Invalid value: \"Web\": must be no more than 15",
        ),
        (
            container(
                ", env: [{name: A, valueFrom: {resourceFieldRef: {containerName: b, resource: limits.cpu}}}]",
            ),
            "resourceFieldRef.containerName: Not found: \"b\": the containers of the pod are: a",
        ),
        (
            container(", lifecycle: {preStop: {httpGet: {port: 80, scheem: HTTPS}}}"),
            "preStop.httpGet.scheem\", did you mean \"scheme\"?",
        ),
        (
            container(", lifecycle: {preStop: {exec: {command: [x], timeoutSeconds: 5}}}"),
            "preStop.exec.timeoutSeconds\"; it is a field of a probe",
        ),
        (
            container(
                ", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, value: [42]}}]",
            ),
            "exitCodes.value\", did you mean \"values\"?",
        ),
        (
            "{hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 80}]}, {name: b, image: i, \
              ports: [{containerPort: 80}]}]}"
                .into(),
            "spec.containers[1].ports[0].hostPort: Duplicate value: \"TCP//80\"",
        ),
        (
            container(", resources: {requests: {cpu: 1, hugepages-2Mi: 2Mi}}"),
            "resources.limits.hugepages-2Mi: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            container(", lifecycle: {preStop: {sleep: {seconds: 31}}}"),
            "preStop.sleep.seconds: Invalid value: 31: must be non-negative and less than or equal to terminationGracePeriodSeconds (30)",
        ),
        (
            "{dnsConfig: {nameservers: [here]}, containers: [{name: a, image: i}]}".into(),
            "spec.dnsConfig.nameservers[0]: Invalid value: \"here\": must be a valid IP address",
        ),
        (
            "{dnsConfig: {searches: [a b]}, containers: [{name: a, image: i}]}".into(),
            "spec.dnsConfig.searches[0]: Invalid value: \"a b\": a DNS search path must",
        ),
        (
            "{hostAliases: [{ip: 127.0.0.1, hostnames: [A]}], containers: [{name: a, image: i}]}".into(),
            "spec.hostAliases[0].hostnames[0]: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        ),
        (
            "{securityContext: {sysctls: [{name: A, value: '1'}]}, containers: [{name: a, image: i}]}".into(),
            "sysctls[0].name: Invalid value: \"A\": must have at most 253 characters",
        ),
        (
            "{hostNetwork: true, securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: '1'}]}, \
              containers: [{name: a, image: i}]}"
                .into(),
            "sysctls[0].name: Invalid value: \"net.ipv4.tcp_rmem\": may not be specified when 'hostNetwork' is true",
        ),
        (
            "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, \
              mountPath: /v, recursiveReadOnly: Enabled}]}]}"
                .into(),
            "recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
        ),
    ] {
        let all = problems_of("", &spec);
        assert!(
            all.len() == 1 && all[0].starts_with("doc 1: ") && all[0].contains(expected),
            "{spec}: {all:?}"
        );
    }
}
