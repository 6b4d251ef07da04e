//! What is read of documents, and what is wrong with them.

mod faults;

use super::*;
use crate::manifest::pod::{VariableValue, VolumeSource};

/// The pod of a spec that has nothing wrong with it.
pub(crate) fn pod(spec: &str) -> Pod {
    let pods = play(&format!("{{kind: Pod, metadata: {{name: p, namespace: test}}, spec: {spec}}}")).unwrap();
    (**pods.first().unwrap()).clone()
}

/// The pods of documents, or everything that is wrong with them.
pub(crate) fn play(text: &str) -> Result<Vec<Arc<Pod>>, Vec<String>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    for (place, document) in documents.iter().enumerate() {
        let mut found = Vec::new();
        read.extend(ParsedDocument::read(
            document,
            ReadOptions::default(),
            &format!("doc {}", place + 1),
            &mut found,
        ));
        problems.extend(found.iter().map(|problem| format!("doc {}: {problem}", place + 1)));
    }
    let wanted = merge(&read.iter().collect::<Vec<_>>());
    problems.extend(wanted.problems);
    if problems.is_empty() { Ok(wanted.pods) } else { Err(problems) }
}

fn problems(text: &str) -> Vec<String> {
    play(text).unwrap_err()
}

/// What is wrong with a pod of this spec, which begins with `what`.
fn problems_of(what: &str, spec: &str) -> Vec<String> {
    let text = format!("{{kind: Pod, metadata: {{name: p}}, spec: {spec}}}");
    problems(&text).into_iter().filter(|problem| problem.contains(what)).collect()
}

#[test]
fn what_a_node_alone_cannot_honour_is_refused_by_its_path() {
    for (spec, expected) in [
        (
            "{volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}",
            "spec.volumes[0].persistentVolumeClaim is an object with claimName; it cannot be had here: it takes a cluster's storage",
        ),
        (
            "{serviceAccountName: robot, containers: [{name: a, image: i}]}",
            "spec.serviceAccountName is \"robot\"; it cannot be had here: service accounts come from an API server",
        ),
        (
            "{securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}, containers: [{name: a, image: i}]}",
            "sysctls[0].name is \"kernel.msgmax\"; it cannot be had here: a kubelet allows it only with",
        ),
        (
            "{volumes: [{name: v, emptyDir: {medium: HugePages}}], containers: [{name: a, image: i}]}",
            "emptyDir.medium is \"HugePages\"; it cannot be had here",
        ),
        (
            "{containers: [{name: a, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}",
            "resources.limits.nvidia.com/gpu is 1; it cannot be had here",
        ),
    ] {
        let all = problems_of("", spec);
        assert!(all.len() == 1 && all[0].contains(expected), "{all:?}");
        let document: Value =
            serde_saphyr::from_str(&format!("{{kind: Pod, metadata: {{name: p}}, spec: {spec}}}")).unwrap();
        let mut found = Vec::new();
        let read = |ignores_unsupported, found: &mut Vec<Violation>| {
            ParsedDocument::read(
                &document,
                ReadOptions { ignores_unsupported, ..ReadOptions::default() },
                "",
                found,
            )
        };
        let refused = merge(&read(false, &mut Vec::new()).iter().collect::<Vec<_>>());
        assert_eq!((refused.pods.len(), refused.problems.len()), (0, 0), "it is not played by mistake");
        let read = read(true, &mut found);
        assert!(found.iter().all(|problem| problem.is_unsupported));
        let wanted = merge(&read.iter().collect::<Vec<_>>());
        assert_eq!((wanted.pods.len(), wanted.problems.len()), (1, 0), "it can be left out");
        assert_eq!(wanted.pods[0].containers[0].mounts, [], "and what refers to it with it");
    }
    let alone = "{hostNetwork: true, initContainers: [{name: b, image: i, ports: [{containerPort: 80}]}], \
                 containers: [{name: a, image: i, ports: [{containerPort: 80}]}]}";
    assert_eq!(self::pod(alone).containers.len(), 2, "they do not run at the same time");
    // What concerns others is for others.
    let pod = "{serviceAccountName: default, nodeName: x, tolerations: [{operator: Exists}], priority: 0, containers: [{name: a, image: i}]}";
    assert_eq!(self::pod(pod).containers.len(), 1);
}

#[test]
fn pods_find_what_is_for_them_in_other_documents() {
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
    let pods = play(text).unwrap();
    let [web] = &pods[..] else { panic!("{pods:?}") };
    assert_eq!((web.name.as_str(), web.labels["app"].as_str()), ("web", "web"));
    let main = &web.containers[0];
    assert_eq!(main.env_from[0].data["level"], "3");
    let given = |name: &str| main.env.iter().find(|variable| variable.name == name).unwrap().value.clone();
    assert_eq!(given("TOKEN"), VariableValue::Given(Some("secret".to_owned())));
    assert_eq!(given("NONE"), VariableValue::Given(None));
    let VolumeSource::Files { files, .. } = &web.volumes[0].source else { panic!("{:?}", web.volumes) };
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a/mode", "token", "user"]);
    assert!(!format!("{web:?}").is_empty());
    for (wrong, expected) in [
        (
            "key: token",
            "doc 3: spec.containers[0].env[0].valueFrom.secretKeyRef.key is \"other\"; it must be a key of that Secret, which has token, user",
        ),
        (
            "name: keys, key",
            "doc 3: spec.containers[0].env[0].valueFrom.secretKeyRef.name is \"others\"; it must be a Secret of namespace default among these files",
        ),
    ] {
        let text = match wrong {
            "key: token" => text.replace("key: token", "key: other"),
            _ => text.replace("name: keys, key", "name: others, key"),
        };
        assert_eq!(problems(&text), [expected]);
    }
    let broken = problems(&text.replace("c2VjcmV0", "not base64!"));
    assert_eq!(broken, ["doc 2: data.token is something else; it must be base64"]);
    // What is wrong with a pod itself does not hide what it names in vain.
    let both = problems(
        &text
            .replace("name: main\n", "name: main\n        imagePullPolicy: Often\n")
            .replace("name: keys, key", "name: others, key"),
    );
    assert!(
        both.len() == 2 && both[0].contains("imagePullPolicy") && both[1].contains("must be a Secret"),
        "{both:?}"
    );
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
    assert_eq!(one(", uid: mine"), "mine");
    assert_eq!((one("").len(), one("").bytes().all(|byte| byte.is_ascii_hexdigit())), (32, true));
    for wrong in ["..", "/etc", "a/b", ""] {
        let text = format!(
            "{{kind: Pod, metadata: {{name: p, uid: '{wrong}'}}, spec: {{containers: [{{name: a, image: i}}]}}}}"
        );
        assert!(play(&text).is_err() || wrong.is_empty(), "{wrong}");
        let text = text.replace("uid:", "namespace:");
        assert!(play(&text).is_err(), "{wrong}");
    }
    let same = |name: &str| {
        format!(
            "{{kind: Pod, metadata: {{name: {name}, uid: u}}, spec: {{containers: [{{name: a, image: i}}]}}}}"
        )
    };
    let found = problems(&format!("{}\n---\n{}", same("a"), same("b")));
    assert_eq!(found, ["doc 2: metadata.uid is \"u\"; it must be the uid of one pod only"]);
    let twice = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: i}]}}";
    let found = problems(&format!("{twice}\n---\n{twice}"));
    assert_eq!(found, ["doc 2: Pod default/p is in doc 1 already"]);
}
