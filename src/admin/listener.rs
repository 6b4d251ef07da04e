//! Serving HTTP to so many connections at a time, none of them idle for long: whoever talks to the API must not use up the
//! descriptors that the relay's clients need, nor keep others from asking.

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

/// Who asks, where the kernel tells.
#[derive(Clone, Debug)]
pub(super) struct Caller(pub(super) Option<Peer>);

/// What one listener grants its clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    /// Connections that are served at a time; for one more, one that only occupies its slot is closed.
    pub(super) connections: usize,
    /// How long a connection may take to send the head of a request, its first or its next.
    pub(super) head_timeout: Duration,
    /// How long one connection may last, for one request; `None` for any number, as long as they like.
    pub(super) max_duration: Option<Duration>,
}

/// Answers on a listener for as long as it is polled. Connections live on until they end by themselves.
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
            // A client that goes, takes too long, or sends what is no HTTP, is no concern of ours.
            tokio::select! {
                _ = timeout(grant.max_duration.unwrap_or(Duration::MAX), connection) => {}
                () = slot.evicted() => {}
            }
        });
        // The new connection is looked at before the next is accepted: a head that is there already is read before others can evict it.
        tokio::task::yield_now().await;
    }
}
