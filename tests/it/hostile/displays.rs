//! Hostile names, arguments and messages: displays escape them, and calls pass unchanged.

use std::collections::BTreeSet;
use std::path::Path;

use fixtures::http2::client::{Client, head};
use fixtures::http2::{answered, framed, read_all};
use probeshim::cri::runtime_client;
use probeshim::cri::v1::*;
use probeshim::socket::SocketPath;
use prost::Message as _;

use super::assert_no_panic;
use crate::admin::{call, get, public_address, until_shown};
use crate::procrun::{Runtime as Procrun, shell};
use crate::program::{Place, joined};

const SERVICE: &str = "/runtime.v1.RuntimeService";

/// A colour, a window title, a C1 control, a change of text direction, an invisible space, a line
/// break, quotes, and a line that looks like a metric.
const HOSTILE: &str =
    "a\u{1b}[31m\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}\r\n'\"\\\nprobeshim_injected_total 1\n";

/// Returns whether a terminal would obey a character or show nothing for it.
fn is_obeyed(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Asserts that a text has no character that a terminal would obey, and no line that comes from a
/// name.
fn assert_harmless(what: &str, text: &str) {
    let obeyed: BTreeSet<char> = text.chars().filter(|c| is_obeyed(*c)).collect();
    assert!(obeyed.is_empty(), "{what}: {obeyed:?} in {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("probeshim_injected")), "{what}: {text:?}");
}

#[tokio::test]
async fn control_characters_in_names_are_escaped_in_every_output() {
    let place = Place::new();
    let runtime = Procrun::start_at(&place.at("runtime.sock"));
    place.configure(
        "probes: [{match: {}, readinessProbe: {exec: {command: [sh, -c, 'printf \"\\033[31m\\r\\n\"; exit 1']}, periodSeconds: 1}}]",
    );
    let program = Path::new(env!("CARGO_BIN_EXE_probeshim"));
    let mut command = place.watching_command_of(program, "shim.sock");
    let shim =
        place.spawn(command.args(["--http", "127.0.0.1:0", "--http-pods", "--enforce", "dry-run"])).await;
    let mut client = runtime_client(&SocketPath::new(&place.at("shim.sock")).unwrap());
    let strange = || HOSTILE.to_owned();
    let mut pod = runtime.pod("pod");
    pod.metadata =
        Some(PodSandboxMetadata { name: strange(), namespace: strange(), uid: strange(), attempt: 0 });
    pod.labels.insert(strange(), strange());
    pod.annotations.insert(format!("probeshim.io/{HOSTILE}"), strange());
    pod.annotations.insert("probeshim.io/liveness.main".into(), strange());
    let request = RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: String::new() };
    let pod_sandbox_id = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let mut config = shell("main", "sleep 1000");
    config.metadata = Some(ContainerMetadata { name: strange(), attempt: 0 });
    config.labels.insert(strange(), strange());
    config.annotations.insert(strange(), strange());
    let request = CreateContainerRequest { pod_sandbox_id, config: Some(config), sandbox_config: Some(pod) };
    let container_id = client.create_container(request).await.unwrap().into_inner().container_id;
    client.start_container(StartContainerRequest { container_id: container_id.clone() }).await.unwrap();
    let exec = ExecSyncRequest { container_id, cmd: vec!["true".into(), strange()], timeout: 60 };
    client.exec_sync(exec).await.unwrap();

    let number = until_shown(&place, &["calls"], |calls| {
        let is_exec = |call: &&serde_json::Value| call["exec"]["command"][1] == HOSTILE;
        calls.as_array()?.iter().find(is_exec)?["id"].as_u64()
    })
    .await
    .to_string();
    let reasons = |events: &serde_json::Value| -> BTreeSet<String> {
        events.as_array().unwrap().iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    };
    until_shown(&place, &["events"], |events| {
        let reasons = reasons(events);
        (reasons.contains("Unhealthy") && reasons.contains("InvalidAnnotation")).then_some(())
    })
    .await;
    let commands = [
        &["calls"][..],
        &["events"],
        &["status"],
        &["pods"],
        &["probes"],
        &["explain", &number],
        &["describe", HOSTILE],
    ];
    for arguments in commands {
        for form in [&[][..], &["-o", "json"], &["-o", "yaml"], &["-o", "name"]] {
            let answer = place.ask(&[arguments, form].concat()).await;
            assert_harmless(&arguments.join(" "), &answer.stdout);
            assert_harmless(&arguments.join(" "), &answer.stderr);
        }
    }
    let json = place.ask(&["status", "-o", "json"]).await.json();
    assert_eq!(json["pods"][0]["name"], HOSTILE, "JSON must have the unescaped name");
    let http = public_address(&shim).await;
    for path in ["/metrics", "/metrics/probes"] {
        let body = get(&http, path).await.split_once("\r\n\r\n").unwrap().1.to_owned();
        assert!(!body.lines().any(|line| line.starts_with("probeshim_injected")), "{path}: {body:?}");
        // Lines with the sizes of chunks are hexadecimal.
        let mut lines = body.lines().filter(|line| !line.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(lines.all(|line| line.starts_with(['#', 'p', 's'])), "{path}: {body:?}");
    }
    assert_no_panic(&shim).await;
    drop(shim);
    runtime.end().await;
}

#[tokio::test]
async fn unknown_methods_create_no_new_metric_labels() {
    let place = Place::new();
    let procrun = Procrun::start_at(&place.at("runtime.sock"));
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    call(&shim, &[("/a.B/C", Vec::new())]).await;
    let unknown = |metrics: &str| -> u64 {
        let line = "probeshim_calls_total{method=\"other\",code=\"UNIMPLEMENTED\"} ";
        metrics.lines().find_map(|found| found.strip_prefix(line)).map_or(0, |count| count.parse().unwrap())
    };
    let counted = async |count: u64| loop {
        let metrics = get(&http, "/metrics").await;
        if unknown(&metrics) >= count {
            return metrics;
        }
    };
    let series = |metrics: &str| -> BTreeSet<String> {
        let names = metrics.lines().filter(|line| line.starts_with("probeshim_"));
        names.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let before = series(&counted(1).await);
    let methods: Vec<String> = (0..300)
        .map(|number| match number % 3 {
            0 => format!("/a.B/C{number}"),
            1 => format!("{SERVICE}/Version{number}"),
            _ => format!("/a%22%7D%0Aprobeshim_injected_total%201/{number}"),
        })
        .collect();
    let calls: Vec<(&str, Vec<u8>)> = methods.iter().map(|method| (method.as_str(), Vec::new())).collect();
    call(&shim, &calls).await;
    let after = series(&counted(301).await);
    assert_eq!(after, before);
    drop(shim);
    procrun.end().await;
}

#[tokio::test]
async fn undecodable_messages_are_refused_with_a_message() {
    let place = Place::new();
    let mut procrun = Procrun::start_at(&place.at("runtime.sock"));
    let container = procrun.runs("sleep 1000").await;
    let shim = place.start(&[]).await;
    let mut client = Client::over(tokio::net::UnixStream::connect(&shim.socket).await.unwrap()).await;
    let nul =
        ExecSyncRequest { container_id: container, cmd: vec!["echo".into(), "a\0b".into()], timeout: 5 };
    // An unknown field with nested messages, and nested groups.
    let nested = (0..60).fold(Vec::new(), |inner: Vec<u8>, _| {
        let mut outer = vec![0x7a];
        prost::encoding::encode_varint(inner.len() as u64, &mut outer);
        [outer, inner].concat()
    });
    for (what, message, codes) in [
        ("an id that is not UTF-8", vec![0x0a, 2, 0xff, 0xfe], &["13"][..]),
        ("a field cut short", vec![0x0a, 100, b'x'], &["13"]),
        ("a length beyond 64 bits", [&[0x0a][..], &[0xff; 11]].concat(), &["13"]),
        ("an undefined wire type", vec![0x0f], &["13"]),
        ("the end of a group without a start", vec![0x7c], &["13"]),
        ("150 nested groups", vec![0x7b; 150], &["13"]),
        ("60 nested unknown messages", nested, &["2"]),
        ("a NUL in a command", nul.encode_to_vec(), &["2", "3", "13"]),
    ] {
        let response = client.call(&format!("{SERVICE}/ExecSync"), framed(false, &message));
        let (parts, mut body) = head(response).await;
        let trailers = read_all(&mut body).await.unwrap().1;
        let told = trailers.as_ref().unwrap_or(parts.headers());
        assert!(codes.contains(&told["grpc-status"].to_str().unwrap()), "{what}: {told:?}");
        assert!(told["grpc-message"].len() > 10, "{what}: {told:?}");
    }
    let seen = crate::admin::kept(&place, 8).await;
    assert!(seen.iter().all(|call| call["code"] != "OK" && call["method"] == "ExecSync"), "{seen:#?}");
    let text = place.ask(&["calls"]).await.stdout;
    assert_harmless("calls", &text);
    assert_no_panic(&shim).await;
    drop((client, shim));
    procrun.end().await;
}

#[tokio::test]
async fn huge_requests_pass_byte_for_byte() {
    let place = Place::new();
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    let (mut client, mut connection) = joined(&shim, &runtime).await;
    let exec = |cmd| ExecSyncRequest { container_id: "c".into(), cmd, timeout: 5 }.encode_to_vec();
    let labels = (0..20_000).map(|number| (format!("label-{number}"), HOSTILE.to_owned())).collect();
    let annotations = (0..3).map(|number| (format!("annotation-{number}"), "x".repeat(1 << 20))).collect();
    let config = PodSandboxConfig { labels, annotations, ..PodSandboxConfig::default() };
    let pod = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    for (what, method, message) in [
        ("10,000 arguments", "ExecSync", exec(vec![HOSTILE.to_owned(); 10_000])),
        ("an argument of 3 MiB", "ExecSync", exec(vec!["x".repeat(3 << 20)])),
        ("20,000 labels and annotations of 3 MiB", "RunPodSandbox", pod.encode_to_vec()),
    ] {
        let message = framed(false, &message);
        let response = client.call(&format!("{SERVICE}/{method}"), message.clone());
        let mut call = connection.call().await;
        assert!(call.body().await == message, "{what}: the request was changed");
        call.answer("served");
        assert_eq!(answered(response).await, "served", "{what}");
    }
    crate::admin::kept(&place, 3).await;
    assert_harmless("calls", &place.ask(&["calls"]).await.stdout);
    assert_no_panic(&shim).await;
}
