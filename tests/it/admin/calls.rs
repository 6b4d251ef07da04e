//! The command `probeshim calls`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use fixtures::wait::soon;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

use super::{COMMAND, SERVICE, after_three_calls, call, kept};
use crate::program::{Answer, Place, joined};

#[tokio::test]
async fn calls_are_shown_as_json_of_the_documented_shape() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
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
        "faults",
        "id",
        "message",
        "method",
        "peer",
        "pod",
        "policy",
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
    assert_eq!(exec["container"], json!({"id": watched.container, "name": null, "attempt": null}));
    let mut explained = exec["exec"].clone();
    let measured = ["marginMs", "phases", "evidence"].map(|field| explained[field].take());
    assert_eq!(
        explained,
        json!({
            "command": COMMAND, "commandTruncated": false, "timeoutSeconds": 2,
            "exitCode": 3, "stdoutBytes": 3, "stderrBytes": 0, "output": null,
            "probe": null, "marginMs": null, "phases": null, "evidence": null,
            "assessment": "failed", "slowBecause": null,
            "startedMs": null, "exitedMs": null, "exitStatus": null, "killed": null,
            "containerExited": false,
        })
    );
    let [margin, phases, evidence] = measured;
    let took = exec["durationMs"].as_f64().unwrap();
    assert!((margin.as_f64().unwrap() - (2000.0 - took)).abs() < 0.01, "{margin} {took}");
    assert_eq!((&phases["state"], &phases["missing"]), (&json!("missing"), &json!("not-watched")));
    assert!(phases["otherMs"].as_f64().unwrap() + phases["queueMs"].as_f64().unwrap() - took < 0.01);
    assert!(evidence["windowMs"].as_f64().unwrap() > 0.0, "{evidence}");
    watched.runtime.end().await;
}

#[tokio::test]
async fn calls_are_shown_as_a_table_with_escaped_arguments() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    let answer = place.ask(&["calls"]).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{answer:?}");
    assert!(lines[0].trim_start().starts_with("ID  TIME (UTC)"), "{answer:?}");
    let start = lines[0].find("METHOD").unwrap();
    for (line, method) in lines[1..].iter().zip(["Version ", "ExecSync ", "/a.B/C "]) {
        assert!(line[start..].starts_with(method), "{answer:?}");
    }
    let words = r"sh -c 'printf out; exit 3' '/tmp/it'\''s here' '\u{1b}[31mred\u{202e}'";
    let about = format!("{} timeout 2s {words}", &watched.container[..13]);
    assert!(lines[2].ends_with(&about), "{answer:?}");
    assert!(!answer.stdout.contains('\u{1b}'), "output without a terminal must have no colour");
    watched.runtime.end().await;
}

#[tokio::test]
async fn tables_on_a_terminal_are_cut_and_coloured_except_with_no_color() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    let shown = async |before: &str| {
        let asking = place.asking(&["calls"]);
        let words: Vec<_> = std::iter::once(asking.get_program()).chain(asking.get_args()).collect();
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let mut command = Command::new("script");
        let run = format!("stty cols 75; {before} {}", words.join(" "));
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
    assert!(widths.len() == 4 && widths.iter().all(|width| *width <= 75), "{plain}");
    let exec = plain.lines().nth(2).unwrap();
    let id = &watched.container[..13];
    assert!(exec.contains(id) && exec.ends_with('…'), "the most important columns must be cut last: {plain}");
    watched.runtime.end().await;
}

#[tokio::test]
async fn calls_are_filtered_by_flags() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
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
    assert_eq!(ids(&["--failed"]).await, [2, 3]);
    assert_eq!(ids(&["--code", "ok"]).await, [1, 2]);
    assert_eq!(ids(&["--peer", &std::process::id().to_string(), "--method", "Version"]).await, [1]);
    let unknown = place.ask(&["calls", "--peer", "kubelet"]).await;
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.starts_with("error: --peer \"kubelet\" not found; the clients are it-"),
        "{unknown:?}"
    );
    let slowest = place.ask(&["calls", "-o", "json", "--slowest", "3"]).await.json();
    let durations: Vec<f64> =
        slowest.as_array().unwrap().iter().map(|call| call["durationMs"].as_f64().unwrap()).collect();
    assert!(durations.len() == 3 && durations.is_sorted_by(|a, b| a >= b), "{durations:?}");
    watched.runtime.end().await;
}

#[tokio::test]
async fn an_invalid_query_exits_with_2_and_names_the_allowed_values() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    for (arguments, told) in [
        (
            &["calls", "--method", "ExecSynch"][..],
            "'ExecSynch' for '--method <METHOD>': must be a method of the CRI",
        ),
        (&["calls", "--method", "ExecSynch"], "did you mean \"ExecSync\"?"),
        (
            &["calls", "--container", "nope"],
            "--container \"nope\" not found: no containers exist or have calls",
        ),
        (&["calls", "--method", "/a.B/D"], "\"/a.B/D\""),
        (&["calls", "--since", "yesterday"], "'yesterday' for '--since <DURATION>': must be a duration"),
        (&["calls", "--last", "many"], "--last"),
        (&["calls", "--last", "1", "--slowest", "1"], "--slowest"),
        (&["calls", "--follow", "--slowest", "1"], "--slowest"),
        (&["calls", "-o", "xml"], "[possible values: table, wide, json, yaml]"),
        (&["status", "-o", "name"], "[possible values: table, json, yaml]"),
    ] {
        let answer = place.ask(arguments).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{arguments:?}: {answer:?}");
        assert!(answer.stderr.contains(told), "{arguments:?}: {answer:?}");
    }
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_probeshim"));
    wrong.args(["status", "--admin", "tcp://127.0.0.1:1"]);
    let answer = Answer::to(wrong).await;
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(
        answer.stderr.contains("'tcp://127.0.0.1:1' for '--admin <URI>': has the scheme tcp://"),
        "{answer:?}"
    );
    watched.runtime.end().await;
}

/// A command that prints while it runs.
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

    /// Returns the next line of the command's output.
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

    /// Returns the exit code and the standard error of the command.
    async fn end(self) -> (Option<i32>, String) {
        let end = tokio::task::spawn_blocking(move || self.child.wait_with_output().unwrap());
        let output = soon(end).await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

#[tokio::test]
async fn calls_are_followed_until_the_reader_or_probeshim_ends() {
    let place = Place::new();
    let mut watched = after_three_calls(&place).await;
    let mut json =
        Printing::of(place.asking(&["calls", "-w", "-o", "json", "--method", "Version", "--tail", "1"]));
    let mut table = Printing::of(place.asking(&["calls", "--follow"]));
    let id = |line: String| serde_json::from_str::<Value>(&line).unwrap()["id"].as_u64();
    assert_eq!(id(json.line().await), Some(1));
    for column in ["METHOD", "Version", "ExecSync", "/a.B/C"] {
        let line = table.line().await;
        assert!(line.contains(column), "{line}");
    }
    let version = format!("{SERVICE}/Version");
    call(&watched.shim, &[("/a.B/C", Vec::new()), (&version, Vec::new())]).await;
    assert_eq!(id(json.line().await), Some(5), "calls of another method must not be shown");
    let line = table.line().await;
    assert!(line.trim_start().starts_with("4  "), "{line}");

    // A reader that closes the pipe early, as head does, is not an error.
    table.stdout = None;
    call(&watched.shim, &[(&version, Vec::new()), (&version, Vec::new())]).await;
    assert_eq!(table.end().await, (Some(0), String::new()));

    watched.shim.signal(Signal::TERM);
    assert_eq!(watched.shim.ended().await, Some(0));
    assert_eq!(json.end().await, (Some(1), "error: probeshim has ended\n".to_owned()));
    watched.runtime.end().await;
}

#[tokio::test]
async fn a_slow_follower_gets_the_number_of_calls_that_it_missed() {
    const CALLS: u64 = 6000;
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    let mut follower = tokio::net::UnixStream::connect(place.at("admin.sock")).await.unwrap();
    soon(follower.write_all(b"GET /v1/calls/follow?last=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        .await
        .unwrap();
    let mut lines = tokio::io::BufReader::new(follower).lines();
    // The follower's position in the stream of calls is set when it has the head. From then on it
    // does not read.
    while !soon(lines.next_line()).await.unwrap().unwrap().is_empty() {}
    let unknown = ("/a.B/C", Vec::new());
    call(&watched.shim, &vec![unknown.clone(); usize::try_from(CALLS).unwrap()]).await;
    kept(&place, usize::try_from(CALLS + 3).unwrap()).await;

    let (mut shown, mut missed) = (0, 0);
    while shown + missed < CALLS {
        let line = soon(lines.next_line()).await.unwrap().unwrap();
        // Sizes of chunks stand between the lines.
        if let Ok(Value::Object(line)) = serde_json::from_str(&line) {
            match line.get("missed") {
                Some(count) => missed += count.as_u64().unwrap(),
                None => shown += 1,
            }
        }
    }
    assert!(missed > 0 && shown + missed == CALLS, "{shown} shown, {missed} missed");
    watched.runtime.end().await;
}

#[tokio::test]
async fn a_follower_sees_the_calls_that_the_drain_timeout_aborts() {
    let place = Place::new();
    let (mut shim, runtime) = place.start_with_runtime(&["--drain-timeout", "50ms"]).await;
    let (mut client, mut connection) = joined(&shim, &runtime).await;
    let _answer = client.ask("/a.B/Hangs");
    let _call = connection.call().await;
    let mut table = Printing::of(place.asking(&["calls", "-f"]));
    assert!(table.line().await.contains("METHOD"), "the heading must come before the first call");
    shim.signal(Signal::TERM);
    let line = table.line().await;
    assert!(line.contains("/a.B/Hangs") && line.contains("client-gone"), "{line}");
    assert_eq!(shim.ended().await, Some(0));
}
