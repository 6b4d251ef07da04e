//! Pods that the node rejects: they fail with the kubelet's reasons, and other pods run.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::{POLITE, Watched, is_clean, played, pod, start, told};
use crate::admin::until_shown;
use crate::procrun::Runtime;
use crate::program::{Answer, Place};

/// Fields of a container with a host port.
const PORT: &str = ", ports: [{containerPort: 80, hostPort: 8080}]";

#[tokio::test]
async fn play_fails_because_of_rejected_pods_once_the_other_pods_have_ended() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let sysctls = ", securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}";
    let pods = pod("a", "exit 0", ", restartPolicy: Never", PORT)
        + &pod("b", "exit 0", ", restartPolicy: Never, os: {name: windows}", "")
        + &pod("c", "exit 0", &format!(", restartPolicy: Never{sysctls}"), "")
        + &pod("d", "exit 0", ", restartPolicy: Never, nodeSelector: {disk: ssd}", "")
        + &pod("e", "exit 0", ", restartPolicy: Never", ", resources: {requests: {cpu: 1000k}}");
    let answer = played(&place, &pods, &[]).await;
    for expected in [
        "pod test/b has failed: PodOSNotSupported: Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
        "pod test/c has failed: SysctlForbidden: Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        "pod test/d has failed: NodeAffinity: Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match",
        "pod test/e has failed: UnexpectedAdmissionError: Pod was rejected: Unexpected error while attempting to recover",
    ] {
        assert!(answer.stderr.contains(expected), "{expected}: {answer:?}");
    }
    assert!(answer.code == Some(1) && !answer.stderr.contains("pod test/a has failed"), "{answer:?}");
    is_clean(&place, runtime).await;
}

/// The rejected pod is shown as failed, is not probed, and cannot become ready. After a restart the
/// pods are decided about again, and a rejected pod that was running is stopped.
#[tokio::test]
async fn a_pod_with_a_used_host_port_is_rejected_and_stopped_if_it_ran_before() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let folder = Watched::new(&place);
    let with_probe = format!("{PORT}, livenessProbe: {{exec: {{command: ['true']}}, periodSeconds: 1}}");
    folder.write("b.yaml", &pod("b", POLITE, "", &with_probe));
    let mut running = start(&place, folder.path()).await;
    let shown = async |expected: &[(&str, &str)]| {
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, status)| ((*name).to_owned(), (*status).to_owned())).collect();
        until_shown(&place, &["status"], move |status| {
            let text = |pod: &Value, field: &str| pod[field].as_str().unwrap_or_default().to_owned();
            let pods = status["pods"].as_array()?.iter();
            let now: Vec<_> = pods.map(|pod| (text(pod, "name"), text(pod, "status"))).collect();
            (now == expected).then_some(())
        })
        .await;
    };
    shown(&[("b", "Running")]).await;
    running.signal(Signal::KILL);
    running.ended().await;
    folder.write("a.yaml", &pod("a", POLITE, "", PORT));
    let mut running = start(&place, folder.path()).await;
    shown(&[("a", "Running"), ("b", "NodePorts")]).await;
    told(&place, "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested")
        .await;
    let mut wait = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    wait.args(["wait", "b", "-n", "test", "--admin"]).arg(place.at("admin.sock"));
    let waited = Answer::to(wait).await;
    let expected = "(NodePorts; Pod was rejected: Predicate NodePorts failed";
    assert!(waited.code == Some(1) && waited.stderr.contains(expected), "{waited:?}");
    let described = place.ask(&["describe", "b", "-n", "test"]).await.stdout;
    for expected in
        ["Status:           NodePorts", "Reason:           NodePorts", "Message:          Pod was"]
    {
        assert!(described.contains(expected), "{expected}: {described}");
    }
    let probes = place.ask(&["probes", "-A", "-o", "json"]).await.json();
    assert_eq!(probes, serde_json::json!([]), "a rejected pod is not probed");
    // The port is free once the other pod is gone, but a rejected pod is not tried again.
    folder.remove("a.yaml");
    folder.write("c.yaml", &pod("c", POLITE, "", PORT));
    until_shown(&place, &["status"], |status| {
        let is_it = |pod: &Value| pod["name"] == "c" && pod["status"] == "Running";
        status["pods"].as_array()?.iter().any(is_it).then_some(())
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(143));
    is_clean(&place, runtime).await;
}
