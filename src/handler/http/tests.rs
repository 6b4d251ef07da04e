//! Repeats the tests of the kubelet's `pkg/probe/http`, each row against a real server, on real
//! time.

mod redaction;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;
use crate::handler::dial::tests::{LONG, refusing};
use crate::manifest::Port;

/// A server whose answer to each request is set by a test. It ends when the value is dropped.
struct Server {
    port: u16,
    _tasks: JoinSet<()>,
}

async fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            connections.spawn(async move {
                let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(0) | Err(_) => return,
                        Ok(read) => request.extend_from_slice(&buffer[..read]),
                    }
                }
                let answer = answer(&String::from_utf8(request).unwrap());
                if answer == "never" {
                    std::future::pending::<()>().await;
                }
                let _ = stream.write_all(answer.as_bytes()).await;
                if answer.ends_with("stall") {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    Server { port, _tasks: tasks }
}

/// Returns a response with a body.
fn page(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> HttpGet {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    HttpGet { path: path.to_owned(), port: Port::Number(port), host: None, is_https: false, headers }
}

async fn probed(server: &Server, path: &str, headers: &[(&str, &str)]) -> Result<ProbeOutcome, ProbeError> {
    attempt(&get(server.port, path, headers), "127.0.0.1", server.port, LONG, false).await
}

/// Returns the lines of the request that a probe sends, sorted except for the first.
async fn sent(path: &str, headers: &[(&str, &str)]) -> Vec<String> {
    let server = serve(|request| page(200, "", request)).await;
    let Ok(ProbeOutcome::Success(request)) = probed(&server, path, headers).await else {
        panic!("{headers:?}")
    };
    let request = request.replace(&server.port.to_string(), "PORT");
    let mut lines: Vec<String> = request.trim_end().split("\r\n").map(str::to_owned).collect();
    lines[1..].sort();
    lines
}

#[tokio::test]
async fn http_probe_requests_equal_those_of_upstream_tests() {
    let plain = [
        "GET / HTTP/1.1",
        "Accept: */*",
        "Connection: close",
        "Host: 127.0.0.1:PORT",
        "User-Agent: kube-probe/1.36",
    ];
    let replaced = |from: &str, to: &[&str]| -> Vec<String> {
        let others = plain[1..].iter().filter(|line| !line.starts_with(from)).copied();
        let mut lines: Vec<String> = others.chain(to.iter().copied()).map(str::to_owned).collect();
        lines.sort();
        lines.insert(0, plain[0].to_owned());
        lines
    };
    // The expected lines without both headers that the kubelet adds.
    let replaced_all = |to: &[&str]| {
        let mut lines = replaced("Accept", to);
        lines.retain(|line| line != plain[4]);
        lines
    };
    for (row, headers, expected) in [
        ("checker 1, 2, 9, 16: default headers", &[][..], replaced("-", &[])),
        (
            "checker 3: Accept-Encoding gzip",
            &[("accept-encoding", "gzip")],
            replaced("-", &["Accept-Encoding: gzip"]),
        ),
        (
            "checker 4: Accept-Encoding foo",
            &[("Accept-Encoding", "foo")],
            replaced("-", &["Accept-Encoding: foo"]),
        ),
        (
            "checker 5: Accept-Encoding empty",
            &[("Accept-Encoding", "")],
            replaced("-", &["Accept-Encoding: "]),
        ),
        (
            "checker 6: X-Muffins-Or-Cupcakes",
            &[("X-Muffins-Or-Cupcakes", "muffins")],
            replaced("-", &["X-Muffins-Or-Cupcakes: muffins"]),
        ),
        (
            "checker 7: User-Agent",
            &[("User-Agent", "foo/1.0")],
            replaced("User-Agent", &["User-Agent: foo/1.0"]),
        ),
        ("checker 8: User-Agent empty", &[("User-Agent", "")], replaced("User-Agent", &[])),
        ("checker 10: Accept", &[("Accept", "text/html")], replaced("Accept", &["Accept: text/html"])),
        ("checker 14: Accept empty", &[("Accept", "")], replaced("Accept", &[])),
        (
            "checker 11: Accept and User-Agent",
            &[("Accept", "text/html"), ("User-Agent", "foo/1.0")],
            replaced_all(&["Accept: text/html", "User-Agent: foo/1.0"]),
        ),
        ("checker 12: Accept and User-Agent empty", &[("Accept", ""), ("User-Agent", "")], replaced_all(&[])),
        (
            "checker 13: Accept, User-Agent empty",
            &[("Accept", "text/html"), ("User-Agent", "")],
            replaced_all(&["Accept: text/html"]),
        ),
        (
            "checker 15: Accept empty, User-Agent",
            &[("Accept", ""), ("User-Agent", "foo/1.0")],
            replaced_all(&["User-Agent: foo/1.0"]),
        ),
        (
            "v1HeaderToHTTPHeader: several",
            &[("X-A", "1"), ("X-B", "2")],
            replaced("-", &["X-A: 1", "X-B: 2"]),
        ),
        (
            "checker 17: Host",
            &[("Host", "muffins.cupcakes.org")],
            replaced("Host", &["Host: muffins.cupcakes.org"]),
        ),
        (
            "HeaderConversion: mixed case, duplicates in order",
            &[("x-MUFFINS-or-cupcakes", "b"), ("X-Muffins-Or-Cupcakes", "a")],
            replaced("-", &["X-Muffins-Or-Cupcakes: a", "X-Muffins-Or-Cupcakes: b"]),
        ),
    ] {
        assert_eq!(sent("/", headers).await, expected, "{row}");
    }
    assert_eq!(sent("?foo", &[]).await[0], "GET /?foo HTTP/1.1");
}

#[tokio::test]
async fn http_probe_responses_are_judged_as_in_upstream_tests() {
    let success = |body: &str| Ok(ProbeOutcome::Success(body.to_owned()));
    let failure = |text: &str| Ok(ProbeOutcome::Failure(text.to_owned()));
    let long = "x".repeat(10_241);
    for (row, answer, expected) in [
        ("checker 0: ok body", page(200, "", "ok body"), success("ok body")),
        (
            "checker 18: invalid status -1",
            "HTTP/1.1 -1 X\r\n\r\n".to_owned(),
            failure("net/http: HTTP/1.x transport connection broken: malformed HTTP status code \"-1\""),
        ),
        ("checker 19: 500", page(500, "", "secret"), failure("HTTP probe failed with statuscode: 500")),
        (
            "checker 20: slow",
            "never".to_owned(),
            failure("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
        ),
        ("PayloadTruncated", page(200, "", &long), success(&long[..10_240])),
        ("PayloadNormal", page(200, "", &long[..10_239]), success(&long[..10_239])),
        ("3.2: 204", page(204, "", ""), success("")),
        (
            "3.2: 304",
            page(304, "", ""),
            Ok(ProbeOutcome::Warning("Probe terminated redirects, Response body: ".into())),
        ),
        ("3.2: closed", String::new(), failure("EOF")),
        (
            "3.2: stalls in its body",
            "HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nstall".to_owned(),
            Err(ProbeError::Body(NO_BODY.to_owned())),
        ),
        (
            "3.2: ends in its body",
            "HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nshort".to_owned(),
            Err(ProbeError::Body("unexpected EOF".to_owned())),
        ),
    ] {
        let is_late = answer == "never" || answer.ends_with("stall");
        let limit = if is_late { Duration::from_secs(3) } else { LONG };
        let server = serve(move |_| answer.clone()).await;
        let outcome = attempt(&get(server.port, "/", &[]), "127.0.0.1", server.port, limit, false).await;
        match (&outcome, &expected) {
            (Ok(ProbeOutcome::Failure(message)), Ok(ProbeOutcome::Failure(expected))) => {
                assert!(message.contains(expected), "{row}: {message}");
            }
            _ => assert_eq!(outcome, expected, "{row}"),
        }
    }
}

#[tokio::test]
async fn http_probe_redirects_are_followed_as_in_upstream_tests() {
    let succeeding = serve(|_| page(200, "", "other port")).await;
    let failing = serve(|_| page(500, "", "")).await;
    let (there, gone) = (succeeding.port, failing.port);
    let server = serve(move |request| {
        let path = request.split(' ').nth(1).unwrap();
        let to = |status: u16, location: &str| page(status, &format!("Location: {location}\r\n"), "");
        let host = request.lines().find(|line| line.starts_with("Host: ")).unwrap();
        match path.trim_start_matches('/').split_once('/') {
            Some(("to", rest)) => {
                let (status, location) = rest.split_once('/').unwrap();
                to(status.parse().unwrap(), &format!("/{location}"))
            }
            Some(("bare", body)) => page(308, "", body),
            Some(("port", port)) => to(302, &format!("http://127.0.0.1:{port}/")),
            _ if path == "/ok" => page(200, "", "ok"),
            _ if path == "/loop" => to(302, "/loop"),
            _ if path == "/away" => to(302, "http://0.0.0.0/fail"),
            _ if path == "/host" && host == "Host: test.com" => page(200, "", "preserved"),
            _ if path == "/whole" => to(302, &format!("http://127.0.0.1:{there}/")),
            _ => page(500, "", "the body"),
        }
    })
    .await;
    let success = |body: &str| Ok(ProbeOutcome::Success(body.to_owned()));
    let warning =
        |body: &str| Ok(ProbeOutcome::Warning(format!("Probe terminated redirects, Response body: {body}")));
    let failure = |text: &str| Ok(ProbeOutcome::Failure(text.to_owned()));
    let failed = || failure("HTTP probe failed with statuscode: 500");
    let (other, broken) = (format!("/port/{there}"), format!("/port/{gone}"));
    let host = &[("Host", "test.com")][..];
    for (row, path, headers, expected) in [
        ("checker 21: 301 to 200", "/to/301/ok", &[][..], success("ok")),
        ("checker 22: 301 to 500", "/to/301/new", &[], failed()),
        ("checker 23: 302 to 200", "/to/302/ok", &[], success("ok")),
        ("checker 24: 302 to 500", "/to/302/new", &[], failed()),
        ("checker 25: 307 to 200", "/to/307/ok", &[], success("ok")),
        ("checker 26: 307 to 500", "/to/307/new", &[], failed()),
        ("checker 27: 308 to 200", "/to/308/ok", &[], success("ok")),
        ("checker 28: 308 to 500", "/to/308/new", &[], failed()),
        ("checker 29: 308 to 308 without Location", "/to/308/bare/", &[], warning("")),
        ("checker 30: the same with a body", "/to/308/bare/ok-body", &[], warning("ok-body")),
        ("NonLocalRedirects: local success", "/to/302/ok", &[], success("ok")),
        ("NonLocalRedirects: other port success", &other, &[], success("other port")),
        ("NonLocalRedirects: other port fail", &broken, &[], failed()),
        ("NonLocalRedirects: bogus non-local", "/away", &[], warning("")),
        ("NonLocalRedirects: loop", "/loop", &[], failure("Get \"/loop\": stopped after 10 redirects")),
        ("HostHeaderPreservedAfterRedirect: right", "/to/302/host", host, success("preserved")),
        ("HostHeaderPreservedAfterRedirect: wrong", "/to/302/host", &[("Host", "wrong.com")], failed()),
        ("HostHeaderPreservedAfterRedirect: none", "/to/302/host", &[], failed()),
    ] {
        assert_eq!(probed(&server, path, headers).await, expected, "{row}");
    }
}

#[tokio::test]
async fn an_http_probe_without_a_server_fails_with_the_message_of_the_system() {
    let (_socket, port) = refusing();
    let closed = attempt(&get(port, "/x", &[]), "127.0.0.1", port, LONG, false).await;
    let text =
        format!("Get \"http://127.0.0.1:{port}/x\": dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(closed, Ok(ProbeOutcome::Failure(text)));
    let bad = attempt(&get(port, "/", &[("X-A", "a\u{1}")]), "127.0.0.1", port, LONG, false).await;
    assert!(
        matches!(bad, Ok(ProbeOutcome::Failure(text)) if text.ends_with("invalid header field value for \"X-A\""))
    );
}

#[tokio::test]
async fn an_https_probe_recognizes_a_server_without_tls() {
    // The server responds to bytes that are no HTTP request.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let https = HttpGet { is_https: true, ..get(port, "/", &[]) };
    let outcome = attempt(&https, "127.0.0.1", port, LONG, false).await;
    answering.await.unwrap();
    let text = format!("Get \"https://127.0.0.1:{port}/\": http: server gave HTTP response to HTTPS client");
    assert_eq!(outcome, Ok(ProbeOutcome::Failure(text)));
}

/// An interim head.
const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// A server on a separate thread that sends interim heads without end, as fast as they are read. It
/// ends when the value is dropped.
struct Flood {
    port: u16,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flood {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (end, ended) = oneshot::channel::<()>();
        let serve = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let mut connections = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                connections.spawn(async move {
                    let heads = INTERIM.repeat(1_000);
                    while stream.write_all(heads.as_bytes()).await.is_ok() {}
                });
            }
        };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = serve => {}
                    _ = ended => {}
                }
            });
        });
        Self { port, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

#[tokio::test]
async fn endless_response_heads_fail_with_the_message_of_go() {
    let flood = Flood::start();
    let outcome = attempt(&get(flood.port, "/", &[]), "127.0.0.1", flood.port, LONG, false).await;
    let text = format!(
        "Get \"http://127.0.0.1:{}/\": net/http: HTTP/1.x transport connection broken: \
         net/http: server response headers exceeded 10485760 bytes; aborted",
        flood.port
    );
    assert_eq!(outcome, Ok(ProbeOutcome::Failure(text)));
}

#[tokio::test]
async fn interim_heads_are_limited_by_their_bytes_in_each_answer_and_not_by_their_number() {
    let server = serve(|request| {
        // Two such responses together exceed the limit of one response.
        let interim = INTERIM.repeat(6 * (1 << 20) / INTERIM.len());
        let is_first = request.starts_with("GET /first ");
        interim + &if is_first { page(302, "Location: /second\r\n", "") } else { page(200, "", "ok") }
    })
    .await;
    assert_eq!(probed(&server, "/first", &[]).await, Ok(ProbeOutcome::Success("ok".to_owned())));
    let large = serve(|_| page(200, &format!("A: {}\r\n", "x".repeat(1 << 20)), "ok")).await;
    assert_eq!(probed(&large, "/", &[]).await, Ok(ProbeOutcome::Success("ok".to_owned())));
}

#[tokio::test]
async fn other_probes_run_while_endless_response_heads_arrive() {
    let (flood, healthy) = (Flood::start(), serve(|_| page(200, "", "ok")).await);
    let mut floods = JoinSet::new();
    for _ in 0..8 {
        let port = flood.port;
        floods.spawn(async move {
            loop {
                let outcome = attempt(&get(port, "/", &[]), "127.0.0.1", port, LONG, false).await;
                assert!(matches!(outcome, Ok(ProbeOutcome::Failure(_))), "{outcome:?}");
            }
        });
    }
    for _ in 0..20 {
        assert_eq!(probed(&healthy, "/", &[]).await, Ok(ProbeOutcome::Success("ok".to_owned())));
    }
    assert!(floods.try_join_next().is_none(), "the floods continue");
}
