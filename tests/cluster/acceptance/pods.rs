//! Generates valid pods.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Returns a valid pod.
pub(super) fn pod(rng: &mut Rng, name: &str) -> Value {
    let volumes = volumes(rng);
    let names: Vec<&str> = volumes.iter().map(|volume| volume["name"].as_str().unwrap()).collect();
    let mut spec = Map::new();
    let is_host_network = rng.u8(..5) == 0;
    let restart = ["Always", "OnFailure", "Never"][rng.usize(..3)];
    let count = rng.usize(1..3);
    let containers = (0..count).map(|n| container(rng, &format!("c{n}"), &names, is_host_network)).collect();
    spec.insert("containers".into(), Value::Array(containers));
    spec.insert("restartPolicy".into(), json!(restart));
    if rng.bool() {
        let init =
            (0..rng.usize(1..3)).map(|n| init_container(rng, &format!("i{n}"), &names, is_host_network));
        spec.insert("initContainers".into(), init.collect());
    }
    if !volumes.is_empty() {
        spec.insert("volumes".into(), Value::Array(volumes));
    }
    if is_host_network {
        spec.insert("hostNetwork".into(), json!(true));
    }
    for (field, value) in pod_fields(rng) {
        if rng.u8(..4) == 0 {
            spec.insert(field.into(), value);
        }
    }
    if let Some(shares) = spec.get("shareProcessNamespace")
        && *shares == json!(true)
    {
        spec.remove("hostPID");
    }
    if spec.contains_key("os") {
        spec.remove("hostUsers");
    }
    if ["hostNetwork", "hostPID", "hostIPC"].iter().any(|field| spec.contains_key(*field)) {
        spec.remove("hostUsers");
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}, "annotations": {"a.b/c": "d"}},
        "spec": spec,
    })
}

fn pod_fields(rng: &mut Rng) -> Vec<(&'static str, Value)> {
    vec![
        ("terminationGracePeriodSeconds", json!(rng.u32(..100))),
        ("activeDeadlineSeconds", json!(rng.u32(1..100))),
        ("dnsPolicy", json!(["Default", "ClusterFirst", "ClusterFirstWithHostNet"][rng.usize(..3)])),
        (
            "dnsConfig",
            json!({"nameservers": ["10.0.0.1"], "searches": ["a.b"], "options": [{"name": "ndots", "value": "2"}]}),
        ),
        ("hostAliases", json!([{"ip": "10.1.1.1", "hostnames": ["a.example", "b"]}])),
        ("hostname", json!("host")),
        ("subdomain", json!("sub")),
        ("setHostnameAsFQDN", json!(rng.bool())),
        ("shareProcessNamespace", json!(rng.bool())),
        ("hostPID", json!(true)),
        ("hostIPC", json!(true)),
        ("hostUsers", json!(false)),
        ("enableServiceLinks", json!(rng.bool())),
        ("automountServiceAccountToken", json!(false)),
        ("nodeSelector", json!({"kubernetes.io/os": "linux"})),
        ("schedulerName", json!("other")),
        ("os", json!({"name": "linux"})),
        ("imagePullSecrets", json!([{"name": "pull"}])),
        ("readinessGates", json!([{"conditionType": "example.com/gate"}])),
        (
            "resources",
            json!({"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}}),
        ),
        (
            "tolerations",
            json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]),
        ),
        (
            "topologySpreadConstraints",
            json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}}}]),
        ),
        ("affinity", affinity(rng)),
        ("securityContext", pod_security(rng)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("serviceAccountName", json!("default")),
        ("hostnameOverride", json!("a.b.example")),
    ]
}

fn affinity(rng: &mut Rng) -> Value {
    let operator = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"][rng.usize(..6)];
    let values = match operator {
        "In" | "NotIn" => json!(["a", "b"]),
        "Gt" | "Lt" => json!(["5"]),
        _ => json!([]),
    };
    let term = json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
    let pods = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}});
    json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": rng.u8(1..=100), "preference": term}],
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [pods]},
    })
}

fn pod_security(rng: &mut Rng) -> Value {
    let all = [
        ("runAsUser", json!(rng.u32(..70_000))),
        ("runAsGroup", json!(rng.u32(..70_000))),
        ("runAsNonRoot", json!(false)),
        ("fsGroup", json!(rng.u32(..70_000))),
        ("supplementalGroups", json!([1, 2])),
        ("fsGroupChangePolicy", json!(["Always", "OnRootMismatch"][rng.usize(..2)])),
        ("supplementalGroupsPolicy", json!(["Merge", "Strict"][rng.usize(..2)])),
        ("sysctls", json!([{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"}])),
        ("seccompProfile", json!({"type": "RuntimeDefault"})),
        ("appArmorProfile", json!({"type": "Unconfined"})),
        ("seLinuxOptions", json!({"level": "s0:c1,c2"})),
        ("seLinuxChangePolicy", json!("Recursive")),
    ];
    some_of(rng, all)
}

/// Returns an object with some of the fields.
fn some_of<const N: usize>(rng: &mut Rng, fields: [(&'static str, Value); N]) -> Value {
    fields.into_iter().filter(|_| rng.u8(..3) == 0).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn volumes(rng: &mut Rng) -> Vec<Value> {
    let kinds =
        ["", "Directory", "DirectoryOrCreate", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
    let sources = [
        ("emptyDir", json!({})),
        ("emptyDir", json!({"medium": "Memory", "sizeLimit": "10Mi"})),
        ("emptyDir", json!({"medium": "HugePages-2Mi"})),
        ("hostPath", json!({"path": "/srv/a", "type": kinds[rng.usize(..kinds.len())]})),
        (
            "configMap",
            json!({"name": "cm", "items": [{"key": "k", "path": "a/b", "mode": 0o400}], "optional": true}),
        ),
        ("secret", json!({"secretName": "s", "defaultMode": 0o640, "optional": true})),
        (
            "downwardAPI",
            json!({"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "resourceFieldRef": {"containerName": "c0", "resource": "limits.cpu", "divisor": "1m"}}]}),
        ),
        (
            "projected",
            json!({"sources": [{"configMap": {"name": "cm", "optional": true}}, {"secret": {"name": "s", "optional": true}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}),
        ),
        ("image", json!({"reference": "example.com/data:1", "pullPolicy": "IfNotPresent"})),
    ];
    let chosen = sources.into_iter().enumerate().filter(|_| rng.u8(..4) == 0);
    chosen.map(|(number, (kind, source))| json!({"name": format!("v{number}"), kind: source})).collect()
}

fn init_container(rng: &mut Rng, name: &str, volumes: &[&str], is_host_network: bool) -> Value {
    let mut container = container(rng, name, volumes, is_host_network);
    if rng.bool() {
        container["restartPolicy"] = json!("Always");
        container.as_object_mut().unwrap().remove("restartPolicyRules");
    } else {
        for field in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
            container.as_object_mut().unwrap().remove(field);
        }
    }
    container
}

fn container(rng: &mut Rng, name: &str, volumes: &[&str], is_host_network: bool) -> Value {
    let mut container = Map::new();
    container.insert("name".into(), json!(name));
    container
        .insert("image".into(), json!(["busybox", "example.com/a/b:1", "a@sha256:0123"][rng.usize(..2)]));
    for (field, value) in container_fields(rng, is_host_network) {
        if rng.u8(..3) == 0 {
            container.insert(field.into(), value);
        }
    }
    let mounted: Vec<&str> = volumes.iter().copied().filter(|_| rng.bool()).collect();
    let mounts = mounted.into_iter().map(|volume| mount(rng, volume)).collect();
    container.insert("volumeMounts".into(), mounts);
    Value::Object(container)
}

fn mount(rng: &mut Rng, volume: &str) -> Value {
    let mut mount = json!({"name": volume, "mountPath": format!("/mnt/{volume}")});
    // Volumes of images are mounted read-only as a whole.
    match rng.u8(..5) {
        0 if volume != "v8" => mount["subPath"] = json!("a/b"),
        3 if volume != "v8" && rng.bool() => mount["subPathExpr"] = json!("a/$(A)"),
        1 => mount["readOnly"] = json!(true),
        2 if volume != "v8" => mount["mountPropagation"] = json!("HostToContainer"),
        _ => {}
    }
    mount
}

fn container_fields(rng: &mut Rng, is_host_network: bool) -> Vec<(&'static str, Value)> {
    let pre_stop = [json!({"sleep": {"seconds": 1}}), json!({"httpGet": {"port": "http"}})];
    let pre_stop = &pre_stop[rng.usize(..2)];
    let mut port = json!({"name": "http", "containerPort": 8080, "protocol": "TCP"});
    if is_host_network {
        port["hostPort"] = json!(8080);
    } else if rng.bool() {
        port["hostPort"] = json!(rng.u16(1..));
    }
    vec![
        ("command", json!(["sh", "-c", "sleep $(N)"])),
        ("args", json!(["a", "$(B)"])),
        ("workingDir", json!("/tmp")),
        ("env", env(rng)),
        (
            "envFrom",
            json!([{"prefix": "P_", "configMapRef": {"name": "cm", "optional": true}},
            {"secretRef": {"name": "s", "optional": true}}]),
        ),
        ("ports", json!([port])),
        (
            "resources",
            json!({"requests": {"cpu": "100m", "memory": "10Mi", "ephemeral-storage": "1Gi"},
            "limits": {"cpu": "0.5", "memory": "20M"}}),
        ),
        ("livenessProbe", probe(rng, true)),
        ("readinessProbe", probe(rng, false)),
        ("startupProbe", probe(rng, true)),
        ("lifecycle", json!({"postStart": {"exec": {"command": ["a"]}}, "preStop": pre_stop})),
        ("securityContext", container_security(rng)),
        ("imagePullPolicy", json!(["Always", "Never", "IfNotPresent"][rng.usize(..3)])),
        ("terminationMessagePath", json!("/dev/a")),
        ("terminationMessagePolicy", json!(["File", "FallbackToLogsOnError"][rng.usize(..2)])),
        ("stdin", json!(rng.bool())),
        ("stdinOnce", json!(rng.bool())),
        ("tty", json!(rng.bool())),
        ("restartPolicy", json!(["Never", "OnFailure", "Always"][rng.usize(..3)])),
        (
            "restartPolicyRules",
            json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]),
        ),
        ("resizePolicy", json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}])),
    ]
}

fn env(rng: &mut Rng) -> Value {
    let all = [
        json!({"name": "A", "value": "1"}),
        json!({"name": "B-b.c", "value": "$(A)"}),
        json!({"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a.b/c']"}}}),
        json!({"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
        json!({"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}}),
        json!({"name": "F", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": true}}}),
        json!({"name": "G", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}}),
    ];
    all.into_iter().filter(|_| rng.bool()).collect()
}

/// Returns a probe. One that restarts its container succeeds after one attempt, and may have a
/// grace period.
fn probe(rng: &mut Rng, restarts: bool) -> Value {
    let mut probe = match rng.u8(..4) {
        0 => json!({"exec": {"command": ["true"]}}),
        1 => {
            json!({"httpGet": {"path": "/a", "port": "http", "scheme": "HTTPS", "httpHeaders": [{"name": "X-A", "value": "b"}]}})
        }
        2 => json!({"tcpSocket": {"port": 80, "host": "localhost"}}),
        _ => json!({"grpc": {"port": 90, "service": "s"}}),
    };
    for field in ["initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"] {
        if rng.bool() {
            probe[field] = json!(rng.u8(1..));
        }
    }
    if restarts && rng.bool() {
        probe["terminationGracePeriodSeconds"] = json!(rng.u8(1..));
    } else if !restarts && rng.bool() {
        probe["successThreshold"] = json!(rng.u8(1..));
    }
    probe
}

fn container_security(rng: &mut Rng) -> Value {
    let all = [
        ("runAsUser", json!(rng.u32(..70_000))),
        ("runAsGroup", json!(rng.u32(..70_000))),
        ("readOnlyRootFilesystem", json!(rng.bool())),
        ("privileged", json!(true)),
        ("capabilities", json!({"add": ["NET_ADMIN"], "drop": ["ALL"]})),
        ("procMount", json!("Default")),
        ("seccompProfile", json!({"type": "Localhost", "localhostProfile": "a/b.json"})),
        ("appArmorProfile", json!({"type": "Localhost", "localhostProfile": "profile"})),
        ("seLinuxOptions", json!({"user": "u", "role": "r", "type": "t", "level": "s0"})),
    ];
    some_of(rng, all)
}
