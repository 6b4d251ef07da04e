//! Faults on real containerd, as crictl sees them.

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Output;
use fixtures::need;
use fixtures::scenarios::execs::Execs;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Activates a rule, makes a call, and ends the rule. Returns crictl's output.
fn with(execs: &Execs, name: &str, rule: &str, arguments: &[&str]) -> Output {
    execs.shim.ask(&["fault", "add", rule, "--name", name, "--for", "1h"]);
    let output = execs.crictl.run(arguments);
    execs.shim.ask(&["fault", "clear", name]);
    output
}

/// Returns the recorded call to a method that a rule has hit.
fn hit(execs: &Execs, method: &str, name: &str) -> Value {
    wait_for("the call is recorded", || {
        let calls = execs.shim.list(&["calls", "--method", method]);
        calls.into_iter().find(|call| call["faults"][0]["name"] == name)
    })
}

#[test]
fn crictl_sees_the_faults_of_rules_on_containerd() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &[]));
    let container = execs.pod.container.as_str();
    let exec = ["exec", "-s", container, "cat", "/proc/sys/kernel/ostype"];
    let rows = [
        ("abort(UNAVAILABLE, 'the runtime is gone')", 1, "code = Unavailable desc = the runtime is gone"),
        ("exit(3, '', 'no route')", 1, "exited with 3: no route"),
        ("hang", 1, "code = DeadlineExceeded"),
        ("drop", 1, "code = Unavailable"),
        ("1*goaway -> off", 0, "Linux"),
        ("delay(1ms)", 0, "Linux"),
        ("set(request.cmd[1]=/proc/sys/kernel/hostname)", 0, ""),
    ];
    for (number, (action, code, expected)) in rows.into_iter().enumerate() {
        let name = format!("rule-{number}");
        let rule = format!("ExecSync pod=e2e/execs: {action}");
        // Without a timeout, crictl waits for ever.
        let hangs = ["-t", "1s", "exec", "-s", "--timeout", "1", container, "true"];
        let arguments = if action == "hang" { &hangs[..] } else { &exec[..] };
        let output = with(&execs, &name, &rule, arguments);
        let text = format!("{}{}", output.stdout, output.stderr);
        assert!(output.code == Some(code) && text.contains(expected), "{action}: {output:?}");
        // A client sends a call that was refused with GOAWAY again.
        if !action.ends_with("off") {
            let call = hit(&execs, "ExecSync", &name);
            assert_eq!(call["faults"], json!([{"name": name, "action": action}]), "{call}");
        }
    }
    // The rule is for another pod, and another client.
    for rule in ["ExecSync pod=e2e/other: hang", "ExecSync client=kubelet: hang"] {
        let output = with(&execs, "test", rule, &exec);
        assert_eq!((output.code, output.stdout.trim()), (Some(0), "Linux"), "{rule}");
    }
    execs.end();
}

#[test]
fn a_lost_response_leaves_what_containerd_has_done() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &[]));
    let container = execs.pod.container.as_str();
    let rule = "StopContainer pod=e2e/execs at=after: abort(DEADLINE_EXCEEDED, lost)";
    let output = with(&execs, "test", rule, &["stop", "-t", "0", container]);
    assert!(output.stderr.contains("desc = lost"), "{output:?}");
    let state =
        execs.crictl.ok(&["inspect", "-o", "go-template", "--template", "{{.status.state}}", container]);
    assert_eq!(state, "CONTAINER_EXITED");
    let explained = execs.shim.ask(&["explain", &hit(&execs, "StopContainer", "test")["id"].to_string()]);
    assert!(
        explained.contains(
            "probeshim injected a fault into this call: abort(DEADLINE_EXCEEDED, lost), of the rule test."
        ),
        "{explained}"
    );
    execs.end();
}

#[test]
fn fields_of_responses_and_streams_are_changed_for_crictl() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &[]));
    let rule = "Status: set(response.status.conditions[1].status=false)";
    let output = with(&execs, "test", rule, &["info"]);
    let info: Value = serde_json::from_str(&output.stdout).unwrap();
    let ready =
        info["status"]["conditions"].as_array().unwrap().iter().map(|it| it["status"].as_bool().unwrap());
    assert_eq!(ready.take(2).collect::<Vec<_>>(), [true, false], "{info}");
    let output =
        with(&execs, "test", "ListContainers client=crictl: remove(response.containers)", &["ps", "-q"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""));
    assert!(!execs.crictl.ok(&["ps", "-q"]).is_empty(), "the rule has ended");
    execs.end();
}

#[test]
fn a_plan_names_the_recorded_calls_that_a_rule_would_have_hit() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &[]));
    let calls: Vec<u64> = (0..3).map(|_| execs.exec(&["true"], 1)["id"].as_u64().unwrap()).collect();
    let plan = execs.shim.json(&["fault", "plan", "ExecSync pod=e2e/execs: 1*off -> hang"]);
    let hits: Vec<u64> =
        plan["hits"].as_array().unwrap().iter().map(|hit| hit["call"]["id"].as_u64().unwrap()).collect();
    assert_eq!((hits, &plan["unknown"]), (calls[1..].to_vec(), &json!(0)), "{plan}");
    assert!(execs.shim.list(&["fault", "list"]).is_empty(), "a plan activates nothing");
    execs.end();
}
