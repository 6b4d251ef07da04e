//! A deployment with probes. This is the short form of `make cluster-test`.

use fixtures::cluster::{Cluster, is_true};
use fixtures::image::BUSYBOX;
use fixtures::kubelet::manifest;
use fixtures::need;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

#[test]
fn a_deployment_becomes_ready_and_is_restarted_by_its_probes_through_the_relay() {
    let mut cluster = need!(Cluster::start());
    cluster.apply(&deployment());
    wait_for("the deployment is available", || available(&cluster).then_some(()));
    let exec = |script: &str| cluster.kubectl(&["exec", "deployment/probed", "--", "sh", "-c", script]);
    assert_eq!(cluster.kubectl(&["logs", "deployment/probed"]), "started\n");
    assert_eq!(
        exec("hostname; echo to stderr >&2"),
        format!("{}\n", pod(&cluster)["metadata"]["name"].as_str().unwrap())
    );
    // The volumes that the kubelet has mounted are visible to the runtime.
    let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    assert_eq!(exec(&format!("cut -c 1-2 {token}")), "ey\n");

    exec("rm /tmp/ready");
    wait_for("the pod is not ready", || (!is_true(&pod(&cluster), "Ready")).then_some(()));
    wait_for("the deployment is not available", || (!available(&cluster)).then_some(()));
    exec("touch /tmp/ready");
    wait_for("the deployment is available again", || available(&cluster).then_some(()));
    assert_eq!(restarts(&cluster), 0);

    exec("rm /tmp/live");
    wait_for("the container is restarted", || (restarts(&cluster) == 1).then_some(()));
    wait_for("the pod is ready after the restart", || is_true(&pod(&cluster), "Ready").then_some(()));
    assert_eq!(cluster.kubectl(&["logs", "--previous", "deployment/probed"]), "started\n");
    let events = cluster.kubectl(&["events", "--output", "json"]);
    assert!(events.contains("Container main failed liveness probe, will be restarted"), "{events}");

    let name = pod(&cluster)["metadata"]["name"].clone();
    let calls = cluster.shim.list(&["calls"]);
    for file in ["/tmp/ready", "/tmp/live"] {
        for passed in [true, false] {
            let is_seen = calls.iter().any(|call| {
                let exec = &call["exec"];
                call["method"] == "ExecSync"
                    && call["pod"]["name"] == name
                    && exec["command"].to_string().contains(file)
                    && (exec["exitCode"] == 0) == passed
            });
            assert!(is_seen, "no ExecSync of {file} that passed: {passed}");
        }
    }

    every_probe_has_a_name_with_the_line_that_status_shows(&mut cluster);

    cluster.kubectl(&["delete", "deployment", "probed"]);
    wait_for("the pod is gone", || {
        cluster.get(&["pods"]).is_some_and(|pods| pods["items"] == json!([])).then_some(())
    });
}

/// The read-only port is closed, so without configuration only static pods have names. The line
/// that `status` shows names the others, and the mirror pods at the API server.
fn every_probe_has_a_name_with_the_line_that_status_shows(cluster: &mut Cluster) {
    let wait_for_name = |cluster: &Cluster, file: &str, probe: &str, source: &str| {
        wait_for(&format!("the {probe} probe has a name from {source}"), || {
            let last = last_probe(cluster, file);
            (last["type"] == probe && last["source"] == source).then_some(())
        });
    };
    let probe =
        json!({"exec": {"command": ["cat", "/tmp/static"]}, "periodSeconds": 1, "timeoutSeconds": 10});
    let mut mirrored = manifest("mirrored", "touch /tmp/static; sleep 100000", &probe);
    mirrored["metadata"]["namespace"] = json!("default");
    cluster.kubelet.run(&mirrored);
    wait_for_name(cluster, "/tmp/static", "liveness", "static-pods");
    let names = |cluster: &Cluster| cluster.shim.json(&["status"])["probeNames"].clone();
    let found = names(cluster);
    assert_eq!(found["unnamedContainers"], 1, "{found:#}");
    let line = found["line"].as_str().unwrap();
    assert!(line.starts_with("kubelet: {kubeconfig: /"), "{found:#}");

    cluster.shim.configure(&format!("{line}\n"));
    wait_for_name(cluster, "/tmp/ready", "readiness", "api-server");
    wait_for_name(cluster, "/tmp/live", "liveness", "api-server");
    // A static pod has another uid at the API server than at the runtime.
    wait_for_name(cluster, "/tmp/static", "liveness", "api-server");
    let all = names(cluster);
    assert_eq!(all["unnamedContainers"], 0, "{all:#}");
    cluster.kubelet.forget("mirrored");
}

/// Returns the probe of the last ExecSync of a file.
fn last_probe(cluster: &Cluster, file: &str) -> Value {
    let calls = cluster.shim.list(&["calls", "--method", "ExecSync"]);
    let is_it = |call: &&Value| call["exec"]["command"].to_string().contains(file);
    calls.iter().rev().find(is_it).map_or(Value::Null, |call| call["exec"]["probe"].clone())
}

/// Returns a deployment of one container, which is ready while /tmp/ready exists and live while
/// /tmp/live exists.
fn deployment() -> Value {
    // The timeout is long, for busy machines. A failing probe fails immediately.
    let probe = |file: &str| {
        json!({
            "exec": {"command": ["cat", format!("/tmp/{file}")]},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 2,
        })
    };
    let main = json!({
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "touch /tmp/ready /tmp/live; echo started; sleep 100000"],
        "readinessProbe": probe("ready"),
        "livenessProbe": probe("live"),
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "probed"},
        "spec": {
            "selector": {"matchLabels": {"app": "probed"}},
            "template": {
                "metadata": {"labels": {"app": "probed"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [main]},
            },
        },
    })
}

fn available(cluster: &Cluster) -> bool {
    cluster.get(&["deployment", "probed"]).is_some_and(|deployment| is_true(&deployment, "Available"))
}

/// Returns the only pod of the deployment.
fn pod(cluster: &Cluster) -> Value {
    let pods = cluster.get(&["pods", "--selector", "app=probed"]).unwrap();
    let [pod] = &pods["items"].as_array().unwrap()[..] else { panic!("not one pod: {pods}") };
    pod.clone()
}

fn restarts(cluster: &Cluster) -> u64 {
    pod(cluster)["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap()
}
