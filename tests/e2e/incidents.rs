//! Incidents on real containerd, each of which `probeshim lint` names, and a quiet node, on which
//! it finds nothing.

use std::path::Path;

use fixtures::containerd::{Containerd, Version};
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::{Execs, UNTIL_THROTTLED};
use fixtures::shim::Probeshim;
use fixtures::wait::wait_for;
use serde_json::{Value, json};

/// Number of attempts in a row that must be quick before a node is quiet.
const QUIET_ATTEMPTS: usize = 20;

/// Starts probeshim, which runs the liveness probes of these pods: their names, commands and
/// timeouts.
fn probing(containerd: &Containerd, pods: &[(&str, &[&str], u32)]) -> Result<Execs, String> {
    let manifests = containerd.folder().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    for (name, command, timeout) in pods {
        let probe = json!({"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": timeout});
        let container = json!({"name": "main", "image": "probeshim.test/busybox:1", "livenessProbe": probe});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "e2e"},
            "spec": {"containers": [container]},
        });
        write(&manifests.join(format!("{name}.json")), &pod);
    }
    Execs::start_with(containerd, &["--enforce", "dry-run", "--manifests", manifests.to_str().unwrap()])
}

fn write(file: &Path, document: &Value) {
    std::fs::write(file, document.to_string()).unwrap();
}

/// Waits until a lint finds something about a container of a pod, or about the node.
fn finding(shim: &Probeshim, lint: &str, pod: Option<&str>) -> Value {
    let is_it = |found: &Value| found["lint"] == lint && found["pod"] == json!(pod);
    let found = wait_for(lint, || shim.list_if_answered(&["lint"])?.into_iter().find(is_it));
    assert!(found["affected"].as_u64() > Some(0), "{found:#}");
    found
}

/// Returns the names of the lints that find something about a pod.
fn lints(shim: &Probeshim, pod: &str) -> Vec<String> {
    let found = shim.list(&["lint", "--namespace", "e2e", "--pod", pod]);
    found.iter().map(|found| found["lint"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn lints_name_a_throttled_probe_a_held_output_a_missing_shell_a_hanging_runtime_and_a_probe_storm() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let throttled = ["sh", "-c", UNTIL_THROTTLED, "sh", "10"];
    let pods: [(&str, &[&str], u32); 5] = [
        ("throttled", &throttled, 600),
        ("held", &["sh", "-c", "sleep 3 & exit 0"], 600),
        ("shell", &["bash", "-c", "exit 0"], 600),
        ("plain", &["true"], 1),
        ("other", &["true"], 1),
    ];
    let execs = need!(probing(&containerd, &pods));
    let resources = json!({"linux": {"resources": {"cpu_quota": 5000, "cpu_period": 100_000}}});
    let none = Value::Null;
    let started: Vec<Pod> = pods
        .iter()
        .map(|(name, ..)| {
            let more = if *name == "throttled" { &resources } else { &none };
            Pod::with(&execs.crictl, containerd.folder(), name, more)
        })
        .collect();

    let found = finding(&execs.shim, "throttled", Some("throttled"));
    let sentence = found["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("The container was throttled by its limit of 50m CPU in "), "{found:#}");
    let call = found["calls"].as_array().unwrap().last().unwrap().to_string();
    let explained = execs.shim.ask(&["explain", &call]).replace("\n  ", " ");
    assert!(explained.contains("throttled by its limit of 50m CPU"), "{explained}");

    let found = finding(&execs.shim, "held-output", Some("held"));
    assert_eq!((&found["probe"], &found["prober"]), (&json!("liveness"), &json!("probeshim")), "{found:#}");
    assert!(found["sentence"].as_str().unwrap().contains(" was drain: a process "), "{found:#}");

    let found = finding(&execs.shim, "missing-program", Some("shell"));
    let sentence = found["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("The container has no shell bash: "), "{found:#}");
    assert_eq!(found["severity"], "error");
    let found = lints(&execs.shim, "shell");
    assert!(!found.iter().any(|lint| lint == "discarded-errors"), "{found:?}");

    // Each incident is named where it is, and nowhere else.
    for (pod, others) in [
        ("throttled", ["held-output", "missing-program"]),
        ("held", ["throttled", "missing-program"]),
        ("shell", ["throttled", "held-output"]),
    ] {
        let found = lints(&execs.shim, pod);
        assert!(!found.iter().any(|lint| others.contains(&lint.as_str())), "{pod}: {found:?}");
    }
    let all = execs.shim.list(&["lint"]);
    assert!(all.iter().all(|found| found["lint"] != "hanging-runtime"), "{all:#?}");
    assert!(all.iter().all(|found| found["lint"] != "probe-storm"), "{all:#?}");

    let found = containerd.suspended(|| finding(&execs.shim, "hanging-runtime", None));
    assert_eq!(found["severity"], "error", "{found:#}");
    for pod in started {
        pod.remove(&execs.crictl);
    }

    let flags = ["bench", "exec", "--storm", "-o", "json", "--container", &execs.pod.container];
    let load = ["--rates", "200", "--duration-per-step", "5s", "--timeout", "600"];
    execs.shim.ask_with(&[&flags[..], &load].concat(), &["--", "true"]);
    let found = finding(&execs.shim, "probe-storm", None);
    assert!(found["sentence"].as_str().unwrap().contains(" ExecSyncs in flight on the node"), "{found:#}");
    execs.end();
}

#[test]
fn a_quiet_node_has_no_findings() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(probing(&containerd, &[("quiet", &["true"], 60)]));
    let pod = Pod::new(&execs.crictl, containerd.folder(), "quiet");
    let from = wait_for("the probe is quick for a while", || quiet_since(&execs.all()));
    let period = ["lint", "--since", &from];
    let text = execs.shim.ask(&[&period[..], &["--fail-on", "info"]].concat());
    assert!(text.starts_with("no findings in ") && !text.contains(" 0 attempts"), "{text}");
    assert_eq!(execs.shim.json(&period), json!([]));
    pod.remove(&execs.crictl);
    execs.end();
}

/// Returns the beginning of a minute after which enough attempts were quick. Attempts that other
/// load of the machine makes slow begin a new period; results are recorded by minute.
fn quiet_since(calls: &[Value]) -> Option<String> {
    let minute = |call: &Value| call["start"].as_str().unwrap()[..16].to_owned();
    let last_slow = calls.iter().rposition(|call| call["exec"]["assessment"] != "fine");
    let quick = &calls[last_slow.map_or(0, |last| last + 1)..];
    let first = minute(quick.first()?);
    let is_after = |call: &&Value| last_slow.is_none() || minute(call) > first;
    let quiet: Vec<&Value> = quick.iter().filter(is_after).collect();
    (quiet.len() >= QUIET_ATTEMPTS).then(|| format!("{}:00Z", minute(quiet[0])))
}
