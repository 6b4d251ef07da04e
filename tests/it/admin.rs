//! What a running probeshim tells of itself, to its own commands and to strangers.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};

use probeshim::cri::v1;
use prost::Message as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::program::{Answer, Place, Running, is_root};
use crate::support::runtime::{Call, Runtime};
use crate::support::skip::need;
use crate::support::{answered, framed, soon};

const SERVICE: &str = "/runtime.v1.RuntimeService";

/// Serves every connection, until it is aborted: Version and ExecSync as a runtime would, the rest with an empty message.
fn serve(runtime: Runtime) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let mut connection = runtime.accept_late().await;
            connections.spawn(async move {
                while let Some(call) = connection.next_call().await {
                    let answer = answer_to(&call);
                    call.answer(framed(false, &answer));
                }
            });
        }
    })
}

fn answer_to(call: &Call) -> Vec<u8> {
    match call.request.uri().path().rsplit('/').next().unwrap() {
        "Version" => v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "playedd".into(),
            runtime_version: "v9.8.7".into(),
            runtime_api_version: "v1".into(),
        }
        .encode_to_vec(),
        "ExecSync" => {
            v1::ExecSyncResponse { stdout: b"out".into(), stderr: b"".into(), exit_code: 3 }.encode_to_vec()
        }
        _ => Vec::new(),
    }
}

fn exec_request(command: &[&str]) -> Vec<u8> {
    let cmd = command.iter().map(ToString::to_string).collect();
    v1::ExecSyncRequest { container_id: "0123456789abcdef".into(), cmd, timeout: 2 }.encode_to_vec()
}

/// Makes these calls through a probeshim, one after the other.
async fn call(shim: &Running, calls: &[(&str, Vec<u8>)]) {
    let stream = tokio::net::UnixStream::connect(&shim.socket).await.unwrap();
    let mut client = crate::support::client::Client::over(stream).await;
    for (method, message) in calls {
        answered(client.call(method, framed(false, message))).await;
    }
}

/// A probeshim in front of a runtime that answers, after a Version, an ExecSync and a call that nobody knows.
async fn after_three_calls(place: &Place) -> Running {
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    serve(runtime);
    let exec = exec_request(&["cat", "/tmp/it's here", "\u{1b}[31mred\u{202e}"]);
    call(
        &shim,
        &[
            (&format!("{SERVICE}/Version"), Vec::new()),
            (&format!("{SERVICE}/ExecSync"), exec),
            ("/a.B/C", b"unknown".into()),
        ],
    )
    .await;
    kept(place, 3).await;
    shim
}

/// The calls that are kept, once there are so many.
async fn kept(place: &Place, count: usize) -> Vec<Value> {
    let kept = async {
        loop {
            let calls = place.ask(&["calls", "-o", "json"]).await.json();
            let calls = calls.as_array().unwrap().clone();
            if calls.len() >= count {
                return calls;
            }
        }
    };
    soon(kept).await
}

#[tokio::test]
async fn calls_are_shown_as_json_of_the_documented_shape() {
    let place = Place::new();
    let _shim = after_three_calls(&place).await;
    let calls = kept(&place, 3).await;
    let methods: Vec<_> = calls.iter().map(|call| call["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["Version", "ExecSync", "/a.B/C"]);
    let exec = calls[1].as_object().unwrap();
    let fields: Vec<_> = exec.keys().map(String::as_str).collect();
    let documented = [
        "code",
        "container",
        "durationMs",
        "exec",
        "id",
        "method",
        "peer",
        "pod",
        "requestBytes",
        "responseBytes",
        "start",
    ];
    assert_eq!(fields, documented);
    assert_eq!((&exec["id"], &exec["code"]), (&json!(2), &json!("OK")));
    assert!(exec["durationMs"].as_f64().unwrap() > 0.0);
    exec["start"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(exec["start"].as_str().unwrap().ends_with('Z'));
    assert_eq!(exec["peer"]["pid"], std::process::id());
    assert_eq!(exec["container"], json!({"id": "0123456789abcdef", "name": null, "attempt": null}));
    let command = ["cat", "/tmp/it's here", "\u{1b}[31mred\u{202e}"];
    assert_eq!(
        exec["exec"],
        json!({
            "command": command, "commandTruncated": false, "timeoutSeconds": 2,
            "exitCode": 3, "stdoutBytes": 3, "stderrBytes": 0,
        })
    );
}

#[tokio::test]
async fn calls_are_shown_as_a_table_that_nothing_in_it_can_disturb() {
    let place = Place::new();
    let _shim = after_three_calls(&place).await;
    let answer = place.ask(&["calls"]).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{answer:?}");
    assert!(lines[0].trim_start().starts_with("ID  TIME (UTC)"), "{answer:?}");
    let start = lines[0].find("METHOD").unwrap();
    for (line, method) in lines[1..].iter().zip(["Version ", "ExecSync ", "/a.B/C "]) {
        assert!(line[start..].starts_with(method), "{answer:?}");
    }
    let about = r"0123456789abc exit 3 timeout 2s cat '/tmp/it'\''s here' '\u{1b}[31mred\u{202e}'";
    assert!(lines[2].ends_with(about), "{answer:?}");
    assert!(!answer.stdout.contains('\u{1b}'), "no colour where there is no terminal");
}

#[tokio::test]
async fn on_a_terminal_tables_are_cut_and_coloured_but_not_with_no_color() {
    let place = Place::new();
    let _shim = after_three_calls(&place).await;
    let shown = async |before: &str| {
        let asking = place.asking(&["calls"]);
        let words: Vec<_> = std::iter::once(asking.get_program()).chain(asking.get_args()).collect();
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let mut command = Command::new("script");
        let run = format!("stty cols 60; {before} {}", words.join(" "));
        command.args(["--quiet", "--return", "--command", &run, "/dev/null"]).stdin(Stdio::null());
        let answer = Answer::to(command).await;
        assert_eq!(answer.code, Some(0), "{answer:?}");
        answer.stdout.replace("\r\n", "\n")
    };
    let coloured = shown("NO_COLOR= TERM=xterm").await;
    assert!(coloured.contains("\u{1b}[1mMETHOD"), "{coloured:?}");
    let plain = shown("NO_COLOR=1 TERM=xterm").await;
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let widths: Vec<_> = plain.lines().map(|line| line.chars().count()).collect();
    assert!(widths.len() == 4 && widths.iter().all(|width| *width <= 60), "{plain}");
    let exec = plain.lines().nth(2).unwrap();
    assert!(exec.contains("0123456789abc") && exec.ends_with('…'), "what matters most is cut last: {plain}");
}

#[tokio::test]
async fn calls_are_filtered() {
    let place = Place::new();
    let _shim = after_three_calls(&place).await;
    let ids = async |more: &[&str]| -> Vec<u64> {
        let answer = place.ask(&[&["calls", "-o", "json"], more].concat()).await.json();
        answer.as_array().unwrap().iter().map(|call| call["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&["--method", "execsync"]).await, [2]);
    assert_eq!(ids(&["--method", "/runtime.v1.RuntimeService/Version"]).await, [1]);
    assert_eq!(ids(&["--method", "/a.B/C"]).await, [3]);
    assert_eq!(ids(&["--method", "ListImages"]).await, [0; 0]);
    assert_eq!(ids(&["--last", "2"]).await, [2, 3]);
    assert_eq!(ids(&["--since", "1h"]).await, [1, 2, 3]);
    assert_eq!(ids(&["--since", "0s"]).await, [0; 0]);
    let slowest = place.ask(&["calls", "-o", "json", "--slowest", "3"]).await.json();
    let durations: Vec<f64> =
        slowest.as_array().unwrap().iter().map(|call| call["durationMs"].as_f64().unwrap()).collect();
    assert!(durations.len() == 3 && durations.is_sorted_by(|a, b| a >= b), "{durations:?}");
}

#[tokio::test]
async fn what_is_asked_wrongly_ends_with_2_and_names_what_is_allowed() {
    let place = Place::new();
    let _shim = after_three_calls(&place).await;
    for (arguments, told) in [
        (&["calls", "--method", "ExecSink"][..], "\"ExecSink\""),
        (&["calls", "--method", "ExecSink"], "ExecSync, Exec, Attach"),
        (&["calls", "--method", "/a.B/D"], "\"/a.B/D\""),
        (&["calls", "--since", "yesterday"], "--since \"yesterday\" is not a duration"),
        (&["calls", "--last", "many"], "--last"),
        (&["calls", "--last", "1", "--slowest", "1"], "--slowest"),
        (&["calls", "--follow", "--slowest", "1"], "--slowest"),
        (&["calls", "-o", "yaml"], "[possible values: table, json]"),
        (&["status", "-o", "yaml"], "[possible values: table, json]"),
    ] {
        let answer = place.ask(arguments).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{arguments:?}: {answer:?}");
        assert!(answer.stderr.contains(told), "{arguments:?}: {answer:?}");
    }
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    wrong.args(["status", "--admin", "tcp://127.0.0.1:1"]);
    let answer = Answer::to(wrong).await;
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("--admin \"tcp://127.0.0.1:1\" has the scheme tcp://"), "{answer:?}");
}

/// A command that prints as it goes.
struct Printing {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Printing {
    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, stdout }
    }

    /// The next line that it prints.
    async fn line(&mut self) -> String {
        let mut stdout = self.stdout.take().unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            (stdout, line)
        });
        let (stdout, line) = soon(read).await.unwrap();
        self.stdout = Some(stdout);
        line
    }

    /// Its end, with what it complained of.
    async fn end(self) -> (Option<i32>, String) {
        let end = tokio::task::spawn_blocking(move || self.child.wait_with_output().unwrap());
        let output = soon(end).await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

#[tokio::test]
async fn calls_are_followed_until_either_side_has_had_enough() {
    let place = Place::new();
    let mut shim = after_three_calls(&place).await;
    let mut json =
        Printing::of(place.asking(&["calls", "-f", "-o", "json", "--method", "Version", "-n", "1"]));
    let mut table = Printing::of(place.asking(&["calls", "--follow"]));
    let id = |line: String| serde_json::from_str::<Value>(&line).unwrap()["id"].as_u64();
    assert_eq!(id(json.line().await), Some(1));
    for column in ["METHOD", "Version", "ExecSync", "/a.B/C"] {
        let line = table.line().await;
        assert!(line.contains(column), "{line}");
    }
    let version = format!("{SERVICE}/Version");
    call(&shim, &[("/a.B/C", Vec::new()), (&version, Vec::new())]).await;
    assert_eq!(id(json.line().await), Some(5), "the other method is not shown");
    let line = table.line().await;
    assert!(line.trim_start().starts_with("4  "), "{line}");

    // A reader that has had enough, as head has, is no failure.
    table.stdout = None;
    call(&shim, &[(&version, Vec::new()), (&version, Vec::new())]).await;
    assert_eq!(table.end().await, (Some(0), String::new()));

    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(0));
    assert_eq!(json.end().await, (Some(1), "probeshim: the probeshim has ended\n".to_owned()));
}

#[tokio::test]
async fn status_and_readiness_tell_whether_the_runtime_answers() {
    let place = Place::new();
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    let serving = serve(runtime);
    let http = public_address(&shim).await;
    let status = place.ask(&["status", "-o", "json"]).await.json();
    assert_eq!(status["mode"], "off");
    assert_eq!(status["pid"], shim.process.id());
    assert_eq!(status["http"], format!("http://{http}"));
    let socket = format!("unix://{}", place.at("runtime.sock").display());
    let ready =
        json!({"socket": socket, "ready": true, "runtime": "playedd", "version": "v9.8.7", "error": null});
    assert_eq!(status["upstream"], ready);
    let table = place.ask(&["status"]).await.stdout;
    assert!(
        table.contains("playedd v9.8.7") && table.contains("0 in flight, 0 seen, 0 kept, 0 dropped"),
        "{table}"
    );
    assert!(get(&http, "/readyz").await.starts_with("HTTP/1.1 200"));

    serving.abort();
    let _ = serving.await;
    fs::remove_file(place.at("runtime.sock")).unwrap();
    let answer = get(&http, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(&socket), "{answer}");
    assert!(get(&http, "/healthz").await.starts_with("HTTP/1.1 200"));
    let upstream = place.ask(&["status", "-o", "json"]).await.json()["upstream"].clone();
    assert_eq!((&upstream["ready"], &upstream["version"]), (&json!(false), &Value::Null));
    let table = place.ask(&["status"]).await.stdout;
    assert!(table.contains("not ready: "), "{table}");
}

#[tokio::test]
async fn an_admin_socket_that_does_not_answer_is_named_with_the_reason() {
    let place = Place::new();
    let refused = async |told: &str| {
        let answer = place.ask(&["status"]).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(1), ""), "{answer:?}");
        let socket = format!("unix://{}", place.at("admin.sock").display());
        assert!(answer.stderr.contains(told) && answer.stderr.contains(&socket), "{answer:?}");
    };
    refused("No such file or directory").await;
    refused("is `probeshim run` running, and with this --admin?").await;
    drop(UnixListener::bind(place.at("admin.sock")).unwrap());
    refused("Connection refused").await;
    fs::remove_file(place.at("admin.sock")).unwrap();

    // A runtime's socket.
    let serving = serve(Runtime::listen(&place.at("admin.sock")));
    refused("is not the admin socket of a probeshim").await;
    serving.abort();
    let _ = serving.await;
    fs::remove_file(place.at("admin.sock")).unwrap();

    let stranger = tokio::net::UnixListener::bind(place.at("admin.sock")).unwrap();
    for (header, told) in [
        ("", "is not the admin socket of a probeshim"),
        ("probeshim-api: 2\r\n", "speaks version \"2\" of the admin API"),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\n{{}}");
        let answering = async {
            let (mut asking, _) = stranger.accept().await.unwrap();
            assert!(asking.read_buf(&mut Vec::with_capacity(1024)).await.unwrap() > 0);
            asking.write_all(answer.as_bytes()).await.unwrap();
        };
        tokio::join!(refused(told), answering);
    }
}

#[tokio::test]
async fn the_admin_socket_is_its_owners_and_says_so_to_others() {
    need!(is_root());
    let place = Place::new();
    let _shim = place.start(&[]).await;
    assert_eq!(fs::metadata(place.at("admin.sock")).unwrap().permissions().mode() & 0o777, 0o600);
    // The program itself may lie where only root can go.
    let program = place.at("probeshim");
    fs::copy(env!("CARGO_BIN_EXE_probeshim"), &program).unwrap();
    let mut stranger = Command::new(program);
    stranger.arg("status").arg("--admin").arg(place.at("admin.sock")).uid(65_534).gid(65_534);
    let answer = Answer::to(stranger).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("is not ours to open"), "{answer:?}");
}

/// Where a probeshim serves metrics and health.
async fn public_address(shim: &Running) -> String {
    let started = shim.logged("probeshim started").await;
    started["http"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
}

/// The whole answer to a request that is written as it goes over the wire.
async fn exchange(address: &str, request: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    soon(exchange).await
}

async fn get(address: &str, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn the_public_address_serves_metrics_that_account_for_every_call() {
    let place = Place::new();
    let shim = after_three_calls(&place).await;
    let answer = get(&public_address(&shim).await, "/metrics").await;
    assert!(
        answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{answer}"
    );
    for line in [
        "probeshim_calls_total{method=\"Version\",code=\"OK\"} 1",
        "probeshim_calls_total{method=\"ExecSync\",code=\"OK\"} 1",
        "probeshim_calls_total{method=\"other\",code=\"OK\"} 1",
        "probeshim_call_duration_seconds_count{method=\"ExecSync\",code=\"OK\"} 1",
        "probeshim_request_bytes_total{method=\"other\"} 12",
        "probeshim_response_bytes_total{method=\"other\"} 5",
        "probeshim_connections_total 1",
        "probeshim_streams_open 0",
        "probeshim_observations_dropped_total 0",
        concat!("probeshim_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(answer.lines().any(|found| found == line), "{line} is not in {answer}");
    }
    assert!(answer.ends_with("# EOF\n"), "{answer}");
}

#[tokio::test]
async fn the_public_address_answers_loopback_readers_only_and_tells_nothing_private() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    let asked = async |method: &str, path: &str, host: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        exchange(&http, &request).await.lines().next().unwrap_or_default().to_owned()
    };
    for (method, path, host, status) in [
        ("GET", "/healthz", "Host: localhost:1\r\n", "HTTP/1.1 200 OK"),
        ("HEAD", "/healthz", "Host: [::1]\r\n", "HTTP/1.1 200 OK"),
        ("GET", "/healthz", "Host: evil.test\r\n", "HTTP/1.1 403 Forbidden"),
        ("GET", "http://evil.test/metrics", "Host: evil.test\r\n", "HTTP/1.1 403 Forbidden"),
        ("GET", "/metrics", "Host: localhost\r\nHost: evil.test\r\n", "HTTP/1.1 403 Forbidden"),
        ("GET", "/metrics", "", "HTTP/1.1 403 Forbidden"),
        ("POST", "/healthz", "Host: localhost\r\n", "HTTP/1.1 405 Method Not Allowed"),
        ("DELETE", "/nowhere", "Host: localhost\r\n", "HTTP/1.1 405 Method Not Allowed"),
        ("GET", "/nowhere", "Host: localhost\r\n", "HTTP/1.1 404 Not Found"),
        ("GET", "/v1/calls", "Host: localhost\r\n", "HTTP/1.1 404 Not Found"),
        ("GET", "/v1/status", "Host: localhost\r\n", "HTTP/1.1 404 Not Found"),
    ] {
        assert_eq!(asked(method, path, host).await, status, "{method} {path} {host}");
    }
}

#[tokio::test]
async fn a_place_that_is_taken_ends_the_start_with_1_and_leaves_nothing_behind() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.arg("run").arg("--listen").arg(place.at("shim.sock")).arg("--admin").arg(place.at("admin.sock"));
    command.args(["--http", &busy]);
    let (code, stderr) = place.refused(command).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains(&format!("--http: cannot listen on {busy}: Address already in use")), "{stderr}");
    assert!(stderr.contains("0 for any that is free, or off"), "{stderr}");

    let _live = UnixListener::bind(place.at("admin.sock")).unwrap();
    let (code, stderr) = place.refused(place.command("shim.sock", &[])).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("--admin: another process listens on"), "{stderr}");
    assert!(!place.at("shim.sock").exists() && !place.at("shim.sock.lock").exists());
}
