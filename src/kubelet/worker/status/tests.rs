//! Pods as `/pods` shows them. Kubernetes clients read the content of the snapshots: a changed line
//! is a changed interface.

mod transitions;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::List;
use k8s_openapi::api::core::v1 as corev1;
use serde_json::{Value, json};

use super::*;
use crate::cri::labels::RESTART_COUNT;
use crate::cri::v1;
use crate::kubelet::pod_status::waiting;
use crate::kubelet::published_pod::PublishedPod;
use crate::manifest::pod::{Amounts, PodOrigin};
use crate::manifest::reader::tests::play;

/// Returns a time in nanoseconds since 1970: 2026-11-23, 12:00, plus `seconds`.
fn nanoseconds(seconds: i64) -> i64 {
    (1_795_435_200 + seconds) * 1_000_000_000 + 987_654_321
}

fn at(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds(seconds).try_into().unwrap())
}

fn node() -> NodeInfo {
    NodeInfo {
        name: "node-1".to_owned(),
        address: "192.0.2.1".to_owned(),
        memory: 0,
        page_sizes: Vec::new(),
        resolv_conf: PathBuf::new(),
        is_cgroup_v2: false,
        huge_pages: Amounts::new(),
        storage: 0,
        cpus: 1,
        thermal_throttle: Vec::new(),
        has_apparmor: false,
        etc_hosts: String::new(),
        logs: PathBuf::new(),
        keep_logs: false,
        pods: PathBuf::new(),
        state: String::new(),
    }
}

/// Returns a pod with every field that `/pods` shows.
fn whole_pod() -> Pod {
    let text = "
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: test
  labels: {app: web}
  annotations: {note: yes it is, kubectl.kubernetes.io/last-applied-configuration: '{}'}
spec:
  terminationGracePeriodSeconds: 7
  securityContext: {runAsUser: 1000, supplementalGroups: [5]}
  tolerations: [{key: a, operator: Exists, tolerationSeconds: 5}]
  volumes:
  - {name: scratch, emptyDir: {sizeLimit: 1000}}
  - {name: host, hostPath: {path: /tmp}}
  - {name: settings, configMap: {name: settings, optional: true}}
  initContainers:
  - {name: first, image: i:1, command: [init, --all]}
  - {name: side, image: i:1, restartPolicy: Always, startupProbe: {exec: {command: ['true']}}}
  containers:
  - name: main
    image: i:1
    command: [serve]
    args: ['--token', abc]
    env:
    - {name: KEY, value: secret}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}
    ports: [{containerPort: 80, name: http}, {containerPort: 53, protocol: UDP}]
    resources: {limits: {cpu: 1, memory: 64Mi}, requests: {cpu: 0.5}}
    volumeMounts: [{name: scratch, mountPath: /scratch}, {name: host, mountPath: /host, readOnly: true}]
    readinessProbe: {periodSeconds: 3, httpGet: {path: '/ready?token=abc', port: http, httpHeaders: [{name: X, value: secret}]}}
    livenessProbe: {tcpSocket: {port: 80}, failureThreshold: 5}
    lifecycle: {preStop: {exec: {command: [bye]}}}
  - {name: other, image: 'i:2', env: []}
";
    let pod = play(text).unwrap().remove(0);
    // The uid and its annotation are a digest of the document.
    let mut pod = Pod { uid: "uid-of-web".to_owned(), ..Pod::clone(&pod) };
    pod.annotations.remove("kubernetes.io/config.hash");
    pod
}

/// Returns the status of a container in the runtime.
fn container(name: &str, attempt: u32, state: v1::ContainerState, exit_code: i32) -> v1::ContainerStatus {
    let start = i64::from(attempt) * 100;
    let ended = state == v1::ContainerState::ContainerExited;
    let user = v1::LinuxContainerUser { uid: 1000, gid: 0, supplemental_groups: vec![0, 5] };
    v1::ContainerStatus {
        id: format!("{name}-{attempt}"),
        metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt }),
        state: state.into(),
        created_at: nanoseconds(start),
        started_at: nanoseconds(start + 1),
        finished_at: if ended { nanoseconds(start + 60) } else { 0 },
        exit_code,
        image: Some(v1::ImageSpec { image: "i:1".to_owned(), ..v1::ImageSpec::default() }),
        image_ref: "sha256:1".to_owned(),
        reason: match (ended, exit_code) {
            (false, _) => String::new(),
            (true, 0) => "Completed".to_owned(),
            (true, _) => "Error".to_owned(),
        },
        message: if exit_code == 0 { String::new() } else { "GET /start?token=abc failed".to_owned() },
        user: Some(v1::ContainerUser { linux: Some(user) }),
        ..v1::ContainerStatus::default()
    }
}

fn runtime_status(containers: Vec<v1::ContainerStatus>) -> RuntimePodStatus {
    let address = |ip: &str| v1::PodIp { ip: ip.to_owned() };
    let network =
        v1::PodSandboxNetworkStatus { ip: "10.0.0.7".to_owned(), additional_ips: vec![address("fd00::7")] };
    let sandbox = v1::PodSandboxStatus {
        id: "sandbox".to_owned(),
        state: v1::PodSandboxState::SandboxReady.into(),
        network: Some(network),
        ..v1::PodSandboxStatus::default()
    };
    let containers = containers.into_iter().map(|container| (container, sandbox.id.clone())).collect();
    RuntimePodStatus::new(vec![(sandbox, false)], containers, |_| false)
}

/// Returns the status of a pod at a time. `before` is its last status.
fn status_at(
    pod: &Pod,
    runtime_status: &RuntimePodStatus,
    reasons: &WaitingReasons,
    before: Option<&PodStatus>,
    seconds: i64,
) -> PodStatus {
    let node = node();
    status(&StatusInputs { before, ..inputs(pod, &node, runtime_status, reasons) }, at(seconds))
}

/// Returns the inputs of a first status, without a prober.
fn inputs<'a>(
    pod: &'a Pod,
    node: &'a NodeInfo,
    runtime_status: &'a RuntimePodStatus,
    reasons: &'a WaitingReasons,
) -> StatusInputs<'a> {
    StatusInputs {
        pod,
        node,
        runtime_status,
        report: None,
        probe_spec: None,
        reasons,
        before: None,
        is_past_deadline: false,
        is_terminal: false,
        runtime: "containerd",
        started: at(0),
    }
}

fn published(pod: &Pod, status: Option<PodStatus>) -> PublishedPod {
    let mut published = PublishedPod::new(Arc::new(pod.clone()), at(0));
    if let Some(status) = status {
        published.update(status, &[]);
    }
    published
}

/// A client that replaces a container begins with attempt 0 again.
#[test]
fn the_attempt_of_a_container_is_not_its_restart_count() {
    let pod = whole_pod();
    let mut main = container("main", 0, v1::ContainerState::ContainerRunning, 0);
    main.annotations.insert(RESTART_COUNT.to_owned(), "5".to_owned());
    let runtime_status = runtime_status(vec![main]);
    let status = status_at(&pod, &runtime_status, &WaitingReasons::new(), None, 200);
    let restarts = status.containers().find(|it| it.name == "main").unwrap().restarts();
    let mut published = PublishedPod::new(Arc::new(pod.clone()), at(0));
    published.update(status.clone(), &runtime_status.containers);
    assert_eq!((published.attempt("main-0"), restarts), (Some(0), 5));
    published.update(status, &[]);
    assert_eq!(published.attempt("main-0"), Some(0), "the container is still in the status");
    published.update(PodStatus::default(), &[]);
    assert_eq!(published.attempt("main-0"), None);
}

/// Returns the pods of the snapshots.
fn pods() -> Vec<(&'static str, PublishedPod)> {
    use v1::ContainerState::{ContainerExited, ContainerRunning};
    let pod = whole_pod();
    let runs = runtime_status(vec![
        container("first", 0, ContainerExited, 0),
        container("side", 0, ContainerRunning, 0),
        container("main", 0, ContainerExited, 3),
        container("main", 1, ContainerRunning, 0),
        container("other", 0, ContainerExited, 1),
    ]);
    let back_off = waiting("CrashLoopBackOff", "back-off 10s restarting GET /x?token=abc");
    let reasons = WaitingReasons::from([("other".to_owned(), back_off)]);
    let starting = runtime_status(vec![container("first", 0, ContainerRunning, 0)]);
    let first_status = status_at(&pod, &starting, &WaitingReasons::new(), None, 2);
    let running = status_at(&pod, &runs, &reasons, Some(&first_status), 200);
    let mut ended = published(&pod, Some(running.clone()));
    ended.finish();
    let mut rejected =
        published(&pod, Some(status_at(&pod, &RuntimePodStatus::default(), &reasons, None, 1)));
    rejected.finish();
    rejected.removed = Some(at(300));
    let exceeded = {
        let (node, before) = (node(), Some(&running));
        let inputs = StatusInputs { before, is_past_deadline: true, ..inputs(&pod, &node, &runs, &reasons) };
        status(&inputs, at(201))
    };
    let identity = ["test", "client", "uid-of-client"].map(str::to_owned);
    let mut client = Pod::identity_only(identity, PodOrigin::Manifest);
    let container = corev1::Container {
        name: "main".to_owned(),
        image: Some("i:1".to_owned()),
        ..corev1::Container::default()
    };
    client.written_spec =
        Arc::new(corev1::PodSpec { containers: vec![container], ..corev1::PodSpec::default() });
    vec![
        ("not looked at", published(&pod, None)),
        ("initialising", published(&pod, Some(first_status))),
        ("running", published(&pod, Some(running))),
        ("ended", ended),
        ("ended before it started", rejected),
        ("deadline exceeded", published(&pod, Some(exceeded))),
        ("of a client", published(&client, None)),
    ]
}

#[test]
fn published_pods_have_the_fields_of_kubernetes() {
    for (name, published) in pods() {
        let shown = published.to_json("node-1", false);
        // One spec is enough: it is the same in all pods except the client pod.
        let shown = if matches!(name, "running" | "of a client") { &shown } else { &shown["status"] };
        let shown = serde_json::to_string_pretty(shown).unwrap();
        insta::assert_snapshot!(name.replace(' ', "_"), shown);
    }
}

#[test]
fn redacted_pods_are_shown_without_commands_and_query_strings() {
    let (_, published) = pods().remove(2);
    let shown = serde_json::to_string_pretty(&published.to_json("node-1", true)).unwrap();
    assert!(!shown.contains("token=abc"), "{shown}");
    insta::assert_snapshot!("redacted", shown);
}

/// k8s-openapi drops unknown fields, omits nulls, and gives a header without a value an empty one.
#[test]
fn kubernetes_types_have_every_field_of_published_pods() {
    for (name, published) in pods() {
        let mut shown = published.to_json("node-1", false);
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [&shown]});
        let list: List<corev1::Pod> = serde_json::from_value(list).unwrap();
        let corev1::Pod { metadata, spec, status } = &list.items[0];
        let mut known = json!({"metadata": metadata, "spec": spec, "status": status});
        for pod in [&mut shown, &mut known] {
            remove_empty(pod);
        }
        assert_eq!(known, shown, "{name}");
    }
}

/// Removes fields that are null or empty strings.
fn remove_empty(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, inner| !inner.is_null() && inner != "");
            object.values_mut().for_each(remove_empty);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_empty),
        _ => {}
    }
}
