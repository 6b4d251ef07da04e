//! Captures of calls with their messages, and their replay, on procrun.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fixtures::planted::{SECRET, found_secret};
use fixtures::wait::soon;
use probeshim::cri::v1::*;
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::yield_now;

use crate::admin::{SERVICE, call};
use crate::procrun::Runtime;
use crate::program::{Answer, Place, Running};

/// A capture that is running.
struct Capture<'a> {
    process: Child,
    file: &'a Path,
}

impl<'a> Capture<'a> {
    /// Starts a capture, and waits until calls are captured.
    async fn start(place: &Place, file: &'a Path, more: &[&str]) -> Self {
        let name = file.to_str().unwrap();
        let mut command = place.asking(&[&["capture", "-o", name, "--for", "24h"], more].concat());
        let process = command.stderr(Stdio::null()).spawn().unwrap();
        let capture = Self { process, file };
        capture.has_lines(1).await;
        capture
    }

    /// Waits until the file has this number of lines, header included.
    async fn has_lines(&self, count: usize) {
        let complete = async {
            while fs::read_to_string(self.file).unwrap_or_default().matches('\n').count() < count {
                yield_now().await;
            }
        };
        soon(complete).await;
    }

    /// Interrupts the capture once it has this number of calls, as Ctrl-C does. Returns its text.
    async fn ended_after(self, calls: usize) -> String {
        self.has_lines(1 + calls).await;
        let Self { mut process, file } = self;
        kill_process(Pid::from_child(&process), Signal::INT).unwrap();
        let status = soon(tokio::task::spawn_blocking(move || process.wait())).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
        fs::read_to_string(file).unwrap()
    }
}

/// Runs `probeshim replay` with a file to its end.
async fn replay(file: &Path, upstream: &Path, more: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("replay").arg(file).arg("--upstream").arg(upstream).args(["--speed", "1000"]).args(more);
    Answer::to(command).await
}

/// A message with the secret in a field that the CRI does not define.
fn with_unknown_field(message: &impl Message) -> Vec<u8> {
    let mut bytes = message.encode_to_vec();
    prost::encoding::string::encode(1000, &SECRET.to_owned(), &mut bytes);
    bytes
}

fn exec(container: &str, script: &str) -> (String, Vec<u8>) {
    let cmd = ["sh", "-c", script].map(str::to_owned).into();
    let request = ExecSyncRequest { container_id: container.into(), cmd, timeout: 0 };
    (format!("{SERVICE}/ExecSync"), with_unknown_field(&request))
}

async fn make(shim: &Running, calls: &[(String, Vec<u8>)]) {
    let calls: Vec<_> = calls.iter().map(|(path, message)| (path.as_str(), message.clone())).collect();
    call(shim, &calls).await;
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_capture_contains_messages_without_the_secrets_that_clients_sent_and_received() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let shim = place.start(&[]).await;
    let file = place.at("capture");
    let capture = Capture::start(&place, &file, &[]).await;

    let secret = || SECRET.to_owned();
    let annotations = || [("last-applied".to_owned(), secret())].into();
    let pod = PodSandboxConfig { annotations: annotations(), ..runtime.pod("web") };
    let run = RunPodSandboxRequest { config: Some(pod), ..Default::default() };
    let pull = PullImageRequest {
        image: Some(ImageSpec { image: "app".into(), annotations: annotations(), ..Default::default() }),
        auth: Some(AuthConfig {
            username: secret(),
            password: secret(),
            auth: secret(),
            server_address: "registry.test".into(),
            identity_token: secret(),
            registry_token: secret(),
        }),
        ..Default::default()
    };
    make(
        &shim,
        &[
            ("/runtime.v1.ImageService/PullImage".to_owned(), with_unknown_field(&pull)),
            (format!("{SERVICE}/RunPodSandbox"), with_unknown_field(&run)),
            ("/a.B/C".to_owned(), secret().into()),
        ],
    )
    .await;
    let sandboxes = runtime.client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    let sandbox = sandboxes.into_inner().items[0].id.clone();
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".into(), attempt: 0 }),
        image: Some(ImageSpec { image: "app".into(), ..Default::default() }),
        command: ["sh", "-c", "sleep 1000"].map(str::to_owned).into(),
        envs: vec![KeyValue { key: "TOKEN".into(), value: secret().into() }],
        annotations: annotations(),
        ..Default::default()
    };
    let create = CreateContainerRequest {
        pod_sandbox_id: sandbox,
        config: Some(config),
        sandbox_config: Some(PodSandboxConfig { annotations: annotations(), ..runtime.pod("web") }),
    };
    make(&shim, &[(format!("{SERVICE}/CreateContainer"), with_unknown_field(&create))]).await;
    let container = runtime.containers().await[0].id.clone();
    let verbose = ContainerStatusRequest { container_id: container.clone(), verbose: true };
    make(
        &shim,
        &[
            (
                format!("{SERVICE}/StartContainer"),
                StartContainerRequest { container_id: container.clone() }.encode_to_vec(),
            ),
            exec(&container, "echo $TOKEN; echo $TOKEN >&2; exit 3"),
            (format!("{SERVICE}/ContainerStatus"), verbose.encode_to_vec()),
            (format!("{SERVICE}/ListContainers"), Vec::new()),
            (format!("{SERVICE}/ListContainers"), Vec::new()),
        ],
    )
    .await;
    let text = capture.ended_after(9).await;

    assert_eq!(found_secret(&text), None, "{text}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let lines = lines(&text);
    assert_eq!((&lines[0]["probeshimCapture"], &lines[0]["runtime"]["name"]), (&json!(1), &json!("procrun")));
    assert_eq!(
        lines[10]["end"],
        json!({"reason": "interrupted", "calls": 9, "missed": 0, "unobserved": null})
    );
    let calls = |method: &str| lines.iter().filter(|line| line["method"] == method).collect::<Vec<_>>();
    let created = &calls("CreateContainer")[0]["request"];
    assert_eq!(created["message"]["config"]["envs"], json!([{"key": "TOKEN"}]), "{created}");
    assert_eq!(
        created["removed"],
        json!([
            "(unknown fields)",
            "config.annotations[*]",
            "config.envs[*].value",
            "sandbox_config.annotations[*]"
        ])
    );
    let exec = calls("ExecSync")[0];
    assert_eq!((&exec["exec"]["stdoutBytes"], &exec["exec"]["exitCode"]), (&json!(21), &json!(3)), "{exec}");
    assert_eq!(exec["response"], json!({"message": {"exitCode": 3}, "removed": ["stderr", "stdout"]}));
    assert_eq!(exec["request"]["message"]["containerId"], container.as_str());
    assert_eq!(calls("/a.B/C")[0]["request"], json!({"omitted": "unknown-method"}));
    for list in calls("ListContainers") {
        assert_eq!(list["response"]["message"]["containers"][0]["id"], container.as_str(), "{list}");
    }
    runtime.end().await;
}

#[tokio::test]
async fn a_replay_sends_calls_that_read_and_execs_again_and_compares_their_results() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start_watching(&[]).await;
    let (file, marker) = (place.at("capture"), place.at("marker"));
    let capture = Capture::start(&place, &file, &[]).await;
    let gone = ContainerStatusRequest { container_id: "c0ffee".into(), verbose: false };
    let status =
        |request: &ContainerStatusRequest| (format!("{SERVICE}/ContainerStatus"), request.encode_to_vec());
    make(
        &shim,
        &[
            (format!("{SERVICE}/Version"), Vec::new()),
            status(&ContainerStatusRequest { container_id: container.clone(), verbose: false }),
            status(&gone),
            exec(&container, &format!("test -e {}", marker.display())),
            exec(&container, "exit 3"),
            (
                format!("{SERVICE}/StopContainer"),
                StopContainerRequest { container_id: "c0ffee".into(), timeout: 0 }.encode_to_vec(),
            ),
        ],
    )
    .await;
    capture.ended_after(6).await;

    let runtime_socket = place.at("runtime.sock");
    let report = replay(&file, &runtime_socket, &["-o", "json", "--fail-on-difference"]).await.json();
    assert_eq!((&report["calls"], &report["sent"]), (&json!(6), &json!(4)), "{report:#}");
    assert_eq!(
        report["skipped"],
        json!({"notReadOnly": 1, "hooks": 0, "noRequest": 0, "commandRedacted": 0, "notFound": 1})
    );
    assert_eq!(report["notFound"], json!([{"name": "c0ffee", "calls": 1}]));
    assert_eq!(report["differences"], json!([]));
    let groups: Vec<_> = report["groups"].as_array().unwrap().iter().collect();
    let of: Vec<_> = groups
        .iter()
        .map(|group| (group["method"].as_str().unwrap(), group["calls"].as_u64().unwrap()))
        .collect();
    assert_eq!(of, [("ContainerStatus", 1), ("ExecSync", 2), ("Version", 1)]);
    assert!(groups[1]["latency"]["p50"]["replayedMs"].as_f64().unwrap() > 0.0, "{report:#}");

    // The command has another result, and the probeshim in front of the runtime records it.
    fs::write(&marker, "").unwrap();
    let answer = replay(&file, &shim.socket, &["--fail-on-difference"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("1 call ended otherwise than recorded"), "{answer:?}");
    for expected in ["4 of 6 calls sent, 1 different", "OK, exit 1", "OK, exit 0", "c0ffee: 1 call"] {
        assert!(answer.stdout.contains(expected), "{expected}: {answer:?}");
    }

    // A container of a pod with the same name has another id.
    runtime
        .client
        .stop_container(StopContainerRequest { container_id: container.clone(), timeout: 0 })
        .await
        .unwrap();
    runtime.client.remove_container(RemoveContainerRequest { container_id: container }).await.unwrap();
    let sandboxes = runtime.client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    let sandbox = sandboxes.into_inner().items[0].id.clone();
    let other = runtime.create(("pod", &sandbox), crate::procrun::shell("main", "sleep 1000")).await.unwrap();
    runtime.start_container(&other).await.unwrap();
    let report = replay(&file, &runtime_socket, &["-o", "json"]).await.json();
    assert_eq!((&report["sent"], &report["skipped"]["notFound"]), (&json!(4), &json!(1)), "{report:#}");
    drop(shim);
    runtime.end().await;
    let answer = replay(&file, &runtime_socket, &[]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("does not answer"), "{answer:?}");
}

#[tokio::test]
async fn a_capture_with_redacted_commands_says_that_its_execs_cannot_be_replayed() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let container = runtime.runs("sleep 1000").await;
    let shim = place.start(&[]).await;
    let file = place.at("capture");
    let capture = Capture::start(&place, &file, &["--redact-commands", "--method", "ExecSync"]).await;
    let script = format!("echo {SECRET}");
    make(&shim, &[(format!("{SERVICE}/Version"), Vec::new()), exec(&container, &script)]).await;
    let text = capture.ended_after(1).await;
    assert_eq!(found_secret(&text), None, "{text}");
    let lines = lines(&text);
    assert_eq!((&lines[0]["redactCommands"], &lines[1]["method"]), (&json!(true), &json!("ExecSync")));
    let answer = replay(&file, &place.at("runtime.sock"), &[]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("no call of the capture could be sent"), "{answer:?}");
    assert!(
        answer.stdout.contains("1 call not sent: arguments of their commands were removed"),
        "{answer:?}"
    );
    runtime.end().await;
}

#[tokio::test]
async fn a_capture_replaces_no_file_and_ends_with_probeshim() {
    let place = Place::new();
    let mut runtime = Runtime::start_at(&place.at("runtime.sock"));
    let mut shim = place.start(&[]).await;
    let file = place.at("capture");
    fs::write(&file, "important").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let name = file.to_str().unwrap();
    let answer = place.ask(&["capture", "-o", name, "--for", "1s"]).await;
    assert_eq!((answer.code, fs::read_to_string(&file).unwrap().as_str()), (Some(2), "important"));
    assert!(answer.stderr.contains("exists already; --force replaces it"), "{answer:?}");
    let directory = place.at("");
    let answer = place.ask(&["capture", "-o", directory.to_str().unwrap(), "--for", "1s", "--force"]).await;
    assert!(answer.code == Some(2) && answer.stderr.contains("is a directory"), "{answer:?}");

    let mut command = place.asking(&["capture", "-o", name, "--for", "24h", "--force"]);
    let process = command.stderr(Stdio::piped()).spawn().unwrap();
    let capture = Capture { process, file: &file };
    let started = async {
        while !fs::read_to_string(&file).unwrap_or_default().contains("probeshimCapture") {
            yield_now().await;
        }
    };
    soon(started).await;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    make(&shim, &[(format!("{SERVICE}/Version"), Vec::new())]).await;
    capture.has_lines(2).await;
    kill_process(Pid::from_child(&shim.process), Signal::TERM).unwrap();
    let process = capture.process;
    let output =
        soon(tokio::task::spawn_blocking(move || process.wait_with_output())).await.unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("probeshim ended during the capture"), "{stderr}");
    let lines = lines(&fs::read_to_string(&file).unwrap());
    assert_eq!(
        (&lines[1]["method"], &lines[2]["end"]["reason"]),
        (&json!("Version"), &json!("probeshim-ended"))
    );
    soon(shim.ended()).await;
    runtime.client.version(VersionRequest::default()).await.unwrap();
    runtime.end().await;
}

#[tokio::test]
async fn a_capture_ends_after_its_duration_and_can_be_written_to_standard_output() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let _shim = place.start(&[]).await;
    let answer = place.ask(&["capture", "-o", "-", "--for", "1s"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let lines = lines(&answer.stdout);
    assert_eq!(
        lines[1],
        json!({"end": {"reason": "duration", "calls": 0, "missed": 0, "unobserved": 0}}),
        "{answer:?}"
    );
    assert!(answer.stderr.contains("0 calls captured"), "{answer:?}");
    let answer = place.ask(&["capture", "-o", "-", "--for", "1s", "--method", "/a.B/C"]).await;
    assert!(answer.code == Some(2) && answer.stderr.contains("no call to it is recorded"), "{answer:?}");
    runtime.end().await;
}

#[tokio::test]
async fn a_capture_ends_at_its_maximum_size() {
    let place = Place::new();
    let runtime = Runtime::start_at(&place.at("runtime.sock"));
    let shim = place.start(&[]).await;
    let file = place.at("capture");
    let Capture { mut process, .. } = Capture::start(&place, &file, &["--max-bytes", "1MiB"]).await;
    let long = VersionRequest { version: "x".repeat(400 << 10) }.encode_to_vec();
    make(&shim, &vec![(format!("{SERVICE}/Version"), long); 3]).await;
    let status = soon(tokio::task::spawn_blocking(move || process.wait())).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.len() <= 1 << 20, "{}", text.len());
    let end = lines(&text).pop().unwrap();
    assert_eq!((&end["end"]["reason"], &end["end"]["calls"]), (&json!("max-bytes"), &json!(2)));
    runtime.end().await;
}

#[tokio::test]
async fn a_file_that_is_not_a_capture_is_refused_with_its_line() {
    let place = Place::new();
    let file = place.at("capture");
    fs::write(&file, "{\"probeshimCapture\": 7}\n").unwrap();
    let answer = replay(&file, &place.at("runtime.sock"), &[]).await;
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("line 1: probeshimCapture 7 must be 1"), "{answer:?}");
}
