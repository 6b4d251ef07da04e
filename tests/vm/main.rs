//! `make vm-test`: pods in a virtual machine, which has systemd, cgroup v2 and AppArmor as nodes
//! have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chaos;
mod direct;
mod direct_limits;
mod disk;
mod install;
mod layouts;
mod payload;
mod upgrades;

use fixtures::image::BUSYBOX;
use fixtures::need;
use fixtures::vm::Vm;
use serde_json::{Value, json};

/// Profile that containerd gives to containers.
const PROFILE: &str = "cri-containerd.apparmor.d (enforce)";

const MEMORY_LIMIT: u32 = 64 << 20;

#[test]
fn a_pod_runs_behind_probeshim_under_systemd_cgroup_v2_and_apparmor() {
    let vm = need!(Vm::new());
    let payload = need!(payload::node(include_str!("pods.sh")))
        .file("pod.json", pod().to_string().as_bytes())
        .file("container.json", container().to_string().as_bytes())
        .file("limited.json", limited_container().to_string().as_bytes())
        .file("manifests/static.json", static_pod().to_string().as_bytes())
        .file("oom.json", oom_pod().to_string().as_bytes());

    let outcome = vm.run(payload);

    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);
    assert_eq!(outcome.text("init"), "systemd");
    assert_eq!(outcome.text("cgroup-file-system"), "cgroup2fs");
    assert_eq!(outcome.text("cgroup.controllers"), "cpuset cpu io memory hugetlb pids rdma misc");
    assert_eq!(outcome.text("apparmor-mode"), "enforce");
    for (pod, runtime) in
        [("containerd-1.6-runc", "runc"), ("containerd-1.6-crun", "crun"), ("containerd-2.2-runc", "runc")]
    {
        let text = |name: &str| outcome.text(&format!("{pod}/{name}"));
        assert_eq!(text("apparmor").trim_end_matches('\0'), PROFILE, "{pod}");
        assert_eq!(text("memory-max"), MEMORY_LIMIT.to_string(), "{pod}");
        // systemd has created a scope for the container, and crun another cgroup in that scope.
        let cgroup = text("cgroup");
        assert!(cgroup.starts_with("/pods.slice/cri-containerd-") && cgroup.contains(".scope"), "{cgroup}");
        let sandbox = outcome.json(&format!("{pod}/sandbox.json"));
        assert_eq!(sandbox["status"]["runtimeHandler"], runtime, "{pod}");
    }
    for version in ["1.6", "2.2"] {
        let answer = outcome.text(&format!("version-{version}"));
        assert!(answer.contains(&format!("RuntimeVersion:  {version}")), "{answer}");
    }
    assert_eq!(outcome.text("kubelet/apparmor").trim_end_matches('\0'), PROFILE);

    // The memory limit was exceeded by a child of the container's first process, and the kernel
    // killed both. The reason of the end is not compared: containerd sets it from an event that can
    // come after the end, or never if the limit was exceeded before containerd had begun to watch
    // for it.
    let pod = outcome.json("oom.json");
    let ended = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(ended["exitCode"], 137, "{pod}");
    let group_kills = outcome.text("play-memory-events");
    let group_kills = group_kills.lines().find_map(|line| line.strip_prefix("oom_group_kill "));
    assert!(group_kills.is_some_and(|kills| kills.parse::<u32>().unwrap() >= 1), "{group_kills:?}");
    // The runtime requires a slice.
    let scopes = outcome.text("play-scopes");
    assert!(!scopes.is_empty(), "the sandbox has no scope");
    for scope in scopes.lines() {
        assert!(scope.starts_with("/sys/fs/cgroup/probeshim.slice/cri-containerd-"), "{scope}");
    }
    assert_eq!(outcome.text("scopes-after-play"), "");

    // All calls went through probeshim.
    for (version, program, pods, expected) in [
        ("1.6", "crictl", 2, &["RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync"][..]),
        ("2.2", "crictl", 2, &["RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync"]),
        ("2.2", "kubelet", 1, &["RunPodSandbox", "CreateContainer"]),
    ] {
        let calls = outcome.json(&format!("calls-{version}.json"));
        for method in expected {
            let succeeded = calls.as_array().unwrap().iter().filter(|call| {
                call["method"] == *method && call["peer"]["program"] == program && call["code"] == "OK"
            });
            assert_eq!(succeeded.count(), pods, "{method} of {program} on {version}: {calls}");
        }
    }
    is_explained(&outcome.json("calls-2.2.json"));
}

/// Asserts that the record of a throttled ExecSync has all phases, and the evidence of cgroup v2:
/// throttled periods, and pressure within the container.
fn is_explained(calls: &Value) {
    let is_it = |call: &&Value| call["exec"]["command"].to_string().contains("nr_throttled");
    let call = calls.as_array().unwrap().iter().find(is_it).unwrap();
    let exec = &call["exec"];
    assert_eq!(
        (&exec["assessment"], &exec["phases"]["state"]),
        (&json!("slow"), &json!("complete")),
        "{call}"
    );
    let evidence = &exec["evidence"];
    assert!(evidence["cpu"]["throttledPeriods"].as_u64() >= Some(10), "{call}");
    assert!(evidence["containerPressure"]["cpuMs"].as_f64() > Some(0.0), "{call}");
    assert!(evidence["nodePressure"]["cpuMs"].is_number(), "{call}");
}

/// Returns the sandbox config of crictl's pod.
fn pod() -> Value {
    json!({
        "metadata": {"name": "pod", "namespace": "vm", "uid": "1"},
        "log_directory": "/payload/logs",
        "linux": {"cgroup_parent": "pods.slice"},
    })
}

/// Returns the config of the container in crictl's pod.
fn container() -> Value {
    json!({
        "metadata": {"name": "main"},
        "image": {"image": BUSYBOX},
        "command": ["sleep", "2147483647"],
        "log_path": "main.log",
        "linux": {"resources": {"memory_limit_in_bytes": MEMORY_LIMIT}},
    })
}

/// Returns the config of a container with a CPU limit of 50m.
fn limited_container() -> Value {
    let mut container = container();
    container["linux"]["resources"] = json!({"cpu_period": 100_000, "cpu_quota": 5_000});
    container
}

/// Returns a pod of the kubelet whose container writes the name of its AppArmor profile.
fn static_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "static", "namespace": "vm"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", "cat /proc/self/attr/current >/fifo"],
                "volumeMounts": [{"name": "fifo", "mountPath": "/fifo"}],
            }],
            "volumes": [{"name": "fifo", "hostPath": {"path": "/payload/fifo"}}],
        },
    })
}

/// Returns a pod of `play` whose first process does not exceed the memory limit, but has a child
/// that does.
fn oom_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "oom", "namespace": "vm"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", "tail /dev/zero & sleep 600"],
                "resources": {"limits": {"memory": "32Mi"}},
            }],
        },
    })
}
