//! Servers of the API on its two listeners.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::Response;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::server::TlsStream;

use super::caller::Caller;
use super::listener::ConnectionLimits;
use super::metrics_access::{self, MetricsAccess};
use super::state::Admin;
use super::users::{AdminUsers, UserListener};
use super::{API_HEADER, API_VERSION, access, host_check, listener, routes};
use crate::relay::Peer;
use crate::tls::{TlsServer, has_client_certificate};

/// Limits of the admin socket. At most [`MAX_FOLLOWERS`](super::state::MAX_FOLLOWERS) connections
/// follow calls or events; the others remain for short requests.
pub(super) const ADMIN: ConnectionLimits =
    ConnectionLimits { connections: 256, head_timeout: Duration::from_secs(10), max_duration: None };

/// Limits of the TCP addresses, which every user of this machine, or other machines, can reach: no
/// client can block the others.
pub(super) const PUBLIC: ConnectionLimits = ConnectionLimits {
    connections: 64,
    head_timeout: Duration::from_secs(2),
    max_duration: Some(Duration::from_secs(20)),
};

/// The address at which Prometheus on other machines reads the metrics.
#[derive(Debug)]
pub struct MetricsEndpoint {
    /// The open port.
    pub listener: TcpListener,
    /// TLS; `None` for plain HTTP.
    pub tls: Option<Arc<TlsServer>>,
    /// The clients that may read.
    pub access: MetricsAccess,
}

/// Serves the whole API on the admin socket to these users, for as long as the future is polled.
pub async fn serve_admin(listener: UnixListener, users: AdminUsers, admin: Arc<Admin>) {
    let listener = UserListener::new(listener, users.clone());
    listener::serve(listener, ADMIN, admin_router(admin), move |stream: UnixStream| {
        let peer = Peer::from_socket(&stream);
        let class = peer.as_ref().and_then(|peer| users.class(peer.uid));
        async move { Some((stream, Caller { peer, class: class?, has_certificate: false })) }
    })
    .await;
}

/// Returns the routes of the admin socket.
pub(super) fn admin_router(admin: Arc<Admin>) -> Router {
    let changing = routes::control().layer(from_fn(access::control_only));
    let owned = routes::owned().layer(from_fn(access::owner_only));
    let router =
        routes::public().merge(routes::pods_list()).merge(routes::private()).merge(changing).merge(owned);
    finish(router, admin)
}

/// Returns the routes of the loopback address, with those of the web page.
pub(super) fn public_router(admin: Arc<Admin>, page: Router<Arc<Admin>>) -> Router {
    let pods = if admin.info.http_pods { routes::pods_list() } else { routes::no_pods() };
    let router = routes::metrics_and_health().merge(pods).merge(page);
    let router =
        router.layer(from_fn(host_check::loopback_hosts_only)).layer(from_fn(host_check::readers_only));
    finish(router, admin)
}

/// Serves the public part of the API on a loopback address, with the routes of the web page, for as
/// long as the future is polled.
pub async fn serve_public(listener: TcpListener, admin: Arc<Admin>, page: Router<Arc<Admin>>) {
    listener::serve(listener, PUBLIC, public_router(admin, page), plain).await;
}

/// Serves metrics and health for Prometheus on other machines, for as long as the future is polled.
pub async fn serve_metrics(endpoint: MetricsEndpoint, admin: Arc<Admin>) {
    let MetricsEndpoint { listener, tls, access } = endpoint;
    let router = routes::metrics_and_health()
        .layer(from_fn_with_state(Arc::new(access), metrics_access::check))
        .layer(from_fn(host_check::readers_only));
    let router = finish(router, admin);
    match tls {
        None => listener::serve(listener, PUBLIC, router, plain).await,
        Some(tls) => {
            listener::serve(listener, PUBLIC, router, move |stream| secure(tls.clone(), stream)).await;
        }
    }
}

/// Prepares a TCP connection without TLS.
async fn plain(stream: TcpStream) -> Option<(TcpStream, Caller)> {
    Some((stream, Caller::default()))
}

/// Performs the TLS handshake of a TCP connection.
async fn secure(tls: Arc<TlsServer>, stream: TcpStream) -> Option<(TlsStream<TcpStream>, Caller)> {
    let stream = tls.accept(stream).await.ok()?;
    let has_certificate = has_client_certificate(&stream);
    Some((stream, Caller { has_certificate, ..Caller::default() }))
}

fn finish(router: Router<Arc<Admin>>, admin: Arc<Admin>) -> Router {
    router.layer(map_response(with_api_version)).with_state(admin)
}

async fn with_api_version(mut response: Response) -> Response {
    response.headers_mut().insert(API_HEADER, HeaderValue::from_static(API_VERSION));
    response
}
