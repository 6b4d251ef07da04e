//! Probes run by probeshim on a real containerd: a few of the rows of `make parity`.

use std::time::Duration;

use fixtures::kubelet::{NODE, manifest};
use fixtures::need;
use fixtures::node::Node;
use fixtures::scenarios::judge::{self, Case};
use fixtures::scenarios::parity::dry_run::hold;
use fixtures::scenarios::parity::{self, Row};
use fixtures::scenarios::probing::Probing;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Rows of the parity tables: one for each handler and each probe type.
const ROWS: [&str; 8] = [
    "restarted, exec cat",
    "restarted, /healthz http",
    "not restarted, tcp:8080",
    "not restarted, gRPC",
    "restarted, exec timeout",
    "failing readiness never ready",
    "restarted by liveness after startup enables it",
    "readiness false and liveness disabled while terminating",
];

#[test]
fn dry_run_passes_a_few_upstream_probe_cases() {
    let rows: Vec<Row> = parity::rows().into_iter().filter(|row| ROWS.contains(&row.name)).collect();
    assert_eq!(rows.len(), ROWS.len());
    need!(hold(&rows, false));
}

/// A few of the pods of `make parity`, for a shorter time.
#[test]
fn dry_run_predicts_the_kills_of_a_kubelet() {
    let cases: Vec<Case> = judge::cases().into_iter().take(6).collect();
    let verdict = need!(judge::judge(&cases, Duration::from_secs(30)));
    assert_eq!(verdict.differences, [""; 0], "{verdict:#?}");
    assert_eq!(verdict.agreement[1..], [0, 0], "{verdict:#?}");
    let foreseen = verdict.agreement[0];
    assert!(foreseen >= verdict.kills && foreseen <= verdict.stopped as u64, "{verdict:#?}");
}

/// The kubelet kills the container when its probe fails. probeshim knows the pod's probes from that
/// kubelet and predicts the kill.
#[test]
fn dry_run_predicts_the_kill_of_a_pod_known_only_from_the_kubelet() {
    let node = need!(Node::start_probing("dry-run"));
    let probe = json!({
        "exec": {"command": ["test", "-f", "/tmp/healthy"]},
        "periodSeconds": 1,
        "timeoutSeconds": 10,
        "failureThreshold": 3,
    });
    let script = "touch /tmp/healthy; sleep 8; rm /tmp/healthy; sleep 100000";
    node.kubelet.run(&manifest("probed", script, &probe));
    let shim = node.shim.as_ref().unwrap();
    let name = format!("probed-{NODE}");
    let events = || -> Vec<Value> {
        shim.list(&["events"]).into_iter().filter(|event| event["pod"] == name.as_str()).collect()
    };
    let compared = wait_for("the kubelet's kill is compared", || {
        events().into_iter().find(|event| event["reason"] == "KillPredicted")
    });
    assert_eq!(compared["container"], "main");
    node.kubelet.container_when("probed", "restarted", |status| status["restartCount"].as_u64() >= Some(1));
    let failed = events().into_iter().any(|event| {
        event["reason"] == "Unhealthy"
            && event["message"].as_str().unwrap().starts_with("Liveness probe failed: ")
    });
    assert!(failed, "{:#?}", events());
    let status = shim.json(&["status"]);
    let pods = status["pods"].as_array().unwrap();
    let pod = pods.iter().find(|pod| pod["name"] == name.as_str()).unwrap();
    let containers = pod["containers"].as_array().unwrap();
    let running = containers.iter().find(|container| container["state"] == "running").unwrap();
    assert_eq!(running["probes"][0]["source"], "kubelet");
}

/// The sandbox has the configuration that kubectl applied, with fields of a newer Kubernetes.
#[test]
fn a_probe_of_last_applied_that_is_not_understood_is_shown_and_never_kills() {
    let probing = need!(Probing::start(&[], "kill"));
    let container = |handler: Value| {
        json!({
            "name": "main",
            "image": "i",
            "command": ["sleep", "100000"],
            "livenessProbe": {"grpc": handler, "periodSeconds": 1, "failureThreshold": 1, "future": true},
        })
    };
    let run = |name: &str, handler: Value| {
        let spec = json!({"containers": [container(handler)]});
        let applied = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let note = "kubectl.kubernetes.io/last-applied-configuration";
        let annotations = json!({note: applied.to_string()});
        probing.run(&json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec}))
    };
    run("newer", json!({"port": 19_500, "mode": "Mutual"}));
    // Nothing listens there.
    run("refused", json!({"port": 19_500, "mode": "TLS"}));
    probing.wait_for_event("refused", "Killing", "", 1);
    probing.wait_for_event("newer", "Unhealthy", "Liveness probe errored", 2);
    let probe = &probing.status("newer")["containers"][0]["probes"][0];
    assert_eq!(
        (&probe["notUnderstood"], &probe["killed"], &probe["verdict"]),
        (&json!("grpc.mode"), &json!(0), &json!("success")),
        "{probe:#}"
    );
    let table = probing.shim.ask(&["probes"]);
    assert!(table.contains("not understood (grpc.mode)"), "{table}");
}
