//! Limits and coalescing of ExecSyncs on real containerd, as crictl sees them.

use fixtures::containerd::{Containerd, Version};
use fixtures::need;
use fixtures::scenarios::execs::{Execs, process_with};
use fixtures::wait::wait_for;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Kills the process of a command that runs in a container.
fn kill(program: &str, argument: &str) {
    let pid = process_with(program, argument).expect("the command runs");
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Waits until a metric of probeshim has the value 1.
fn is_one(execs: &Execs, metric: &str) {
    let line = format!("{metric} 1");
    wait_for(&line, || execs.shim.metrics().lines().any(|known| known == line).then_some(()));
}

#[test]
fn crictl_waits_for_its_turn_in_the_phase_queue_or_is_refused() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &["--max-exec-syncs", "1"]));
    let first = execs.spawn(&["sleep", "1111"], 0);
    wait_for("the first command runs", || process_with("sleep", "1111"));
    let second = execs.spawn(&["cat", "/proc/sys/kernel/ostype"], 0);
    is_one(&execs, "probeshim_exec_sync_queued");
    let held = wait_for("the second call is held", || {
        execs.shim.list(&["calls", "--in-flight"]).into_iter().find(|call| call["phase"] == "queue")
    });
    assert_eq!((&held["policy"], &held["faults"]), (&json!(["limit"]), &json!([])), "{held}");
    execs.explains(&held, &["a limit of concurrent ExecSyncs"]);
    kill("sleep", "1111");
    first.output();
    let output = second.output();
    assert_eq!((output.code, output.stdout.trim()), (Some(0), "Linux"), "{output:?}");
    let calls = wait_for("the calls are recorded", || Some(execs.all()).filter(|calls| calls.len() == 2));
    assert_eq!((&calls[0]["policy"], &calls[1]["policy"]), (&json!([]), &json!(["limit"])), "{calls:?}");
    let phases = &calls[1]["exec"]["phases"];
    assert_eq!(phases["state"], "complete", "{phases}");
    assert!(phases["queueMs"].as_f64().unwrap() > 0.0, "{phases}");
    execs.explains(&calls[1], &["probeshim held this call until others had ended"]);
    execs.end();

    let execs = need!(Execs::start_with(
        &containerd,
        &["--max-exec-syncs-per-container", "1", "--exec-sync-overflow", "fail"]
    ));
    let first = execs.spawn(&["sleep", "2222"], 0);
    wait_for("the first command runs", || process_with("sleep", "2222"));
    let refused = execs.exec(&["true"], 1);
    assert_eq!(
        (&refused["code"], &refused["policy"]),
        (&json!("RESOURCE_EXHAUSTED"), &json!(["limit"])),
        "{refused}"
    );
    assert_eq!(refused["exec"]["phases"]["missing"], "not-sent", "{refused}");
    execs.explains(&refused, &["probeshim refused this call", "the limits are 1 in the container"]);
    kill("sleep", "2222");
    first.output();
    execs.end();
}

#[test]
fn identical_probes_of_crictl_run_one_command() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let manifest = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "execs", "namespace": "e2e"},
        "spec": {"containers": [{
            "name": "main", "image": "probeshim.test/busybox:1",
            "livenessProbe": {"exec": {"command": ["sleep", "3333"]}, "timeoutSeconds": 3600},
        }]},
    });
    std::fs::write(manifest.path(), pod.to_string()).unwrap();
    let manifests = ["--coalesce-probes", "--manifests", manifest.path().to_str().unwrap()];
    let execs = need!(Execs::start_with(&containerd, &manifests));
    let first = execs.spawn(&["sleep", "3333"], 3600);
    let ran = wait_for("the command runs", || process_with("sleep", "3333"));
    let second = execs.spawn(&["sleep", "3333"], 3600);
    is_one(&execs, "probeshim_exec_sync_sharing");
    assert_eq!(process_with("sleep", "3333"), Some(ran));
    kill("sleep", "3333");
    let (one, other) = (first.output(), second.output());
    assert!(one.stderr.contains("exited with 137") && one.stderr == other.stderr, "{one:?} {other:?}");
    assert_eq!(process_with("sleep", "3333"), None, "the second command did not run");
    let calls = wait_for("the calls are recorded", || Some(execs.all()).filter(|calls| calls.len() == 2));
    let shared = calls.iter().find(|call| call["policy"] == json!(["coalesce"])).unwrap();
    assert_eq!(
        (&shared["exec"]["exitCode"], &shared["exec"]["phases"]["missing"]),
        (&json!(137), &json!("not-sent"))
    );
    let leader = calls.iter().find(|call| call["policy"] == json!([])).unwrap();
    assert_eq!(leader["exec"]["phases"]["state"], "complete", "{leader}");
    execs.explains(shared, &["probeshim held this call while another with the same request ran"]);
    execs.end();
}
