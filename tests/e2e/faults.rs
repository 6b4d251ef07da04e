//! Faults on real containerd, as crictl sees them.

use std::path::Path;

use fixtures::containerd::{Containerd, Version};
use fixtures::crictl::Output;
use fixtures::image::BUSYBOX;
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
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

#[test]
fn each_criterion_selects_the_calls_of_crictl_that_meet_it() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let manifest = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "execs", "namespace": "e2e"},
        "spec": {"containers": [{
            "name": "main", "image": BUSYBOX,
            "readinessProbe": {"exec": {"command": ["test", "-d", "/"]}, "timeoutSeconds": 7},
        }]},
    });
    std::fs::write(manifest.path(), pod.to_string()).unwrap();
    let execs = need!(Execs::start_with(&containerd, &["--manifests", manifest.path().to_str().unwrap()]));
    let exec = ["exec", "-s", "--timeout", "7", execs.pod.container.as_str(), "test", "-d", "/"];
    let image = format!("image={BUSYBOX}");
    let rows = [
        ("ExecSync", "ListContainers|ExecSync", "Exec"),
        ("Exec* namespace=e2e", "ExecSync namespace=e?e", "ExecSync namespace=default"),
        ("ExecSync pod=execs", "ExecSync pod=e2e/ex*", "ExecSync pod=other/execs"),
        ("ExecSync container=main", "ExecSync container=m*", "ExecSync container=side"),
        (&format!("ExecSync {image}"), "ExecSync image=*busybox*", "ExecSync image=busybox"),
        ("ExecSync label.app=execs", "ExecSync label.app=*", "ExecSync label.tier=*"),
        ("ExecSync command='^test -d /$'", "ExecSync command=test", "ExecSync command='^test$'"),
        ("ExecSync client=crictl", "ExecSync client=cri*", "ExecSync client=kubelet"),
        ("ExecSync probe=readiness", "ExecSync probe=readiness pod=execs", "ExecSync probe=liveness"),
    ];
    for (number, (exact, pattern, other)) in rows.into_iter().enumerate() {
        for (selected, code) in [(exact, 1), (pattern, 1), (other, 0)] {
            let output =
                with(&execs, &format!("rule-{number}"), &format!("{selected}: abort(ABORTED, hit)"), &exec);
            assert_eq!(output.code, Some(code), "{selected}: {output:?}");
            assert_eq!(output.stderr.contains("desc = hit"), code == 1, "{selected}: {output:?}");
        }
    }
    execs.end();
}

#[test]
fn each_occasion_affects_the_calls_of_crictl_in_turn() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &[]));
    let exec = ["exec", "-s", execs.pod.container.as_str(), "true"];
    for (number, (when, expected)) in [
        ("every=2", "0101"),
        ("first=2", "1100"),
        ("after=3", "0001"),
        ("percentage=100", "1111"),
        ("from=1h", "0000"),
        ("to=1h", "1111"),
        ("at=after", "1111"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("rule-{number}");
        execs.shim.ask(&[
            "fault",
            "add",
            &format!("ExecSync {when}: exit(7)"),
            "--name",
            &name,
            "--for",
            "2h",
        ]);
        let hits: String =
            (0..4).map(|_| if execs.crictl.run(&exec).code == Some(0) { '0' } else { '1' }).collect();
        execs.shim.ask(&["fault", "clear", &name]);
        assert_eq!(hits, expected, "{when}");
    }
    // Choices repeat with the same seed.
    let seeded = |name: &str| {
        let rule = "ExecSync percentage=50 seed=4711: exit(7)";
        execs.shim.ask(&["fault", "add", rule, "--name", name, "--for", "1h"]);
        let hits: Vec<Option<i32>> = (0..8).map(|_| execs.crictl.run(&exec).code).collect();
        execs.shim.ask(&["fault", "clear", name]);
        hits
    };
    assert_eq!(seeded("one"), seeded("two"));
    execs.end();
}

#[test]
fn connections_of_crictl_are_refused() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &[]));
    let output = with(&execs, "test", "* client=crictl: refuse", &["-t", "1s", "version"]);
    assert!(output.code == Some(1) && output.stderr.contains("code = "), "{output:?}");
    assert!(execs.shim.metrics().contains("probeshim_faults_injected_total{action=\"refuse\"}"));
    let output = with(&execs, "test", "* client=kubelet: refuse", &["version"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    execs.end();
}

/// Creates and removes a pod while `crictl events` follows the events with a rule for its stream,
/// which must end it. Returns crictl's output, and the type of each event with the object's id.
fn events(execs: &Execs, folder: &Path, actions: &str) -> (Output, Vec<(String, String)>) {
    let rule = format!("GetContainerEvents client=crictl: {actions}");
    execs.shim.ask(&["fault", "add", &rule, "--name", "test", "--for", "1h"]);
    let following = execs.crictl.spawn(&["events", "-o", "json"]);
    wait_for("crictl follows the events", || {
        let calls = execs.shim.list(&["calls", "--in-flight", "--method", "GetContainerEvents"]);
        calls.iter().any(|call| call["peer"]["program"] == "crictl").then_some(())
    });
    Pod::new(&execs.crictl, folder, "events").remove(&execs.crictl);
    let output = following.output();
    execs.shim.ask(&["fault", "clear", "test"]);
    let events = serde_json::Deserializer::from_str(&output.stdout).into_iter::<Value>();
    let events = events.map(Result::unwrap).map(|event| {
        (event["containerEventType"].to_string(), event["containerId"].as_str().unwrap().to_owned())
    });
    let events = events.collect();
    (output, events)
}

#[test]
fn crictl_sees_the_faults_of_a_stream() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start_with(&containerd, &[]));
    let events = |actions: &str| events(&execs, containerd.folder(), actions);
    let (output, plain) = events("truncate(4, INTERNAL)");
    assert!(output.stderr.contains("ended by a fault of probeshim"), "{output:?}");
    let [sandbox, _, container, _] = &plain[..] else { panic!("{plain:?}") };
    let types = |events: &[(String, String)]| events.iter().map(|(kind, _)| kind.clone()).collect::<Vec<_>>();
    assert_ne!(sandbox, container);
    let pairs = |order: [usize; 4]| order.map(|event| plain[event].0.clone()).to_vec();
    let (_, repeated) = events("truncate(2, INTERNAL)+repeat(2)");
    assert_eq!(types(&repeated), pairs([0, 0, 1, 1]));
    assert_eq!(repeated[0], repeated[1]);
    let (_, reversed) = events("truncate(4, INTERNAL)+reverse(2)");
    assert_eq!(types(&reversed), pairs([1, 0, 3, 2]));
    let (_, delayed) = events("truncate(2, INTERNAL)+delayEach(10ms)");
    assert_eq!(types(&delayed), pairs([0, 1, 0, 0])[..2]);
    execs.end();
}
