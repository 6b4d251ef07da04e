//! HTTP server with a limited number of connections, which may not idle for long. Clients of the
//! API cannot use up the file descriptors that the relay's clients need, nor block each other.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::slots::Slots;
use crate::relay::Peer;

/// The peer that sent a request; `None` on TCP, where the kernel does not report it.
#[derive(Clone, Debug)]
pub(super) struct Caller(pub(super) Option<Peer>);

/// Limits of the connections of one listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// Maximum number of connections. One more connection replaces one that only occupies its slot.
    pub(super) connections: usize,
    /// Time in which a client has to send the head of its first or next request.
    pub(super) head_timeout: Duration,
    /// Maximum duration of a connection, which then serves one request; `None` for any number of
    /// requests without a time limit.
    pub(super) max_duration: Option<Duration>,
}

/// Serves a listener for as long as the future is polled. Open connections outlive the future.
pub(super) async fn serve<L: Listener>(
    mut listener: L,
    grant: ConnectionLimits,
    router: Router,
    asker: fn(&L::Io) -> Caller,
) {
    let slots = Slots::new(grant.connections);
    loop {
        let (stream, _) = listener.accept().await;
        let slot = Arc::new(slots.take().await);
        let asker = asker(&stream);
        let answering = slot.clone();
        let router = router.clone().map_request(move |mut request: Request<Incoming>| {
            answering.answering();
            request.extensions_mut().insert(asker.clone());
            request.extensions_mut().insert(answering.clone());
            request
        });
        let service = TowerToHyperService::new(router);
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(grant.head_timeout)
                .keep_alive(grant.max_duration.is_none());
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // Errors are ignored: the client has disconnected, was too slow, or did not send HTTP.
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
