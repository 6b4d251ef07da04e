//! What is read of documents, and what is wrong with them.

use super::*;
use crate::play::spec::{VariableValue, VolumeSource};

/// The pod of a spec that has nothing wrong with it.
pub(in crate::play) fn pod(spec: &str) -> Pod {
    let pods = play(&format!("{{kind: Pod, metadata: {{name: p, namespace: test}}, spec: {spec}}}")).unwrap();
    (**pods.first().unwrap()).clone()
}

/// The pods of documents, or everything that is wrong with them.
pub(in crate::play) fn play(text: &str) -> Result<Vec<Arc<Pod>>, Vec<String>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    for (place, document) in documents.iter().enumerate() {
        let mut found = Vec::new();
        read.extend(Document::read(document, Terms::default(), &format!("doc {}", place + 1), &mut found));
        problems.extend(found.iter().map(|problem| format!("doc {}: {problem}", place + 1)));
    }
    let wanted = joined(&read.iter().collect::<Vec<_>>());
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

fn container(more: &str) -> String {
    format!("{{containers: [{{name: a, image: i{more}}}]}}")
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn everything_that_is_wrong_is_told_once_and_by_its_path() {
    for (spec, expected) in [
        ("{}".to_owned(), "spec.containers is missing; it must have at least one container"),
        ("{containers: {}}".into(), "spec.containers is an empty object; it must be a list"),
        (container(", ports: 5"), "ports is 5; it must be a list"),
        (container(", env: 5"), "env is 5; it must be a list"),
        (container(", volumeMounts: [5]"), "volumeMounts[0] is 5; it must be an object"),
        ("{containers: []}".into(), "spec.containers is missing; it must have at least one container"),
        (
            "{containers: [{image: i}]}".into(),
            "spec.containers[0] is an object with image; it must have a name",
        ),
        (
            "{containers: [{name: a}]}".into(),
            "spec.containers[0].image is missing; it must be the name of an image",
        ),
        (
            "{containers: [{name: A, image: i}]}".into(),
            "spec.containers[0].name is \"A\"; it must be a name of up to 63",
        ),
        (
            "{containers: [{name: a, image: i}, {name: a, image: i}]}".into(),
            "spec.containers[1].name is \"a\"; it must be the name of one container only",
        ),
        (
            container(", comand: [x]"),
            "spec.containers[0].comand is a list; it must not be there: known fields are",
        ),
        (
            container(", imagePullPolicy: Often"),
            "imagePullPolicy is \"Often\"; it must be one of Always, IfNotPresent, Never",
        ),
        (container(", env: [{value: x}]"), "env[0].name is missing; it must be the name of a variable"),
        (container(", env: [{name: A, value: 1}]"), "env[0].value is something else; it must be a string"),
        (
            container(", env: [{name: A, valueFrom: {}}]"),
            "env[0].valueFrom is an empty object; it must have one of",
        ),
        (
            container(", env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]"),
            "env[0].valueFrom.fieldRef.fieldPath is \"spec.x\"; it must be one of metadata.name",
        ),
        (
            container(", ports: [{containerPort: 0}]"),
            "ports[0].containerPort is 0; it must be a port's number",
        ),
        (
            container(", resources: {limits: {cpu: lots}}"),
            "resources.limits.cpu is \"lots\"; it must be a quantity",
        ),
        (
            container(", resources: {limits: {cpu: 1}, requests: {cpu: 2}}"),
            "resources.requests.cpu is 2; it must not be more than the limit",
        ),
        (
            container(", volumeMounts: [{name: v, mountPath: /v}]"),
            "volumeMounts[0].name is \"v\"; it must be the name of a volume of the pod, which has none",
        ),
        (
            container(", securityContext: {privileged: true, allowPrivilegeEscalation: false}"),
            "allowPrivilegeEscalation is false; it must not be false where privileged is true",
        ),
        (
            container(", livenessProbe: {tcpSocket: {port: 0}}"),
            "livenessProbe.tcpSocket.port is 0; it must be",
        ),
        (
            "{dnsPolicy: None, containers: [{name: a, image: i}]}".into(),
            "spec.dnsPolicy is \"None\"; it must not be None where dnsConfig has no nameservers",
        ),
        (
            "{volumes: [{name: v}], containers: [{name: a, image: i}]}".into(),
            "spec.volumes[0] is an object with name; it must have one of emptyDir, hostPath",
        ),
        (
            "{volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}], containers: [{name: a, image: i}]}"
                .into(),
            "spec.volumes[0] is an object with",
        ),
        (
            "{volumes: [{name: v, configMap: {name: c}}], containers: [{name: a, image: i}]}".into(),
            "configMap.name is \"c\"; it must be a ConfigMap of namespace default among these files",
        ),
        (
            container(", ports: [{name: Web, containerPort: 80}]"),
            "ports[0].name is \"Web\"; it must be a name of up to 15",
        ),
        (
            container(
                ", env: [{name: A, valueFrom: {resourceFieldRef: {containerName: b, resource: limits.cpu}}}]",
            ),
            "resourceFieldRef.containerName is \"b\"; it must be the name of a container of the pod, which has a",
        ),
        (
            container(", lifecycle: {preStop: {httpGet: {port: 80, scheem: HTTPS}}}"),
            "preStop.httpGet.scheem is \"HTTPS\"; it must not be there",
        ),
        (
            container(", lifecycle: {preStop: {exec: {command: [x], timeoutSeconds: 5}}}"),
            "preStop.exec.timeoutSeconds is 5; it must not be there",
        ),
        (
            container(
                ", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, value: [42]}}]",
            ),
            "exitCodes.value is a list; it must not be there",
        ),
        (
            "{hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 80}]}, {name: b, image: i, \
              ports: [{containerPort: 80}]}]}"
                .into(),
            "spec.containers[1].ports[0] is an object with containerPort; it must not be another one with the host's port 80",
        ),
        (
            container(", resources: {requests: {hugepages-2Mi: 2Mi}}"),
            "requests.hugepages-2Mi is \"2Mi\"; it must be as much as the limit",
        ),
        (
            container(", lifecycle: {preStop: {sleep: {seconds: 31}}}"),
            "preStop.sleep.seconds is 31; it must not be more than terminationGracePeriodSeconds, which is 30 here",
        ),
        (
            "{dnsConfig: {nameservers: [here]}, containers: [{name: a, image: i}]}".into(),
            "spec.dnsConfig.nameservers[0] is \"here\"; it must be an address",
        ),
        (
            "{dnsConfig: {searches: [a b]}, containers: [{name: a, image: i}]}".into(),
            "spec.dnsConfig.searches[0] is \"a b\"; it must be a domain",
        ),
        (
            "{hostAliases: [{ip: 127.0.0.1, hostnames: [A]}], containers: [{name: a, image: i}]}".into(),
            "spec.hostAliases[0].hostnames[0] is \"A\"; it must be a name",
        ),
        (
            "{securityContext: {sysctls: [{name: A, value: '1'}]}, containers: [{name: a, image: i}]}".into(),
            "sysctls[0].name is \"A\"; it must be the name of a kernel parameter",
        ),
        (
            "{hostNetwork: true, securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: '1'}]}, \
              containers: [{name: a, image: i}]}"
                .into(),
            "sysctls[0].name is \"net.ipv4.tcp_rmem\"; it must not be there where hostNetwork is true",
        ),
        (
            "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, \
              mountPath: /v, recursiveReadOnly: Enabled}]}]}"
                .into(),
            "recursiveReadOnly is \"Enabled\"; it must be Disabled, unless readOnly is true",
        ),
        (
            "{runtimeClassName: kata, containers: [{name: a, image: i}]}".into(),
            "spec.runtimeClassName is \"kata\"; it must be the name of a RuntimeClass among these files",
        ),
    ] {
        let all = problems_of("", &spec);
        assert!(
            all.len() == 1 && all[0].starts_with("doc 1: ") && all[0].contains(expected),
            "{spec}: {all:?}"
        );
    }
}

/// What is wrong around a pod's spec: one error for each document.
#[test]
fn everything_that_is_wrong_around_a_spec_is_told() {
    const SPEC: &str = "{containers: [{name: a, image: i}]}";
    let pod = |metadata: &str| format!("{{kind: Pod, metadata: {{name: p, {metadata}}}, spec: {SPEC}}}");
    let made = |kind: &str, policy: &str| {
        format!(
            "{{kind: {kind}, metadata: {{name: p}}, spec: {{template: {{spec: {{{policy}containers: [{{name: a, image: i}}]}}}}}}}}"
        )
    };
    for (text, expected) in [
        (pod("labels: {a b: c}"), "metadata.labels.a b is \"c\"; it must have a key of up to 63"),
        (pod("labels: {a: b c}"), "metadata.labels.a is \"b c\"; it must be empty, or up to 63"),
        (pod("annotations: {a b: c}"), "metadata.annotations.a b is \"c\"; it must have a key"),
        (
            format!("{{apiVersion: v2, kind: Pod, metadata: {{name: p}}, spec: {SPEC}}}"),
            "apiVersion is \"v2\"; it must be v1",
        ),
        (
            format!("{{kind: Pod, metadata: {{name: p}}, spec: {SPEC}, specs: 1}}"),
            "specs is 1; it must not be there",
        ),
        (
            made("Job", ""),
            "spec.template.spec.restartPolicy is missing; it must be OnFailure or Never for a Job",
        ),
        (
            made("DaemonSet", "restartPolicy: Never, "),
            "spec.template.spec.restartPolicy is \"Never\"; it must be Always for a DaemonSet",
        ),
        (
            "{kind: Deployment, metadata: {name: p}, spec: {template: 5}}".into(),
            "spec.template is 5; it must be an object",
        ),
        ("{kind: ConfigMap, metadata: {name: A_B}}".into(), "metadata.name is \"A_B\"; it must be a name"),
        (
            "{kind: Secret, metadata: {name: a, namespace: A}}".into(),
            "metadata.namespace is \"A\"; it must be a name",
        ),
        (
            "{kind: ConfigMap, metadata: {name: a}, data: {a: b}, binaryData: {a: Yg==}}".into(),
            "data.a is \"b\"; it must not be in binaryData as well",
        ),
        (
            "{kind: RuntimeClass, metadata: {name: a}, handler: A B}".into(),
            "handler is \"A B\"; it must be a name",
        ),
        (
            "{kind: Deployment, metadata: {name: p, namespace: ../x}, spec: {template: {spec: {containers: [{name: a, image: i}]}}}}".into(),
            "metadata.namespace is \"../x\"; it must be a name",
        ),
        ("{kind: ConfigMap, metadata: {name: a}, data: {'': x}}".into(), "data. is \"x\"; it must be a key"),
        (
            "{kind: Deployment, metadata: {name: p}, spec: {template: {metadata: 5, spec: {containers: [{name: a, image: i}]}}}}".into(),
            "spec.template.metadata is 5; it must be an object",
        ),
    ] {
        let all = problems(&text);
        assert!(all.len() == 1 && all[0].contains(expected), "{text}: {all:?}");
    }
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
        let read = |ignores_unsupported, found: &mut Vec<Problem>| {
            Document::read(&document, Terms { ignores_unsupported, ..Terms::default() }, "", found)
        };
        let refused = joined(&read(false, &mut Vec::new()).iter().collect::<Vec<_>>());
        assert_eq!((refused.pods.len(), refused.problems.len()), (0, 0), "it is not played by mistake");
        let read = read(true, &mut found);
        assert!(found.iter().all(|problem| problem.is_unsupported));
        let wanted = joined(&read.iter().collect::<Vec<_>>());
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
fn a_pod_is_told_apart_by_its_names_and_by_what_is_written() {
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
    let told = problems(&format!("{}\n---\n{}", same("a"), same("b")));
    assert_eq!(told, ["doc 2: metadata.uid is \"u\"; it must be the uid of one pod only"]);
    let twice = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: i}]}}";
    let told = problems(&format!("{twice}\n---\n{twice}"));
    assert_eq!(told, ["doc 2: Pod default/p is in doc 1 already"]);
}
