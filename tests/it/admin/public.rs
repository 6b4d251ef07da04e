//! The public address: metrics and health, for loopback readers.

use std::os::unix::net::UnixListener;
use std::process::Command;

use probeshim::build_info;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::{after_three_calls, exchange, get, public_address};
use crate::program::Place;

#[tokio::test]
async fn the_public_address_serves_metrics_that_account_for_every_call() {
    let place = Place::new();
    let watched = after_three_calls(&place).await;
    let answer = get(&public_address(&watched.shim).await, "/metrics").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{answer}");
    for line in [
        "probeshim_calls_total{method=\"Version\",code=\"OK\"} 1",
        "probeshim_calls_total{method=\"ExecSync\",code=\"OK\"} 1",
        "probeshim_calls_total{method=\"other\",code=\"UNIMPLEMENTED\"} 1",
        "probeshim_call_duration_seconds_count{method=\"ExecSync\",code=\"OK\"} 1",
        // A message without fields, after its prefix of five bytes. The number of bytes of a
        // request that the runtime refuses by its method depends on timing.
        "probeshim_request_bytes_total{method=\"Version\"} 5",
        "probeshim_response_bytes_total{method=\"other\"} 0",
        "probeshim_connections_total 1",
        "probeshim_streams_open 0",
        "probeshim_observations_dropped_total 0",
        &format!(
            "probeshim_build_info{{version=\"{}\",commit=\"{}\"}} 1",
            build_info::VERSION,
            build_info::COMMIT.unwrap_or("unknown")
        ),
    ] {
        assert!(answer.lines().any(|found| found == line), "{line} is not in {answer}");
    }
    assert!(answer.contains("# TYPE probeshim_calls_total counter\n"), "{answer}");
    assert!(!answer.contains("# EOF") && !answer.contains("# UNIT"), "{answer}");

    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}Connection: close\r\n\r\n");
    let answer = exchange(&public_address(&watched.shim).await, &request).await;
    let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(answer.contains(content_type) && answer.ends_with("# EOF\n"), "{answer}");
    watched.runtime.end().await;
}

#[tokio::test]
async fn the_public_address_answers_only_loopback_hosts_and_hides_the_admin_api() {
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
async fn a_start_with_an_address_in_use_exits_with_1_and_leaves_no_files() {
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

#[tokio::test]
async fn stalled_clients_do_not_block_the_public_address() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    // Opens the maximum number of connections. Half of them send nothing, and half send requests
    // and read no answers.
    let mut held = Vec::new();
    for nth in 0..64 {
        let mut stream = TcpStream::connect(&http).await.unwrap();
        if nth % 2 == 0 {
            let asking = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
            stream.write_all(asking.as_bytes()).await.unwrap();
        }
        held.push(stream);
    }
    assert!(get(&http, "/healthz").await.starts_with("HTTP/1.1 200"), "a stalled connection must give way");
    assert!(get(&http, "/healthz").await.starts_with("HTTP/1.1 200"));
}
