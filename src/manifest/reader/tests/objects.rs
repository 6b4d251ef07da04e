//! Tests of objects as charts and programs write them.

use super::*;

/// Returns the remarks, without the places of items, in a document that can be used.
fn remarks_of(text: &str, ignore_unsupported: bool) -> Vec<String> {
    let (document, mut found) = (complete(serde_saphyr::from_str(text).unwrap()), Vec::new());
    let read = document::read(&document, ReadOptions { ignore_unsupported, ..RUN }, "", &mut found);
    let set = PodSet::new(&read);
    let errors: Vec<_> = found.iter().filter(|problem| problem.is_error(ignore_unsupported)).collect();
    assert_eq!((set.count(), errors), (1, Vec::new()), "{text}");
    found.iter().map(|problem| problem.path().to_owned()).collect()
}

#[test]
fn service_accounts_and_their_tokens_have_no_effect_and_are_no_errors() {
    let spec = "{serviceAccountName: robot, serviceAccount: robot, \
                volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}, \
                {configMap: {name: kube-root-ca.crt}}, {configMap: {name: other}}, \
                {downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: metadata.namespace}}]}}]}}], \
                containers: [{name: a, image: i, volumeMounts: [{name: t, mountPath: /t}]}]}";
    let remarks = remarks_of(&format!("{{kind: Pod, metadata: {{name: p}}, spec: {spec}}}"), false);
    assert_eq!(
        remarks,
        ["spec.volumes[0].projected.sources[0].serviceAccountToken", "spec.serviceAccountName"]
    );
    let pod = pod(spec);
    let VolumeSource::Files { sources, .. } = &pod.volumes[0].source else { panic!() };
    let [FileSource::Data { object, .. }, FileSource::DownwardApi(_)] = &sources[..] else {
        panic!("{sources:?}")
    };
    assert_eq!(object.name, "other", "a cluster's certificate is of no use without a token");
    assert_eq!(pod.written_spec.service_account_name.as_deref(), Some("robot"));
    assert_eq!(pod.containers[0].mounts.len(), 1);
}

#[test]
fn claim_templates_become_empty_directories_if_unsupported_fields_are_ignored() {
    let text = "{kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, \
                volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}], template: {spec: {\
                volumes: [{name: data, hostPath: {path: /x}}, {name: b, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}], \
                containers: [{name: a, image: i, volumeMounts: [{name: data, mountPath: /d}, {name: b, mountPath: /b}]}]}}}}";
    let claims = ["spec.volumeClaimTemplates", "spec.template.spec.volumes[1].ephemeral"];
    assert_eq!(remarks_of(text, true), claims);
    let errors = play(text).unwrap_err();
    assert_eq!(errors.len(), 2, "mounts of a claim are no errors: {errors:?}");
    let (document, mut found) = (complete(serde_saphyr::from_str(text).unwrap()), Vec::new());
    let read = document::read(&document, ReadOptions { ignore_unsupported: true, ..RUN }, "", &mut found);
    let workload = PodSet::new(&read).workloads.remove(0);
    let pod = workload.pod(workload.first_slots().next().unwrap()).unwrap();
    let volumes: Vec<&str> = pod.volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(volumes, ["b", "data"]);
    let is_empty = |source: &VolumeSource| matches!(source, VolumeSource::EmptyDir { .. });
    assert!(pod.volumes.iter().all(|volume| is_empty(&volume.source)), "the claim replaces the volume");
    assert_eq!(pod.containers[0].mounts.len(), 2);
}

#[test]
fn kinds_are_distinguished_by_their_groups_and_versions() {
    let template = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: i}]}}";
    let errors = |version: &str, kind: &str, fields: &str| {
        play(&format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: w}}, spec: {{{fields}}}}}"))
            .err()
            .unwrap_or_default()
    };
    assert!(errors("apps.kruise.io/v1beta1", "StatefulSet", "scaleStrategy: {}").is_empty());
    assert!(errors("serving.knative.dev/v1", "Secret", "x: 1").is_empty());
    assert!(errors("apps/v1", "Deployment", template).is_empty());
    for (version, kind, expected) in [
        ("v1", "Deployment", "apiVersion: Unsupported value: \"v1\": supported values: \"apps/v1\""),
        ("apps/v1", "Pod", "apiVersion: Unsupported value: \"apps/v1\": supported values: \"v1\""),
        (
            "extensions/v1beta1",
            "Deployment",
            "apiVersion: Invalid value: \"extensions/v1beta1\": no matches for kind \"Deployment\" in version \
             \"extensions/v1beta1\"; Kubernetes 1.36 has \"apps/v1\"",
        ),
    ] {
        let errors = errors(version, kind, template);
        assert!(errors[0].ends_with(expected), "{version} {kind}: {errors:?}");
    }
    let text = format!("{{apiVersion: , kind: Deployment, metadata: {{name: w}}, spec: {{{template}}}}}");
    assert_eq!(play(&text).unwrap_err(), ["doc 1: apiVersion: Required value: for example v1 or apps/v1"]);
}

#[test]
fn the_selector_of_a_workload_matches_the_labels_of_its_template_as_in_the_api_server() {
    for (kind, selector, expected) in [
        ("Deployment", "{}", "spec.selector: Invalid value: an empty object: empty selector is invalid"),
        ("Deployment", ", ", "spec.selector: Required value"),
        ("DaemonSet", "{matchLabels: {app: b}}", "does not match template `labels`"),
        ("StatefulSet", "{matchLabels: {'a b': c}}", "spec.selector.matchLabels: Invalid value: \"a b\""),
        ("ReplicaSet", "{matchExpressions: [{key: app, operator: In, values: [a, c]}]}", ""),
        ("ReplicaSet", "{matchExpressions: [{key: app, operator: NotIn, values: [a]}]}", "does not match"),
        ("ReplicaSet", "{matchExpressions: [{key: app, operator: Exists}]}", ""),
        ("ReplicaSet", "{matchExpressions: [{key: app, operator: DoesNotExist}]}", "does not match"),
        ("ReplicaSet", "{matchExpressions: [{key: app, operator: In}]}", "values: Required value"),
        (
            "ReplicaSet",
            "{matchExpressions: [{key: app, operator: Exists, values: [a]}]}",
            "values: Forbidden",
        ),
        (
            "ReplicaSet",
            "{matchExpressions: [{key: app, operator: Is}]}",
            "operator: Unsupported value: \"Is\"",
        ),
        ("ReplicaSet", "{matchLabel: {app: a}}", "unknown field \"spec.selector.matchLabel\", did you mean"),
    ] {
        let text = format!(
            "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: w}}, spec: {{selector: {selector}, \
             template: {{metadata: {{labels: {{app: a}}}}, spec: {{containers: [{{name: a, image: i}}]}}}}}}}}"
        );
        let errors = play(&text.replace("selector: , ,", "")).err().unwrap_or_default().join("; ");
        assert_eq!(errors.is_empty(), expected.is_empty(), "{kind} {selector}: {errors}");
        assert!(errors.contains(expected), "{kind} {selector}: {errors}");
    }
}

#[test]
fn a_pod_without_a_name_has_one_that_begins_with_its_generate_name() {
    let spec = "spec: {containers: [{name: a, image: i}]}";
    let pods = play(&format!("{{kind: Pod, metadata: {{generateName: web-}}, {spec}}}")).unwrap();
    assert!(pods[0].name.starts_with("web-") && pods[0].name.len() == 9, "{}", pods[0].name);
    let pods = play(&format!("{{kind: Pod, metadata: {{name: x, generateName: web-}}, {spec}}}")).unwrap();
    assert_eq!(pods[0].name, "x");
    let errors = play(&format!("{{kind: Pod, metadata: {{generateName: W_}}, {spec}}}")).unwrap_err();
    assert!(errors[0].starts_with("doc 1: metadata.generateName: Invalid value: \"W_\""), "{errors:?}");
    let errors = play(&format!("{{kind: Pod, metadata: {{labels: {{}}}}, {spec}}}")).unwrap_err();
    assert_eq!(errors, ["doc 1: metadata.name: Required value: name or generateName is required"]);
}

#[test]
fn a_field_with_another_type_than_that_of_kubernetes_is_named_with_its_path() {
    let errors = problems_of(
        "",
        "{volumes: [{name: a}, {name: v, fc: {lun: <ADD LUN ID>}}], containers: [{name: a, image: i}]}",
    );
    let expected = "doc 1: spec.volumes[1].fc.lun: Invalid value: \"<ADD LUN ID>\": must be an integer";
    assert!(errors.contains(&expected.to_owned()), "{errors:?}");
}
