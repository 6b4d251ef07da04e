//! Pauses of probes on real containerd, as a kubelet and crictl see them.

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::{Crictl, Output};
use fixtures::need;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::Execs;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Timeout of the probes in seconds.
const TIMEOUT: &str = "5";

/// Returns the command of a probe. It counts its executions in a file, and fails with a code.
fn command(probe: &str, code: u8) -> [String; 3] {
    ["sh".to_owned(), "-c".to_owned(), format!("echo executed >> /tmp/{probe}; exit {code}")]
}

/// Runs a command with a crictl. Returns its output, the code of the recorded call and the policies
/// that affected it.
fn run(crictl: &Crictl, execs: &Execs, timeout: &str, command: &[&str]) -> (Output, String, Value) {
    let before = execs.all().len();
    let arguments = ["exec", "-s", "--timeout", timeout, &execs.pod.container];
    let output = crictl.run(&[&arguments, command].concat());
    let call = wait_for("the call is recorded", || execs.all().get(before).cloned());
    (output, call["code"].as_str().unwrap().to_owned(), call["policy"].clone())
}

/// Runs the command of a probe with its timeout, as a kubelet.
fn probed(kubelet: &Crictl, execs: &Execs, command: &[String; 3]) -> (Output, String, Value) {
    run(kubelet, execs, TIMEOUT, &command.each_ref().map(String::as_str))
}

/// Returns how often the command of a probe was executed.
fn executions(execs: &Execs, probe: &str) -> usize {
    let (output, ..) = run(&execs.crictl, execs, "0", &["cat", &format!("/tmp/{probe}")]);
    output.stdout.lines().filter(|line| *line == "executed").count()
}

#[test]
fn probes_of_a_paused_container_are_answered_for_a_kubelet_until_it_is_resumed() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let [liveness, readiness, startup] =
        [("liveness", 3), ("readiness", 4), ("startup", 5)].map(|(probe, code)| command(probe, code));
    let probe = |command: &[String; 3]| json!({"exec": {"command": command}, "timeoutSeconds": 5});
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "execs", "namespace": "e2e"},
        "spec": {"containers": [{
            "name": "main", "image": "busybox", "livenessProbe": probe(&liveness),
            "readinessProbe": probe(&readiness), "startupProbe": probe(&startup),
        }]},
    });
    let file = containerd.folder().join("paused.json");
    std::fs::write(&file, manifest.to_string()).unwrap();
    let execs = need!(Execs::start_with(&containerd, &["--manifests", file.to_str().unwrap()]));
    let kubelet = execs.crictl.as_kubelet(containerd.folder());
    let (marked, unmarked) = (json!(["pause"]), json!([]));

    let (output, code, policy) = probed(&kubelet, &execs, &liveness);
    assert!(output.stderr.contains("exited with 3"), "{output:?}");
    assert_eq!((code.as_str(), policy, executions(&execs, "liveness")), ("OK", unmarked.clone(), 1));

    let paused = execs.shim.json(&["pause", "e2e/execs", "--for", "1h"]);
    assert_eq!(paused["containers"][0]["container"], "main", "{paused}");
    let treatments: Vec<&str> = paused["containers"][0]["probes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|probe| probe["treatment"].as_str().unwrap())
        .collect();
    assert_eq!(treatments, ["discarded", "executed", "success"], "{paused}");

    let (output, code, policy) = probed(&kubelet, &execs, &liveness);
    assert_eq!((output.code, output.stdout.trim()), (Some(0), ""), "{output:?}");
    assert_eq!((code.as_str(), policy, executions(&execs, "liveness")), ("OK", marked.clone(), 1));
    let (output, code, policy) = probed(&kubelet, &execs, &startup);
    let discarded = "code = Unavailable desc = the probe is paused by probeshim (pause-1)";
    assert!(output.code == Some(1) && output.stderr.contains(discarded), "{output:?}");
    assert_eq!((code.as_str(), policy, executions(&execs, "startup")), ("UNAVAILABLE", marked.clone(), 0));
    let (output, code, policy) = probed(&kubelet, &execs, &readiness);
    assert!(output.stderr.contains("exited with 4"), "{output:?}");
    assert_eq!((code.as_str(), policy, executions(&execs, "readiness")), ("OK", unmarked.clone(), 1));
    // The command of a probe is executed for a user who wants to know its result.
    let (output, _, policy) = run(&execs.crictl, &execs, TIMEOUT, &liveness.each_ref().map(String::as_str));
    assert!(output.stderr.contains("exited with 3") && policy == unmarked, "{output:?}");

    execs.shim.ask(&["pause", "pod=execs,container=main", "--for", "1h", "--readiness", "--name", "ready"]);
    let (output, code, policy) = probed(&kubelet, &execs, &readiness);
    assert!(output.stderr.contains("paused by probeshim (ready); its result is unchanged"), "{output:?}");
    assert_eq!((code.as_str(), policy, executions(&execs, "readiness")), ("UNAVAILABLE", marked, 1));

    execs.shim.ask(&["resume", "--all"]);
    for (number, (command, name, before)) in
        [(&liveness, "liveness", 2), (&readiness, "readiness", 1), (&startup, "startup", 0)]
            .into_iter()
            .enumerate()
    {
        let (output, code, policy) = probed(&kubelet, &execs, command);
        assert!(output.stderr.contains(&format!("exited with {}", number + 3)), "{output:?}");
        assert_eq!((code.as_str(), policy), ("OK", unmarked.clone()));
        assert_eq!(executions(&execs, name), before + 1, "{name} is executed again");
    }
    execs.end();
}
