//! Tests of errors in the rules that the node of a pod must satisfy.

use crate::manifest::reader::tests::problems_of;

/// Returns the errors of a pod with these fields.
fn errors(fields: &str) -> Vec<String> {
    problems_of("", &format!("{{{fields}, containers: [{{name: a, image: i}}]}}"))
}

/// Returns the errors of a pod with this required node affinity, without the path of the affinity.
fn affinity_errors(selector: &str) -> Vec<String> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let all = errors(&format!("affinity: {{nodeAffinity: {{{required}: {selector}}}}}"));
    let prefix = format!("spec.affinity.nodeAffinity.{required}");
    all.into_iter().map(|error| error.replace(&prefix, "").replace("doc 1: ", "")).collect()
}

#[test]
fn each_error_in_a_node_affinity_is_reported_once_with_its_path() {
    let in_labels =
        |requirement: &str| format!("{{nodeSelectorTerms: [{{matchExpressions: [{requirement}]}}]}}");
    let in_fields = |requirement: &str| format!("{{nodeSelectorTerms: [{{matchFields: [{requirement}]}}]}}");
    for (selector, expected) in [
        ("{}".to_owned(), ".nodeSelectorTerms: Required value: must have at least one node selector term"),
        ("{nodeSelectorTerms: []}".into(), ".nodeSelectorTerms: Required value: must have at least one"),
        ("{nodeSelectorTerms: 1}".into(), ".nodeSelectorTerms: Invalid value: 1: must be a list"),
        ("5".into(), ": Invalid value: 5: must be an object"),
        (
            "{nodeSelectorTerms: [{matchLabels: {}}]}".into(),
            "unknown field \".nodeSelectorTerms[0].matchLabels\"",
        ),
        (in_labels("{operator: Exists}"), "matchExpressions[0].key: Required value"),
        (in_labels("{key: a b, operator: Exists}"), "key: Invalid value: \"a b\": name part must consist"),
        (in_labels("{key: a}"), "operator: Required value: not a valid selector operator"),
        (
            in_labels("{key: a, operator: Is}"),
            "operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"",
        ),
        (
            in_labels("{key: a, operator: In}"),
            "values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            in_labels("{key: a, operator: Gt, values: ['1', '2']}"),
            "values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        (
            in_labels("{key: a, operator: DoesNotExist, values: [b]}"),
            "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        (
            in_labels("{key: a, operator: In, values: [b, c d]}"),
            "values[1]: Invalid value: \"c d\": a valid label must be",
        ),
        (in_labels("{key: a, operator: In, values: [1]}"), "values[0]: Invalid value: 1: must be a string"),
        (
            in_fields("{key: metadata.uid, operator: In, values: [a]}"),
            "key: Unsupported value: \"metadata.uid\": supported values: \"metadata.name\"",
        ),
        (
            in_fields("{key: metadata.name, operator: Exists}"),
            "operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\"",
        ),
        (
            in_fields("{key: metadata.name, operator: In, values: [a, b]}"),
            "values: Required value: must be only one value when `operator` is 'In' or 'NotIn'",
        ),
        (
            in_fields("{key: metadata.name, operator: In, values: [A]}"),
            "values[0]: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        ),
    ] {
        let all = affinity_errors(&selector);
        assert!(all.len() == 1 && all[0].contains(expected), "{selector}: {all:?}");
    }
}

#[test]
fn labels_of_a_node_selector_and_the_operating_system_are_validated() {
    for (fields, expected) in [
        ("nodeSelector: {a b: c}", "spec.nodeSelector: Invalid value: \"a b\": name part must consist"),
        ("nodeSelector: {a: b c}", "spec.nodeSelector.a: Invalid value: \"b c\": a valid label must be"),
        ("nodeSelector: {a: true}", "spec.nodeSelector.a: Invalid value: true: must be a string"),
        ("affinity: {podaffinity: {}}", "spec.affinity.podaffinity\", did you mean \"podAffinity\""),
        ("os: {}", "spec.os.name: Required value: supported values: \"linux\", \"windows\""),
        (
            "os: {name: plan9}",
            "spec.os.name: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"",
        ),
        ("os: {name: windows}, hostPID: true", "spec.hostPID: Forbidden: cannot be set for a windows pod"),
        (
            "os: {name: windows}, securityContext: {runAsUser: 1}",
            "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
        ),
        (
            "os: {name: windows}, initContainers: [{name: b, image: i, securityContext: {privileged: false}}]",
            "spec.initContainers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
        ),
        (
            "os: {name: linux}, securityContext: {windowsOptions: {}}",
            "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
        ),
        (
            "securityContext: {windowsOptions: {runAsUserName: a}}",
            "spec.securityContext.windowsOptions: Unsupported by probeshim: only Linux is supported",
        ),
    ] {
        let all = errors(fields);
        assert!(all.len() == 1 && all[0].contains(expected), "{fields}: {all:?}");
    }
}
