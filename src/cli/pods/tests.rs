//! Tests of the table of pods.

use serde_json::json;

use super::super::pod_summary::by_pod;
use super::super::snapshots::assert_screens;
use super::*;

fn pods() -> Vec<StatusPod> {
    let container = |name: &str,
                     state: &str,
                     exit: Option<(i32, &str)>,
                     ready: Option<bool>,
                     attempt: u32| {
        json!({
            "name": name, "id": format!("{name}-id"), "attempt": attempt, "state": state, "exitCode": exit.map(|it| it.0),
            "reason": exit.map(|it| it.1), "ready": ready, "source": "list",
        })
    };
    let pod = |namespace: &str, name: &str, sandbox: &str, containers: &[serde_json::Value]| {
        json!({
            "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "id": format!("0123456789abcdef-{name}"),
            "sandbox": sandbox, "ip": "10.88.0.7", "source": "list", "created": "2026-11-24T12:00:00Z", "containers": containers,
        })
    };
    let mut managed =
        pod("shop", "web-7d4b9c6f8-x2x9z", "ready", &[container("main", "running", None, Some(true), 2)]);
    let more = json!({
        "status": "CrashLoopBackOff", "readyContainers": 1, "totalContainers": 2, "restarts": 3, "started": "2026-11-24T12:41:00Z",
        "restarted": "2026-11-24T12:59:15Z", "created": null, "source": "play",
    });
    managed.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pods = json!([
        managed,
        pod("shop", "worker", "stopped", &[container("main", "exited", Some((0, "Completed")), None, 0)]),
        pod(
            "shop",
            "worker",
            "ready",
            &[
                container("main", "running", None, None, 1),
                container("log", "exited", Some((0, "Completed")), None, 0),
            ]
        ),
        pod("shop", "probed", "ready", &[container("main", "running", None, Some(false), 0)]),
        pod(
            "kube-system",
            "failed",
            "ready",
            &[
                container("main", "running", None, None, 0),
                container("side", "exited", Some((137, "OOMKilled")), None, 4),
            ]
        ),
        pod(
            "kube-system",
            "done",
            "stopped",
            &[container("main", "exited", Some((0, "Completed")), None, 0)]
        ),
        pod("kube-system", "new", "ready", &[]),
        pod("kube-system", "starts", "ready", &[container("main", "created", None, None, 0)]),
        pod("kube-system", "stopped", "stopped", &[]),
    ]);
    serde_json::from_value(pods).unwrap()
}

fn shown(is_wide: bool, with_namespace: bool, screen: Screen) -> String {
    let pods = pods();
    let pods: Vec<&StatusPod> = pods.iter().collect();
    table(&by_pod(&pods), is_wide, with_namespace, "2026-11-24T13:00:00Z".parse().unwrap(), screen)
}

#[test]
fn pods_are_shown_as_kubectl_shows_them() {
    assert_screens("pods", |screen| shown(false, true, screen));
    assert_screens("pods_wide", |screen| shown(true, false, screen));
}
