//! Files and directories of manifests: the parts that apply, and the errors that are reported.

use super::super::*;
use super::specs;

#[test]
fn valid_documents_of_a_file_with_errors_are_updated() {
    let dir = tempfile::tempdir().unwrap();
    let write = |documents: &[String]| {
        std::fs::write(dir.path().join("all.yaml"), documents.join("\n---\n")).unwrap();
    };
    let pod = |name: &str, port: u16| {
        format!(
            "{{kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: main, livenessProbe: {{tcpSocket: {{port: {port}}}}}}}]}}}}"
        )
    };
    let probes = |files: &Files| -> Vec<String> {
        let described = SpecResolver::from_files(files).describe_all();
        described.iter().map(|it| format!("{} {}", it.owner, it.probe.as_ref().unwrap().handler)).collect()
    };
    write(&[pod("a", 1), pod("b", 1)]);
    let mut files = Files::read(&[dir.path().to_owned()], false).unwrap();
    write(&[pod("a", 22), pod("b", 0)]);
    assert!(files.rescan());
    assert_eq!(probes(&files), ["Pod default/a tcp :22", "Pod default/b tcp :1"]);
    write(&["kind: [".to_owned()]);
    assert!(!files.rescan());
    assert_eq!(probes(&files).len(), 2, "what it said before");
    write(&[pod("a", 333)]);
    assert!(files.rescan());
    assert_eq!(probes(&files), ["Pod default/a tcp :333"]);
}

#[test]
fn one_invalid_spec_of_ten_thousand_is_named_and_the_others_apply() {
    let dir = tempfile::tempdir().unwrap();
    let document = |number: usize| {
        let port = if number == 7_777 { 0 } else { 80 };
        format!(
            "---\n{{kind: Pod, metadata: {{name: web-{number}}}, spec: {{containers: [{{name: main, livenessProbe: {{tcpSocket: {{port: {port}}}}}}}]}}}}\n"
        )
    };
    std::fs::write(dir.path().join("all.yaml"), (0..10_000).map(document).collect::<String>()).unwrap();
    std::os::unix::fs::symlink("/nowhere", dir.path().join("dangling.yaml")).unwrap();
    let files = Files::read(&[dir.path().to_owned()], false).unwrap();
    assert_eq!(SpecResolver::from_files(&files).describe_all().len(), 9_999);
    let problems = files.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    let expected = "all.yaml:15556: spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0";
    assert!(problems[1].contains(expected), "{problems:?}");
    assert!(problems[0].contains("dangling.yaml: No such file"), "{problems:?}");
}

#[test]
fn all_errors_of_manifest_files_are_reported_together_with_their_paths() {
    let wrong = r"
kind: List
items:
- kind: Pod
  metadata: {name: 7}
  spec: {containers: []}
- kind: Job
  metadata: {name: job}
  spec: {}
- kind: Pod
  metadata: {name: Web}
  spec:
    containers:
    - name: main
      livenessProbe: {exec: {command: []}, timeoutSeconds: -1}
      readinessProbe: {exec: {command: [sh, -c, 5]}, periodSeconds: soon}
      startupProbe: {}
    - image: nameless
";
    let error = specs(&[("a.yaml", wrong), ("b.yaml", "a: [b"), ("c.json", "[1]")]).unwrap_err();
    let lines: Vec<&str> = error.lines().collect();
    let expected = [
        "a.yaml:5: items[0].metadata.name: Invalid value: 7: must be a string",
        "a.yaml:11: items[2].metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain",
        "a.yaml:17: items[2].spec.containers[0].startupProbe: Required value: must specify a handler type: exec",
        "a.yaml:9: items[1].spec.template: Required value",
        "a.yaml:15: items[2].spec.containers[0].livenessProbe.timeoutSeconds: Invalid value: -1: must be an integer",
        "a.yaml:15: items[2].spec.containers[0].livenessProbe.exec.command: Required value",
        "a.yaml:16: items[2].spec.containers[0].readinessProbe.periodSeconds: Invalid value: \"soon\": must be an integer",
        "a.yaml:16: items[2].spec.containers[0].readinessProbe.exec.command[2]: Invalid value: 5: must be a string",
        "a.yaml:18: items[2].spec.containers[1].name: Required value",
    ];
    for line in expected {
        assert!(lines.iter().any(|actual| actual.starts_with(line)), "{line} is not in\n{error}");
    }
    assert!(error.contains("b.yaml:1: unclosed bracket '[' (column 4)"), "{error}");
    assert!(error.contains("c.json:1: Invalid value: a list: must be an object"), "{error}");
    assert!(SpecResolver::read(&["/nowhere/at/all"]).unwrap_err()[0].contains("No such file"));
}
