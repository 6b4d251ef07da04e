//! Tests of the description of a pod from its object in `/pods`.

use serde_json::json;

use super::super::probes::ObservedProbes;
use super::super::snapshots::assert_screens;
use super::other::Observed;
use super::*;
use crate::admin::api::Call;

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
            "verdict": "success", "onHold": false, "wouldHaveKilled": 0, "action": "exec [cat /tmp/healthy]",
            "since": "2026-11-24T12:59:00Z",
            "initialDelaySeconds": 0, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
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
    insta::assert_snapshot!(render(running, &status(), &[], "restart", Timestamp::UNIX_EPOCH, SCREEN));
}

#[test]
fn a_pod_without_a_status_is_described() {
    let page = render(Pod::default(), &status(), &[], "restart", Timestamp::UNIX_EPOCH, SCREEN);
    assert!(page.contains("Conditions:       <none>\nVolumes:          <none>\nQoS Class:\n"), "{page}");
}

#[test]
fn a_rejected_pod_has_no_states_of_containers() {
    let pod = serde_json::from_value(json!({
        "spec": {"containers": [{"name": "main", "image": "i:1"}]},
        "status": {"phase": "Failed", "reason": "NodeAffinity"},
    }));
    let page = render(pod.unwrap(), &status(), &[], "restart", Timestamp::UNIX_EPOCH, SCREEN);
    assert!(page.contains("Image:            i:1"), "{page}");
    assert!(!page.contains("Restart Count") && !page.contains("State:"), "{page}");
}

#[test]
fn a_pod_of_another_client_is_described_with_wrapped_messages() {
    let probe = json!({
        "type": "liveness", "handler": "exec", "source": "annotation", "result": "error", "run": 0, "threshold": 1,
        "verdict": "success", "onHold": false, "wouldHaveKilled": 0, "errors": 7, "lastError": "executable not found",
        "action": "exec [curl http://localhost]", "initialDelaySeconds": 5, "timeoutSeconds": 1, "periodSeconds": 10,
        "successThreshold": 1, "failureThreshold": 3,
    });
    let container = |name: &str, state: &str, exit: Option<i32>| {
        json!({"name": name, "id": format!("{name}-id"), "attempt": 2, "state": state, "exitCode": exit, "source": "list",
               "notRestartable": exit.map(|_| "its RunPodSandbox and CreateContainer were not seen")})
    };
    let mut main = container("main", "running", None);
    main.as_object_mut().unwrap().insert("probes".to_owned(), json!([probe]));
    let pod: StatusPod = serde_json::from_value(json!({
        "namespace": "shop", "name": "sick", "uid": "5f7c", "id": "0123456789abcdef", "sandbox": "ready", "ip": "10.88.0.7",
        "source": "list", "created": "2026-11-24T12:00:00.000Z", "labels": {"app": "shop", "tier": "web"},
        "containers": [main, container("side", "exited", Some(3))],
    }))
    .unwrap();
    let event = |kind: &str, reason: &str, container: &str, message: &str, count: u64| -> Event {
        serde_json::from_value(json!({
            "time": "2026-11-24T12:59:48.000Z", "type": kind, "reason": reason, "namespace": "shop", "pod": "sick",
            "container": container, "message": message, "count": count, "firstTime": "2026-11-24T12:58:00.000Z",
        }))
        .unwrap()
    };
    let missing = "Liveness probe errored and resulted in unknown state: rpc error: code = Unknown desc = failed to exec in \
                   container: exec: \"curl\": executable file not found in $PATH\n";
    let events = [
        event("Normal", "ContainerStarted", "main", "Started", 1),
        event("Warning", "Unhealthy", "main", missing, 6),
        event("Warning", "Unhealthy", "side", "Readiness probe failed: \n", 1),
    ];
    let events: Vec<&Event> = events.iter().collect();
    let call: Call = serde_json::from_value(json!({
        "id": 17, "start": "2026-11-24T12:59:50.000Z", "method": "ExecSync", "durationMs": 13.1, "code": "UNKNOWN",
        "requestBytes": 80, "responseBytes": 0, "peer": null, "pod": null,
        "container": {"id": "main-id", "name": "main", "attempt": 2}, "exec": null, "kill": null,
    }))
    .unwrap();
    let now = "2026-11-24T13:00:00Z".parse().unwrap();
    assert_screens("describe_other", |screen| {
        let probes = ObservedProbes::samples().of_pod();
        let observed = Observed { events: &events, calls: std::slice::from_ref(&call), probes };
        other::render(&[&pod], &observed, "kill", now, screen)
    });
}
