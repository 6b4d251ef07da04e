//! Kills by probeshim on a real containerd: with crictl restarting the containers, and next to a
//! real kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use fixtures::kubelet::{NODE, manifest};
use fixtures::need;
use fixtures::node::Node;
use fixtures::scenarios::probing::{PROBES, Probing};
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Returns a pod whose container `main` runs a command and has a failing probe.
fn pod(name: &str, command: &Value, more: &Value, grace: u32) -> Value {
    let mut main = json!({"name": "main", "command": command});
    main.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "parity"},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [main]},
    })
}

fn failing(field: &str, handler: Value) -> Value {
    let mut probe = handler;
    probe["periodSeconds"] = 1.into();
    probe["failureThreshold"] = 2.into();
    json!({field: probe})
}

fn time(written: &Value) -> jiff::Timestamp {
    written.as_str().unwrap().parse().unwrap()
}

/// Returns the duration of a call in seconds.
fn took(call: &Value) -> f64 {
    call["durationMs"].as_f64().unwrap() / 1e3
}

#[test]
fn failed_containers_are_stopped_within_their_grace_period() {
    let polite = json!(["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"]);
    let deaf = json!(["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"]);
    let serve = json!([PROBES, "serve", "-healthy", "1s"]);
    let exec = || json!({"exec": {"command": ["false"]}});
    let mut with_grace = failing("startupProbe", exec());
    with_grace["startupProbe"]["terminationGracePeriodSeconds"] = 3.into();
    let mut hanging = failing("livenessProbe", exec());
    hanging["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", "1000"]}}});
    let mut hooked = failing("livenessProbe", exec());
    hooked["lifecycle"] = json!({"preStop": {"httpGet": {"path": "/healthz", "port": 8080}}});
    let http = json!({"httpGet": {"path": "/healthz", "port": 8080}});
    // Each row: pod, expected grace period, exit code, minimum duration of the stop in seconds.
    let rows = [
        (pod("exec", &polite, &failing("livenessProbe", exec()), 7), 7, 0, 0.0),
        (pod("http", &serve, &failing("livenessProbe", http), 8), 8, 2, 0.0),
        (pod("tcp", &serve, &failing("livenessProbe", json!({"tcpSocket": {"port": 81}})), 9), 9, 2, 0.0),
        (pod("grpc", &serve, &failing("livenessProbe", json!({"grpc": {"port": 2333}})), 10), 10, 2, 0.0),
        (pod("startup", &deaf, &with_grace, 100), 3, 137, 2.9),
        (pod("deaf", &deaf, &failing("livenessProbe", exec()), 4), 4, 137, 3.9),
        (pod("zero", &deaf, &failing("livenessProbe", exec()), 0), 2, 137, 1.9),
        (pod("hanging", &polite, &hanging, 4), 2, 0, 0.0),
        (pod("hooked", &serve, &hooked, 11), 11, 2, 0.0),
    ];
    let manifests: Vec<Value> = rows.iter().map(|(manifest, ..)| manifest.clone()).collect();
    let probing = need!(Probing::start(&manifests, "kill"));
    let pods: Vec<_> = manifests.iter().map(|manifest| probing.run(manifest)).collect();
    for (pod, (_, grace, code, least)) in pods.iter().zip(&rows) {
        let (name, id) = (&pod.name, &pod.containers[0]);
        let stop = &probing.stops(id, 1)[0];
        assert_eq!(
            (&stop["code"], &stop["kill"]["gracePeriodSeconds"]),
            (&json!("OK"), &json!(grace)),
            "{name}"
        );
        assert_eq!(stop["kill"]["failures"].as_array().map(Vec::len), Some(2), "{name}: {stop:#}");
        // The upper bound shows that the stop ends long before the commands would end by
        // themselves.
        assert!(took(stop) >= *least && took(stop) < 60.0, "{name}: {stop:#}");
        let [first, last] = [0, 1].map(|place| time(&stop["kill"]["failures"][place]["time"]));
        // The kill follows the last failure.
        assert!(first < last && last <= time(&stop["start"]), "{name}: {stop:#}");
        let exited = wait_for(name, || {
            let containers = probing.status(name)["containers"].as_array()?.clone();
            containers.into_iter().find(|container| container["state"] == "exited")
        });
        if *code != 2 {
            assert_eq!(exited["exitCode"], json!(code), "{name}: {exited:#}");
        }
        assert!(probing.count(name, "Killing", "Container main failed ") >= 1, "{name}");
    }
    assert_eq!(probing.count("hooked", "FailedPreStopHook", ""), 0, "{:#?}", probing.events("hooked"));
    // The hanging hook had all of the grace period and ended with its container.
    let hook = wait_for("the hook ends", || {
        let execs = probing.shim.list(&["calls", "--method", "ExecSync", "--pod", "parity/hanging"]);
        execs.into_iter().find(|exec| exec["exec"]["timeoutSeconds"] == 0)
    });
    assert!(took(&hook) >= 4.0, "{hook:#}");
    // crictl starts another instance of a killed container. probeshim kills each instance once.
    for attempt in 1..=2 {
        let id = probing.restart(&pods[0], &manifests[0], attempt);
        assert_eq!(probing.stops(&id, 1).len(), 1);
        wait_for("the restarted container is killed", || {
            let containers = probing.status("exec")["containers"].as_array()?.clone();
            containers.iter().any(|it| it["id"] == id.as_str() && it["state"] == "exited").then_some(())
        });
    }
    let status = probing.status("exec");
    assert_eq!(status["containers"][2]["probes"][0]["killed"], json!(3), "{status:#}");
}

#[test]
fn a_kill_is_retried_after_a_crash_of_containerd() {
    let deaf = json!(["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"]);
    let exec = failing("livenessProbe", json!({"exec": {"command": ["false"]}}));
    let manifest = pod("deaf", &deaf, &exec, 8);
    let mut probing = need!(Probing::start(std::slice::from_ref(&manifest), "kill"));
    let pod = probing.run(&manifest);
    probing.wait_for_event("deaf", "Killing", "", 1);
    probing.containerd.crash_and_restart();
    probing.wait_for_event("deaf", "KillFailed", "The runtime failed to stop the container: ", 1);
    probing.wait_for_event("deaf", "Killing", "", 2);
    let stops = probing.stops(&pod.containers[0], 2);
    let are_ok: Vec<bool> = stops.iter().map(|stop| stop["code"] == "OK").collect();
    assert_eq!(are_ok, [false, true], "{stops:#?}");
}

#[test]
fn a_kill_waits_for_a_runtime_that_answers_late() {
    let deaf = json!(["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"]);
    let exec = failing("livenessProbe", json!({"exec": {"command": ["false"]}}));
    let manifest = pod("late", &deaf, &exec, 3);
    let probing = need!(Probing::start(std::slice::from_ref(&manifest), "kill"));
    let pod = probing.run(&manifest);
    probing.wait_for_event("late", "Killing", "", 1);
    probing.containerd.stand_still(Duration::from_secs(6));
    probing.wait_for_event("late", "ContainerExited", "", 1);
    let stops = probing.stops(&pod.containers[0], 1);
    assert_eq!((stops.len(), &stops[0]["code"]), (1, &json!("OK")), "{stops:#?}");
    assert!(took(&stops[0]) > 5.0, "{stops:#?}");
    assert_eq!(probing.count("late", "Killing", ""), 1);
}

/// The kubelet probes as well, and restarts each container that has ended. The kubelet may stop a
/// container that probeshim has just stopped; probeshim never stops a container that the kubelet
/// has stopped.
#[test]
fn probeshim_stops_no_container_that_a_kubelet_has_stopped() {
    let node = need!(Node::start_probing("kill"));
    let probe = json!({
        "exec": {"command": ["test", "-f", "/tmp/healthy"]},
        "periodSeconds": 2,
        "timeoutSeconds": 10,
        "failureThreshold": 2,
    });
    let script =
        "trap 'exit 0' TERM; touch /tmp/healthy; sleep 6; rm /tmp/healthy; while true; do sleep 0.1; done";
    node.kubelet.run(&manifest("probed", script, &probe));
    node.kubelet.run(&manifest("steady", "sleep 100000", &json!({"exec": {"command": ["true"]}})));
    let restarted = |status: &Value| status["restartCount"].as_u64() >= Some(2);
    node.kubelet.container_when("probed", "restarted twice", restarted);
    let shim = node.shim.as_ref().unwrap();
    let calls = shim.list(&["calls", "--method", "StopContainer"]);
    let mut stops = BTreeMap::<&str, Vec<&Value>>::new();
    for call in &calls {
        stops.entry(call["container"]["id"].as_str().unwrap()).or_default().push(call);
    }
    assert!(stops.len() >= 2, "{calls:#?}");
    let is_ours = |call: &Value| call["kill"].is_object();
    for of_one in stops.values_mut() {
        of_one.sort_by_key(|call| call["start"].as_str());
        assert!(
            of_one.len() == 1 || (of_one.len() == 2 && is_ours(of_one[0]) && !is_ours(of_one[1])),
            "{calls:#?}"
        );
    }
    let ours = calls.iter().filter(|call| is_ours(call)).count();
    let theirs = calls.iter().filter(|call| call["peer"]["program"] == "kubelet").count();
    assert_eq!(ours + theirs, calls.len(), "{calls:#?}");
    let of_steady = calls.iter().filter(|call| call["pod"]["name"] == format!("steady-{NODE}"));
    assert_eq!(of_steady.count(), 0);
}
