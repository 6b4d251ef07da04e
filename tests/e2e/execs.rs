//! ExecSync analysis on real containerd: probeshim's report of calls whose analysis is known
//! beforehand.

use std::time::Duration;

use fixtures::containerd::{Containerd, Version};
use fixtures::need;
use fixtures::pod::Pod;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::execs::{self, Execs, completely, process_with};
use fixtures::wait::wait_for;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::direct::init_of;

/// Period of the calls from which a periodicity is learned. probeshim takes a call as regular if
/// starting crictl shifts it by at most a tenth of the period.
const PERIOD: Duration = Duration::from_secs(3);

#[test]
fn exec_syncs_on_containerd_2_2_are_explained() {
    need!(execs::are_explained(&need!(Containerd::start(Version::V2_2))));
}

#[test]
fn exec_syncs_on_containerd_1_6_are_explained() {
    need!(execs::are_explained(&need!(Containerd::start(Version::V1_6))));
}

#[test]
fn exec_syncs_are_attributed_to_probes_by_manifest_annotation_or_period() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "execs", "namespace": "e2e"},
        "spec": {"containers": [{
            "name": "main", "env": [{"name": "FILE", "value": "/tmp/x"}],
            "livenessProbe": {"exec": {"command": ["test", "!", "-f", "$(FILE)"]}, "timeoutSeconds": 3},
            "readinessProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 2, "periodSeconds": 5},
            "startupProbe": {"exec": {"command": ["true"]}, "timeoutSeconds": 2},
            "lifecycle": {"postStart": {"exec": {"command": ["echo", "$(FILE)"]}}},
        }]},
    });
    let pods = containerd.folder().join("pod.json");
    std::fs::write(&pods, manifest.to_string()).unwrap();
    let execs = need!(Execs::start_with(&containerd, &["--manifests", pods.to_str().unwrap()]));
    let probe = |command: &[&str], timeout| execs.exec(command, timeout)["exec"]["probe"].clone();
    assert_eq!(
        probe(&["test", "!", "-f", "/tmp/x"], 3),
        json!({"type": "liveness", "source": "manifest", "confidence": 1.0, "periodMs": 10000.0})
    );
    assert_eq!(probe(&["test", "!", "-f", "/tmp/x"], 4), json!(null), "another timeout means another caller");
    let both = probe(&["true"], 2);
    assert_eq!((&both["type"], &both["candidates"]), (&json!("ambiguous"), &json!(["startup", "readiness"])));
    assert_eq!(probe(&["echo", "$(FILE)"], 0)["type"], "postStart");

    let hook = json!({"exec": {"command": ["echo", "bye"]}}).to_string();
    let annotated = json!({"annotations": {"io.kubernetes.container.preStopHandler": hook}});
    let pod = Pod::with(&execs.crictl, containerd.folder(), "annotated", &annotated);
    let call = execs.exec_in(&pod, &["echo", "bye"], 0);
    assert_eq!(
        (&call["exec"]["probe"]["type"], &call["exec"]["probe"]["source"]),
        (&json!("preStop"), &json!("kubelet-annotation"))
    );
    execs.explains(&call, &["The command belongs to the preStop hook"]);

    // Calls begin every three seconds, plus or minus the start time of crictl. probeshim learns the
    // period from a few of them, or from more if the machine is busy.
    let (mut begins, begun) = (0, Instant::now());
    let learned = wait_for("the period is learned", || {
        wait_for("the next call is due", || (begun.elapsed() >= PERIOD * begins).then_some(()));
        begins += 1;
        let probe = execs.exec_in(&pod, &["true"], 60)["exec"]["probe"].clone();
        (probe["periodMs"] == json!(3000.0)).then_some(probe)
    });
    assert_eq!((&learned["type"], &learned["source"]), (&json!("probe"), &json!("learned")));
    assert!(learned["confidence"].as_f64().unwrap() > 0.5, "{learned}");
    pod.remove(&execs.crictl);
    execs.end();
}

#[test]
fn stuck_exec_syncs_are_reported_while_they_last() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start(&containerd));
    // The command exits and leaves a child that keeps the output open: containerd does not answer,
    // with or without a timeout.
    let [held, left_over] = [100_000, 200_000].map(|base| (base + std::process::id()).to_string());
    let holder = execs.spawn(&["sh", "-c", &format!("sleep {held} & exit 0")], 1);
    let stuck = |kind: &str| {
        let status = execs.shim.json(&["status"]);
        status["stuck"].as_array().unwrap().iter().find(|stuck| stuck["kind"] == kind).cloned()
    };
    for kind in ["unanswered", "overdue"] {
        let told = wait_for(kind, || stuck(kind));
        assert_eq!((&told["pod"], &told["container"]), (&json!("execs"), &json!("main")), "{told}");
        assert!(told["message"].as_str().unwrap().contains(&format!("sleep {held}")), "{told}");
        assert!(execs.shim.metrics().contains(&format!("probeshim_exec_stuck{{kind=\"{kind}\"}} 1")));
    }
    end_sleep(&held);
    holder.output();
    wait_for("nothing is stuck", || {
        (stuck("overdue").is_none() && stuck("unanswered").is_none()).then_some(())
    });
    let events = execs.shim.ask(&["events"]);
    for reason in ["ExecSyncOverdue", "ExecSyncUnanswered", "ExecSyncEnded", "ExecSyncAnswered"] {
        assert!(events.contains(reason), "no {reason} in {events}");
    }
    // A process that an ended call has left behind.
    let left = execs.exec(&["sh", "-c", &format!("sleep {left_over} >/dev/null 2>&1 & exit 0")], 60);
    let told = wait_for("the leaked process is reported", || stuck("leaked"));
    assert_eq!((&told["call"], &told["command"]), (&left["id"], &json!(["sleep", left_over])));
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", told["pid"])).unwrap();
    assert_eq!(comm, "sleep\n");
    end_sleep(&left_over);
    wait_for("the leaked process is no longer reported", || stuck("leaked").is_none().then_some(()));
    execs.end();
}

/// Kills the `sleep` in a container that has this argument.
fn end_sleep(seconds: &str) {
    let pid = process_with("sleep", seconds).and_then(|pid| Pid::from_raw(pid.cast_signed()));
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
}

/// The first process of the container does not wait for orphans before it gets a line.
#[test]
fn zombies_that_execs_leave_are_counted_until_the_first_process_waits_for_them() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start(&containerd));
    let more = json!({
        "command": ["sh", "-c", "sleep 1000000; exit"],
        "linux": {"security_context": {"namespace_options": {"pid": 1}}},
    });
    let pod = Pod::with(&execs.crictl, containerd.folder(), "orphans", &more);
    let first = Pid::from_raw(init_of(&execs, &pod.container).try_into().unwrap()).unwrap();
    // A stopped shell does not wait for its children.
    kill_process(first, Signal::STOP).unwrap();
    for _ in 0..12 {
        execs.exec_in(&pod, &["sh", "-c", "sleep 0 >/dev/null 2>&1 & exit 0"], 60);
    }
    let stuck = || {
        let status = execs.shim.json(&["status"]);
        status["stuck"].as_array().unwrap().iter().find(|stuck| stuck["kind"] == "zombies").cloned()
    };
    let told = wait_for("the zombies are counted", || stuck().filter(|stuck| stuck["zombies"] == 12));
    assert_eq!((&told["pod"], &told["command"]), (&json!("orphans"), &json!(["sleep"])), "{told}");
    let parent = format!("first process of the container (pid {}, sh) does not wait for them", told["pid"]);
    assert!(told["message"].as_str().unwrap().ends_with(&parent), "{told}");
    assert!(execs.shim.metrics().contains("probeshim_exec_stuck{kind=\"zombies\"} 12"));
    let findings = execs.shim.list(&["lint"]);
    assert!(findings.iter().any(|finding| finding["lint"] == "zombies"), "{findings:#?}");
    kill_process(first, Signal::CONT).unwrap();
    wait_for("the zombies are gone", || stuck().is_none().then_some(()));
    let events = execs.shim.ask(&["events"]);
    for reason in ["ExecZombies", "ExecZombiesGone"] {
        assert!(events.contains(reason), "no {reason} in {events}");
    }
    pod.remove(&execs.crictl);
    execs.end();
}

#[test]
fn only_exec_syncs_during_a_crash_of_containerd_lose_their_phases() {
    let mut containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start(&containerd));
    let running = execs.spawn(&["sleep", "60"], 0);
    wait_for("the call is in flight", || {
        let metrics = execs.shim.metrics();
        metrics.contains("probeshim_exec_in_flight 1").then_some(())
    });
    containerd.crash_and_restart();
    running.output();
    let lost = wait_for("the lost call is recorded", || execs.all().pop());
    assert_eq!(
        (&lost["code"], &lost["exec"]["phases"]["state"]),
        (&json!("connection-lost"), &json!("missing")),
        "{lost:#}"
    );
    wait_for("the runtime is watched again", || {
        let events = execs.shim.json(&["events"]);
        let watched = events.as_array().unwrap().iter().find(|event| event["reason"] == "RuntimeReady");
        (watched?["count"] == 2).then_some(())
    });
    completely(&execs.exec(&["true"], 0));
    execs.end();
}

#[test]
fn bench_measures_exec_syncs_directly_and_through_the_relay() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start(&containerd));
    let bench = |more: &[&str]| -> Value {
        let container = &execs.pod.container[..13];
        let flags = ["bench", "exec", "-o", "json", "--container", container, "--calls", "6"];
        let report = execs.shim.ask_with(&[&flags[..], more].concat(), &["--", "sleep", "0.5"]);
        serde_json::from_str(&report).unwrap()
    };
    let before = execs.all().len();
    let one_by_one = bench(&[]);
    assert_eq!(execs.all().len(), before + 6, "half of the calls go through the relay");
    let together = bench(&["-c", "3"]);
    for report in [&one_by_one, &together] {
        assert_eq!(report["container"], execs.pod.container.as_str());
        let ways: Vec<&str> =
            report["ways"].as_array().unwrap().iter().map(|way| way["way"].as_str().unwrap()).collect();
        assert_eq!(ways, ["direct", "relay"]);
        for way in report["ways"].as_array().unwrap() {
            let phase = |name: &str| {
                way["phases"].as_array().unwrap().iter().find(|phase| phase["phase"] == name).unwrap()
            };
            let (total, run) = (phase("total"), phase("run"));
            assert_eq!(
                (&total["count"], &run["count"], &way["failed"]),
                (&json!(6), &json!(6), &json!(0)),
                "{way:#}"
            );
            // A busy runtime reports the start of the command late.
            let [total, run] = [total, run].map(|phase| phase["p50Ms"].as_f64().unwrap());
            assert!(total >= 500.0 && (0.0..total).contains(&run), "{way:#}");
            assert!(way["cpuMsPerCall"].as_f64().unwrap() > 0.0, "{way:#}");
        }
    }
    assert_eq!(one_by_one["ways"][1]["explained"], 6, "{one_by_one:#}");
    execs.end();
}

#[test]
fn a_storm_on_containerd_reports_served_calls_and_processor_time() {
    let containerd = need!(Containerd::start(Version::V2_2));
    let execs = need!(Execs::start(&containerd));
    let flags = ["bench", "exec", "--storm", "-o", "json", "--container", &execs.pod.container];
    // No call fails at any speed of the machine.
    let load = ["--rates", "2,5", "--duration-per-step", "2s", "--timeout", "600"];
    let report = execs.shim.ask_with(&[&flags[..], &load].concat(), &["--", "true"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["containers"], json!([execs.pod.container]));
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2);
    let idle = report["idleCpuPercent"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&idle), "{report:#}");
    for (step, offered) in steps.iter().zip([4, 10]) {
        assert_eq!((&step["offered"], &step["served"]), (&json!(offered), &json!(offered)), "{step:#}");
        assert_eq!((&step["failures"], &step["nonzeroExits"]), (&json!([]), &json!(0)), "{step:#}");
        let percent = step["cpuPercent"].as_f64().unwrap();
        assert!(percent > 0.0 && percent <= 100.0, "{step:#}");
        // Other tests may have used as much processor time before the first step.
        let cpu = &step["cpuMsPerServed"];
        assert!(cpu.is_null() || cpu.as_f64().unwrap() > 0.0, "{step:#}");
    }
    let all = wait_for("all calls are recorded", || Some(execs.all().len()).filter(|all| *all >= 19));
    assert_eq!(all, 19, "the container is called five times before the first step");
    execs.end();
}
