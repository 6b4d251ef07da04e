//! Tests of the description of a pod from its object in `/pods`.

use serde_json::json;

use super::*;

const SCREEN: Screen = Screen { width: None, colour: false, utf8: true };

/// Returns the pod in a snapshot of `/pods`.
fn pod(snapshot: &str) -> Pod {
    let json = snapshot.splitn(3, "---\n").nth(2).unwrap();
    serde_json::from_str(json).unwrap()
}

fn status() -> StatusPod {
    let probe = |kind: &str, source: &str| {
        json!({
            "type": kind, "handler": "exec", "source": source, "result": "success", "run": 2, "threshold": 3,
            "verdict": "success", "onHold": false, "wouldHaveKilled": 0,
        })
    };
    let probes =
        [probe("startup", "annotation"), probe("readiness", "manifest"), probe("liveness", "manifest")];
    let main =
        json!({"name": "main", "id": "main-1", "state": "running", "source": "play", "probes": probes});
    serde_json::from_value(json!({
        "namespace": "test", "name": "web", "id": "sandbox", "sandbox": "ready", "source": "play", "status": "Running",
        "containers": [main],
    }))
    .unwrap()
}

#[test]
fn a_running_pod_is_described() {
    let running = pod(include_str!(
        "../../kubelet/worker/status/snapshots/probeshim__kubelet__worker__status__tests__running.snap"
    ));
    insta::assert_snapshot!(render(running, &status(), &[], Timestamp::UNIX_EPOCH, SCREEN));
}

#[test]
fn a_pod_without_a_status_is_described() {
    let page = render(Pod::default(), &status(), &[], Timestamp::UNIX_EPOCH, SCREEN);
    assert!(page.contains("Conditions:       <none>\nVolumes:          <none>\nQoS Class:\n"), "{page}");
}
