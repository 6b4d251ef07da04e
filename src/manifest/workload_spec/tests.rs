//! Tests of workloads and their pods.

use super::*;
use crate::manifest::pod::{EnvField, VariableValue};
use crate::manifest::reader::tests::{play, pod_set};
use crate::manifest::scale::JobSpec;

fn workload(kind: &str, of_workload: &str) -> Arc<WorkloadSpec> {
    let text = format!(
        "{{kind: {kind}, metadata: {{name: web}}, spec: {{{of_workload} \
         template: {{metadata: {{labels: {{app: a}}}}, spec: {{restartPolicy: Never, containers: [{{name: main, image: i}}]}}}}}}}}"
    );
    let always = text.replace("restartPolicy: Never, ", "");
    pod_set(if kind == "Job" { &text } else { &always }).unwrap().workloads.remove(0)
}

#[test]
fn a_pod_has_the_name_and_labels_that_the_controller_of_its_workload_gives() {
    let slot = PodSlot { index: 2, incarnation: 0, taken_names: 0 };
    for (kind, of_workload, name, label, value) in [
        ("Deployment", "replicas: 3,", "web-xnqlnlpw27-", "pod-template-hash", "xnqlnlpw27"),
        ("ReplicaSet", "replicas: 3,", "web-", "app", "a"),
        ("ReplicationController", "replicas: 3, selector: {app: a},", "web-", "app", "a"),
        ("DaemonSet", "", "web-", "controller-revision-hash", "xnqlnlpw27"),
        ("StatefulSet", "replicas: 3,", "web-2", "statefulset.kubernetes.io/pod-name", "web-2"),
        ("StatefulSet", "replicas: 3,", "web-2", "apps.kubernetes.io/pod-index", "2"),
        ("Job", "completions: 3,", "web-", "batch.kubernetes.io/job-name", "web"),
        ("DaemonSet", "", "web-", "pod-template-generation", "1"),
        ("Job", "completions: 3, completionMode: Indexed,", "web-2-", COMPLETION_INDEX_LABEL, "2"),
    ] {
        let workload = workload(kind, of_workload);
        let pod = workload.pod(slot).unwrap();
        assert!(pod.name.starts_with(name), "{kind}: {}", pod.name);
        assert_eq!(pod.labels.get(label).map(String::as_str), Some(value), "{kind}: {:?}", pod.labels);
        assert_eq!((&pod.labels["app"], &pod.uid), (&"a".to_owned(), &workload.uid(slot)));
        let again = workload.pod(PodSlot { incarnation: 1, ..slot }).unwrap();
        assert_ne!(again.uid, pod.uid);
        assert_eq!(again.name == pod.name, kind == "StatefulSet");
        let owner = crate::manifest::Workload {
            kind: workload.kind,
            namespace: String::new(),
            name: "web".to_owned(),
            is_generated: false,
            uid: None,
            labels: std::collections::BTreeMap::new(),
        };
        assert!(owner.owns_name(&pod.name), "probes of the manifest apply to {}", pod.name);
    }
}

#[test]
fn pods_with_an_index_know_it_by_host_name_and_variable() {
    let slot = PodSlot { index: 1, incarnation: 0, taken_names: 0 };
    let stateful = workload("StatefulSet", "replicas: 2, serviceName: peers,").pod(slot).unwrap();
    let hostname = (stateful.hostname.hostname.as_deref(), stateful.hostname.subdomain.as_deref());
    assert_eq!(hostname, (Some("web-1"), Some("peers")));
    let indexed = "completions: 2, completionMode: Indexed,";
    let job = workload("Job", indexed).pod(slot).unwrap();
    assert_eq!(job.hostname.hostname.as_deref(), Some("web-1"));
    let index = EnvField::Label(COMPLETION_INDEX_LABEL.to_owned());
    assert_eq!(job.containers[0].env[0].value, VariableValue::Field(index));
}

#[test]
fn a_generated_name_has_at_most_63_characters() {
    let text = format!(
        "{{kind: ReplicaSet, metadata: {{name: {}}}, spec: {{template: {{spec: {{containers: [{{name: a, image: i}}]}}}}}}}}",
        "n".repeat(70)
    );
    let slot = PodSlot { index: 0, incarnation: 0, taken_names: 0 };
    let mut workload = WorkloadSpec::clone(&pod_set(&text).unwrap().workloads[0]);
    assert_eq!(workload.pod_name(slot).len(), 63);
    let job = JobSpec {
        completions: Some(1),
        parallelism: 1,
        backoff_limit: 0,
        is_indexed: true,
        active_deadline: None,
        is_suspended: false,
        may_start: true,
    };
    (workload.kind, workload.scale) = (WorkloadKind::Job, Scale::Job(job));
    let name = workload.pod_name(slot);
    assert!(name.len() == 63 && name.contains("n-0-"), "{name}");
}

#[test]
fn a_job_of_a_cron_job_has_one_name() {
    let text = "{kind: CronJob, metadata: {name: web}, spec: {schedule: '@daily', jobTemplate: {spec: {completions: 2, \
                completionMode: Indexed, template: {spec: {restartPolicy: Never, containers: \
                [{name: main, image: i}]}}}}}}";
    let workload = pod_set(text).unwrap().workloads.remove(0);
    let pod = workload.pod(PodSlot { index: 1, incarnation: 0, taken_names: 0 }).unwrap();
    let job = format!("web-{}", workload.hash());
    assert_eq!(pod.labels["job-name"], job);
    assert_eq!(pod.hostname.hostname.as_deref(), Some(format!("{job}-1").as_str()));
    assert!(pod.name.starts_with(&format!("{job}-1-")), "{}", pod.name);
    assert_eq!(pod.labels["controller-uid"], pod.labels["batch.kubernetes.io/controller-uid"]);
}

#[test]
fn a_workload_with_a_name_that_makes_its_pods_invalid_is_refused() {
    let long = "n".repeat(64);
    let label = "a lowercase RFC 1123 label must consist of";
    for (kind, name, fields, expected) in [
        ("StatefulSet", "my.db", "", label),
        ("StatefulSet", &long[..52], "", ""),
        ("StatefulSet", &long[..53], "", "the StatefulSet would create an invalid pod: metadata.labels"),
        ("StatefulSet", "db", "serviceName: my.svc,", label),
        ("Job", "my.job", "", ""),
        ("Job", "my.job", "completions: 1, completionMode: Indexed,", "invalid pod: spec.hostname"),
        ("Job", &long[..63], "", ""),
        ("Job", &long, "", "the Job would create an invalid pod: metadata.labels"),
        ("Deployment", &long, "", ""),
    ] {
        let policy = if kind == "Job" { "restartPolicy: Never," } else { "" };
        let text = format!(
            "{{kind: {kind}, metadata: {{name: {name}}}, spec: {{{fields} template: {{spec: {{{policy} \
             containers: [{{name: a, image: i}}]}}}}}}}}"
        );
        match play(&text) {
            Ok(_) => assert_eq!(expected, "", "{kind} {name}"),
            Err(problems) => {
                let is_expected = problems.iter().all(|it| it.contains(expected));
                assert!(!expected.is_empty() && is_expected, "{kind} {name}: {problems:?}");
            }
        }
    }
    let text = format!(
        "{{kind: CronJob, metadata: {{name: {}}}, spec: {{schedule: '@daily', jobTemplate: {{spec: {{template: {{spec: \
         {{restartPolicy: Never, containers: [{{name: a, image: i}}]}}}}}}}}}}}}",
        &long[..53]
    );
    assert!(play(&text).unwrap_err()[0].ends_with("must be no more than 52 characters"));
}

#[test]
fn a_pod_with_the_name_of_a_pod_of_a_workload_is_a_conflict() {
    let spec = "spec: {containers: [{name: a, image: i}]}";
    let text = |count: u32| {
        format!(
            "{{kind: Pod, metadata: {{name: db-1}}, {spec}}}\n---\n\
             {{kind: StatefulSet, metadata: {{name: db}}, spec: {{replicas: {count}, template: {{{spec}}}}}}}"
        )
    };
    assert_eq!(play(&text(2)).unwrap_err(), ["doc 2: Pod default/db-1 already exists in doc 1"]);
    let set = pod_set(&text(1)).unwrap();
    assert_eq!((set.count(), set.is_empty()), (2, false));
    assert!(!pod_set(&text(0)).unwrap().is_empty(), "a workload without pods is a workload");
}

#[test]
fn invalid_numbers_of_pods_are_refused() {
    let template =
        "template: {metadata: {labels: {a: b}}, spec: {restartPolicy: R, containers: [{name: a, image: i}]}}";
    for (kind, fields, expected) in [
        ("Deployment", "replicas: -1", "spec.replicas: Invalid value: -1: must be an integer between 0"),
        (
            "Deployment",
            "replicas: 1001",
            "spec.replicas: Unsupported by probeshim: 1001: probeshim runs at most 1000 pods",
        ),
        ("Deployment", "replica: 1", "unknown field \"spec.replica\", did you mean \"replicas\"?"),
        (
            "Deployment",
            "selector: {matchLabels: {a: c}}",
            "spec.template.metadata.labels: Invalid value: an object with a: `selector` does not match template `labels`",
        ),
        (
            "Deployment",
            "strategy: {type: Rolling}",
            "spec.strategy.type: Unsupported value: \"Rolling\": supported values: \"Recreate\", \"RollingUpdate\"",
        ),
        ("DaemonSet", "updateStrategy: {type: Recreate}", "spec.updateStrategy.type: Unsupported value"),
        ("StatefulSet", "podManagementPolicy: Any", "spec.podManagementPolicy: Unsupported value: \"Any\""),
        (
            "StatefulSet",
            "volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]",
            "spec.volumeClaimTemplates: Unsupported by probeshim: requires the storage of a cluster",
        ),
        (
            "Job",
            "completionMode: Indexed, parallelism: 2",
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            "Job",
            "podFailurePolicy: {rules: []}",
            "spec.podFailurePolicy: Unsupported by probeshim: probeshim ends a job by its completions",
        ),
    ] {
        let policy = if kind == "Job" { "Never" } else { "Always" };
        let template = template.replace("Policy: R", &format!("Policy: {policy}"));
        let text = format!("{{kind: {kind}, metadata: {{name: w}}, spec: {{{fields}, {template}}}}}");
        let problems = play(&text).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains(expected), "{fields}: {problems:?}");
    }
}
