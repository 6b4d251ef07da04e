//! Files with pods and workloads: those of the stories, in workloads of each kind, and shapes of
//! the manifests of well-known projects.

use std::fs;
use std::path::Path;

use fastrand::Rng;
use serde_json::{Value, json};

/// Directories with manifests.
const DIRECTORIES: [&str; 2] = ["tests/e2e/pods", "tests/fixtures/manifests/projects"];

/// Kinds of workloads, with their versions.
const KINDS: [(&str, &str); 6] = [
    ("Deployment", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("CronJob", "batch/v1"),
];

/// Returns all pods, each in a workload, and all workloads of the directories.
pub(super) fn workloads() -> Vec<Value> {
    let mut files: Vec<_> = DIRECTORIES
        .iter()
        .flat_map(|directory| fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let documents = files.iter().flat_map(|file| -> Vec<Value> {
        let text = fs::read_to_string(file).unwrap();
        serde_saphyr::from_multiple_with_options(&text, serde_saphyr::options! { legacy_octal_numbers: true })
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    });
    let workloads =
        documents.enumerate().filter_map(|(number, document)| match document["kind"].as_str()? {
            "Pod" => Some(in_workload(&document, KINDS[number % KINDS.len()])),
            kind => KINDS.iter().any(|(known, _)| *known == kind).then_some(document),
        });
    workloads.map(without_namespace).collect()
}

/// Returns a workload whose template is a pod.
fn in_workload(pod: &Value, (kind, version): (&str, &str)) -> Value {
    let mut template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod["spec"]});
    let is_job = version == "batch/v1";
    let policy = &mut template["spec"]["restartPolicy"];
    if is_job && !["Never", "OnFailure"].map(Value::from).contains(policy) {
        *policy = json!("Never");
    } else if !is_job {
        *policy = json!("Always");
    }
    // A workload may not have it.
    if kind != "Job" && kind != "CronJob" {
        template["spec"].as_object_mut().unwrap().remove("activeDeadlineSeconds");
    }
    let spec = match kind {
        "CronJob" => json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}),
        "Job" => json!({"template": template}),
        _ => json!({"selector": {"matchLabels": {"app": "a"}}, "template": template}),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
}

/// Returns a workload in the default namespace, because the API server has no other.
fn without_namespace(mut workload: Value) -> Value {
    workload["metadata"].as_object_mut().unwrap().remove("namespace");
    workload
}

/// Returns the text of a file, in one of the ways in which charts and programs write it.
pub(super) fn text(rng: &mut Rng, document: &Value) -> String {
    match rng.u8(..4) {
        0 => serde_json::to_string_pretty(document).unwrap(),
        1 => serde_saphyr::to_string(document).unwrap(),
        2 => with_floats(rng, document),
        _ => with_a_duplicate_key(document),
    }
}

/// Returns a document whose integers are written as floats, as helm writes large ones.
fn with_floats(rng: &mut Rng, document: &Value) -> String {
    match document {
        Value::Number(number) if number.as_i64().is_some_and(|number| (0..1 << 50).contains(&number)) => {
            let number = number.as_f64().unwrap();
            if rng.bool() { format!("{number:.1}") } else { format!("{number:e}").replace('e', ".0e+0") }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| with_floats(rng, item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("{}: {}", json!(key), with_floats(rng, value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns a document with another kind before its kind.
fn with_a_duplicate_key(document: &Value) -> String {
    document.to_string().replacen("\"kind\":", "\"kind\": \"Other\", \"kind\":", 1)
}
