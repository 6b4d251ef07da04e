//! Tests of errors in documents, outside the specs of pods.

use crate::manifest::reader::tests::problems;

/// Each document has one fault outside the spec of its pod.
#[test]
fn all_manifest_errors_outside_the_pod_spec_are_reported() {
    const SPEC: &str = "{containers: [{name: a, image: i}]}";
    let pod = |metadata: &str| format!("{{kind: Pod, metadata: {{name: p, {metadata}}}, spec: {SPEC}}}");
    let made = |kind: &str, policy: &str| {
        format!(
            "{{kind: {kind}, metadata: {{name: p}}, spec: {{template: {{spec: {{{policy}containers: [{{name: a, image: i}}]}}}}}}}}"
        )
    };
    for (text, expected) in [
        (pod("labels: {a b: c}"), "metadata.labels: Invalid value: \"a b\": name part must consist of"),
        (pod("labels: {a: b c}"), "metadata.labels.a: Invalid value: \"b c\": a valid label must be an empty string"),
        (
            pod("annotations: {container.apparmor.security.beta.kubernetes.io/none: unconfined}"),
            "Invalid value: \"unconfined\": container \"none\" not found",
        ),
        (pod("annotations: {a b: c}"), "metadata.annotations: Invalid value: \"a b\": name part must consist of"),
        (
            format!("{{apiVersion: v2, kind: Pod, metadata: {{name: p}}, spec: {SPEC}}}"),
            "apiVersion: Unsupported value: \"v2\": supported values: \"v1\"",
        ),
        (
            format!("{{kind: Pod, metadata: {{name: p}}, spec: {SPEC}, specs: 1}}"),
            "unknown field \"specs\", did you mean \"spec\"?",
        ),
        (
            made("Job", ""),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            made("DaemonSet", "restartPolicy: Never, "),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            "{kind: Deployment, metadata: {name: p}, spec: {template: 5}}".into(),
            "spec.template: Invalid value: 5: must be an object",
        ),
        ("{kind: ConfigMap, metadata: {name: A_B}}".into(), "metadata.name: Invalid value: \"A_B\": a lowercase RFC 1123 subdomain"),
        (
            "{kind: Secret, metadata: {name: a, namespace: A}}".into(),
            "metadata.namespace: Invalid value: \"A\": a lowercase RFC 1123 label",
        ),
        (
            "{kind: ConfigMap, metadata: {name: a}, data: {a: b}, binaryData: {a: Yg==}}".into(),
            "data: Invalid value: \"a\": duplicate of key present in binaryData",
        ),
        (
            "{kind: RuntimeClass, metadata: {name: a}, handler: A B}".into(),
            "handler: Invalid value: \"A B\": a lowercase RFC 1123 label",
        ),
        (
            "{kind: Deployment, metadata: {name: p, namespace: ../x}, spec: {template: {spec: {containers: [{name: a, image: i}]}}}}".into(),
            "metadata.namespace: Invalid value: \"../x\": a lowercase RFC 1123 label",
        ),
        ("{kind: ConfigMap, metadata: {name: a}, data: {'': x}}".into(), "data: Invalid value: \"\": a valid config key must"),
        (
            "{kind: Deployment, metadata: {name: p}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: 5, spec: {containers: [{name: a, image: i}]}}}}".into(),
            "spec.template.metadata: Invalid value: 5: must be an object",
        ),
    ] {
        let all = problems(&text);
        assert!(all.len() == 1 && all[0].contains(expected), "{text}: {all:?}");
    }
}
