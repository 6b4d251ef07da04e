//! HTTP server with a limited number of connections, which may not idle for long. Clients of the
//! API cannot use up the file descriptors that the relay's clients need, nor block each other.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::caller::Caller;
use super::slots::{ConnectionSlot, Slots};

/// Paths whose requests may keep a reserved slot.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

/// Limits of the connections of one listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// Maximum number of connections, besides those for health and readiness. One more connection
    /// replaces one that only occupies its slot.
    pub(super) connections: usize,
    /// Time in which a client has to send the head of its first or next request.
    pub(super) head_timeout: Duration,
    /// Maximum duration of a connection, which then serves one request; `None` for any number of
    /// requests without a time limit.
    pub(super) max_duration: Option<Duration>,
}

/// Serves the requests of a client on its connection.
pub(super) async fn serve_connection<S>(
    stream: S,
    caller: Caller,
    held: Arc<ConnectionSlot>,
    grant: ConnectionLimits,
    router: Router,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (held, router, caller) = (held.clone(), router.clone(), caller.clone());
        async move {
            held.answering();
            if !HEALTH.contains(&request.uri().path()) {
                held.leave_reserved().await;
            }
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(held);
            router.oneshot(request).await
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(grant.head_timeout)
        .keep_alive(grant.max_duration.is_none());
    // Errors are ignored: the client has disconnected, was too slow, or did not send HTTP.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// Serves a listener for as long as the future is polled. Open connections outlive the future.
/// `prepare` performs the TLS handshake if there is one, within the time for the head, and returns
/// the connection with its client; `None` closes the connection.
pub(super) async fn serve<L: Listener, S, F>(
    mut listener: L,
    grant: ConnectionLimits,
    router: Router,
    prepare: impl Fn(L::Io) -> F,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = Option<(S, Caller)>> + Send + 'static,
{
    let slots = Slots::new(grant.connections);
    loop {
        let (stream, _) = listener.accept().await;
        let slot = Arc::new(slots.take());
        let prepared = timeout(grant.head_timeout, prepare(stream));
        let (held, router) = (slot.clone(), router.clone());
        let connection = async move {
            let Ok(Some((stream, caller))) = prepared.await else { return };
            serve_connection(stream, caller, held, grant, router).await;
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = timeout(grant.max_duration.unwrap_or(Duration::MAX), connection) => {}
                () = slot.evicted() => {}
            }
        });
        // The new connection is polled before the next is accepted: a head that has already arrived
        // is read before other connections can evict this one.
        tokio::task::yield_now().await;
    }
}
