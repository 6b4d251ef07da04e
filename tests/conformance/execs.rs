//! ExecSync analysis on other runtimes than containerd 2.2.

use fixtures::containerd::{Containerd, Version};
use fixtures::crio::Crio;
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::{self, Execs};
use fixtures::wait::wait_for;
use serde_json::{Value, json};

#[test]
fn exec_syncs_on_containerd_1_7_are_explained() {
    need!(execs::are_explained(&need!(Containerd::start(Version::V1_7))));
}

#[test]
fn exec_syncs_on_containerd_2_0_are_explained() {
    need!(execs::are_explained(&need!(Containerd::start(Version::V2_0))));
}

#[test]
fn exec_syncs_on_crio_have_everything_but_phases() {
    let crio = need!(Crio::start());
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "execs", "namespace": "e2e"},
        "spec": {"containers": [{
            "name": "main", "livenessProbe": {"exec": {"command": ["sleep", "20"]}, "timeoutSeconds": 1},
        }]},
    });
    let pods = crio.folder().join("pod.json");
    std::fs::write(&pods, manifest.to_string()).unwrap();
    let execs = need!(Execs::start_with(&crio, &["--manifests", pods.to_str().unwrap()]));
    let fast = execs.exec(&["true"], 5);
    let phases = &fast["exec"]["phases"];
    assert_eq!((&phases["state"], &phases["startMs"]), (&json!("unsupported"), &json!(null)), "{fast:#}");
    assert_eq!((&fast["pod"]["name"], &fast["container"]["name"]), (&json!("execs"), &json!("main")));
    execs.explains(&fast, &["the runtime has no events about the commands that it executes"]);

    let late = execs.exec(&["sleep", "20"], 1);
    assert_eq!((&late["code"], &late["exec"]["exitCode"]), (&json!("OK"), &json!(-1)), "{late:#}");
    assert_eq!(
        (&late["exec"]["assessment"], &late["exec"]["probe"]["type"]),
        (&json!("failed"), &json!("liveness"))
    );
    let evidence = &late["exec"]["evidence"];
    assert!(
        evidence["windowMs"].as_f64().unwrap() > 900.0 && evidence["pids"]["current"].as_u64() >= Some(1),
        "{late:#}"
    );
    assert!(evidence["cpu"].is_object(), "{late:#}");
    execs.explains(&late, &["with exit code -1, CRI-O reports a timeout", "liveness probe"]);
    execs.end();
}

/// CRI-O reports a timeout as exit code -1.
#[test]
fn exec_syncs_of_timed_out_probes_on_crio_count_as_failures() {
    let crio = need!(Crio::start());
    let probe = json!({
        "exec": {"command": ["sleep", "20"]}, "timeoutSeconds": 1, "periodSeconds": 1, "failureThreshold": 1,
    });
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "execs", "namespace": "e2e"},
        "spec": {"containers": [{"name": "main", "livenessProbe": probe}]},
    });
    let pods = crio.folder().join("pod.json");
    std::fs::write(&pods, manifest.to_string()).unwrap();
    let flags = ["--enforce", "dry-run", "--manifests", pods.to_str().unwrap()];
    let execs = need!(Execs::start_with(&crio, &flags));
    for (reason, message) in [
        ("Unhealthy", "Liveness probe failed: command timed out"),
        ("WouldKill", "Container main failed liveness probe"),
    ] {
        wait_for(message, || {
            let events = execs.shim.list(&["events"]);
            let is_it = |event: &Value| {
                event["reason"] == reason && event["message"].as_str().unwrap().starts_with(message)
            };
            events.iter().any(is_it).then_some(())
        });
    }
    execs.end();
}
