//! Clients that occupy connections without using them.

use fixtures::wait::soon;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::admin::public_address;
use crate::program::Place;

#[tokio::test]
async fn incomplete_requests_do_not_block_metrics_and_health() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    let mut attackers = JoinSet::new();
    let (sent, mut begun) = tokio::sync::mpsc::channel(1000);
    // With this many connections, it would take minutes to wait for the timeout of each.
    for _ in 0..600 {
        let (http, sent) = (http.clone(), sent.clone());
        attackers.spawn(async move {
            loop {
                let Ok(mut stream) = TcpStream::connect(&http).await else { continue };
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: local").await;
                let _ = sent.try_send(());
                // The client waits until the server closes the connection, and then connects again.
                let _ = stream.read(&mut [0; 16]).await;
            }
        });
    }
    for _ in 0..600 {
        soon(begun.recv()).await.unwrap();
    }
    let answered = async {
        for path in ["/healthz", "/metrics"].into_iter().cycle().take(10) {
            while !is_answered(&http, path).await {}
        }
    };
    soon(answered).await;
    attackers.shutdown().await;
}

/// Requests a path once. The server may close this connection too if its head arrives late; the
/// caller then retries.
async fn is_answered(http: &str, path: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(http).await else { return false };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut answer = String::new();
    let asked = async {
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_string(&mut answer).await
    };
    asked.await.is_ok() && answer.starts_with("HTTP/1.1 200")
}

#[tokio::test]
async fn followers_leave_connections_for_other_clients_of_the_admin_socket() {
    let place = Place::new();
    let _shim = place.start(&[]).await;
    let follow = async || {
        let stream = UnixStream::connect(place.at("admin.sock")).await.unwrap();
        requested(stream, "/v1/events/follow").await
    };
    let mut followers = Vec::new();
    for nth in 0..192 {
        let (stream, head) = soon(follow()).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{nth}: {head}");
        followers.push(stream);
    }
    let (_one_more, head) = soon(follow()).await;
    assert!(head.starts_with("HTTP/1.1 503") && head.contains("192 clients already follow"), "{head}");
    // 256 more clients send incomplete requests.
    for _ in 0..256 {
        let mut stream = UnixStream::connect(place.at("admin.sock")).await.unwrap();
        stream.write_all(b"GET /v1/status HTTP/1.1\r\n").await.unwrap();
        followers.push(stream);
    }
    assert_eq!(place.ask(&["status"]).await.code, Some(0));
    // More clients than there are free connections send heads without their bodies.
    for _ in 0..65 {
        let mut stream = UnixStream::connect(place.at("admin.sock")).await.unwrap();
        let head = b"PUT /v1/mode HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n";
        stream.write_all(head).await.unwrap();
        followers.push(stream);
    }
    let live = place.ask(&["status", "--check", "live"]).await;
    assert_eq!((live.code, live.stdout.as_str()), (Some(0), "ok\n"), "{live:?}");
    assert_eq!(place.ask(&["status"]).await.code, Some(0));
    let refused = place.ask(&["events", "-f"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("192 clients already follow calls or events, which is the limit"),
        "{refused:?}"
    );
    drop(followers);
    let served = async { while !follow().await.1.starts_with("HTTP/1.1 200") {} };
    soon(served).await;
}

/// Requests a path. Returns the connection, with the beginning of the response.
async fn requested<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, path: &str) -> (S, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = vec![0; 4096];
    let read = stream.read(&mut head).await.unwrap();
    (stream, String::from_utf8_lossy(&head[..read]).into_owned())
}

/// Opens a stream of updates of the page. Returns it with the beginning of the response.
async fn page_stream(http: &str) -> (TcpStream, String) {
    requested(TcpStream::connect(http).await.unwrap(), "/page/updates").await
}

#[tokio::test]
async fn pages_with_updates_are_limited_and_leave_connections_for_health() {
    let place = Place::new();
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    let mut pages = Vec::new();
    for nth in 0..16 {
        let (stream, head) = soon(page_stream(&http)).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{nth}: {head}");
        pages.push(stream);
    }
    let (_refused, head) = soon(page_stream(&http)).await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert!(head.contains("16 pages show updates already, which is the limit"), "{head}");
    // Many more clients ask for updates again and again.
    let mut attackers = JoinSet::new();
    for _ in 0..200 {
        let http = http.clone();
        attackers.spawn(async move {
            loop {
                let Ok(mut stream) = TcpStream::connect(&http).await else { continue };
                let request = format!("GET /page/updates HTTP/1.1\r\nHost: {http}\r\n\r\n");
                let _ = stream.write_all(request.as_bytes()).await;
                while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
            }
        });
    }
    let answered = async {
        for _ in 0..10 {
            while !is_answered(&http, "/healthz").await {}
        }
    };
    soon(answered).await;
    attackers.shutdown().await;
    drop(pages);
    // A page that is closed leaves its place, and not only when its stream would have ended.
    for _ in 0..64 {
        let served = async { while !page_stream(&http).await.1.starts_with("HTTP/1.1 200") {} };
        soon(served).await;
    }
}

#[tokio::test]
async fn a_check_of_the_status_has_the_reason_why_probeshim_or_the_runtime_does_not_answer() {
    let place = Place::new();
    let check = async |check: &str| {
        let answer = place.ask(&["status", "--check", check]).await;
        (answer.code, answer.stdout, answer.stderr)
    };
    let (code, _, reason) = check("live").await;
    assert_eq!(code, Some(1));
    assert!(reason.contains("no probeshim listens on"), "{reason}");
    let _shim = place.start(&[]).await;
    assert_eq!(check("live").await, (Some(0), "ok\n".to_owned(), String::new()));
    let (code, _, reason) = check("ready").await;
    assert_eq!(code, Some(1));
    assert!(reason.starts_with("error: not ready: ") && reason.contains("runtime.sock: "), "{reason}");
}
