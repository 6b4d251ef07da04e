//! Captures and replays of crictl's calls to real containerd.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use fixtures::containerd::{Containerd, Version};
use fixtures::machine::program_under_test;
use fixtures::need;
use fixtures::planted::{SECRET, found_secret};
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::Execs;
use fixtures::wait::wait_for;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Starts a capture, and waits until calls are captured.
fn capture(execs: &Execs, file: &Path) -> Child {
    let mut command = Command::new(program_under_test());
    command.arg("capture").arg("-o").arg(file).args(["--for", "24h", "--admin"]).arg(execs.shim.admin());
    let process = command.spawn().unwrap();
    wait_for("the capture has begun", || lines(file).first().map(drop));
    process
}

/// Returns the complete lines of a capture.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Replays a capture, and returns the report.
fn replay(file: &Path, upstream: &Path) -> Value {
    let mut command = Command::new(program_under_test());
    command.arg("replay").arg(file).arg("--upstream").arg(upstream).args(["-o", "json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn calls_of_crictl_are_captured_without_secrets_and_replayed_with_their_phases() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start(&containerd));
    let file = containerd.folder().join("capture.jsonl");
    let mut process = capture(&execs, &file);
    let more = json!({
        "envs": [{"key": "TOKEN", "value": SECRET}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"env\": \"{SECRET}\"}}")},
    });
    let pod = Pod::with(&execs.crictl, containerd.folder(), "planted", &more);
    let shown = execs.crictl.run(&["exec", "-s", &pod.container, "sh", "-c", "echo $TOKEN"]);
    assert_eq!(shown.stdout.trim(), SECRET, "{shown:?}");
    execs.crictl.run(&["exec", "-s", &pod.container, "sh", "-c", "echo $TOKEN >&2; exit 3"]);
    // The streaming server of containerd is reached at a URL with a token.
    execs.crictl.ok(&["exec", &pod.container, "true"]);
    let inspected = execs.crictl.ok(&["inspect", &pod.container]);
    assert!(inspected.contains(SECRET), "the verbose status has the variables: {inspected}");
    execs.crictl.ok(&["ps"]);
    execs.crictl.ok(&["pods"]);
    execs.crictl.run(&["pull", "--creds", &format!("user:{SECRET}"), "127.0.0.1:1/none:1"]);
    wait_for("the last call is captured", || {
        lines(&file).iter().any(|line| line["method"] == "PullImage").then_some(())
    });
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    assert!(process.wait().unwrap().success());

    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(found_secret(&text), None);
    let captured = lines(&file);
    let of = |method: &str| captured.iter().filter(|line| line["method"] == method).collect::<Vec<_>>();
    for method in
        ["RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync", "Exec", "ContainerStatus"]
    {
        let calls = of(method);
        assert!(!calls.is_empty(), "{method}");
        for call in calls {
            assert!(
                call["request"]["message"].is_object() && call["response"]["message"].is_object(),
                "{call}"
            );
        }
    }
    let failed = of("PullImage")[0];
    assert!(failed["code"] != "OK" && failed["response"].is_null(), "{failed}");
    for exec in of("ExecSync") {
        assert_eq!(exec["exec"]["phases"]["state"], "complete", "{exec}");
    }

    for upstream in [containerd.socket(), execs.shim.socket().to_owned()] {
        let report = replay(&file, &upstream);
        assert_eq!(report["differences"], json!([]), "{report:#}");
        assert_eq!(report["skipped"]["notFound"], 0, "{report:#}");
        let group = report["groups"].as_array().unwrap().iter().find(|group| group["method"] == "ExecSync");
        let group = group.unwrap_or_else(|| panic!("{report:#}"));
        assert_eq!((&group["calls"], &group["phases"]["calls"]), (&json!(2), &json!(2)), "{report:#}");
        let phases: Vec<_> =
            group["phases"]["averages"].as_array().unwrap().iter().map(|mean| &mean["phase"]).collect();
        assert!(phases.contains(&&json!("start")) && phases.contains(&&json!("run")), "{report:#}");
    }
    pod.remove(&execs.crictl);
    let report = replay(&file, &containerd.socket());
    assert_eq!(report["notFound"], json!([{"name": "e2e/planted main", "calls": 3}]), "{report:#}");
    execs.end();
}
