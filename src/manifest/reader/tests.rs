//! Tests of reading documents and of their errors.

mod document_faults;
mod faults;
mod objects;
mod placement;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::manifest::cursor::{Cursor, Level, Severity, Violation};
use crate::manifest::document::{self, Document};
use crate::manifest::pod::{
    DataKind, DataRef, Deletion, EmptyDirMedium, EnvFrom, FileSource, NodeSelectorOperator,
    NodeSelectorRequirement, NodeSelectorTerm, Placement, Pod, PullPolicy, RuntimeHandler, VariableValue,
    VolumeSource,
};
use crate::manifest::reader::pod;
use crate::manifest::{
    Handler, Hook, ObjectError, PodSet, ProbeType, Purpose, ReadOptions, Source, WorkloadKind,
};

/// Returns the pod of a valid spec.
pub(crate) fn pod(spec: &str) -> Pod {
    let pods = play(&format!("{{kind: Pod, metadata: {{name: p, namespace: test}}, spec: {spec}}}")).unwrap();
    (**pods.first().unwrap()).clone()
}

/// Returns the pods of documents, or all errors.
pub(crate) fn play(text: &str) -> Result<Vec<Arc<Pod>>, Vec<String>> {
    pod_set(text).map(|set| set.pods)
}

/// Returns the pods and objects of documents, or all errors.
pub(crate) fn pod_set(text: &str) -> Result<PodSet, Vec<String>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    for (place, document) in documents.into_iter().enumerate() {
        let (at, mut found) = (format!("doc {}", place + 1), Vec::new());
        read.extend(document::read(&complete(document), RUN, &at, &mut found));
        let errors = found.iter().filter(|problem| problem.is_error(false));
        problems.extend(errors.map(|problem| format!("{at}: {problem}")));
    }
    let set = PodSet::new(&read);
    problems.extend(set.problems.iter().cloned());
    if problems.is_empty() { Ok(set) } else { Err(problems) }
}

/// Adds to an object what most tests leave out: the version of its kind, and the selector of a
/// workload with the labels of its template.
fn complete(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let version = match kind.as_str() {
        "RuntimeClass" => "node.k8s.io/v1",
        _ => WorkloadKind::named(&kind).map_or("v1", WorkloadKind::version),
    };
    let is_complete = object.get("apiVersion").is_some() || !object.is_object();
    if is_complete {
        return object;
    }
    object["apiVersion"] = version.into();
    let Some(spec) = object["spec"].as_object_mut().filter(|_| version == "apps/v1") else { return object };
    let Some(template) = spec.get_mut("template").and_then(Value::as_object_mut) else { return object };
    let metadata = template.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return object };
    let labels = metadata.entry("labels").or_insert_with(|| json!({"app": "a"})).clone();
    spec.entry("selector").or_insert_with(|| json!({"matchLabels": labels}));
    object
}

const RUN: ReadOptions = ReadOptions {
    purpose: Purpose::Run,
    redact: false,
    ignore_unsupported: false,
    needs_commands: false,
    level: Level::Strict,
    source: Source::Manifest,
};

fn problems(text: &str) -> Vec<String> {
    play(text).unwrap_err()
}

/// Returns the errors that contain `what` in a pod with this spec.
fn problems_of(what: &str, spec: &str) -> Vec<String> {
    let text = format!("{{kind: Pod, metadata: {{name: p}}, spec: {spec}}}");
    problems(&text).into_iter().filter(|problem| problem.contains(what)).collect()
}

#[test]
fn extended_resources_of_a_pod_are_accepted() {
    let pod = pod("{workloadRef: {name: w}, schedulingGroup: {podGroupName: g}, \
         containers: [{name: a, image: i, resources: {limits: {example.com/device: 2}}}]}");
    let amounts = &pod.containers[0].resources.requests;
    assert_eq!(amounts.get("example.com/device").map(|amount| amount.units()), Some(2));
    assert_eq!(pod.qos().name(), "BestEffort");
}

#[test]
fn fields_that_require_a_cluster_are_refused_with_their_path() {
    for (spec, expected) in [
        (
            "{volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}",
            "spec.volumes[0].persistentVolumeClaim: Unsupported by probeshim: requires the storage of a cluster",
        ),
        (
            "{volumes: [{name: v, nfs: {server: s, path: /p}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}",
            "spec.volumes[0].nfs: Unsupported by probeshim: programs and drivers of the host mount it; mount it on the host, and use hostPath",
        ),
        (
            "{schedulingGates: [{name: a.b/c}], containers: [{name: a, image: i}]}",
            "spec.schedulingGates: Unsupported by probeshim: a pod waits until a controller removes them",
        ),
        (
            "{containers: [{name: a, image: i}], ephemeralContainers: [{name: e, image: i}]}",
            "spec.ephemeralContainers: Unsupported by probeshim: the API server adds them to a running pod, and a kubelet \
             refuses them in a file too",
        ),
    ] {
        let all = problems_of("", spec);
        assert!(all.len() == 1 && all[0].contains(expected), "{all:?}");
        let document: Value =
            serde_saphyr::from_str(&format!("{{kind: Pod, metadata: {{name: p}}, spec: {spec}}}")).unwrap();
        let (document, mut found) = (complete(document), Vec::new());
        let read = |ignore_unsupported, found: &mut Vec<Violation>| -> Vec<Document> {
            document::read(&document, ReadOptions { ignore_unsupported, ..RUN }, "", found)
        };
        let refused = PodSet::new(&read(false, &mut Vec::new()));
        assert_eq!((refused.pods.len(), refused.problems.len()), (0, 0), "it is not run by mistake");
        let read = read(true, &mut found);
        assert!(found.iter().all(|problem| problem.severity == Severity::Unsupported));
        let wanted = PodSet::new(&read);
        assert_eq!((wanted.pods.len(), wanted.problems.len()), (1, 0), "it can be left out");
        // A claim has an emptyDir in its place.
        let mounts = usize::from(spec.contains("Claim"));
        assert_eq!(wanted.pods[0].containers[0].mounts.len(), mounts, "and what refers to it with it");
    }
    let alone = "{hostNetwork: true, initContainers: [{name: b, image: i, ports: [{containerPort: 80}]}], \
                 containers: [{name: a, image: i, ports: [{containerPort: 80}]}]}";
    assert_eq!(self::pod(alone).containers.len(), 2, "they do not run at the same time");
    // Fields for other programs are ignored.
    let pod = "{serviceAccountName: default, nodeName: x, tolerations: [{operator: Exists}], priority: 0, containers: [{name: a, image: i}]}";
    assert_eq!(self::pod(pod).containers.len(), 1);
}

#[test]
fn rules_that_only_the_node_can_check_are_read_as_written() {
    let read = pod("{securityContext: {sysctls: [{name: net/ipv4/conf/eth0.1/forwarding, value: '1'}, \
         {name: net.ipv4.conf.eth0/2.forwarding, value: '2'}, {name: kernel.msgmax, value: '3'}]}, \
         nodeSelector: {disk: ssd}, affinity: {podAffinity: {}, nodeAffinity: {\
         requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}, \
         {matchExpressions: [{key: cores, operator: Gt, values: ['4']}, {key: gpu, operator: Exists}], \
         matchFields: [{key: metadata.name, operator: NotIn, values: [node-1]}]}]}}}, \
         containers: [{name: a, image: i}]}");
    let sysctls = [
        ("net.ipv4.conf.eth0/1.forwarding", "1"),
        ("net.ipv4.conf.eth0/2.forwarding", "2"),
        ("kernel.msgmax", "3"),
    ];
    assert_eq!(read.security.sysctls, sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let requirement = |key: &str, operator, values: &[&str]| NodeSelectorRequirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(ToString::to_string).collect(),
    };
    let term = NodeSelectorTerm {
        labels: vec![
            requirement("cores", NodeSelectorOperator::Gt, &["4"]),
            requirement("gpu", NodeSelectorOperator::Exists, &[]),
        ],
        fields: vec![requirement("metadata.name", NodeSelectorOperator::NotIn, &["node-1"])],
    };
    let expected = Placement {
        is_windows: false,
        node_selector: [("disk".to_owned(), "ssd".to_owned())].into(),
        node_affinity: Some(vec![NodeSelectorTerm::default(), term]),
    };
    assert_eq!(read.placement, expected);
    let windows = "{os: {name: windows}, hostPID: false, securityContext: {windowsOptions: {}}, \
                   containers: [{name: a, image: i}]}";
    assert!(pod(windows).placement.is_windows);
    assert_eq!(pod("{containers: [{name: a, image: i}]}").placement, Placement::default());
}

#[test]
fn pods_refer_to_objects_of_other_documents() {
    let text = "
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast, level: '3'}
---
kind: Secret
metadata: {name: keys}
data: {token: c2VjcmV0}
stringData: {user: me}
---
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: i:1
        envFrom: [{prefix: S_, configMapRef: {name: settings}}, {secretRef: {name: absent, optional: true}}]
        env:
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}
        - {name: NONE, valueFrom: {configMapKeyRef: {name: settings, key: absent, optional: true}}}
        volumeMounts: [{name: files, mountPath: /files}]
      volumes:
      - name: files
        projected: {sources: [{configMap: {name: settings, items: [{key: mode, path: a/mode}]}}, {secret: {name: keys}}]}
---
{kind: Service, metadata: {name: web}}
";
    let set = pod_set(text).unwrap();
    let [spec] = &set.workloads[..] else { panic!("{:?}", set.workloads) };
    let pods: Vec<Arc<Pod>> = spec.first_slots().filter_map(|slot| spec.pod(slot)).collect();
    let [web, _, _] = &pods[..] else { panic!("{pods:?}") };
    assert_eq!(web.labels["app"], "web");
    let object = |kind, name: &str, is_optional| DataRef { kind, name: name.to_owned(), is_optional };
    let main = &web.containers[0];
    let settings = object(DataKind::ConfigMap, "settings", false);
    assert_eq!(main.env_from[0], EnvFrom { prefix: "S_".to_owned(), object: settings.clone() });
    let value = |name: &str| main.env.iter().find(|variable| variable.name == name).unwrap().value.clone();
    let keys = object(DataKind::Secret, "keys", false);
    assert_eq!(value("TOKEN"), VariableValue::Key { object: keys.clone(), key: "token".to_owned() });
    let VolumeSource::Files { sources, .. } = &web.volumes[0].source else { panic!("{:?}", web.volumes) };
    assert_eq!(sources.iter().flat_map(FileSource::paths).collect::<Vec<_>>(), ["a/mode"]);
    let data = set.objects.resolve("default", &keys).unwrap().unwrap();
    assert_eq!(data.variable("token", false).unwrap(), Some(&b"secret"[..]));
    assert!(!format!("{:?}", set.objects).contains("secret"), "the content of secrets is not shown");
    assert_eq!(
        data.variable("other", false).unwrap_err().to_string(),
        "couldn't find key other in Secret default/keys"
    );
    let other_namespace = set.objects.resolve("other", &settings).unwrap_err();
    assert_eq!(other_namespace.to_string(), "configmap \"settings\" not found", "it is in another namespace");
    assert_eq!(set.objects.resolve("default", &object(DataKind::Secret, "absent", true)), Ok(None));
    let kata = RuntimeHandler::OfClass("kata".to_owned());
    let missing = ObjectError::NotFound { resource: "runtimeclass.node.k8s.io", name: "kata".to_owned() };
    assert_eq!(set.objects.runtime_handler(&kata), Err(missing));
    let broken_lines = pod_set(&text.replace("c2VjcmV0", r#""c2Vj\r\ncmV0\n""#)).unwrap();
    assert_eq!(broken_lines.objects, set.objects, "as for Go, line breaks in base64 do not matter");
    let broken = problems(&text.replace("c2VjcmV0", "not base64!"));
    assert_eq!(broken, ["doc 2: data.token: Invalid value: must be base64-encoded"]);
}

/// The handler of a newer kubelet would do something else without its field.
#[test]
fn a_handler_of_a_lenient_source_with_an_unknown_field_or_mode_is_not_understood() {
    let read = |level, handler: &str| {
        let node: Value = serde_saphyr::from_str(&format!("{{{handler}, future: 1}}")).unwrap();
        let mut problems = Vec::new();
        let probe = super::probe::probe(
            ProbeType::Liveness,
            &Cursor::root("", &node).at_level(level),
            Source::Kubelet,
            &mut problems,
        );
        (probe.map(|probe| probe.handler), problems.len())
    };
    for (handler, field) in [
        ("exec: {command: [a], future: 1}", Some("future")),
        ("httpGet: {port: 80, future: {}}", Some("future")),
        (
            "httpGet: {port: 80, httpHeaders: [{name: A, value: b}, {name: B, valueFrom: {}}]}",
            Some("httpHeaders[1].valueFrom"),
        ),
        ("tcpSocket: {port: 80, future: x}", Some("future")),
        ("grpc: {port: 80, mode: Mutual}", Some("mode")),
        ("grpc: {port: 80, mode: TLS}", None),
        ("grpc: {port: 80, future: null}", None),
    ] {
        let (found, problems) = read(Level::Lenient, handler);
        let unknown = match found.unwrap() {
            Handler::NotUnderstood(unknown) => Some(unknown.field),
            _ => None,
        };
        assert_eq!((unknown.as_deref(), problems), (field, 0), "{handler}");
        let (_, problems) = read(Level::Strict, handler);
        assert_eq!(problems, 1 + usize::from(!handler.contains("TLS")), "{handler}");
    }
}

/// The hook of a newer kubelet would do something else without its field.
#[test]
fn a_hook_of_a_lenient_source_with_an_unknown_field_is_not_run() {
    let read = |level, hook: &str| {
        let node: Value = serde_saphyr::from_str(hook).unwrap();
        let mut problems = Vec::new();
        let hook = super::probe::hook(&Cursor::root("", &node).at_level(level), &mut problems);
        (hook, problems.len())
    };
    for (hook, field) in [
        ("{exec: {command: [a], future: 1}}", "exec.future"),
        ("{httpGet: {port: 80, httpHeaders: [{name: A, future: x}]}}", "httpGet.httpHeaders[0].future"),
        ("{tcpSocket: {port: 80, future: 1}}", "tcpSocket.future"),
        ("{sleep: {seconds: 1, future: 1}}", "sleep.future"),
    ] {
        let reason = format!("the field {field} is not understood, so the hook is not run");
        assert_eq!(read(Level::Lenient, hook), (Some(Hook::Invalid(reason)), 0), "{hook}");
        assert_eq!(read(Level::Strict, hook).1, 1, "{hook}");
    }
    let sleep = read(Level::Lenient, "{sleep: {seconds: 1, future: null}, future: 1}");
    assert_eq!(sleep, (Some(Hook::Sleep(1)), 0), "a field without a value, and one beside the handler");
}

#[test]
fn a_lenient_reader_ignores_unknown_fields_and_rejects_unsupported_fields() {
    let read = |level, spec: &str| {
        let template: Value =
            serde_saphyr::from_str(&format!("{{metadata: {{new: 1}}, spec: {spec}}}")).unwrap();
        let mut problems = Vec::new();
        let pod = pod::read(&Cursor::root("", &template).at_level(level), ["ns", "p"], &[], &mut problems);
        (pod.is_some(), problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let newer = "{future: {a: b}, containers: [{name: a, image: i, future: 1, livenessProbe: {tcpSocket: {port: 80, future: 1}}, \
                 lifecycle: {preStop: {sleep: {seconds: 1, future: 1}}}}]}";
    assert_eq!(read(Level::Lenient, newer), (true, Vec::new()));
    let (_, problems) = read(Level::Strict, newer);
    let unknown = problems.iter().filter(|it| it.contains("unknown field \"")).count();
    assert_eq!((unknown, problems.len()), (5, 5), "{problems:?}");
    let claim = "{future: 1, volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], containers: [{name: a, image: i}]}";
    let (_, problems) = read(Level::Lenient, claim);
    assert!(problems.len() == 1 && problems[0].contains("requires the storage of a cluster"), "{problems:?}");
    let wrong = "{containers: [{name: a, image: i, resources: {limits: {cpu: lots}}}]}";
    let (is_read, problems) = read(Level::Lenient, wrong);
    assert!(
        !is_read && problems.len() == 1 && problems[0].contains("must be a non-negative quantity"),
        "{problems:?}"
    );
    // An invalid pod does not affect the other pods of its list.
    let pod = |name: &str, spec: &str| {
        format!(
            "{{metadata: {{name: {name}, deletionTimestamp: now, deletionGracePeriodSeconds: 5}}, spec: {spec}}}"
        )
    };
    let list = [pod("newer", newer), pod("claim", claim), pod("wrong", wrong)].join(", ");
    let list: Value = serde_saphyr::from_str(&format!("{{kind: PodList, items: [{list}]}}")).unwrap();
    let mut found = Vec::new();
    let documents = document::read(&list, ReadOptions { level: Level::Lenient, ..RUN }, "", &mut found);
    let set = PodSet::new(&documents);
    let names: Vec<&str> = set.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!((names, found.len()), (vec!["newer"], 2), "{found:?}");
    let invalid: Vec<&str> = set.invalid.iter().map(|(_, _, name)| name.as_str()).collect();
    assert_eq!(invalid, ["claim", "wrong"]);
    assert_eq!(set.pods[0].deletion, Some(Deletion { grace_period: Some(5) }));
}

#[test]
fn pods_are_distinguished_by_name_and_manifest() {
    let one = |more: &str| {
        let text = format!(
            "{{kind: Pod, metadata: {{name: p{more}}}, spec: {{containers: [{{name: a, image: i}}]}}}}"
        );
        play(&text).unwrap()[0].uid.clone()
    };
    assert_eq!(one(""), one(""));
    assert_ne!(one(""), one(", labels: {a: b}"));
    assert_eq!(
        one(""),
        "b00018fe800b861c60614cabc4462959",
        "it stays the same over versions: what runs is found by it"
    );
    assert_eq!(one(", uid: mine"), "mine");
    assert_eq!((one("").len(), one("").bytes().all(|byte| byte.is_ascii_hexdigit())), (32, true));
    for wrong in ["..", "/etc", "a/b", ""] {
        let text = format!(
            "{{kind: Pod, metadata: {{name: p, uid: '{wrong}'}}, spec: {{containers: [{{name: a, image: i}}]}}}}"
        );
        assert!(play(&text).is_err() || wrong.is_empty(), "{wrong}");
        let text = text.replace("uid:", "namespace:");
        assert!(play(&text).is_err() || wrong.is_empty(), "{wrong}");
    }
    let same = |name: &str| {
        format!(
            "{{kind: Pod, metadata: {{name: {name}, uid: u}}, spec: {{containers: [{{name: a, image: i}}]}}}}"
        )
    };
    let found = problems(&format!("{}\n---\n{}", same("a"), same("b")));
    assert_eq!(found, ["doc 2: metadata.uid: Duplicate value: \"u\""]);
    let twice = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: i}]}}";
    let found = problems(&format!("{twice}\n---\n{twice}"));
    assert_eq!(found, ["doc 2: Pod default/p already exists in doc 1"]);
}

#[test]
fn a_volume_without_a_source_is_an_empty_dir() {
    for volume in
        ["{name: v}", "{name: v, emptyDir: }", "{name: v, emptyDir: {}}", "{name: v, hostPath: null}"]
    {
        let pod = pod(&format!(
            "{{volumes: [{volume}], containers: [{{name: a, image: i, volumeMounts: [{{name: v, mountPath: /v}}]}}]}}"
        ));
        let source = VolumeSource::EmptyDir { medium: EmptyDirMedium::Disk, size: None };
        assert_eq!(pod.volumes[0].source, source, "{volume}");
    }
    // A misspelt source is an error, not an emptyDir.
    let misspelt = "{volumes: [{name: v, emptydir: {}}], containers: [{name: a, image: i}]}";
    assert_eq!(problems_of("spec.volumes[0].emptydir", misspelt).len(), 1);
}

#[test]
fn the_default_pull_policy_of_an_image_volume_is_that_of_a_container() {
    for (image, expected) in [
        ("{reference: i}", PullPolicy::Always),
        ("{reference: 'i:1', pullPolicy: ''}", PullPolicy::IfNotPresent),
        ("{reference: i, pullPolicy: Never}", PullPolicy::Never),
    ] {
        let pod =
            pod(&format!("{{volumes: [{{name: v, image: {image}}}], containers: [{{name: a, image: i}}]}}"));
        let policies: Vec<PullPolicy> = pod.image_volumes().map(|(.., policy)| policy).collect();
        assert_eq!(policies, [expected], "{image}");
    }
}

#[test]
fn an_unmasked_proc_mount_requires_a_user_namespace() {
    let spec = |users: bool| {
        format!(
            "{{hostUsers: {users}, containers: [{{name: a, image: i, securityContext: {{procMount: Unmasked}}}}]}}"
        )
    };
    let [kept, own] = [true, false].map(|users| {
        let text = format!("{{kind: Pod, metadata: {{name: p}}, spec: {}}}", spec(users));
        play(&text).err().unwrap_or_default()
    });
    assert!(kept.len() == 1 && kept[0].contains("procMount: Invalid value"), "{kept:?}");
    assert!(own.is_empty(), "{own:?}");
}

#[test]
fn the_config_hash_of_a_pod_is_its_uid() {
    for uid in ["", ", uid: given"] {
        let text = format!(
            "{{kind: Pod, metadata: {{name: p{uid}}}, spec: {{containers: [{{name: a, image: i}}]}}}}"
        );
        let pod = play(&text).unwrap().remove(0);
        assert_eq!(pod.annotations["kubernetes.io/config.hash"], pod.uid);
        assert_eq!(pod.uid == "given", !uid.is_empty());
    }
}

#[test]
fn values_that_kubernetes_changes_when_it_reads_them_are_read_alike() {
    let one = pod(
        "{terminationGracePeriodSeconds: -5, containers: [{name: a, image: i, resources: {limits: {memory: ' +1Gi '}}}]}",
    );
    assert_eq!(one.spec.termination_grace_period, Some(1));
    let long = pod("{terminationGracePeriodSeconds: 2147483648, containers: [{name: a, image: i}]}");
    assert_eq!(long.spec.termination_grace_period, Some(2_147_483_647));
    assert_eq!(one.requests()["memory"].units(), 1 << 30);
    let set = pod_set(
        "{kind: ConfigMap, metadata: {name: c}, data: {a: null, b: x}}\n---\n\
         {kind: Pod, metadata: {name: p, labels: {l: null}}, spec: {containers: [{name: a, image: i}]}}",
    )
    .unwrap();
    assert_eq!(set.pods[0].labels["l"], "");
    let found = set.objects.data(DataKind::ConfigMap, "default", "c").unwrap();
    assert_eq!(found.variable("a", false).unwrap(), Some(&b""[..]));
}
