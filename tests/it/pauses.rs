//! Pauses of the program: its commands, its API, and calls through the relay.

use std::process::Command;

use fixtures::wait::soon;
use probeshim::cri::v1::ExecSyncRequest;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::admin::{SERVICE, call, kept, until_shown};
use crate::procrun::Runtime;
use crate::program::{Place, Running};

/// Probes of the container `main`.
const PROBES: &str = "
probes:
- match: {container: main}
  startupProbe: {exec: {command: [sh, -c, exit 4]}, timeoutSeconds: 5}
  readinessProbe: {exec: {command: [sh, -c, exit 5]}, timeoutSeconds: 5}
  livenessProbe: {exec: {command: [sh, -c, exit 3]}, timeoutSeconds: 5}
- match: {container: side}
  livenessProbe: {tcpSocket: {port: 80}}
";

/// Returns a call to `ExecSync` with a command of `sh`.
fn exec(container: &str, script: &str) -> (String, Vec<u8>) {
    let cmd = ["sh", "-c", script].map(str::to_owned).into();
    let request = ExecSyncRequest { container_id: container.to_owned(), cmd, timeout: 5 };
    (format!("{SERVICE}/ExecSync"), request.encode_to_vec())
}

/// Sends a request to the admin socket. Returns the whole response.
async fn post(place: &Place, path: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(place.at("admin.sock")).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    response
}

/// Starts a relay whose calls are those of a kubelet: a client is identified by the name of its
/// program.
fn kubelet(place: &Place, shim: &Running) -> Running {
    let program = place.at("kubelet");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_probeshim"), &program).unwrap();
    let mut client = Command::new(program);
    client.args(["run", "--http", "off", "--record-limit", "off", "--log", "off", "--watch-runtime", "off"]);
    for (flag, name) in
        [("--listen", "of-kubelet.sock"), ("--admin", "of-kubelet-admin.sock"), ("--config", "empty.yaml")]
    {
        client.arg(flag).arg(place.at(name));
    }
    client.arg("--upstream").arg(&shim.socket);
    std::fs::write(place.at("empty.yaml"), "").unwrap();
    Running { process: client.spawn().unwrap(), socket: place.at("of-kubelet.sock"), log: place.at("log") }
}

async fn names(place: &Place) -> Vec<String> {
    let listed = place.ask(&["pause", "-o", "json"]).await.json();
    listed.as_array().unwrap().iter().map(|pause| pause["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_pause_answers_probes_until_it_is_resumed_and_is_shown() {
    let place = Place::new();
    place.configure(PROBES);
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start_watching(&["--max-exec-syncs", "7"]).await;
    until_shown(&place, &["status"], |status| status["pods"].get(0).cloned()).await;
    let kubelet = kubelet(&place, &shim);
    soon(async {
        while UnixStream::connect(&kubelet.socket).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;

    let begun = place.ask(&["pause", "it/p*", "--for", "10m", "-o", "json"]).await.json();
    let probe =
        |kind: &str, treatment: &str| json!({"type": kind, "handler": "exec", "treatment": treatment});
    assert_eq!(
        begun["containers"],
        json!([{
            "namespace": "it", "pod": "pod", "container": "main", "probesKnown": true,
            "probes": [probe("startup", "discarded"), probe("readiness", "executed"), probe("liveness", "success")],
        }])
    );
    assert_eq!((&begun["name"], &begun["selector"]), (&json!("pause-1"), &json!("namespace=it,pod=p*")));
    assert_eq!((&begun["readiness"], &begun["answered"]), (&json!(false), &json!(0)));
    assert!(begun["expires"].as_str().unwrap().ends_with('Z'), "{begun}");

    let calls = ["exit 3", "exit 4", "exit 5"].map(|script| exec(&container, script));
    let calls: Vec<(&str, Vec<u8>)> = calls.iter().map(|(method, body)| (&**method, body.clone())).collect();
    call(&kubelet, &calls).await;
    let outcome = |call: &Value| {
        let policy: Vec<&str> =
            call["policy"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        format!("{} {} {}", call["code"].as_str().unwrap(), call["exec"]["exitCode"], policy.join(","))
    };
    let recorded = kept(&place, 3).await;
    let outcomes: Vec<String> = recorded.iter().map(outcome).collect();
    assert_eq!(outcomes, ["OK 0 pause", "UNAVAILABLE null pause", "OK 5 "]);
    let table = place.ask(&["calls"]).await.stdout;
    let row = table.lines().find(|line| line.contains("exit 3")).unwrap();
    assert!(table.contains("AFFECTED BY") && row.contains(" pause "), "{table}");
    let explained = place.ask(&["explain", &recorded[0]["id"].to_string()]).await.stdout.replace("\n  ", " ");
    assert!(explained.contains("because the probes of the container are paused"), "{explained}");

    let status = place.ask(&["status", "-o", "json"]).await.json();
    assert_eq!(
        (&status["pauses"][0]["name"], &status["pauses"][0]["answered"]),
        (&json!("pause-1"), &json!(2))
    );
    assert_eq!(status["execPolicies"]["maxExecSyncs"], 7, "{status}");
    let shown = place.ask(&["status"]).await.stdout;
    assert!(shown.contains("1 active: pause-1 of namespace=it,pod=p* ends in "), "{shown}");
    assert!(shown.contains("at most 7 on the node; others wait, 0 now"), "{shown}");
    let listed = place.ask(&["pause"]).await.stdout;
    assert!(listed.contains("it/pod main") && listed.contains("paused: answered with success"), "{listed}");

    let resumed = place.ask(&["resume"]).await;
    assert_eq!(resumed.stdout, "pause pause-1 has ended; 2 probes were answered in place of the runtime\n");
    call(&kubelet, &calls[..1]).await;
    assert_eq!(outcome(&kept(&place, 4).await[3]), "OK 3 ");
    let events = place.ask(&["events", "-o", "json"]).await.json();
    let of = |reason: &str| events.as_array().unwrap().iter().any(|event| event["reason"] == reason);
    assert!(of("PauseBegan") && of("PauseEnded"), "{events}");
}

#[tokio::test]
async fn probes_that_do_not_pass_through_probeshim_are_reported() {
    let place = Place::new();
    place.configure(PROBES);
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let pod = runtime.run_pod("pod").await;
    for name in ["side", "other"] {
        let id = runtime.create(("pod", &pod), crate::procrun::shell(name, "sleep 1000")).await.unwrap();
        runtime.start_container(&id).await.unwrap();
    }
    let _shim = place.start_watching(&[]).await;
    until_shown(&place, &["status"], |status| status["pods"][0]["containers"].get(1).cloned()).await;
    let begun = place.ask(&["pause", "label.app=pod", "--for", "10m"]).await.stdout;
    let rows: Vec<String> =
        begun.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        "it/pod side liveness tcpSocket not paused, still kills: does not pass through probeshim",
        "it/pod other unknown exec paused: each ExecSync of a kubelet with a timeout is discarded",
    ] {
        assert!(rows.iter().any(|known| known == row), "{row} is not in:\n{begun}");
    }
    assert!(
        begun.contains("HTTP, TCP and gRPC probes of a kubelet do not pass through probeshim"),
        "{begun}"
    );
    assert!(begun.ends_with("`probeshim resume pause-1` ends the pause earlier\n"), "{begun}");
}

#[tokio::test]
async fn commands_for_pauses_report_each_mistake_with_exit_code_2() {
    let place = Place::new();
    let missing = place.ask(&["pause", "web", "--for", "1m"]).await;
    assert!(missing.code == Some(1) && missing.stderr.contains("no probeshim listens on"), "{missing:?}");
    let _running = place.start(&[]).await;
    for (arguments, expected) in [
        (&["pause", "web"][..], "--for <DURATION>"),
        (&["pause", "--for", "1m"], "--for needs a SELECTOR of containers such as shop/web-*, or --all"),
        (&["pause", "--all"], "--for <DURATION>"),
        (&["pause", "web", "--for", "25h"], "must be a duration from 1s to 24h"),
        (&["pause", "web", "--for", "0"], "must be a duration from 1s to 24h"),
        (&["pause", "name=web", "--for", "1m"], "must be POD, NAMESPACE/POD or KEY=PATTERN"),
        (&["pause", "*", "--for", "1m"], "would select every container"),
        (&["pause", "web", "--for", "1m", "--name", "a b"], "must be a name of 1 to 63"),
        (&["resume", "other"], "is no active pause: there are none"),
        (&["resume", "other", "--all"], "cannot be used with"),
    ] {
        let answer = place.ask(arguments).await;
        assert!(answer.code == Some(2) && answer.stderr.contains(expected), "{arguments:?}: {answer:?}");
    }
    assert_eq!(place.ask(&["pause"]).await.stdout, "no pause is active\n");
    assert_eq!(place.ask(&["resume"]).await.stdout, "no pause is active\n");

    let named = place.ask(&["pause", "web", "--for", "1m", "--name", "incident", "-o", "name"]).await;
    assert_eq!((named.code, &*named.stdout), (Some(0), "pause/incident\n"));
    let again = place.ask(&["pause", "web", "--for", "1m", "--name", "incident"]).await;
    assert!(again.code == Some(2) && again.stderr.contains("is the name of an active pause"), "{again:?}");
    let all = place.ask(&["pause", "--all", "--for", "1m"]).await;
    assert!(all.stdout.starts_with("pause pause-1 of * ends in ") && all.code == Some(0), "{all:?}");
    assert!(all.stdout.contains("no running container matches now"), "{all:?}");
    let several = place.ask(&["resume"]).await;
    assert!(several.code == Some(2), "{several:?}");
    assert!(several.stderr.contains("name one of incident, pause-1, or end all with --all"), "{several:?}");
    assert_eq!(names(&place).await, ["incident", "pause-1"]);
    place.ask(&["resume", "incident"]).await;
    assert_eq!(place.ask(&["pause", "-o", "name"]).await.stdout, "pause/pause-1\n");
    assert_eq!(place.ask(&["resume", "--all"]).await.stdout.lines().count(), 1);
    assert_eq!(names(&place).await, [""; 0]);
}

#[tokio::test]
async fn the_api_refuses_invalid_pauses_with_the_field_and_what_is_allowed() {
    let place = Place::new();
    let _running = place.start(&[]).await;
    for (path, body, expected) in [
        ("/v1/pauses", r#"{"selector": "web"}"#, "missing field `forMs`"),
        ("/v1/pauses", r#"{"forMs": 1000}"#, "missing field `selector`"),
        ("/v1/pauses", r#"{"selector": "web", "forMs": 0}"#, "must be more than 0s and at most 24h"),
        ("/v1/pauses", r#"{"selector": "web", "forMs": 86400001}"#, "must be more than 0s and at most 24h"),
        ("/v1/pauses", r#"{"selector": "a/b/c", "forMs": 1}"#, "selector \\\"a/b/c\\\" must be POD"),
        ("/v1/pauses", r#"{"selector": "*", "forMs": 1}"#, "would select every container"),
        ("/v1/pauses", r#"{"selector": "web", "forMs": 1, "liveness": true}"#, "unknown field `liveness`"),
        ("/v1/pauses/resume", r#"{"names": ["web"]}"#, "is no active pause: there are none"),
    ] {
        let answer = post(&place, path, body).await;
        assert!(answer.contains(" 400 ") && answer.contains(expected), "{body}: {answer}");
    }
}
