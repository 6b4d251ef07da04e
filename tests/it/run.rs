//! The program as users start it: flags, socket, log and end.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use fixtures::http2::answered;
use fixtures::http2::runtime::Runtime;
use fixtures::http2::wire::{self, HEADERS, RST_STREAM, SETTINGS, Wire, frame, word};
use fixtures::need;
use fixtures::wait::soon;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::program::{Place, Running, is_root, joined, serves};

#[tokio::test]
async fn wrong_usage_exits_with_2_and_names_the_error() {
    let place = Place::new();
    for (arguments, told) in [
        (&["--lisen", "/x"][..], "--lisen"),
        (&["--drain-timeout", "soon"], "'soon' for '--drain-timeout <DURATION>': must be a duration"),
        (&["--log", "probeshim=loud"], "'probeshim=loud' for '--log <FILTER>': must be off, error"),
        (&["extra"], "extra"),
    ] {
        let (code, stderr) = place.refused(place.command("shim.sock", arguments)).await;
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(told), "{stderr}");
    }
    let (code, stderr) = place.refused(place.command(&"x".repeat(200), &[])).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("--listen") && stderr.contains("at most 107"), "{stderr}");
}

#[tokio::test]
async fn an_unusable_listen_path_exits_with_1_and_is_named() {
    let place = Place::new();
    fs::create_dir(place.at("folder")).unwrap();
    let _live = UnixListener::bind(place.at("live.sock")).unwrap();
    let _runtime = UnixListener::bind(place.at("runtime.sock")).unwrap();
    for (listen, told) in [
        ("folder", "folder is a directory"),
        ("live.sock", "another process listens on"),
        ("runtime.sock", "is the runtime's own socket"),
    ] {
        let (code, stderr) = place.refused(place.command(listen, &[])).await;
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("--listen") && stderr.contains(told), "{stderr}");
    }
    UnixStream::connect(place.at("live.sock")).unwrap();
}

#[tokio::test]
async fn a_directory_without_permission_is_named() {
    need!(is_root());
    let place = Place::new();
    fs::create_dir(place.at("locked")).unwrap();
    fs::set_permissions(place.at("locked"), fs::Permissions::from_mode(0o700)).unwrap();
    let (code, stderr) = place.refused(place.command_of_nobody("locked/shim.sock")).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("locked") && stderr.contains("Permission denied"), "{stderr}");
}

#[tokio::test]
async fn the_socket_has_the_owner_and_mode_of_the_upstream_socket() {
    need!(is_root());
    let place = Place::new();
    let _runtime = place.runtime_of_a_stranger(0o620);
    let shim = place.start(&[]).await;
    let file = fs::metadata(&shim.socket).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (1234, 2345, 0o620));
}

#[tokio::test]
async fn a_socket_without_the_group_of_the_upstream_is_private() {
    need!(is_root());
    let place = Place::new();
    let _runtime = place.runtime_of_a_stranger(0o660);
    let shim = place.spawn(&mut place.command_of_nobody("shim.sock")).await;
    let file = fs::metadata(&shim.socket).unwrap();
    assert_eq!((file.uid(), file.mode() & 0o777), (65_534, 0o600));
}

#[tokio::test]
async fn a_request_that_the_upstream_never_received_ends_with_the_connection() {
    let place = Place::new();
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    let mut client = Wire(tokio::net::UnixStream::connect(&shim.socket).await.unwrap());
    client.send(wire::HELLO).await;
    let upstream = runtime.accept_raw().await;
    client.next_of(SETTINGS).await;
    // While probeshim is stopped, the upstream closes its connection and a request arrives, so that
    // probeshim sees both at the same time.
    shim.stop().await;
    drop(upstream);
    client.send(&frame(HEADERS, wire::END_HEADERS | wire::END_STREAM, 1, wire::REQUEST)).await;
    shim.signal(Signal::CONT);
    let mut resets = Vec::new();
    while let Some(frame) = client.next().await {
        if frame.kind == RST_STREAM {
            resets.push(frame.payload);
        }
    }
    // REFUSED_STREAM is correct too, and lets the client retry. CANCEL would be an answer that the
    // upstream never gave.
    assert!(resets.iter().all(|reason| *reason == word(wire::REFUSED_STREAM)), "{resets:?}");
}

#[tokio::test]
async fn non_http_2_clients_and_aborted_connections_are_logged() {
    let place = Place::new();
    let (mut shim, runtime) = place.start_with_runtime(&["--drain-timeout", "50ms"]).await;
    let mut stranger = tokio::net::UnixStream::connect(&shim.socket).await.unwrap();
    soon(stranger.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")).await.unwrap();
    assert_eq!(shim.logged("client does not speak HTTP/2").await["level"], "WARN");
    drop(runtime.accept_raw().await);
    let (mut client, mut connection) = joined(&shim, &runtime).await;
    let _response = client.ask("/a.B/Hangs");
    let _call = connection.call().await;
    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(0));
    let cut = shim.logged("client disconnected").await;
    assert_eq!(cut["reason"], "the drain timeout is over");
    assert_eq!(shim.logged("probeshim stopped").await["cut"], 1);
}

#[tokio::test]
async fn a_lack_of_descriptors_is_logged_without_a_line_for_each_client() {
    let place = Place::new();
    let (mut shim, _runtime) = place.start_with_runtime(&[]).await;
    let descriptors = || -> BTreeSet<u64> {
        let open = fs::read_dir(format!("/proc/{}/fd", shim.process.id())).unwrap();
        open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    };
    // Waits until the program no longer opens or closes descriptors of its start.
    let settled = async {
        let mut before = descriptors();
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let now = descriptors();
            if now == before {
                return now;
            }
            before = now;
        }
    };
    let open = soon(settled).await;
    // The limit leaves one descriptor for the client's connection and none for the connection to
    // the runtime.
    let free = (0..1 << 20).find(|number| !open.contains(number)).unwrap();
    let limit = Rlimit { current: Some(free + 1), maximum: Some(free + 1) };
    prlimit(Some(Pid::from_child(&shim.process)), Resource::Nofile, limit).unwrap();
    for _ in 0..20 {
        let mut client = tokio::net::UnixStream::connect(&shim.socket).await.unwrap();
        assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0, "the client was not refused");
    }
    let first = shim.logged("no file descriptor is left to connect to upstream: client refused").await;
    assert!(first["error"].as_str().unwrap().contains("Too many open files"), "{first}");
    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(0));
    // Each refused client is in one line, alone or with others. The number of lines depends on
    // timing.
    let log = fs::read_to_string(&shim.log).unwrap();
    let refused = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let message = line["message"].as_str().unwrap();
        match message {
            "more clients were refused" => line["clients"].as_u64(),
            _ => message.ends_with("client refused").then_some(1),
        }
    };
    let refused: Vec<u64> = log.lines().filter_map(refused).collect();
    assert_eq!(refused.iter().sum::<u64>(), 20, "{log}");
    assert!(refused.len() < 20, "{log}");
}

#[tokio::test]
async fn upstream_failures_are_logged() {
    let place = Place::new();
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    let (_client, connection) = joined(&shim, &runtime).await;
    connection.vanish();
    assert_eq!(shim.logged("upstream closed its connection").await["level"], "WARN");
    assert_eq!(shim.logged("client disconnected").await["reason"], "upstream closed its connection");
    drop(runtime);
    fs::remove_file(place.at("runtime.sock")).unwrap();
    drop(tokio::net::UnixStream::connect(&shim.socket).await.unwrap());
    assert_eq!(shim.logged("upstream cannot be reached: client refused").await["level"], "WARN");
}

#[tokio::test]
async fn the_log_on_a_terminal_is_coloured_text_instead_of_json() {
    let place = Place::new();
    // script runs the program on a new terminal and records the output.
    let run = format!(
        "{} run --listen {} --upstream {} --admin {} --http off",
        env!("CARGO_BIN_EXE_probeshim"),
        place.at("shim.sock").display(),
        place.at("runtime.sock").display(),
        place.at("admin.sock").display()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--command", &run]).arg(place.at("shown"));
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).env_remove("NO_COLOR").spawn().unwrap();
    let mut script = Running { process, socket: place.at("shim.sock"), log: place.at("shown") };
    let shown = soon(async {
        loop {
            let shown = fs::read_to_string(&script.log).unwrap_or_default();
            if shown.contains("probeshim started") {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(shown.contains("INFO") && shown.contains("\x1b["), "{shown:?}");
    assert!(!shown.contains("\"timestamp\""), "{shown:?}");
    let pid = fs::read_to_string(place.at("shim.sock.lock")).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    script.ended().await;
}

#[tokio::test]
async fn a_second_instance_is_refused_and_the_first_continues() {
    let place = Place::new();
    let (first, runtime) = place.start_with_runtime(&[]).await;
    let (code, stderr) = place.refused(place.command("shim.sock", &[])).await;
    assert_eq!(code, 1, "{stderr}");
    let holder = format!("another probeshim (pid {}) holds", first.process.id());
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(lines[0].starts_with(&format!("error: --listen: {holder}")), "{stderr}");
    assert!(lines[1].starts_with(&format!("error: --admin: {holder}")), "{stderr}");
    assert!(lines[2].starts_with("hint: --instance NAME"), "{stderr}");
    serves(&first, &runtime).await;
}

#[tokio::test]
async fn a_missing_upstream_is_a_warning_and_may_start_later() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let warning = "cannot connect to upstream yet: clients are refused until it listens; --upstream names another socket";
    let line = shim.logged(warning).await;
    assert_eq!(line["level"], "WARN");
    let runtime = Runtime::listen(&place.at("runtime.sock"));
    serves(&shim, &runtime).await;
}

#[tokio::test]
async fn starts_clients_calls_and_stops_are_logged() {
    let place = Place::new();
    let (mut shim, runtime) = place.start_with_runtime(&["--log", "debug"]).await;
    serves(&shim, &runtime).await;
    shim.logged("client disconnected").await;
    let connected = shim.logged("client connected").await;
    assert!(
        connected["peer"].as_str().unwrap().contains(&format!("[{}] uid ", std::process::id())),
        "{connected}"
    );
    let call = shim.logged("call").await;
    assert_eq!((&call["method"], &call["status"]), (&"/a.B/C".into(), &"OK".into()));
    assert!(call["duration"].is_string());
    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(0));
    let stopped = shim.logged("probeshim stopped").await;
    assert_eq!(stopped["level"], "INFO");
    assert!(!place.at("shim.sock").exists() && !place.at("shim.sock.lock").exists());
}

#[tokio::test]
async fn sigterm_and_sigint_drain_and_a_second_signal_ends_immediately() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let (mut shim, runtime) = place.start_with_runtime(&[]).await;
        let (mut client, mut connection) = joined(&shim, &runtime).await;
        let response = client.ask("/a.B/Hangs");
        let _call = connection.call().await;
        shim.signal(signal);
        shim.logged("draining").await;
        assert!(UnixStream::connect(&shim.socket).is_err(), "new clients must be refused");
        shim.signal(signal);
        assert_eq!(shim.ended().await, Some(0));
        shim.logged("second signal: ending immediately").await;
        soon(response).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_call_in_flight_is_finished_before_the_end() {
    let place = Place::new();
    let (mut shim, runtime) = place.start_with_runtime(&[]).await;
    let (mut client, mut connection) = joined(&shim, &runtime).await;
    let response = client.ask("/a.B/Slow");
    let call = connection.call().await;
    shim.signal(Signal::TERM);
    shim.logged("draining").await;
    call.answer("in time");
    assert_eq!(answered(response).await, "in time");
    assert_eq!(shim.ended().await, Some(0));
}

#[tokio::test]
async fn a_socket_passed_by_systemd_is_served_and_left_in_place() {
    let place = Place::new();
    let runtime = Runtime::listen(&place.at("runtime.sock"));
    let passed = UnixListener::bind(place.at("shim.sock")).unwrap();
    // A shell passes the socket as systemd does: as descriptor 3, with the pid of the process that
    // becomes probeshim.
    let program = env!("CARGO_BIN_EXE_probeshim");
    let script = format!(
        "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec {program} run --upstream {} --admin {} --http off --watch-runtime off --record-limit off",
        place.at("runtime.sock").display(),
        place.at("admin.sock").display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::from(std::os::fd::OwnedFd::from(passed)));
    let mut shim = place.spawn(&mut command).await;
    drop(runtime.accept_raw().await);
    serves(&shim, &runtime).await;
    shim.signal(Signal::TERM);
    assert_eq!(shim.ended().await, Some(0));
    assert!(place.at("shim.sock").exists(), "the socket belongs to systemd and must stay");
}

#[tokio::test]
async fn two_thousand_connections_leave_no_descriptors_behind() {
    let place = Place::new();
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", shim.process.id())).unwrap().count();
    serves(&shim, &runtime).await;
    let before = descriptors();
    for _ in 0..2000 {
        serves(&shim, &runtime).await;
    }
    let closed = async {
        while descriptors() > before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(closed).await;
}
