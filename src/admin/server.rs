//! The API on its two listeners.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, map_response};
use axum::response::Response;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, UnixListener};

use super::{API_HEADER, API_VERSION, guard, listener, routes};
use crate::record::Calls;
use crate::socket::SocketPath;
use crate::{metrics, relay, tap};

/// Connections that the admin socket serves at a time; more wait. Each that follows calls is one.
const ADMIN_CONNECTIONS: usize = 256;

/// Connections that the public address serves at a time; more wait.
const PUBLIC_CONNECTIONS: usize = 64;

/// What does not change while it runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Since when it runs.
    pub started: SystemTime,
    /// Where clients connect.
    pub listen: String,
    /// Where the public part is served, if anywhere.
    pub http: Option<SocketAddr>,
}

/// What the API reads from.
#[derive(Debug)]
pub struct Admin {
    pub(super) facts: Facts,
    pub(super) upstream: SocketPath,
    pub(super) calls: Arc<Calls>,
    pub(super) metrics: Registry,
    pub(super) relay: relay::Metrics,
    pub(super) tap: tap::Metrics,
}

impl Admin {
    /// An API that tells of these, and keeps the registry of metrics.
    #[must_use]
    pub fn new(
        facts: Facts,
        upstream: SocketPath,
        calls: Arc<Calls>,
        relay: relay::Metrics,
        tap: tap::Metrics,
    ) -> Self {
        let mut metrics = metrics::registry();
        relay.register(&mut metrics);
        tap.register(&mut metrics);
        Self { facts, upstream, calls, metrics, relay, tap }
    }
}

/// Serves the whole API on the admin socket, for as long as it is polled. Whoever can open the socket may ask.
pub async fn serve_admin(listener: UnixListener, admin: Arc<Admin>) {
    let router = routes::public().merge(routes::private());
    listener::serve(listener, ADMIN_CONNECTIONS, finish(router, admin)).await;
}

/// Serves the public part on a loopback address, for as long as it is polled.
pub async fn serve_public(listener: TcpListener, admin: Arc<Admin>) {
    let router = routes::public().layer(from_fn(guard::loopback_readers_only));
    listener::serve(listener, PUBLIC_CONNECTIONS, finish(router, admin)).await;
}

fn finish(router: Router<Arc<Admin>>, admin: Arc<Admin>) -> Router {
    router.layer(map_response(with_api_version)).with_state(admin)
}

async fn with_api_version(mut response: Response) -> Response {
    response.headers_mut().insert(API_HEADER, HeaderValue::from_static(API_VERSION));
    response
}
