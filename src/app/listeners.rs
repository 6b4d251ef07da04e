//! The sockets and the TCP addresses on which a process listens.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpListener;
use tracing::warn;

use super::error::{RunError, both};
use crate::admin::{AdminUsers, MetricsAccess, MetricsEndpoint, ServerInfo, TokenReview};
use crate::authorization::{ApiServer, TokenAuthorizer};
use crate::config::{MetricsSettings, ServerConfig, TokenReviewSource};
use crate::socket::{self, BindMode, BoundListener, SocketPath, bind, from_systemd};
use crate::tls::TlsServer;

/// Open sockets that are not served yet.
pub(super) struct Listeners {
    pub(super) relay: BoundListener,
    pub(super) api: ApiListeners,
    /// The addresses of the API, to open them again.
    pub(super) api_addresses: ApiAddresses,
    /// The socket that systemd passed, for a successor.
    pub(super) passed: Option<OwnedFd>,
    pub(super) info: ServerInfo,
}

impl Listeners {
    /// Opens the relay's socket, or takes it from systemd, and the listeners of the API. The error
    /// has all that failed; the others are then closed.
    pub(super) async fn open(config: &ServerConfig) -> Result<Self, RunError> {
        let upstream = &config.relay.upstream;
        let relay = match &config.listen {
            Some(path) => bind(path, BindMode::InheritFrom(upstream)).map_err(RunError::Listen),
            None => from_systemd(upstream).map_err(RunError::from),
        };
        let mut api_addresses = ApiAddresses {
            admin: config.admin.clone(),
            allowed_uids: config.allowed_uids.clone(),
            http: config.http,
            metrics: config.metrics.clone(),
        };
        let (relay, api) = both(relay, ApiListeners::open(&api_addresses).await)?;
        let passed = match &config.listen {
            Some(_) => None,
            None => Some(relay.listener.try_clone().map_err(RunError::System)?.into()),
        };
        let http = api.public.as_ref().and_then(|listener| listener.local_addr().ok());
        // A port that the system has chosen stays the same.
        api_addresses.http = http.or(api_addresses.http);
        if let Some((settings, endpoint)) = api_addresses.metrics.as_mut().zip(api.metrics.as_ref()) {
            settings.address = endpoint.listener.local_addr().unwrap_or(settings.address);
        }
        let info = ServerInfo {
            started: SystemTime::now(),
            listen: socket::display_name(&relay.listener),
            http,
            http_pods: config.http_pods,
            metrics: api.metrics.as_ref().and_then(url),
        };
        Ok(Self { relay, api, api_addresses, passed, info })
    }
}

/// Addresses of the API, and the users of the admin socket.
pub(super) struct ApiAddresses {
    admin: SocketPath,
    allowed_uids: Vec<u32>,
    http: Option<SocketAddr>,
    metrics: Option<MetricsSettings>,
}

/// Open listeners of the API that are not served yet.
pub(super) struct ApiListeners {
    pub(super) admin: BoundListener,
    /// Users who may connect to the admin socket.
    pub(super) users: AdminUsers,
    pub(super) public: Option<TcpListener>,
    pub(super) metrics: Option<MetricsEndpoint>,
}

impl ApiListeners {
    /// Opens the admin socket, the public address and the address of the metrics, if there are
    /// such. The error has all that failed.
    pub(super) async fn open(addresses: &ApiAddresses) -> Result<Self, RunError> {
        let admin_mode =
            if addresses.allowed_uids.is_empty() { BindMode::OwnerOnly } else { BindMode::Everyone };
        let admin = bind(&addresses.admin, admin_mode).map_err(RunError::Admin);
        let public = match addresses.http {
            Some(address) => bind_tcp(address).await.map(Some),
            None => Ok(None),
        };
        let metrics = match &addresses.metrics {
            Some(settings) => open_metrics(settings).await.map(Some),
            None => Ok(None),
        };
        let (admin, (public, metrics)) = both(admin, both(public, metrics))?;
        let own = rustix::process::geteuid().as_raw();
        let users = AdminUsers { own, allowed: addresses.allowed_uids.clone() };
        Ok(Self { admin, users, public, metrics })
    }
}

async fn bind_tcp(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Http { address, source })
}

/// Opens the address of the metrics, and reads the files of its certificates and credentials. The
/// error has all that failed.
async fn open_metrics(settings: &MetricsSettings) -> Result<MetricsEndpoint, RunError> {
    let address = settings.address;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| RunError::MetricsListen { address, source });
    let tls = settings.tls.clone().map(TlsServer::open).transpose().map_err(RunError::MetricsTls);
    let api_server = match &settings.token_review {
        None => Ok(None),
        Some(TokenReviewSource::InCluster) => ApiServer::in_cluster().map(Some),
        Some(TokenReviewSource::Kubeconfig(path)) => ApiServer::from_kubeconfig(path).map(Some),
    };
    let api_server = api_server.map_err(RunError::MetricsTokenReview);
    let (listener, (tls, api_server)) = both(listener, both(tls, api_server))?;
    if settings.is_open() && !address.ip().is_loopback() {
        warn!(
            %address,
            "every client that reaches this address may read the metrics, which name pods and containers: restrict it \
             with --metrics-client-ca or --metrics-token-review, or use a loopback address"
        );
    }
    let access = match api_server.map(TokenAuthorizer::new) {
        None => MetricsAccess::Connected,
        Some(tokens) => MetricsAccess::CertificateOrToken(Box::new(TokenReview::new(tokens))),
    };
    Ok(MetricsEndpoint { listener, tls: tls.map(Arc::new), access })
}

/// Returns the URL of the metrics.
fn url(endpoint: &MetricsEndpoint) -> Option<String> {
    let scheme = if endpoint.tls.is_some() { "https" } else { "http" };
    Some(format!("{scheme}://{}", endpoint.listener.local_addr().ok()?))
}
