//! The grpc handler: calls the health service over a separate connection
//! (`pkg/probe/grpc/grpc.go`), with TLS if the mode of Kubernetes 1.37 asks for it. What a server
//! may answer is judged as by grpc-go 1.79.

mod call;
mod interpret;
mod messages;
mod protobuf;
mod status;

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::ProbeOutcome;
use super::address::join_host_port;
use super::dial::dial;
use super::http2::{Frame, Http2Connection};
use super::stream::Stream;
use crate::gofmt::{format_duration, quote};
use crate::manifest::GrpcHealth;
use crate::tls::{Tls, is_http2};
use call::{CallError, SETTINGS, check};
use status::RpcStatus;

pub(crate) use interpret::interpret_health_response;

/// Initial delay before another connection attempt. As in grpc-go, each delay is 1.6 times as long
/// as the previous one.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Names of the statuses of the health service, by number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: i32 = 1;

/// Makes one attempt. `limit` applies to the connection and the call together.
pub(super) async fn attempt(health: &GrpcHealth, host: &str, limit: Duration) -> ProbeOutcome {
    let until = Instant::now() + limit;
    let (address, within) = (join_host_port(host, health.port), format_duration(limit));
    let Ok(mut server) = timeout_at(until, connect(host, health)).await else {
        return ProbeOutcome::Failure(format!(
            "timeout: failed to connect service {} within {within}: context deadline exceeded",
            quote(&address)
        ));
    };
    let call = async {
        let left = || until.saturating_duration_since(Instant::now());
        match check(&mut server, &address, health, left()).await {
            Err(CallError::Unprocessed(_)) => {
                let mut server = connect(host, health).await;
                check(&mut server, &address, health, left()).await
            }
            answered => answered,
        }
    };
    let status = match timeout_at(until, call).await {
        Err(_) => RpcStatus::new(RpcStatus::DEADLINE_EXCEEDED, ""),
        Ok(Ok(SERVING)) => return ProbeOutcome::Success("service healthy".to_owned()),
        Ok(Ok(status)) => {
            let name = usize::try_from(status).ok().and_then(|status| STATUSES.get(status).copied());
            let name = name.map_or_else(|| status.to_string(), str::to_owned);
            return ProbeOutcome::Failure(format!("service unhealthy (responded with {})", quote(&name)));
        }
        Ok(Err(CallError::Failed(status) | CallError::Unprocessed(status))) => status,
    };
    ProbeOutcome::Failure(match status.code {
        RpcStatus::UNIMPLEMENTED => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message
        ),
        RpcStatus::DEADLINE_EXCEEDED => format!("timeout: health rpc did not complete within {within}"),
        _ => format!("error: health rpc probe failed: {status}"),
    })
}

/// Connects until it succeeds: as with the kubelet, a refused connection is tried again.
async fn connect(host: &str, health: &GrpcHealth) -> Http2Connection<Stream> {
    let mut pause = RECONNECT_DELAY;
    loop {
        if let Some(server) = greet(host, health).await {
            return server;
        }
        sleep(pause).await;
        pause = pause.mul_f64(1.6);
    }
}

/// Connects, and waits for the settings of the server. grpc-go does not count a server as connected
/// before that.
async fn greet(host: &str, health: &GrpcHealth) -> Option<Http2Connection<Stream>> {
    let connection = dial(host, health.port).await.ok()?;
    let stream: Stream = if health.is_tls {
        let name = if host.is_empty() { "localhost" } else { host };
        let stream = Tls::insecure_http2().connect(connection, name).await.ok()?;
        // grpc-go refuses a server that has not chosen HTTP/2.
        is_http2(&stream).then(|| Box::new(stream))?
    } else {
        Box::new(connection)
    };
    let mut server = Http2Connection::begin(stream, SETTINGS).await.ok()?;
    match server.read().await {
        Ok(Frame::Settings { is_ack }) => {
            if !is_ack {
                let _ = server.acknowledge_settings().await;
            }
            Some(server)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bytes::Bytes;
    use http::HeaderMap;
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;
    use crate::handler::dial::tests::LONG;

    /// The shortest timeout of a probe.
    const SECOND: Duration = Duration::from_secs(1);

    /// Timeout within which any machine connects to itself, and which is short enough to wait for.
    const TO_CONNECT: Duration = Duration::from_secs(5);

    /// Answer of a health service: a status, or a gRPC code with its message; `None` for no answer.
    type HealthResponse = Option<Result<u8, (u8, &'static str)>>;

    /// Starts a health service on a separate port. It runs as long as the tasks exist.
    async fn serve(health: HealthResponse) -> (u16, JoinSet<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            answer(stream, health).await;
        });
        (port, tasks)
    }

    /// Answers the calls on a connection.
    async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, health: HealthResponse) {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            let agent = request.headers()["user-agent"].to_str().unwrap();
            assert_eq!(agent, "kube-probe/1.36 grpc-go/1.79.3");
            let Some(answer) = health else { std::future::pending().await };
            let head = http::Response::builder().header("content-type", "application/grpc");
            let mut stream = respond.send_response(head.body(()).unwrap(), false).unwrap();
            let mut trailers = HeaderMap::new();
            let (code, message) = answer.err().unwrap_or((0, ""));
            if let Ok(status) = answer {
                stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false).unwrap();
            }
            trailers.insert("grpc-status", code.to_string().parse().unwrap());
            trailers.insert("grpc-message", message.parse().unwrap());
            stream.send_trailers(trailers).unwrap();
        }
    }

    async fn probed(port: u16, host: &str, limit: Duration) -> ProbeOutcome {
        attempt(&GrpcHealth { port, service: "a".to_owned(), is_tls: false }, host, limit).await
    }

    #[tokio::test]
    async fn upstream_test_grpc_prober_probe() {
        let failure = |text: &str| ProbeOutcome::Failure(text.to_owned());
        for (row, answer, expected) in [
            ("SERVING", Some(Ok(1)), ProbeOutcome::Success("service healthy".to_owned())),
            ("NOT_SERVING", Some(Ok(2)), failure("service unhealthy (responded with \"NOT_SERVING\")")),
            ("server sleeps", None, failure("timeout: health rpc did not complete within 5s")),
            (
                "3.4: NotFound",
                Some(Err((5, "unknown service"))),
                failure("error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"),
            ),
            (
                "3.4: Unimplemented",
                Some(Err((12, "none"))),
                failure(
                    "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): none",
                ),
            ),
        ] {
            let (port, _tasks) = serve(answer).await;
            let limit = if answer.is_none() { TO_CONNECT } else { LONG };
            assert_eq!(probed(port, "127.0.0.1", limit).await, expected, "{row}");
        }
    }

    #[tokio::test]
    async fn a_grpc_probe_with_tls_needs_a_server_with_tls_and_http_2() {
        let attempt = async |protocol: &[u8], is_tls: bool| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let acceptor = crate::tls::tests::server_for_anyone(protocol);
            let server = tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let Ok(stream) = acceptor.accept(stream).await else { continue };
                    tokio::spawn(answer(stream, Some(Ok(1))));
                }
            });
            let health = GrpcHealth { port, service: "a".to_owned(), is_tls };
            let limit = if is_tls && protocol == b"h2" { LONG } else { SECOND };
            let outcome = super::attempt(&health, "127.0.0.1", limit).await;
            server.abort();
            outcome
        };
        assert_eq!(attempt(b"h2", true).await, ProbeOutcome::Success("service healthy".to_owned()));
        for (protocol, is_tls) in [(&b"http/1.1"[..], true), (b"h2", false)] {
            let outcome = attempt(protocol, is_tls).await;
            let has_failed =
                matches!(&outcome, ProbeOutcome::Failure(text) if text.contains("failed to connect"));
            assert!(has_failed, "{outcome:?}");
        }
    }

    /// Repeats the rows of `TestGrpcProber_Probe` (`pkg/probe/grpc/grpc_test.go`) in which there is
    /// no HTTP/2 server.
    #[tokio::test]
    async fn upstream_test_grpc_prober_probe_without_a_server() {
        let text = "timeout: failed to connect service \":32\" within 1s: context deadline exceeded";
        assert_eq!(probed(32, "", SECOND).await, ProbeOutcome::Failure(text.to_owned()), "cannot find host");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        let text = format!(
            "timeout: failed to connect service \"127.0.0.1:{port}\" within 1s: context deadline exceeded"
        );
        assert_eq!(probed(port, "127.0.0.1", SECOND).await, ProbeOutcome::Failure(text), "HTTP/1 server");
        answering.abort();
    }
}
