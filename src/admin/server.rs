//! Servers of the API on its two listeners.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, map_response};
use axum::response::Response;
use tokio::net::{TcpListener, UnixListener};

use super::listener::{Caller, ConnectionLimits};
use super::state::Admin;
use super::{API_HEADER, API_VERSION, host_check, listener, routes};
use crate::relay::Peer;

/// Limits of the admin socket. At most [`MAX_FOLLOWERS`](super::state::MAX_FOLLOWERS) connections
/// follow calls or events; the others remain for short requests.
const ADMIN: ConnectionLimits =
    ConnectionLimits { connections: 256, head_timeout: Duration::from_secs(10), max_duration: None };

/// Limits of the public address, which every user of this machine can reach: no client can block
/// the others.
const PUBLIC: ConnectionLimits = ConnectionLimits {
    connections: 64,
    head_timeout: Duration::from_secs(2),
    max_duration: Some(Duration::from_secs(20)),
};

/// Serves the whole API on the admin socket, for as long as the future is polled. Every process
/// that can open the socket has access.
pub async fn serve_admin(listener: UnixListener, admin: Arc<Admin>) {
    let router = routes::public().merge(routes::pods_list()).merge(routes::private());
    listener::serve(listener, ADMIN, finish(router, admin), |stream| Caller(Peer::from_socket(stream))).await;
}

/// Serves the public part of the API on a loopback address, for as long as the future is polled.
pub async fn serve_public(listener: TcpListener, admin: Arc<Admin>) {
    let pods = if admin.info.http_pods { routes::pods_list() } else { routes::no_pods() };
    let router = routes::public().merge(pods).layer(from_fn(host_check::loopback_readers_only));
    listener::serve(listener, PUBLIC, finish(router, admin), |_| Caller(None)).await;
}

fn finish(router: Router<Arc<Admin>>, admin: Arc<Admin>) -> Router {
    router.layer(map_response(with_api_version)).with_state(admin)
}

async fn with_api_version(mut response: Response) -> Response {
    response.headers_mut().insert(API_HEADER, HeaderValue::from_static(API_VERSION));
    response
}
