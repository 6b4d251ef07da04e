//! CRI configurations, compared with those of a kubelet 1.36.

mod pod_level;

use std::path::PathBuf;

use super::*;
use crate::cri::v1::LinuxContainerSecurityContext;
use crate::cri::v1::security_profile::ProfileType;
use crate::manifest::ConfigObjects;
use crate::manifest::pod::{Amounts, Dns};
use crate::manifest::reader::tests::{play, pod, pod_set};

fn node() -> NodeInfo {
    NodeInfo {
        name: "node".to_owned(),
        address: "192.0.2.2".to_owned(),
        memory: 25 << 30,
        is_cgroup_v2: false,
        huge_pages: Amounts::new(),
        storage: 1_000,
        page_sizes: vec!["2MB".to_owned(), "1GB".to_owned()],
        resolv_conf: PathBuf::new(),
        cpus: 2,
        thermal_throttle: Vec::new(),
        has_apparmor: false,
        etc_hosts: String::new(),
        logs: PathBuf::from("/logs"),
        keep_logs: false,
        pods: PathBuf::from("/pods"),
        state: "/state".to_owned(),
    }
}

fn made(pod: &Pod, name: &str) -> ContainerConfig {
    made_on(pod, name, &node())
}

fn made_on(pod: &Pod, name: &str, node: &NodeInfo) -> ContainerConfig {
    let container = pod.container(name).unwrap();
    let addresses = ["10.0.0.4".to_owned()];
    let variables = variables(
        container,
        &EnvFacts { pod, node, seen: "", addresses: &addresses, objects: &ConfigObjects::default() },
        &no_file,
    )
    .unwrap();
    let inputs = ContainerInputs {
        attempt: 3,
        image: "sha256:1",
        image_status: None,
        variables,
        mounts: Vec::new(),
        user_namespace: host_namespace(),
    };
    super::container(pod, container, node, inputs)
}

#[test]
fn container_hashes_equal_those_of_a_kubelet() {
    for (name, expected) in
        [("second", "bd7fc93b"), ("side", "4b33f2c4"), ("init", "d40a8274"), ("main", "9e7e0a2c")]
    {
        let pod = pod(&format!("{{containers: [{{name: {name}, image: 'probeshim.test/busybox:1'}}]}}"));
        assert_eq!(hash(&pod.containers[0]), expected, "{name}");
    }
}

#[test]
fn environment_variables_come_from_the_objects_that_exist_at_container_start() {
    let pod = pod("{containers: [{name: a, image: i, \
         envFrom: [{prefix: S_, configMapRef: {name: settings}}, {secretRef: {name: absent, optional: true}}], \
         env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}, \
         {name: NONE, valueFrom: {configMapKeyRef: {name: settings, key: absent, optional: true}}}, \
         {name: MODE, value: 'is $(S_mode)'}]}]}");
    let settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: test}, data: {mode: fast}, binaryData: {raw: eA==}}";
    let keys = "{apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: test}, stringData: {token: secret}}";
    let read = |objects: &[&str]| {
        let objects = pod_set(&objects.join("\n---\n")).unwrap().objects;
        let facts = EnvFacts { pod: &pod, node: &node(), seen: "", addresses: &[], objects: &objects };
        variables(&pod.containers[0], &facts, &no_file).map_err(|error| error.to_string())
    };
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.as_bytes().to_owned());
    let expected = [("MODE", "is fast"), ("S_mode", "fast"), ("TOKEN", "secret")].map(pair).to_vec();
    assert_eq!(read(&[settings, keys]), Ok(expected));
    for (objects, reason) in [
        (vec![keys], "configmap \"settings\" not found"),
        (vec![settings], "secret \"keys\" not found"),
        (vec![settings, &keys.replace("token", "other")], "couldn't find key token in Secret test/keys"),
        (
            vec![&settings.replace("namespace: test", "namespace: other"), keys],
            "configmap \"settings\" not found",
        ),
    ] {
        assert_eq!(read(&objects), Err(reason.to_owned()));
    }
}

#[test]
fn container_configs_equal_those_of_a_kubelet() {
    let pod = pod(
        "{terminationGracePeriodSeconds: 3, securityContext: {fsGroup: 2000, supplementalGroups: [3000], runAsUser: 0},
          containers: [{name: main, image: 'i:1', command: [sh, -c, 'echo $(A) $(NODE) $$(A) $(UNKNOWN)'], args: ['x$(B)'],
            env: [{name: A, value: one}, {name: B, value: '$(A)-two'},
              {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
              {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
              {name: L, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['absent']\"}}},
              {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}},
              {name: MEM, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}],
            ports: [{name: web, containerPort: 8080}, {containerPort: 53, protocol: UDP, hostPort: 15353, hostIP: 127.0.0.1}],
            resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 1500m, memory: 128Mi}},
            lifecycle: {preStop: {exec: {command: [sh, -c, 'true']}}},
            securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN]}, runAsGroup: 5}}]}",
    );
    let config = made(&pod, "main");
    assert_eq!(config.command[2], "echo one node $(A) $(UNKNOWN)");
    assert_eq!(config.args, ["xone-two"]);
    let envs = config.envs.iter().map(|env| format!("{}={}", env.key, String::from_utf8_lossy(&env.value)));
    let expected = ["A=one", "B=one-two", "CPU=2", "IP=10.0.0.4", "L=", "MEM=64", "NODE=node"];
    assert_eq!(envs.collect::<Vec<_>>(), expected);
    assert_eq!((config.log_path.as_str(), config.metadata.unwrap().attempt), ("main/3.log", 3));
    let note = |key: &str| config.annotations[&format!("io.kubernetes.{key}")].clone();
    assert_eq!(note("container.restartCount"), "3");
    assert_eq!(note("pod.terminationGracePeriod"), "3");
    assert_eq!(note("container.preStopHandler"), r#"{"exec":{"command":["sh","-c","true"]}}"#);
    let ports = r#"[{"name":"web","containerPort":8080,"protocol":"TCP"},{"hostPort":15353,"containerPort":53,"protocol":"UDP","hostIP":"127.0.0.1"}]"#;
    assert_eq!(note("container.ports"), ports);
    let linux = config.linux.unwrap();
    let resources = linux.resources.unwrap();
    assert_eq!((resources.cpu_period, resources.cpu_quota, resources.cpu_shares), (100_000, 150_000, 102));
    assert_eq!(
        (resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes),
        (128 << 20, 128 << 20)
    );
    assert_eq!((resources.oom_score_adj, resources.hugepage_limits.len()), (998, 2));
    let security = linux.security_context.unwrap();
    assert!(security.no_new_privs && security.masked_paths.len() == 12 && security.readonly_paths.len() == 5);
    assert_eq!(security.supplemental_groups, [2000, 3000]);
    assert_eq!((security.run_as_user.unwrap().value, security.run_as_group.unwrap().value), (0, 5));
}

fn inputs(node_dns: &Dns) -> SandboxInputs<'_> {
    SandboxInputs {
        attempt: 0,
        node_dns,
        seen: "",
        cgroup_driver: CgroupDriver::Cgroupfs,
        user_namespace: host_namespace(),
    }
}

#[test]
fn pods_of_a_runtime_with_the_systemd_driver_are_in_a_slice() {
    let pods = play(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, image: i}]}}",
    )
    .unwrap();
    let node_dns = Dns::default();
    for (cgroup_driver, expected) in
        [(CgroupDriver::Systemd, "/probeshim.slice"), (CgroupDriver::Cgroupfs, "")]
    {
        let inputs = SandboxInputs { cgroup_driver, ..inputs(&node_dns) };
        let linux = sandbox(&pods[0], &node(), &inputs).unwrap().linux.unwrap();
        assert_eq!(linux.cgroup_parent, expected, "{cgroup_driver:?}");
    }
}

#[test]
fn sandbox_configs_equal_those_of_a_kubelet() {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: test, uid: u, labels: {app: x}, annotations: {note: hello}},
        spec: {hostname: myhost, dnsConfig: {nameservers: [1.2.3.4], options: [{name: ndots, value: '3'}, {name: edns0}]},
        initContainers: [{name: side, image: i, restartPolicy: Always, ports: [{containerPort: 9}]}],
        containers: [{name: main, image: i, ports: [{containerPort: 80}]}]}}";
    let pods = play(text).unwrap();
    let node_dns = Dns { include_node_config: true, servers: vec!["9.9.9.9".to_owned()], ..Dns::default() };
    let inputs = SandboxInputs { attempt: 2, seen: "then", ..inputs(&node_dns) };
    let config = sandbox(&pods[0], &node(), &inputs).unwrap();
    let dns = config.dns_config.unwrap();
    assert_eq!(
        (dns.servers.join(" "), dns.options.join(" ")),
        ("9.9.9.9 1.2.3.4".into(), "ndots:3 edns0".into())
    );
    assert_eq!((config.hostname.as_str(), config.log_directory.as_str()), ("myhost", "/logs/test_p_u"));
    assert_eq!((config.port_mappings.len(), config.metadata.unwrap().attempt), (1, 2));
    assert_eq!(config.labels["io.kubernetes.pod.uid"], "u");
    assert_eq!((config.labels["app"].as_str(), config.annotations["note"].as_str()), ("x", "hello"));
    assert_eq!(config.annotations["kubernetes.io/config.source"], "file");
    assert_eq!(config.annotations["kubernetes.io/config.seen"], "then");
    let resources = config.linux.unwrap().resources.unwrap();
    assert_eq!((resources.cpu_period, resources.cpu_shares, resources.oom_score_adj), (100_000, 2, 0));
}

#[test]
fn a_host_network_pod_has_no_hostname() {
    let pod = pod(
        "{hostNetwork: true, hostPID: true, containers: [{name: a, image: i, ports: [{containerPort: 80}]}]}",
    );
    let config = sandbox(&pod, &node(), &inputs(&Dns::default())).unwrap();
    assert_eq!((config.hostname.as_str(), config.port_mappings[0].host_port), ("", 80));
    let security = made(&pod, "a").linux.unwrap().security_context.unwrap();
    let namespaces = security.namespace_options.unwrap();
    assert_eq!((namespaces.network, namespaces.pid, namespaces.ipc), (2, 2, 0));
}

#[test]
fn qos_class_and_oom_score_follow_from_the_resources_of_a_pod() {
    for (resources, expected, score) in [
        ("{}", "BestEffort", 1_000),
        ("{limits: {cpu: 1, memory: 1Gi}}", "Guaranteed", -997),
        ("{requests: {memory: 5Gi}}", "Burstable", 800),
        ("{limits: {cpu: 1}}", "Burstable", 999),
    ] {
        let pod = pod(&format!("{{containers: [{{name: a, image: i, resources: {resources}}}]}}"));
        let made = made(&pod, "a").linux.unwrap().resources.unwrap();
        assert_eq!((pod.qos().name(), made.oom_score_adj), (expected, score), "{resources}");
    }
}

#[test]
fn on_cgroup_v2_an_oom_kill_ends_all_processes_of_the_container() {
    let pod = pod("{containers: [{name: a, image: i, resources: {limits: {memory: 32Mi}}}]}");
    for (is_cgroup_v2, expected) in [(true, Some("1")), (false, None)] {
        let node = NodeInfo { is_cgroup_v2, ..node() };
        let container = made_on(&pod, "a", &node).linux.unwrap().resources.unwrap();
        let sandbox = sandbox(&pod, &node, &inputs(&Dns::default())).unwrap().linux.unwrap();
        for unified in [container.unified, sandbox.resources.unwrap().unified] {
            assert_eq!(unified.get("memory.oom.group").map(String::as_str), expected);
        }
        assert!(sandbox.overhead.unwrap().unified.is_empty(), "there is no overhead");
    }
}

#[test]
fn containers_of_node_critical_pods_are_killed_last_whatever_they_request() {
    for (class, expected) in
        [("system-node-critical", -997), ("system-cluster-critical", 1_000), ("other", 1_000)]
    {
        let pod = pod(&format!("{{priorityClassName: {class}, containers: [{{name: a, image: i}}]}}"));
        assert_eq!(made(&pod, "a").linux.unwrap().resources.unwrap().oom_score_adj, expected, "{class}");
    }
}

#[test]
fn limits_that_are_not_set_are_the_allocatable_amounts_of_the_node_in_units_of_the_divisor() {
    let field = |name: &str, container: &str, of: &str, divisor: &str| {
        format!(
            "{{name: {name}, valueFrom: {{resourceFieldRef: {{{container}resource: {of}, divisor: {divisor}}}}}}}"
        )
    };
    let fields = [
        field("CPU", "", "limits.cpu", "1"),
        field("EPHEMERAL", "", "limits.ephemeral-storage", "1"),
        field("INIT", "containerName: init, ", "limits.cpu", "1"),
        field("MEMORY", "", "limits.memory", "1Mi"),
        field("MILLI_CPU", "", "limits.cpu", "1m"),
        field("REQUEST", "", "requests.cpu", "1m"),
        field("SET", "containerName: other, ", "limits.cpu", "1m"),
        field("ZERO", "containerName: other, ", "limits.memory", "1Ki"),
    ];
    let pod = pod(&format!(
        "{{initContainers: [{{name: init, image: i, env: [{own}]}}], containers: [{{name: a, image: i, env: [{all}]}},
          {{name: other, image: i, resources: {{limits: {{cpu: 1500m, memory: 0}}}}}}]}}",
        own = fields[0],
        all = fields.join(", ")
    ));
    let variables = |name: &str| -> Vec<String> {
        let envs = made(&pod, name).envs.into_iter();
        envs.map(|env| format!("{}={}", env.key, String::from_utf8(env.value).unwrap())).collect()
    };
    // The node has 2 processors, 25 GiB of memory and 1,000 bytes of storage.
    let expected = [
        "CPU=2",
        "EPHEMERAL=900",
        // The kubelet has no defaults for an init container that a variable names.
        "INIT=0",
        "MEMORY=25500",
        "MILLI_CPU=2000",
        "REQUEST=0",
        "SET=1500",
        "ZERO=26112000",
    ];
    assert_eq!(variables("a"), expected);
    assert_eq!(variables("init"), ["CPU=2"], "it has defaults for the container's own limits");
}

#[test]
fn the_resources_of_a_sandbox_include_sidecars_beside_an_init_container() {
    let pod = pod("{initContainers: [{name: s, image: i, restartPolicy: Always, resources: {limits: {cpu: 1, memory: 64Mi}}},
        {name: b, image: i, resources: {limits: {cpu: 2, memory: 128Mi}}}],
        containers: [{name: a, image: i, resources: {limits: {cpu: 500m, memory: 32Mi}}}]}");
    let resources =
        sandbox(&pod, &node(), &inputs(&Dns::default())).unwrap().linux.unwrap().resources.unwrap();
    assert_eq!((resources.memory_limit_in_bytes, resources.cpu_quota), (192 << 20, 300_000));
    assert_eq!(resources.cpu_shares, 3_072);
}

#[test]
fn thermal_counters_of_the_node_are_masked_after_the_fixed_paths() {
    let counters = "/sys/devices/system/cpu/cpu0/thermal_throttle".to_owned();
    let node = NodeInfo { thermal_throttle: vec![counters.clone()], ..node() };
    let pod = pod("{containers: [{name: a, image: i}]}");
    let masked = made_on(&pod, "a", &node).linux.unwrap().security_context.unwrap().masked_paths;
    assert_eq!((masked.len(), masked.last()), (13, Some(&counters)));
}

#[test]
fn the_apparmor_profile_is_that_of_the_container_the_annotation_or_the_pod() {
    let read = |annotation: &str, spec: &str| {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, annotations: {{container.apparmor.security.beta.kubernetes.io/a: {annotation}}}}},
              spec: {{securityContext: {{appArmorProfile: {{type: RuntimeDefault}}}}, containers: [{{name: a, image: i{spec}}}, {{name: b, image: i}}]}}}}"
        );
        let pod = play(&text).unwrap().remove(0);
        ["a", "b"].map(|name| made(&pod, name).linux.unwrap().security_context.unwrap())
    };
    let profile = |security: &LinuxContainerSecurityContext| {
        let apparmor = security.apparmor.clone().unwrap();
        (apparmor.profile_type(), apparmor.localhost_ref, security.apparmor_profile.clone())
    };
    let of_pod = (ProfileType::RuntimeDefault, String::new(), "runtime/default".to_owned());
    let unconfined = (ProfileType::Unconfined, String::new(), "unconfined".to_owned());
    let localhost = (ProfileType::Localhost, "k8s-nginx".to_owned(), "localhost/k8s-nginx".to_owned());
    for (annotation, spec, expected) in [
        ("localhost/k8s-nginx", "", &localhost),
        ("unconfined", "", &unconfined),
        ("runtime/default", "", &of_pod),
        ("''", "", &of_pod),
        ("runtime/default", ", securityContext: {appArmorProfile: {type: Unconfined}}", &unconfined),
    ] {
        let [annotated, other] = read(annotation, spec);
        assert_eq!(profile(&annotated), *expected, "{annotation}{spec}");
        assert_eq!(profile(&other), of_pod, "the annotation of another container");
    }
}

#[test]
fn a_secret_in_a_variable_has_its_bytes_unchanged() {
    let pod = pod("{containers: [{name: a, image: i, envFrom: [{secretRef: {name: s}}], \
         env: [{name: TWICE, value: '$(raw)$(raw)'}]}]}");
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: test}, data: {raw: /wD+}}";
    let objects = pod_set(secret).unwrap().objects;
    let facts = EnvFacts { pod: &pod, node: &node(), seen: "", addresses: &[], objects: &objects };
    let raw = b"\xff\0\xfe";
    let expected = [("TWICE".to_owned(), [*raw, *raw].concat()), ("raw".to_owned(), raw.to_vec())];
    assert_eq!(variables(&pod.containers[0], &facts, &no_file).unwrap(), expected);
}
