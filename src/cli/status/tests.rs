use serde_json::json;

use super::*;
use crate::cli::snapshots::assert_screens;

fn status(pods: &serde_json::Value, stuck: &serde_json::Value) -> api::Status {
    serde_json::from_value(json!({
        "version": "0.1.0", "commit": "988f1eb4c1f2", "date": "2026-11-26", "mode": "kill", "pid": 4711, "started": "2026-11-24T12:00:00Z",
        "listen": "unix:///run/probeshim/probeshim.sock", "http": "http://127.0.0.1:9754",
        "upstream": {"socket": "unix:///run/containerd/containerd.sock", "ready": true, "runtime": "containerd",
                     "version": "v2.1.4", "error": null},
        "connections": {"open": 3, "total": 17}, "calls": {"inFlight": 2, "observed": 8015, "kept": 5000, "dropped": 0},
        "record": {"dir": "/var/lib/probeshim/calls", "failure": null},
        "kills": {"limit": 5, "withinMs": 3_600_000.0, "recent": 2, "rateLimited": false},
        "pods": pods, "stuck": stuck,
    }))
    .unwrap()
}

#[test]
fn the_status_names_pods_and_probes_that_need_attention() {
    let probe = json!({
        "type": "liveness", "handler": "exec", "source": "manifest", "result": "error", "run": 0, "threshold": 1,
        "verdict": "success", "onHold": false, "wouldHaveKilled": 0, "errors": 7, "lastError": "executable not found",
    });
    let pod = |name: &str, state: &str, exit: Option<i32>, probes: &[serde_json::Value]| {
        json!({
            "namespace": "shop", "name": name, "uid": name, "id": name, "sandbox": "ready", "ip": null, "source": "list",
            "containers": [{
                "name": "main", "id": "c", "state": state, "source": "list", "exitCode": exit, "ready": true, "probes": probes,
            }],
        })
    };
    let pods = json!([
        pod("sick", "running", None, &[probe]),
        pod("failed", "exited", Some(3), &[]),
        pod("web", "running", None, &[])
    ]);
    let stuck = json!([{
        "kind": "overdue", "call": 17, "ageMs": 10_000.0, "namespace": "shop", "pod": "held", "container": "main", "pid": 13061,
        "command": ["sleep", "30"],
        "message": "call 17 is unanswered 10.0s after its timeout was over; the command sleep 30 runs as pid 13061",
    }]);
    let now = "2026-11-24T13:00:00Z".parse().unwrap();
    assert_screens("status", |screen| table(&status(&pods, &stuck), now, screen));
    assert_screens("status_without_pods", |screen| table(&status(&json!([]), &json!([])), now, screen));
}

#[test]
fn the_status_says_where_names_come_from_and_what_helps_if_they_are_missing() {
    let mut status = status(&json!([]), &json!([]));
    let plain = Screen { width: None, colour: false, utf8: true };
    let shown = |status: &api::Status| table(status, "2026-11-24T13:00:00Z".parse().unwrap(), plain);
    assert!(!shown(&status).contains("names "), "{}", shown(&status));
    status.probe_names.remedy = Some("no kubelet was found".to_owned());
    assert!(shown(&status).contains("names        none: no kubelet was found\n"), "{}", shown(&status));
    let source = |source: &str, description: &str, problem: Option<&str>| api::ProbeNameSource {
        source: source.to_owned(),
        place: String::new(),
        description: description.to_owned(),
        pods: 4,
        problem: problem.map(str::to_owned),
    };
    status.probe_names = api::ProbeNames {
        sources: vec![
            source("read-only-port", "the kubelet's read-only port 10255", Some("ignored")),
            source("static-pods", "static pods in /etc/kubernetes/manifests", None),
        ],
        named_containers: 2,
        unnamed_containers: 3,
        remedy: Some("add `x`".to_owned()),
        line: None,
    };
    let expected = "names        the kubelet's read-only port 10255: ignored; static pods in \
                    /etc/kubernetes/manifests (4 pods)\n             \
                    missing in 3 of 5 containers with exec calls: add `x`\n";
    assert!(shown(&status).contains(expected), "{}", shown(&status));
}

#[test]
fn the_status_has_the_reason_why_an_address_is_not_served() {
    let mut status = status(&json!([]), &json!([]));
    status.api_failures = vec!["--http: cannot listen on 127.0.0.1:9754".to_owned()];
    let plain = Screen { width: None, colour: false, utf8: true };
    let shown = table(&status, "2026-11-24T13:00:00Z".parse().unwrap(), plain);
    assert!(shown.contains("not served   --http: cannot listen on 127.0.0.1:9754\n"), "{shown}");
}

#[test]
fn the_status_says_that_probes_do_not_run_in_the_mode_off() {
    let probe = json!({
        "type": "liveness", "handler": "exec", "source": "manifest", "result": "failure", "run": 9, "threshold": 3,
        "verdict": "failure", "onHold": false, "wouldHaveKilled": 0,
    });
    let pods = json!([{
        "namespace": "shop", "name": "web", "uid": "1", "id": "s", "sandbox": "ready", "ip": null, "source": "list",
        "containers": [{"name": "main", "id": "c", "state": "running", "source": "list", "probes": [probe]}],
    }]);
    let mut status = status(&pods, &json!([]));
    status.agreement = Some(api::Agreement { predicted: 0, unpredicted: 0, not_observed: 0 });
    let plain = Screen { width: None, colour: false, utf8: true };
    let mut shown = |mode: &str| {
        status.mode = mode.to_owned();
        table(&status, "2026-11-24T13:00:00Z".parse().unwrap(), plain)
    };
    let off = shown("off");
    assert!(off.contains("mode         off: probes do not run, and nothing is killed\n"), "{off}");
    assert!(off.contains("probes       1, not probed (mode off)\n") && !off.contains("WARNINGS"), "{off}");
    let dry_run = shown("dry-run");
    assert!(dry_run.contains("mode         dry-run: probes run, and nothing is killed\n"), "{dry_run}");
    assert!(dry_run.contains("probe of main failed 9 in a row, would kill at 3"), "{dry_run}");
    status.mode = "off".to_owned();
    status.pods = Vec::new();
    let none = table(&status, "2026-11-24T13:00:00Z".parse().unwrap(), plain);
    let expected = "probes       0 of probeshim (mode off); see `probeshim probes` for those of clients\n";
    assert!(none.contains(expected), "{none}");
}
