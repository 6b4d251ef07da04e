//! Commands that probeshim executes in containers without the runtime, on real containerd with runc
//! and crun.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use fixtures::containerd::Containerd;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::{Execs, completely};
use fixtures::wait::wait_for;
use regex::Regex;
use serde_json::{Value, json};

/// Starts containerd, and a probeshim that executes all commands without it where it can. Fails if
/// a program is missing.
pub(crate) fn direct_all() -> Result<(Containerd, Execs), String> {
    let containerd = Containerd::start_unified()?;
    let execs = Execs::start_with(&containerd, &["--exec", "direct-all"])?;
    Ok((containerd, execs))
}

/// Returns a pod of the user 1000.
pub(crate) fn pod_of_user(execs: &Execs, containerd: &Containerd, name: &str) -> Pod {
    let user = json!({"linux": {"security_context": {"run_as_user": {"value": 1000}}}});
    Pod::with(&execs.crictl, containerd.folder(), name, &user)
}

/// Copies the programs of busybox to a file of a pod that changes the user to root at its exec.
pub(crate) fn add_setuid_busybox(execs: &Execs, pod: &Pod, path: &str) {
    let root = root_of(execs, &pod.container);
    let program = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::copy(root.join("bin/busybox"), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
}

/// Executes a command until probeshim executes it itself. Returns the record of that call.
pub(crate) fn verified(execs: &Execs, command: &[&str]) -> Value {
    wait_for("the container is verified", || direct_in(execs, &execs.pod, command))
}

/// Executes a command in a pod. Returns the record of the call if probeshim has executed it.
pub(crate) fn direct_in(execs: &Execs, pod: &Pod, command: &[&str]) -> Option<Value> {
    let call = execs.exec_in(pod, command, 60);
    assert_eq!(call["code"], "OK", "{call}");
    let reason = call["forwardedBecause"].as_str().unwrap_or_default();
    assert!(!reason.contains("differ"), "{reason}");
    (call["policy"] == json!(["direct"])).then_some(call)
}

/// Returns the pid of a container's init process.
pub(crate) fn init_of(execs: &Execs, container: &str) -> i64 {
    let inspected = execs.crictl.ok(&["inspect", container]);
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    inspected["info"]["pid"].as_i64().unwrap()
}

/// Returns the directory with the files of a container.
pub(crate) fn root_of(execs: &Execs, container: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root", init_of(execs, container)))
}

#[test]
fn a_command_is_executed_without_the_runtime_once_the_container_is_verified() {
    let (_containerd, execs) = need!(direct_all());
    let first = execs.exec(&["true"], 60);
    assert_eq!(first["policy"], json!([]), "{first}");
    assert!(first["forwardedBecause"].as_str().unwrap().starts_with("unverified: "), "{first}");
    execs.explains(&first, &["The runtime executed the command, and not probeshim: unverified: "]);

    let direct = verified(&execs, &["true"]);
    completely(&direct);
    execs.explains(&direct, &["probeshim executed the command itself, without the runtime"]);
    let failed = execs.exec(&["sh", "-c", "exit 3"], 60);
    assert_eq!((&failed["exec"]["exitCode"], &failed["policy"]), (&json!(3), &json!(["direct"])), "{failed}");
    let late = execs.exec(&["sleep", "100"], 1);
    assert_eq!((&late["code"], &late["policy"]), (&json!("DEADLINE_EXCEEDED"), &json!(["direct"])), "{late}");
    let message = "failed to exec in container: timeout 1s exceeded: context deadline exceeded";
    assert_eq!(late["message"], message);
    let held = execs.exec(&["sh", "-c", "sleep 2 & exit 7"], 0);
    assert_eq!((&held["exec"]["exitCode"], &held["policy"]), (&json!(7), &json!(["direct"])), "{held}");
    assert!(held["exec"]["phases"]["drainMs"].as_f64().unwrap() > 1000.0, "{held}");
    let missing = execs.exec(&["no-such-program"], 60);
    assert_eq!((&missing["code"], &missing["policy"]), (&json!("UNKNOWN"), &json!([])), "{missing}");
    execs.explains(&missing, &["The runtime executed the command, and not probeshim: program: "]);
    execs.end();
}

#[test]
fn output_that_does_not_end_fails_after_the_runtimes_limit_with_its_error() {
    let mut containerd = need!(Containerd::start_unified());
    containerd.configure_cri("drain_exec_sync_io_timeout = \"1s\"");
    let execs = need!(Execs::start_with(&containerd, &["--exec", "direct-all"]));
    let held = ["sh", "-c", "sleep 20 & exit 7"];
    let of_runtime = execs.exec(&held, 60);
    assert_eq!((&of_runtime["code"], &of_runtime["policy"]), (&json!("UNKNOWN"), &json!([])), "{of_runtime}");
    verified(&execs, &["true"]);
    let direct = execs.exec(&held, 60);
    assert_eq!((&direct["code"], &direct["policy"]), (&json!("UNKNOWN"), &json!(["direct"])), "{direct}");
    let exec_id = Regex::new("[0-9a-f]{64}").unwrap();
    let message = |call: &Value| exec_id.replace_all(call["message"].as_str().unwrap(), "ID").into_owned();
    assert_eq!(message(&direct), message(&of_runtime));
    assert!(message(&direct).contains("in 1s because io is still held by other processes"), "{direct}");
    execs.end();
}

#[test]
fn only_probes_are_executed_without_the_runtime_unless_all_are_requested() {
    let containerd = need!(Containerd::start_unified());
    let manifest = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "execs", "namespace": "e2e"},
        "spec": {"containers": [{
            "name": "main", "image": "probeshim.test/busybox:1",
            "livenessProbe": {"exec": {"command": ["cat", "/etc/passwd"]}, "timeoutSeconds": 60},
        }]},
    });
    fs::write(manifest.path(), pod.to_string()).unwrap();
    let flags = ["--exec", "direct", "--manifests", manifest.path().to_str().unwrap()];
    let execs = need!(Execs::start_with(&containerd, &flags));
    verified(&execs, &["cat", "/etc/passwd"]);
    let other = execs.exec(&["true"], 60);
    assert_eq!((&other["policy"], &other["forwardedBecause"]), (&json!([]), &Value::Null), "{other}");
    execs.end();
}

#[test]
fn a_storm_compares_direct_exec_with_the_runtime() {
    let (containerd, execs) = need!(direct_all());
    verified(&execs, &["true"]);
    let before = execs.all().len();
    let runtime = format!("runtime=unix://{}", containerd.socket().display());
    let direct = format!("direct=unix://{}", execs.shim.socket().display());
    let flags = ["bench", "exec", "--storm", "-o", "json", "--endpoint", &runtime, "--endpoint", &direct];
    // No call fails at any speed of the machine.
    let load = ["--rates", "2,5", "--duration-per-step", "2s", "--timeout", "600", "--warm-up", "2"];
    let arguments = [&flags[..], &load, &["--container", &execs.pod.container]].concat();
    let report: Value = serde_json::from_str(&execs.shim.ask_with(&arguments, &["--", "true"])).unwrap();
    for endpoint in report["endpoints"].as_array().unwrap() {
        let served: Vec<_> = endpoint["steps"].as_array().unwrap().iter().map(|it| &it["served"]).collect();
        assert_eq!((served, &endpoint["saturation"]), (vec![&json!(4), &json!(10)], &Value::Null));
    }
    let comparison = &report["endpoints"][1]["comparison"];
    assert_eq!(comparison["rate"], 5, "{report:#}");
    assert!(comparison["p50Ratio"].as_f64().unwrap() > 0.0, "{report:#}");
    let calls = wait_for("all calls are recorded", || {
        let calls = execs.all().split_off(before);
        (calls.len() >= 16).then_some(calls)
    });
    assert_eq!(calls.len(), 16, "the calls to the runtime do not pass through probeshim");
    assert!(calls.iter().all(|call| call["policy"] == json!(["direct"])), "{calls:#?}");
    execs.end();
}
