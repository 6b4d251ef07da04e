//! Tests of `wait`.

use std::str::FromStr as _;

use super::super::CliError;
use super::condition::{WaitCondition, WaitState};
use super::target::WaitTarget;
use crate::admin::api::StatusPod;

fn state(
    pods: &[StatusPod],
    name: &str,
    namespace: Option<&str>,
    condition: WaitCondition,
) -> Result<WaitState, CliError> {
    WaitTarget::Named(name.to_owned()).state(pods, namespace, condition)
}

fn pod(json: &serde_json::Value) -> StatusPod {
    let mut pod = serde_json::json!({
        "namespace": "shop", "name": "web", "uid": "1", "id": "a", "sandbox": "ready", "ip": null,
        "source": "play", "containers": [],
    });
    pod.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    serde_json::from_value(pod).unwrap()
}

fn state_of(pods: &[StatusPod], condition: &str) -> WaitState {
    state(pods, "pod/web", None, condition.parse().unwrap()).unwrap()
}

#[test]
fn a_wait_condition_is_met_pending_or_impossible() {
    let running = [pod(&serde_json::json!({"phase": "Running", "status": "Running", "ready": true}))];
    for condition in ["ready", "condition=Ready"] {
        assert_eq!(state_of(&running, condition), WaitState::Met);
    }
    let exists = WaitState::Pending("shop/web exists (Running)".to_owned());
    assert_eq!(state_of(&running, "delete"), exists);
    assert_eq!(state_of(&[], "deleted"), WaitState::Met);
    let new = [pod(&serde_json::json!({"status": "Pending"}))];
    let pending = WaitState::Pending("shop/web is not ready (Pending)".to_owned());
    assert_eq!(state_of(&new, "ready"), pending, "before the first sync");
    assert!(matches!(state_of(&[pod(&serde_json::json!({}))], "ready"), WaitState::Failed(_)));
    let absent = WaitState::Pending("pod \"web\" does not exist".to_owned());
    assert_eq!(state_of(&[], "ready"), absent);
    let failed = [pod(&serde_json::json!({"phase": "Failed", "status": "Error", "ready": false}))];
    assert_eq!(state_of(&failed, "succeeded"), WaitState::Failed("shop/web has failed (Error)".to_owned()));
    assert!(matches!(state_of(&failed, "restarts=1"), WaitState::Failed(_)));
    let container = serde_json::json!({
        "name": "main", "id": "", "attempt": null, "state": "waiting", "exitCode": null,
        "reason": "CrashLoopBackOff", "message": "back-off 10s", "ready": false, "source": "play",
    });
    let crashing = [pod(&serde_json::json!({
        "phase": "Running", "status": "CrashLoopBackOff", "ready": false, "restarts": 2, "containers": [container],
    }))];
    let reason = "shop/web is not ready (CrashLoopBackOff; main: back-off 10s)".to_owned();
    assert_eq!(state_of(&crashing, "ready"), WaitState::Pending(reason));
    assert_eq!(state_of(&crashing, "restarts=2"), WaitState::Met);
    let gated = [pod(&serde_json::json!({
        "phase": "Running", "status": "Running", "ready": false, "conditions": [
            {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": "no gate"},
            {"type": "ContainersReady", "status": "True"},
        ],
    }))];
    let reason = "shop/web is not ready (Running; no gate)".to_owned();
    assert_eq!(state_of(&gated, "ready"), WaitState::Pending(reason));
}

#[test]
fn wait_awaits_all_pods_of_a_workload_or_with_labels() {
    let replica = |name: &str, ready: bool| {
        let labels = serde_json::json!({"app": "web"});
        let name = format!("web-5d4f8c7b9d-{name}");
        pod(
            &serde_json::json!({"name": name, "phase": "Running", "status": "Running", "ready": ready, "labels": labels}),
        )
    };
    let targets =
        [WaitTarget::Named("deployment/web".to_owned()), WaitTarget::Labelled("app=web".parse().unwrap())];
    let one = [replica("abcde", true), replica("fghij", false)];
    let all = [replica("abcde", true), replica("fghij", true)];
    for target in targets {
        let state = |pods: &[StatusPod], condition| target.state(pods, None, condition).unwrap();
        assert!(matches!(state(&[], WaitCondition::Ready), WaitState::Pending(_)), "{target}");
        assert!(matches!(state(&one, WaitCondition::Ready), WaitState::Pending(_)), "{target}");
        assert_eq!(state(&all, WaitCondition::Ready), WaitState::Met, "{target}");
        assert_eq!(state(&[], WaitCondition::Deleted), WaitState::Met, "{target}");
        let other = target.state(&all, Some("other"), WaitCondition::Ready).unwrap();
        assert!(matches!(other, WaitState::Pending(_)), "{target}: {other:?}");
    }
}

#[test]
fn wait_distinguishes_pods_of_the_same_name_and_removed_pods() {
    let removed =
        pod(&serde_json::json!({"phase": "Succeeded", "ready": false, "removed": "2026-11-22T12:00:00Z"}));
    let other =
        pod(&serde_json::json!({"namespace": "other", "uid": "2", "phase": "Running", "ready": false}));
    assert_eq!(state_of(std::slice::from_ref(&removed), "deleted"), WaitState::Met);
    assert_eq!(state_of(std::slice::from_ref(&removed), "succeeded"), WaitState::Met);
    let both = [pod(&serde_json::json!({"ready": true})), other];
    assert!(state(&both, "web", None, WaitCondition::Ready).is_err());
    assert_eq!(state(&both, "web", Some("shop"), WaitCondition::Ready).unwrap(), WaitState::Met);
    assert!(WaitCondition::from_str("restarts=0").is_err());
}

#[test]
fn a_pod_in_a_namespace_that_is_called_like_a_kind_is_found() {
    let pods = [pod(&serde_json::json!({"namespace": "job", "name": "a", "ready": true}))];
    assert_eq!(state(&pods, "job/a", None, WaitCondition::Ready).unwrap(), WaitState::Met);
}

#[test]
fn only_the_last_sandbox_of_a_pod_counts() {
    let old = pod(&serde_json::json!({"labels": {"app": "web"}, "sandbox": "notReady"}));
    let new = pod(&serde_json::json!({
        "labels": {"app": "web"}, "id": "b", "phase": "Running", "status": "Running", "ready": true,
    }));
    let target = WaitTarget::Labelled("app=web".parse().unwrap());
    let state = target.state(&[old, new], None, WaitCondition::from_str("ready").unwrap()).unwrap();
    assert_eq!(state, WaitState::Met);
}
