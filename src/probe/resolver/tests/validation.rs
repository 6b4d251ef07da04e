//! Repeats tests of the API server's validation (`pkg/apis/core/validation/validation_test.go`).

use super::{pod_with, specs};

/// Name of a row, fields of a container, and the paths of its invalid fields.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// Rows of `TestValidateProbe`, `Test_validateProbe`, `TestValidateHandler`, and of the tests of
/// containers.
const VALIDATION: [Row; 42] = [
    ("ValidateProbe: nil", "", &[]),
    (
        "ValidateProbe: initialDelaySeconds 10",
        "livenessProbe: {exec: {command: [x]}, initialDelaySeconds: 10}",
        &[],
    ),
    ("ValidateProbe: timeoutSeconds 10", "livenessProbe: {exec: {command: [x]}, timeoutSeconds: 10}", &[]),
    ("ValidateProbe: periodSeconds 10", "livenessProbe: {exec: {command: [x]}, periodSeconds: 10}", &[]),
    (
        "ValidateProbe: successThreshold 10",
        "readinessProbe: {exec: {command: [x]}, successThreshold: 10}",
        &[],
    ),
    (
        "ValidateProbe: failureThreshold 10",
        "livenessProbe: {exec: {command: [x]}, failureThreshold: 10}",
        &[],
    ),
    ("ValidateProbe: no handler", "readinessProbe: {timeoutSeconds: 10}", &["readinessProbe"]),
    (
        "ValidateProbe: initialDelaySeconds -10",
        "readinessProbe: {exec: {command: [x]}, initialDelaySeconds: -10}",
        &["readinessProbe.initialDelaySeconds"],
    ),
    (
        "ValidateProbe: timeoutSeconds -10",
        "readinessProbe: {exec: {command: [x]}, timeoutSeconds: -10}",
        &["readinessProbe.timeoutSeconds"],
    ),
    (
        "ValidateProbe: periodSeconds -10",
        "readinessProbe: {exec: {command: [x]}, periodSeconds: -10}",
        &["readinessProbe.periodSeconds"],
    ),
    (
        "ValidateProbe: successThreshold -10",
        "readinessProbe: {exec: {command: [x]}, successThreshold: -10}",
        &["readinessProbe.successThreshold"],
    ),
    (
        "ValidateProbe: failureThreshold -10",
        "readinessProbe: {exec: {command: [x]}, failureThreshold: -10}",
        &["readinessProbe.failureThreshold"],
    ),
    (
        "_validateProbe: probe grace -1",
        "livenessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: -1}",
        &["livenessProbe.terminationGracePeriodSeconds"],
    ),
    (
        "_validateProbe: probe grace 0",
        "livenessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 0}",
        &["livenessProbe.terminationGracePeriodSeconds"],
    ),
    (
        "_validateProbe: probe grace 1",
        "livenessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 1}",
        &[],
    ),
    ("ValidateHandler: exec", "livenessProbe: {exec: {command: [echo]}}", &[]),
    (
        "ValidateHandler: http port 1",
        "livenessProbe: {httpGet: {path: /, port: 1, host: '', scheme: HTTP}}",
        &[],
    ),
    (
        "ValidateHandler: http port 65535",
        "livenessProbe: {httpGet: {path: /foo, port: 65535, host: host, scheme: HTTP}}",
        &[],
    ),
    (
        "ValidateHandler: http named port",
        "livenessProbe: {httpGet: {path: /, port: port, scheme: HTTP}}",
        &[],
    ),
    (
        "ValidateHandler: http Host header",
        "livenessProbe: {httpGet: {path: /, port: port, httpHeaders: [{name: Host, value: foo.example.com}]}}",
        &[],
    ),
    (
        "ValidateHandler: http duplicate X-Forwarded-For",
        "livenessProbe: {httpGet: {path: /, port: port, httpHeaders: [{name: X-Forwarded-For, value: 1.2.3.4}, {name: X-Forwarded-For, value: 5.6.7.8}]}}",
        &[],
    ),
    ("ValidateHandler: empty", "livenessProbe: {}", &["livenessProbe"]),
    (
        "ValidateHandler: exec without command",
        "livenessProbe: {exec: {command: []}}",
        &["livenessProbe.exec.command"],
    ),
    (
        "ValidateHandler: empty path and port 0",
        "livenessProbe: {httpGet: {path: '', port: 0}}",
        &["livenessProbe.httpGet.port"],
    ),
    (
        "ValidateHandler: port 65536",
        "livenessProbe: {httpGet: {path: /foo, port: 65536}}",
        &["livenessProbe.httpGet.port"],
    ),
    (
        "ValidateHandler: empty port string",
        "livenessProbe: {httpGet: {path: '', port: ''}}",
        &["livenessProbe.httpGet.port"],
    ),
    (
        "ValidateHandler: header Host:",
        "livenessProbe: {httpGet: {path: /, port: p, httpHeaders: [{name: 'Host:', value: foo}]}}",
        &["livenessProbe.httpGet.httpHeaders[0].name"],
    ),
    (
        "ValidateHandler: header X_Forwarded_For",
        "livenessProbe: {httpGet: {path: /, port: p, httpHeaders: [{name: X_Forwarded_For, value: foo}]}}",
        &["livenessProbe.httpGet.httpHeaders[0].name"],
    ),
    (
        "container cases: readiness with grace",
        "readinessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 10}",
        &["readinessProbe.terminationGracePeriodSeconds"],
    ),
    (
        "container cases: liveness without tcp port",
        "livenessProbe: {tcpSocket: {}}",
        &["livenessProbe.tcpSocket.port"],
    ),
    (
        "container cases: liveness without action",
        "livenessProbe: {initialDelaySeconds: 1}",
        &["livenessProbe"],
    ),
    (
        "container cases: liveness successThreshold 2",
        "livenessProbe: {exec: {command: [x]}, successThreshold: 2}",
        &["livenessProbe.successThreshold"],
    ),
    (
        "container cases: startup successThreshold 2",
        "startupProbe: {exec: {command: [x]}, successThreshold: 2}",
        &["startupProbe.successThreshold"],
    ),
    (
        "container cases: all numerics negative",
        "startupProbe: {exec: {command: [x]}, initialDelaySeconds: -1, timeoutSeconds: -1, periodSeconds: -1, successThreshold: -1, failureThreshold: -1, terminationGracePeriodSeconds: -1}",
        &[
            "startupProbe.initialDelaySeconds",
            "startupProbe.timeoutSeconds",
            "startupProbe.periodSeconds",
            "startupProbe.successThreshold",
            "startupProbe.failureThreshold",
            "startupProbe.terminationGracePeriodSeconds",
        ],
    ),
    (
        "1.3: two handlers",
        "livenessProbe: {exec: {command: [x]}, tcpSocket: {port: 1}}",
        &["livenessProbe.tcpSocket"],
    ),
    (
        "1.3: a port's name, wrong in every way",
        "livenessProbe: {tcpSocket: {port: -1234--5678--90_}}",
        &["livenessProbe.tcpSocket.port"; 4],
    ),
    (
        "1.3: scheme in small letters",
        "livenessProbe: {httpGet: {port: 1, scheme: http}}",
        &["livenessProbe.httpGet.scheme"],
    ),
    (
        "1.3: a port's number in a string",
        "livenessProbe: {tcpSocket: {port: '8080'}}",
        &["livenessProbe.tcpSocket.port"],
    ),
    ("1.3: gRPC port by name", "livenessProbe: {grpc: {port: health}}", &["livenessProbe.grpc.port"]),
    ("a slip", "livenesProbe: {exec: {command: [x]}}", &["livenesProbe"]),
    (
        "1.3: restartPolicyRules without restartPolicy",
        "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]",
        &["restartPolicy"],
    ),
    (
        "1.3: rules that are wrong",
        "restartPolicy: Sometimes, restartPolicyRules: [{action: Explode}, {exitCodes: {operator: Is, values: [a]}}]",
        &[
            "restartPolicy",
            "restartPolicyRules[0].action",
            "restartPolicyRules[0].exitCodes",
            "restartPolicyRules[1].action",
            "restartPolicyRules[1].exitCodes.operator",
            "restartPolicyRules[1].exitCodes.values[0]",
        ],
    ),
];

#[test]
fn probe_fields_are_validated_as_in_upstream_tests() {
    for (name, container, wrong) in VALIDATION {
        let written = format!("{{name: main, {container}}}");
        let error = specs(&[("pod.yaml", &pod_with(&written))]).err().unwrap_or_default();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), wrong.len(), "{name}: {error}");
        for (line, path) in lines.iter().zip(wrong) {
            let path = format!("spec.containers[0].{path}");
            let beginnings =
                [format!("pod.yaml:1: {path}: "), format!("pod.yaml:1: unknown field \"{path}\"")];
            let is_expected = beginnings.iter().any(|beginning| line.starts_with(beginning));
            assert!(is_expected, "{name}: {line} does not name {path}");
        }
    }
}

#[test]
fn probes_of_ephemeral_and_init_containers_are_refused_as_in_upstream_tests() {
    let probe = |field: &str| format!("{field}: {{exec: {{command: [x]}}}}");
    for (name, list, more, path) in [
        ("ephemeral container", "ephemeralContainers", "", ""),
        ("init container without Always", "initContainers", "", ""),
        ("sidecar with successThreshold 2", "initContainers", "restartPolicy: Always, ", ".successThreshold"),
        (
            "sidecar with readiness grace",
            "initContainers",
            "restartPolicy: Always, ",
            ".terminationGracePeriodSeconds",
        ),
    ] {
        for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let probe = match path {
                "" => probe(field),
                ".successThreshold" => probe(field).replace("]}}", "]}, successThreshold: 2}"),
                _ => probe(field).replace("]}}", "]}, terminationGracePeriodSeconds: 2}"),
            };
            let is_fine = match path {
                ".successThreshold" => field == "readinessProbe",
                ".terminationGracePeriodSeconds" => field != "readinessProbe",
                _ => false,
            };
            let text = format!(
                "{{kind: Pod, metadata: {{name: web}}, spec: {{containers: [], {list}: [{{name: side, {more}{probe}}}]}}}}"
            );
            let error = specs(&[("pod.yaml", &text)]).err().unwrap_or_default();
            let expected = format!("pod.yaml:1: spec.{list}[0].{field}{path}: ");
            assert_eq!(error.is_empty(), is_fine, "{name}, {field}: {error}");
            assert!(is_fine || error.starts_with(&expected), "{name}, {field}: {error}");
        }
    }
}

#[test]
fn a_container_has_at_most_20_restart_rules_with_255_exit_codes() {
    let rules = |rules: usize, codes: usize| {
        let codes: Vec<String> = (1..=codes).map(|code| code.to_string()).collect();
        let rule =
            format!("{{action: Restart, exitCodes: {{operator: In, values: [{}]}}}}", codes.join(", "));
        let rules = vec![rule; rules].join(", ");
        let container = format!("{{name: main, restartPolicy: Never, restartPolicyRules: [{rules}]}}");
        specs(&[("pod.yaml", &pod_with(&container))]).err().unwrap_or_default()
    };
    assert_eq!(rules(20, 255), "");
    for (rules, path) in
        [(rules(21, 1), "restartPolicyRules"), (rules(1, 256), "restartPolicyRules[0].exitCodes.values")]
    {
        let expected = format!("pod.yaml:1: spec.containers[0].{path}: Too many: ");
        assert!(rules.starts_with(&expected) && rules.lines().count() == 1, "{rules}");
    }
}
