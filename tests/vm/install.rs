//! `probeshim install` and each way to revert it, with a kubelet as kubeadm before 1.34 sets it up.

use fixtures::image::BUSYBOX;
use fixtures::need;
use fixtures::vm::{Outcome, Vm};
use serde_json::{Value, json};

use crate::payload::node_with_kubelet_unit;

/// The kubelet's own endpoint, and that of an installed probeshim.
const RUNTIME: &str = "unix:///run/containerd-2.2/containerd.sock";
const PROBESHIM: &str = "unix:///run/probeshim/probeshim.sock";

#[test]
fn a_kubelet_is_switched_and_reverted_in_each_way() {
    let vm = need!(Vm::new());
    let payload = need!(node_with_kubelet_unit(include_str!("install.sh")))
        .file("mounts.json", mounting_pod().to_string().as_bytes());
    let outcome = vm.run(payload);
    assert_eq!(outcome.exit_code, 0, "{}", outcome.log);
    let text = |name: &str| outcome.text(name);
    let shows = |name: &str, part: &str| {
        let shown = text(name);
        assert!(shown.contains(part), "{name} does not show {part:?}:\n{shown}");
    };

    // Before, and in a dry run, nothing changes.
    shows("doctor-before", "probeshim is not installed as a service");
    assert_eq!(text("tree-dry-run"), text("tree-before"));
    shows(
        "dry-run",
        "KUBELET_EXTRA_ARGS=\"--v=1 --container-runtime-endpoint=unix:///run/probeshim/probeshim.sock\"",
    );
    assert_eq!(text("endpoint-before"), RUNTIME);

    // Confirmed, the kubelet uses probeshim.
    shows("install", "confirmed: the kubelet uses probeshim");
    let is_ok = |name: &str, check: &str| {
        let output = text(name);
        let mut ok = output.lines().filter_map(|line| line.strip_prefix("ok"));
        assert!(ok.any(|line| line.trim_start().starts_with(check)), "{check} is not ok:\n{output}");
    };
    for check in ["health", "lists", "calls", "probe"] {
        is_ok("install", check);
    }
    assert_eq!(text("endpoint-installed"), PROBESHIM);
    shows("version", "RuntimeName:  containerd");
    shows("doctor-installed", "kubelet.service uses probeshim");
    shows("status-installed", "ready        yes");
    shows("calls-installed", "kubelet[");
    for check in ["units", "socket access", "process", "call", "status"] {
        is_ok("doctor-installed", check);
    }
    assert_eq!(text("access"), "root:adm 660\nroot:adm 660");
    let calls = outcome.json("calls.json");
    let calls = calls.as_array().unwrap();
    assert!(calls.iter().any(|call| call["method"] == "ExecSync" && call["code"] == "OK"), "{calls:?}");
    assert_eq!(text("pids-after"), text("pids-before"));

    // Five crashes lead to the bypass.
    shows("state-bypassed", "ActiveState=failed");
    shows("doctor-bypassed", "kubelet.service was pointed back at the runtime");

    // Unconfirmed, the kubelet goes back by itself.
    shows("install-unconfirmed", "the change was reverted: the kubelet uses the runtime's own socket");
    shows("doctor-waiting", "it is reverted after its time");
    shows("install-waiting", "confirmed: the kubelet uses probeshim");
    assert_eq!(text("endpoint-confirmed"), PROBESHIM);
    shows("doctor-upgraded", "KUBELET_EXTRA_ARGS of kubelet.service was \"--v=1\", and is \"--v=2\" now");

    // The bypass is repeated until systemd reads the units again.
    assert_eq!(text("endpoint-full"), PROBESHIM);
    assert_eq!(text("files-bypassed"), "10-kubeadm.conf\nzz-probeshim.env");

    // An interrupted removal is continued.
    shows("dry-run-stale", "systemd has not read the changed files of kubelet.service yet");
    assert_eq!(text("endpoint-interrupted"), RUNTIME);

    // A umask of 000 makes nothing writable for others, and no link is followed.
    assert_eq!(text("writable"), "");
    assert_eq!(text("other"), "of another program");

    // Removed, nothing is left.
    assert_eq!(text("healthz-removed"), "ok");
    assert_eq!(text("endpoint-removed"), RUNTIME);
    assert_eq!(text("units-after"), "");
    assert_same_tree(&outcome, "tree-after");

    // A lost record is rebuilt, and probeshim is never its own runtime.
    shows("doctor-lost", "/var/lib/probeshim/install.json is lost; the unit of the service has a copy");
    shows("install-own", "unix:///run/probeshim/probeshim.sock is a socket of probeshim itself");
    shows("install-lost", "confirmed: the kubelet uses probeshim");
    assert_eq!(text("endpoint-lost"), PROBESHIM);
    shows("command-lost", &format!("--upstream {RUNTIME}"));
    assert_eq!(text("endpoint-lost-removed"), RUNTIME);
    assert_same_tree(&outcome, "tree-lost");

    // A service in another mode is restarted, since a successor would keep the mount namespace.
    shows("install-restart", "probeshim.service is restarted, because its unit has changed");

    // A mount of a service reaches a container.
    assert_eq!(text("mounts"), "tmpfs 8.0M");
}

/// Returns a pod that writes the type and the size of its volume in memory, which play mounts.
fn mounting_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mounts", "namespace": "vm"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", "df -hT /memory | awk 'END { print $2, $3 }' >/fifo"],
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"}, {"name": "fifo", "mountPath": "/fifo"}],
            }],
            "volumes": [
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
                {"name": "fifo", "hostPath": {"path": "/payload/fifo"}},
            ],
        },
    })
}

/// Asserts that each file of the node is as it was before the installation.
fn assert_same_tree(outcome: &Outcome, after: &str) {
    let (before, after) = (outcome.text("tree-before"), outcome.text(after));
    let differing: Vec<&str> = before
        .lines()
        .filter(|line| !after.lines().any(|other| other == *line))
        .chain(after.lines().filter(|line| !before.lines().any(|other| other == *line)))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
