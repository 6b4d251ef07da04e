//! Hostile HTTP requests to the public address are refused with a message.

use fixtures::wait::soon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::assert_no_panic;
use crate::admin::{exchange, get, public_address};
use crate::program::Place;

/// Returns the status in the first line of an answer.
fn status(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default().strip_prefix("HTTP/1.1 ").unwrap_or_default()
}

#[tokio::test]
async fn unknown_hosts_methods_and_paths_are_refused_on_the_public_address() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    for host in [
        "localhost.",
        "localhost@evil.test",
        "evil.test@localhost",
        "127.0.0.1@evil.test:80",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost:",
        "localhost:65536",
        "localhost evil.test",
        "localhost,evil.test",
        "",
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = exchange(&http, &request).await;
        assert_eq!(status(&answer), "403 Forbidden", "{host:?}: {answer}");
        assert!(!answer.contains("probeshim_"), "{host:?}: {answer}");
    }
    let ask = async |method: &str, path: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        exchange(&http, &request).await
    };
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get"] {
        assert_eq!(status(&ask(method, "/metrics").await), "405 Method Not Allowed", "{method}");
    }
    for path in [
        "/v1/events",
        "/v1/mode",
        "//v1/status",
        "/metrics/../v1/status",
        "/metrics/%2e%2e/v1/status",
        "/%76%31/status",
        "/metrics/",
        "/metrics%00",
        "/..%2f..%2fetc/passwd",
    ] {
        assert_eq!(status(&ask("GET", path).await), "404 Not Found", "{path}");
    }
    assert_no_panic(&shim).await;
}

#[tokio::test]
async fn oversized_and_smuggled_requests_are_refused_on_the_public_address() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    // hyper reads at most 64 KiB of a path, 400 KiB of a head and 100 headers.
    for (what, request, expected) in [
        (
            "a long path",
            format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(66_000)),
            "414 URI Too Long",
        ),
        (
            "a header of 1 MiB",
            format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\na: {}\r\n\r\n", "x".repeat(1 << 20)),
            "431 Request Header Fields Too Large",
        ),
        (
            "10,000 headers",
            format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(10_000)),
            "431 Request Header Fields Too Large",
        ),
        ("no HTTP", "\0\x01\x02\r\n\r\n".to_owned(), "400 Bad Request"),
        (
            "a header without a colon",
            "GET /healthz HTTP/1.1\r\nHost localhost\r\n\r\n".to_owned(),
            "400 Bad Request",
        ),
        (
            "two lengths",
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"
                .to_owned(),
            "400 Bad Request",
        ),
    ] {
        let answer =
            answer_to(tokio::net::TcpStream::connect(&http).await.unwrap(), request.as_bytes()).await;
        assert_eq!(status(&answer), expected, "{what}");
    }
    // A second request after or inside the first one, which an intermediary might not detect.
    let second = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for first in [
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", second.len()),
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
    ] {
        let request = format!("{first}{second}");
        let answer = answer_to(tokio::net::TcpStream::connect(&http).await.unwrap(), request.as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{first}: {answer}");
        assert!(!answer.contains("probeshim_"), "{first}: {answer}");
    }
    assert!(get(&http, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert_no_panic(&shim).await;
}

/// Returns the whole answer to a request. The server may stop reading before the end of the
/// request.
async fn answer_to(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    request: &[u8],
) -> String {
    let _ = soon(stream.write_all(request)).await;
    let mut answer = Vec::new();
    // A server that closes the connection with unread bytes resets it after its answer.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}
