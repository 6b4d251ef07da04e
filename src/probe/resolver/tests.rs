mod files;
mod names;
mod validation;

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;
use wildmatch::WildMatch;

use super::*;
use crate::cri::labels::{PORTS, PRE_STOP_HANDLER};
use crate::cri::{ContainerObservation, SandboxObservation, v1};
use crate::inventory;
use crate::manifest::cursor::Cursor;
use crate::manifest::{ContainerPort, GrpcHealth, HttpGet, Port};
use crate::manifest::{RestartPolicy, read_manifests, read_probe};
use crate::probe::{Selector, annotation_problems};
use crate::tap::Observation;

fn seen(
    name: &str,
    labels: &[(&str, &str)],
    annotations: &[(&str, &str)],
    of_container: &[(&str, &str)],
) -> (Arc<Sandbox>, Arc<Container>) {
    seen_in("shop", name, labels, annotations, of_container)
}

/// Returns a sandbox and its container `main`, as the inventory holds them.
fn seen_in(
    namespace: &str,
    name: &str,
    labels: &[(&str, &str)],
    annotations: &[(&str, &str)],
    of_container: &[(&str, &str)],
) -> (Arc<Sandbox>, Arc<Container>) {
    let texts = |texts: &[(&str, &str)]| {
        Some(texts.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    };
    let metadata = v1::PodSandboxMetadata {
        name: name.into(),
        uid: "u-1".into(),
        namespace: namespace.into(),
        attempt: 0,
    };
    let sandbox = SandboxObservation {
        id: "p".into(),
        metadata: Some(metadata),
        labels: texts(labels),
        annotations: texts(annotations),
        ..Default::default()
    };
    let container = ContainerObservation {
        id: "c".into(),
        sandbox: Some("p".into()),
        metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
        annotations: texts(of_container),
        ..Default::default()
    };
    let (mut inventory, now) = (Arc::<inventory::Inventory>::default(), Instant::now());
    inventory.fold(
        inventory::Source::List,
        now,
        now,
        vec![Observation::Sandbox(sandbox), Observation::Container(container)],
    );
    (inventory.sandbox("p").unwrap().clone(), inventory.container("c").unwrap().clone())
}

fn specs(files: &[(&str, &str)]) -> Result<SpecResolver, String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    SpecResolver::read(&[dir.path()]).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        lines.join("\n").replace(&format!("{}/", dir.path().display()), "")
    })
}

/// Returns the purpose, the command, the timeout and the source of each command.
fn summaries(uses: &[KnownExec]) -> Vec<(&str, String, i64, &str)> {
    uses.iter()
        .map(|used| (used.purpose.name(), used.command.join(" "), used.timeout_seconds, used.source.name()))
        .collect()
}

const DEPLOYMENT: &str = r#"
kind: Service
metadata: {name: web}
---
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        env: [{name: FILE, value: /tmp/x}, {name: SECRET, valueFrom: {secretKeyRef: {name: a, key: b}}}]
        livenessProbe: {exec: {command: [test, -f, $(FILE), "<$(SECRET)>", $(OTHER)]}}
        readinessProbe: {httpGet: {port: 80}}
        startupProbe: {exec: {command: ["true"]}, timeoutSeconds: 5, periodSeconds: 2}
        lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
"#;

#[test]
fn a_workload_manifest_specifies_the_probes_of_its_pods() {
    let specs =
        specs(&[("web.yaml", DEPLOYMENT), ("notes.txt", "not: [a manifest"), (".hidden.yaml", "[")]).unwrap();
    let (sandbox, container) = seen("web-5d4f8c7b9-x2x4z", &[("app", "web"), ("more", "x")], &[], &[]);
    let uses = specs.known_execs(&sandbox, &container);
    assert_eq!(
        summaries(&uses),
        [
            ("startup", "true".to_owned(), 5, "manifest"),
            ("liveness", "test -f /tmp/x <> $(OTHER)".to_owned(), 1, "manifest"),
            ("preStop", "sleep 5".to_owned(), 0, "manifest"),
        ]
    );
    let periods: Vec<_> = uses.iter().map(|used| used.period.map(|period| period.as_secs())).collect();
    assert_eq!(periods, [Some(2), Some(10), None]);
    let (other, container) = seen("web-5d4f8c7b9-x2x4z", &[("app", "api")], &[], &[]);
    assert!(specs.known_execs(&other, &container).is_empty(), "another label");
}

#[test]
fn the_first_source_that_specifies_a_probe_takes_precedence() {
    let pod = |command: &str| {
        json!({
            "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": [{
                "name": "main",
                "livenessProbe": {"exec": {"command": [command]}},
                "readinessProbe": {"exec": {"command": [command]}},
                "lifecycle": {"preStop": {"exec": {"command": [command]}}},
            }]},
        })
        .to_string()
    };
    let mut manifest: Value = serde_json::from_str(&pod("manifest")).unwrap();
    manifest["spec"]["containers"][0].as_object_mut().unwrap().remove("lifecycle");
    let specs = specs(&[("pod.json", &manifest.to_string())]).unwrap();
    let applied = pod("applied");
    let annotations = [
        ("probeshim.io/liveness.main", r#"{"exec": {"command": ["annotated"]}, "timeoutSeconds": 3}"#),
        ("probeshim.io/readiness.main", r#"{"exec": {"command": "not a list"}}"#),
        (LAST_APPLIED, applied.as_str()),
    ];
    let hook = [(PRE_STOP_HANDLER, r#"{"exec": {"command": ["kubelet"]}}"#)];
    let (sandbox, container) = seen("web", &[], &annotations, &hook);
    assert_eq!(
        summaries(&specs.known_execs(&sandbox, &container)),
        [
            ("readiness", "manifest".to_owned(), 1, "manifest"),
            ("liveness", "annotated".to_owned(), 3, "annotation"),
            ("preStop", "applied".to_owned(), 0, "last-applied"),
        ]
    );
    let (sandbox, container) = seen("other", &[], &[], &hook);
    assert_eq!(
        summaries(&specs.known_execs(&sandbox, &container)),
        [("preStop", "kubelet".to_owned(), 0, "kubelet-annotation")]
    );
}

#[test]
fn invalid_annotations_are_reported() {
    let many = json!({"exec": {"command": vec![1; 1000]}}).to_string();
    let annotations = [
        ("probeshim.io/liveness.good", r#"{"exec": {"command": ["true"]}}"#),
        (
            "probeshim.io/liveness.main",
            r#"{"exec": {"command": "secret"}, "periodSeconds": -1, "frequency": 3}"#,
        ),
        ("probeshim.io/livenes.main", "{}"),
        ("probeshim.io/readiness.main", "{"),
        ("probeshim.io/startup.", "{}"),
        ("probeshim.io/startup.main", r#"{"exce": {"command": ["true"]}}"#),
        ("probeshim.io/startup.other", &many),
        ("example.com/liveness.main", "{"),
    ];
    let (sandbox, _) = seen("web", &[], &annotations, &[]);
    assert_eq!(
        annotation_problems(&sandbox, false),
        [
            "annotation probeshim.io/livenes.main: unknown key, must be probeshim.io/<liveness|readiness|startup>.<container> or probeshim.io/restart-policy[.<container>]",
            "annotation probeshim.io/liveness.main: exec.command: Invalid value: \"secret\": must be a list; \
             periodSeconds: Invalid value: -1: must be an integer between 0 and 2147483647, inclusive; \
             unknown field \"frequency\"",
            "annotation probeshim.io/readiness.main: must be JSON: EOF while parsing an object at line 1 column 1",
            "annotation probeshim.io/startup.: unknown key, must be probeshim.io/<liveness|readiness|startup>.<container> or probeshim.io/restart-policy[.<container>]",
            "annotation probeshim.io/startup.main: Required value: must specify a handler type: exec, httpGet, tcpSocket or grpc; \
             unknown field \"exce\", did you mean \"exec\"?",
            "annotation probeshim.io/startup.other: exec.command[0]: Invalid value: 1: must be a string; quote a value that YAML reads as another type; \
             exec.command[1]: Invalid value: 1: must be a string; quote a value that YAML reads as another type; \
             exec.command[2]: Invalid value: 1: must be a string; quote a value that YAML reads as another type; and 997 more",
        ]
    );
    assert!(!annotation_problems(&sandbox, true).concat().contains("secret"));
}

#[test]
fn a_non_exec_probe_hides_exec_probes_of_lower_precedence() {
    let probe = |handler: Value| {
        json!({
            "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": [{"name": "main", "livenessProbe": handler}]},
        })
        .to_string()
    };
    let applied = probe(json!({"exec": {"command": ["applied"]}}));
    let (sandbox, container) = seen("web", &[], &[(LAST_APPLIED, &applied)], &[]);
    assert_eq!(summaries(&SpecResolver::default().known_execs(&sandbox, &container))[0].1, "applied");
    let specs = specs(&[("pod.json", &probe(json!({"httpGet": {"port": 80}})))]).unwrap();
    assert!(specs.known_execs(&sandbox, &container).is_empty());
}

#[test]
fn a_static_pod_is_matched_by_its_name_with_the_name_of_the_node() {
    let text = "{kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: main, livenessProbe: {exec: {command: [x]}}}]}}";
    let specs = specs(&[("pod.yml", text)]).unwrap();
    let from_file = [("kubernetes.io/config.source", "file")];
    for (name, annotations, is_it) in [
        ("web", &[][..], true),
        ("web-node-1", &[], false),
        ("web-node-1", &from_file, true),
        ("web", &from_file, false),
    ] {
        let (sandbox, container) = seen(name, &[], annotations, &[]);
        assert_eq!(!specs.known_execs(&sandbox, &container).is_empty(), is_it, "{name} {annotations:?}");
    }
}

#[test]
fn absent_and_zero_probe_fields_have_their_defaults() {
    for fields in ["", ", timeoutSeconds: 0, periodSeconds: 0, failureThreshold: 0, successThreshold: 0"] {
        let text = format!(
            "{{kind: Pod, metadata: {{name: web}}, spec: {{containers: [{{name: main, livenessProbe: {{exec: {{command: [x]}}{fields}}}}}]}}}}"
        );
        let specs = specs(&[("pod.yaml", &text)]).unwrap();
        let (sandbox, container) = seen_in("default", "web", &[], &[], &[]);
        let pod = specs.resolve_pod(&sandbox, [&container]);
        let probe = pod.container("main").unwrap().probe(ProbeType::Liveness).unwrap();
        let Probe { initial_delay, timeout, period, success_threshold, failure_threshold, .. } = **probe;
        assert_eq!((initial_delay, timeout, period, success_threshold, failure_threshold), (0, 1, 10, 1, 3));
        assert_eq!((pod.restart_policy, pod.termination_grace_period), (RestartPolicy::Always, Some(30)));
    }
}

#[test]
fn absent_fields_of_probe_handlers_have_their_defaults() {
    let get = HttpGet {
        path: "/".to_owned(),
        port: Port::Number(80),
        host: None,
        is_https: false,
        headers: Vec::new(),
    };
    for (handler, expected) in [
        ("httpGet: {port: 80}", Handler::Http(get)),
        ("grpc: {port: 80}", Handler::Grpc(GrpcHealth { port: 80, service: String::new(), is_tls: false })),
        (
            "grpc: {port: 80, mode: TLS}",
            Handler::Grpc(GrpcHealth { port: 80, service: String::new(), is_tls: true }),
        ),
    ] {
        let specs =
            specs(&[("pod.yaml", &pod_with(&format!("{{name: main, livenessProbe: {{{handler}}}}}")))]);
        let (sandbox, container) = seen("web", &[], &[], &[]);
        let pod = specs.unwrap().resolve_pod(&sandbox, [&container]);
        assert_eq!(pod.container("main").unwrap().probe(ProbeType::Liveness).unwrap().handler, expected);
    }
}

/// Returns the manifest of a pod with these containers.
fn pod_with(container: &str) -> String {
    format!("{{kind: Pod, metadata: {{name: web, namespace: shop}}, spec: {{containers: [{container}]}}}}")
}

/// Returns the liveness probe of a rule.
fn executing(command: &str) -> Vec<(ProbeType, Option<Arc<Probe>>)> {
    let node = json!({"exec": {"command": [command]}});
    let read = read_probe(ProbeType::Liveness, &Cursor::root("", &node), Source::Config, &mut Vec::new());
    vec![(ProbeType::Liveness, read.map(Arc::new))]
}

#[test]
fn configuration_rules_take_precedence_and_match_by_their_selectors() {
    let glob = |glob: &str| Some(WildMatch::new(glob));
    let rules = vec![
        Rule {
            selector: Selector { namespace: glob("other"), ..Selector::default() },
            probes: executing("a"),
        },
        Rule { selector: Selector { pod: glob("web-?"), ..Selector::default() }, probes: executing("b") },
        Rule {
            selector: Selector { labels: vec![("app".into(), WildMatch::new("sh*"))], ..Selector::default() },
            probes: vec![(ProbeType::Liveness, None)],
        },
        Rule {
            selector: Selector { image: glob("*/nginx:*"), container: glob("main"), ..Selector::default() },
            probes: executing("d"),
        },
    ];
    let written = pod_with("{name: main, image: reg/nginx:1, livenessProbe: {exec: {command: [written]}}}");
    let specs = specs(&[("pod.yaml", &written)]).unwrap().and_rules(rules);
    let command = |name: &str, labels: &[(&str, &str)]| {
        let (sandbox, _) = seen(name, labels, &[], &[]);
        let uses = specs.resolve_pod(&sandbox, []);
        uses.container("main").map(|container| {
            match container.probe(ProbeType::Liveness).map(|it| &it.handler) {
                Some(Handler::Exec(command)) => command[0].clone(),
                _ => "none".to_owned(),
            }
        })
    };
    assert_eq!(command("web", &[]).as_deref(), Some("d"), "the image that is written");
    assert_eq!(command("web", &[("app", "shop")]).as_deref(), Some("none"));
    assert_eq!(command("web-1", &[]), None, "no container of this pod is known yet");
    let (sandbox, container) = seen("web-1", &[], &[], &[]);
    assert_eq!(
        summaries(&specs.known_execs(&sandbox, &container)),
        [("liveness", "b".to_owned(), 1, "config")]
    );
}

#[test]
fn container_ports_come_from_the_spec_or_from_the_kubelets_annotation() {
    let ports = [(PORTS, r#"[{"name": "http", "containerPort": 8080, "protocol": "TCP"}]"#)];
    let (sandbox, container) = seen("web", &[], &[], &ports);
    let read = |specs: SpecResolver| {
        specs.resolve_pod(&sandbox, [&container]).container("main").unwrap().ports.clone()
    };
    let named = |name: &str, number| vec![ContainerPort { name: Some(name.to_owned()), number }];
    assert_eq!(read(SpecResolver::default()), named("http", 8080));
    let written = pod_with("{name: main, ports: [{name: web, containerPort: 80}]}");
    assert_eq!(read(specs(&[("pod.yaml", &written)]).unwrap()), named("web", 80));
}

#[test]
fn items_of_an_api_list_need_no_kind() {
    let list = json!({"kind": "PodList", "items": [
        {"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
         "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}],
                  "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "first"}]}},
    ]});
    let mut problems = Vec::new();
    let read = read_manifests(&list, Source::Kubelet, false, &mut problems);
    assert_eq!((read.len(), problems), (1, vec![]));
    let roles: Vec<_> = read[0].pod.containers.iter().map(|it| (it.name.as_str(), it.role)).collect();
    assert_eq!(
        roles,
        [("main", ContainerKind::Regular), ("side", ContainerKind::Sidecar), ("first", ContainerKind::Init)]
    );
    assert_eq!(read[0].pod.restart_policy, RestartPolicy::Never);
}

#[test]
fn errors_in_a_kubelets_pod_list_name_the_pod() {
    let list = json!({"kind": "PodList", "items": [
        {"metadata": {"name": "web", "namespace": "shop"},
         "spec": {"containers": [{"name": "main", "livenessProbe": {"tcpSocket": {"port": 0}}}]}},
        {"metadata": {"name": "api"}},
    ]});
    let mut problems = Vec::new();
    let read = read_manifests(&list, Source::Kubelet, false, &mut problems);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!((read.len(), problems.len()), (1, 1), "{problems:?}");
    let expected = "Pod shop/web: spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: ";
    assert!(problems[0].starts_with(expected), "{problems:?}");
}

#[test]
fn a_container_known_only_to_a_later_source_is_probed() {
    let applied = pod_with("{name: main}, {name: mesh, livenessProbe: {exec: {command: [told]}}}");
    let applied: Value = serde_saphyr::from_str(&applied).unwrap();
    let applied = applied.to_string();
    let (sandbox, _) = seen("web", &[], &[(LAST_APPLIED, &applied)], &[]);
    let specs = specs(&[("pod.yaml", &pod_with("{name: main}"))]).unwrap();
    let mesh = specs.resolve_pod(&sandbox, []).container("mesh").cloned().unwrap();
    assert_eq!((mesh.role, mesh.all_probes().count()), (ContainerKind::Regular, 1));
}

#[test]
fn unknown_containers_are_probed_only_if_they_are_named() {
    let rule = |container: &str| Rule {
        selector: Selector { container: Some(WildMatch::new(container)), ..Selector::default() },
        probes: executing("x"),
    };
    let annotation = ("probeshim.io/liveness.main", r#"{"exec": {"command": ["x"]}}"#);
    for (rules, annotations, is_probed) in [
        (vec![], vec![], false),
        (vec![rule("*")], vec![], false),
        (vec![rule("main")], vec![], true),
        (vec![], vec![annotation], true),
    ] {
        let (sandbox, container) = seen("web", &[], &annotations, &[]);
        let specs = specs(&[("pod.yaml", &pod_with("{name: other}"))]).unwrap().and_rules(rules);
        let pod = specs.resolve_pod(&sandbox, [&container]);
        assert_eq!(pod.container("main").unwrap().all_probes().count() == 1, is_probed, "{annotations:?}");
    }
}

#[test]
fn a_static_pod_is_matched_to_the_manifest_with_the_longest_name() {
    let pod = |name: &str| {
        let probe = json!({"exec": {"command": [name]}});
        json!({
            "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"containers": [{"name": "main", "livenessProbe": probe}]},
        })
        .to_string()
    };
    let specs = specs(&[("a.json", &pod("web")), ("b.json", &pod("web-api"))]).unwrap();
    let from_file = [("kubernetes.io/config.source", "file")];
    for (name, command) in [("web-api-node-1", "web-api"), ("web-node-1", "web")] {
        let (sandbox, container) = seen(name, &[], &from_file, &[]);
        assert_eq!(summaries(&specs.known_execs(&sandbox, &container))[0].1, command, "{name}");
    }
}
