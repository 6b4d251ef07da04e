//! The API on its two listeners.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, map_response};
use axum::response::Response;
use tokio::net::{TcpListener, UnixListener};

use super::listener::Limited;
use super::upstream::Upstream;
use super::{API_HEADER, API_VERSION, guard, routes};
use crate::metrics::Metrics;
use crate::record::Calls;
use crate::socket::SocketPath;
use crate::{relay, tap};

/// Connections that each listener serves at a time; more wait.
const CONNECTIONS: usize = 64;

/// What does not change while it runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Since when it runs.
    pub started: SystemTime,
    /// Where clients connect.
    pub listen: String,
    /// Where the public part is served, if anywhere.
    pub http: Option<SocketAddr>,
    /// The runtime's socket.
    pub upstream: SocketPath,
}

/// What the API reads from.
#[derive(Debug)]
pub struct Admin {
    pub(super) facts: Facts,
    pub(super) upstream: Upstream,
    pub(super) calls: Arc<Calls>,
    pub(super) metrics: Metrics,
    pub(super) relay: relay::Metrics,
    pub(super) tap: tap::Metrics,
}

impl Admin {
    /// `metrics` is complete: each module has registered its own.
    #[must_use]
    pub fn new(
        facts: Facts,
        calls: Arc<Calls>,
        metrics: Metrics,
        relay: relay::Metrics,
        tap: tap::Metrics,
    ) -> Self {
        let upstream = Upstream::new(facts.upstream.clone());
        Self { facts, upstream, calls, metrics, relay, tap }
    }
}

/// Serves the whole API on the admin socket, for as long as it is polled. Whoever can open the socket may ask.
pub async fn serve_admin(listener: UnixListener, admin: Arc<Admin>) {
    let router = routes::public().merge(routes::private());
    serve(listener, router, admin).await;
}

/// Serves the public part on a loopback address, for as long as it is polled.
pub async fn serve_public(listener: TcpListener, admin: Arc<Admin>) {
    serve(listener, routes::public().layer(from_fn(guard::loopback_readers_only)), admin).await;
}

async fn serve<L: axum::serve::Listener>(listener: L, router: Router<Arc<Admin>>, admin: Arc<Admin>)
where
    L::Addr: std::fmt::Debug,
{
    let router = router.layer(map_response(with_api_version)).with_state(admin);
    // It ends only when it is dropped.
    let _ = axum::serve(Limited::new(listener, CONNECTIONS), router).await;
}

async fn with_api_version(mut response: Response) -> Response {
    response.headers_mut().insert(API_HEADER, HeaderValue::from_static(API_VERSION));
    response
}
