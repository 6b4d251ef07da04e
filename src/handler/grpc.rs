//! The grpc handler: calls the health service over a separate connection without TLS
//! (`pkg/probe/grpc/grpc.go`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use super::address::join_host_port;
use super::dial::{Connection, dial};
use super::driver::{MeteredExecutor, drive};
use super::{ProbeOutcome, USER_AGENT};
use crate::gofmt::{format_duration, quote, rpc_error};
use crate::manifest::GrpcHealth;

/// Path of the health service's method.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Initial delay before another connection attempt. As in grpc-go, each delay is 1.6 times as long
/// as the previous one.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Request `grpc.health.v1.HealthCheckRequest`.
#[derive(Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// Response `grpc.health.v1.HealthCheckResponse`.
#[derive(Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Names of the statuses of the health service, by number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: i32 = 1;

/// Connection to a server that has sent HTTP/2 SETTINGS.
struct Server {
    sender: SendRequest<Body>,
    authority: String,
    _driver: AbortOnDropHandle<()>,
}

/// Makes one attempt. `limit` applies to the connection and the call together.
pub(super) async fn attempt(health: &GrpcHealth, host: &str, limit: Duration) -> ProbeOutcome {
    let until = Instant::now() + limit;
    let (address, within) = (join_host_port(host, health.port), format_duration(limit));
    let Ok(server) = timeout_at(until, connect(host, health.port)).await else {
        return ProbeOutcome::Failure(format!(
            "timeout: failed to connect service {} within {within}: context deadline exceeded",
            quote(&address)
        ));
    };
    match timeout_at(until, check(server, &health.service)).await {
        Err(_) => ProbeOutcome::Failure(format!("timeout: health rpc did not complete within {within}")),
        Ok(Ok(SERVING)) => ProbeOutcome::Success("service healthy".to_owned()),
        Ok(Ok(status)) => {
            let name = usize::try_from(status).ok().and_then(|status| STATUSES.get(status).copied());
            let name = name.map_or_else(|| status.to_string(), str::to_owned);
            ProbeOutcome::Failure(format!("service unhealthy (responded with {})", quote(&name)))
        }
        Ok(Err(status)) => ProbeOutcome::Failure(match status.code() {
            Code::Unimplemented => format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            ),
            Code::DeadlineExceeded => format!("timeout: health rpc did not complete within {within}"),
            _ => format!("error: health rpc probe failed: {}", rpc_error(&status)),
        }),
    }
}

/// Connects until it succeeds: as with the kubelet, a refused connection is tried again.
async fn connect(host: &str, port: u16) -> Server {
    let mut pause = RECONNECT_DELAY;
    loop {
        if let Some(server) = greet(host, port).await {
            return server;
        }
        sleep(pause).await;
        pause = pause.mul_f64(1.6);
    }
}

async fn greet(host: &str, port: u16) -> Option<Server> {
    let connection = dial(host, port).await.ok()?;
    let greeting = Arc::new(FirstFrame::default());
    let stream = FirstFrameProbe { connection, seen: 0, greeting: greeting.clone() };
    let (sender, connection) = handshake(MeteredExecutor, TokioIo::new(stream)).await.ok()?;
    let ended = Arc::new(Notify::new());
    let tell = ended.clone();
    let driver = drive(async move {
        drop(connection.await);
        tell.notify_one();
    });
    tokio::select! {
        () = greeting.arrived.notified() => {}
        () = ended.notified() => {}
    }
    let server = Server { sender, authority: join_host_port(host, port), _driver: driver };
    greeting.is_http2.load(Ordering::Relaxed).then_some(server)
}

async fn check(server: Server, service: &str) -> Result<i32, Status> {
    let origin =
        Uri::builder().scheme("http").authority(server.authority.as_str()).path_and_query("/").build();
    let origin = origin.map_err(|error| Status::internal(error.to_string()))?;
    let mut grpc = tonic::client::Grpc::with_origin(server, origin);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
    let agent = tonic::metadata::MetadataValue::from_static(USER_AGENT);
    request.metadata_mut().insert("user-agent", agent);
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let answer = grpc.unary(request, PathAndQuery::from_static(CHECK), codec).await?;
    Ok(answer.into_inner().status)
}

impl Service<Request<Body>> for Server {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

/// Record of the first frame that the server sends.
#[derive(Debug, Default)]
struct FirstFrame {
    is_http2: AtomicBool,
    arrived: Notify,
}

/// A connection that inspects the first frame that arrives. An HTTP/2 server sends SETTINGS first,
/// and grpc-go does not count a server as connected before that.
struct FirstFrameProbe {
    connection: Connection,
    /// Number of bytes that have arrived.
    seen: usize,
    greeting: Arc<FirstFrame>,
}

/// Offset of the type in a frame.
const TYPE_AT: usize = 3;
/// Type of a SETTINGS frame.
const SETTINGS: u8 = 4;

impl AsyncRead for FirstFrameProbe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.connection).poll_read(cx, buf);
        let new = &buf.filled()[before..];
        if let Some(kind) = TYPE_AT.checked_sub(self.seen).and_then(|at| new.get(at)) {
            self.greeting.is_http2.store(*kind == SETTINGS, Ordering::Relaxed);
            self.greeting.arrived.notify_one();
        }
        self.seen += new.len();
        polled
    }
}

impl AsyncWrite for FirstFrameProbe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bytes::Bytes;
    use http::HeaderMap;
    use tokio::io::AsyncWriteExt as _;
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
    async fn serve(answer: HealthResponse) -> (u16, JoinSet<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                assert_eq!(request.uri().path(), CHECK);
                let agent = request.headers()["user-agent"].to_str().unwrap();
                assert!(agent.starts_with(USER_AGENT), "{agent}");
                let Some(answer) = answer else { std::future::pending().await };
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
        });
        (port, tasks)
    }

    async fn probed(port: u16, host: &str, limit: Duration) -> ProbeOutcome {
        attempt(&GrpcHealth { port, service: "a".to_owned() }, host, limit).await
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
