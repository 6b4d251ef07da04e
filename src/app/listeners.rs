//! The sockets and the TCP addresses on which a process listens.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpListener;
use tracing::warn;

use super::error::{RunError, both};
use super::handover::predecessor_runs;
use crate::admin::{AdminUsers, MetricsAccess, MetricsEndpoint, ServerInfo, TokenAccess};
use crate::api_server::ApiServer;
use crate::authorization::TokenAuthorizer;
use crate::config::{MetricsSettings, ServerConfig, TokenReviewSource};
use crate::socket::{self, BindMode, BoundListener, SocketPath, bind, from_systemd};
use crate::tls::TlsServer;

/// Open sockets that are not served yet.
pub(super) struct Listeners {
    pub(super) relay: BoundListener,
    pub(super) api: Vec<ApiEndpoint>,
    /// The addresses of the API, to open them again.
    pub(super) api_addresses: Vec<ApiAddress>,
    /// The socket that systemd passed, for a successor.
    pub(super) passed: Option<OwnedFd>,
    pub(super) info: ServerInfo,
}

impl Listeners {
    /// Opens the relay's socket, or takes it from systemd, and the listeners of the API. The error
    /// has all that failed; the others are then closed.
    ///
    /// With a socket from systemd, clients wait for this process, and only for calls. An address of
    /// the API that cannot be opened is then no error.
    pub(super) async fn open(config: &ServerConfig) -> Result<Self, RunError> {
        let upstream = &config.relay.upstream;
        let relay = match &config.listen {
            Some(path) => bind(path, BindMode::InheritFrom(upstream)).map_err(RunError::Listen),
            None => from_systemd(upstream).map_err(RunError::from),
        };
        let addresses = ApiAddress::all(config);
        let api = match config.listen {
            Some(_) => ApiEndpoint::open_all(&addresses).await,
            None => ApiEndpoint::open_needed(&addresses).await,
        };
        let (relay, api) = both(relay, api)?;
        let passed = match &config.listen {
            Some(_) => None,
            None => Some(relay.listener.try_clone().map_err(RunError::System)?.into()),
        };
        // A port that the system has chosen stays the same.
        let api_addresses: Vec<ApiAddress> = api.iter().map(ApiEndpoint::chosen_address).collect();
        let info = ServerInfo {
            started: SystemTime::now(),
            mode: config.enforcement.mode,
            listen: socket::display_name(&relay.listener),
            admin: config.admin.to_string(),
            http: api_addresses.iter().find_map(ApiAddress::public),
            http_pods: config.http_pods,
            metrics: api_addresses.iter().find_map(ApiAddress::metrics_url),
        };
        Ok(Self { relay, api, api_addresses, passed, info })
    }
}

/// An address of the API.
#[derive(Clone, Debug)]
pub(super) enum ApiAddress {
    /// The admin socket, and the users who may connect to it.
    Admin(SocketPath, AdminUsers),
    /// The public address.
    Public(SocketAddr),
    /// The address of the metrics for Prometheus on other machines.
    Metrics(Box<MetricsSettings>),
}

impl ApiAddress {
    /// Returns the addresses that the settings name.
    fn all(config: &ServerConfig) -> Vec<Self> {
        let own = rustix::process::geteuid().as_raw();
        let (readers, controllers) = (config.readers.clone(), config.controllers.clone());
        let users = AdminUsers { own, readers, controllers };
        let metrics = config.metrics.clone().map(|settings| Self::Metrics(Box::new(settings)));
        let tcp = config.http.map(Self::Public).into_iter().chain(metrics);
        [Self::Admin(config.admin.clone(), users)].into_iter().chain(tcp).collect()
    }

    /// Returns the flag that sets the address.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Admin(..) => "--admin",
            Self::Public(_) => "--http",
            Self::Metrics(_) => "--metrics-listen",
        }
    }

    /// Returns the public address, if it is that.
    fn public(&self) -> Option<SocketAddr> {
        if let Self::Public(address) = self { Some(*address) } else { None }
    }

    /// Returns the URL of the metrics, if it is their address.
    fn metrics_url(&self) -> Option<String> {
        let Self::Metrics(settings) = self else { return None };
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{}", settings.address))
    }

    /// Opens the address.
    pub(super) async fn open(&self) -> Result<ApiListener, RunError> {
        match self {
            Self::Admin(path, users) => {
                let mode = if users.has_others() { BindMode::Everyone } else { BindMode::OwnerOnly };
                let bound = bind(path, mode).map_err(RunError::Admin)?;
                Ok(ApiListener::Admin(bound, users.clone()))
            }
            Self::Public(address) => {
                let listener = TcpListener::bind(address).await;
                let failed = |source| RunError::Http { address: *address, source };
                listener.map(ApiListener::Public).map_err(failed)
            }
            Self::Metrics(settings) => open_metrics(settings).await.map(ApiListener::Metrics),
        }
    }
}

/// An open listener of the API that is not served yet.
pub(super) enum ApiListener {
    /// The admin socket, and the users who may connect to it.
    Admin(BoundListener, AdminUsers),
    /// The public address.
    Public(TcpListener),
    /// The address of the metrics.
    Metrics(MetricsEndpoint),
}

impl ApiListener {
    /// Returns the TCP address; `None` for the admin socket.
    fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Admin(..) => None,
            Self::Public(listener) | Self::Metrics(MetricsEndpoint { listener, .. }) => {
                listener.local_addr().ok()
            }
        }
    }
}

/// An address of the API with its listener, or with the reason why it is not open.
pub(super) struct ApiEndpoint {
    pub(super) address: ApiAddress,
    pub(super) listener: Result<ApiListener, RunError>,
}

impl ApiEndpoint {
    async fn open(address: &ApiAddress) -> Self {
        Self { address: address.clone(), listener: address.open().await }
    }

    /// Opens all addresses. The error has all that failed.
    async fn open_all(addresses: &[ApiAddress]) -> Result<Vec<Self>, RunError> {
        let (mut opened, mut errors) = (Vec::new(), Vec::new());
        for address in addresses {
            let Self { address, listener } = Self::open(address).await;
            match listener {
                Ok(listener) => opened.push(Self { address, listener: Ok(listener) }),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(opened) } else { Err(RunError::several(errors.into_iter())) }
    }

    /// Opens the addresses that can be opened.
    pub(super) async fn open_possible(addresses: &[ApiAddress]) -> Vec<Self> {
        let mut endpoints = Vec::new();
        for address in addresses {
            endpoints.push(Self::open(address).await);
        }
        endpoints
    }

    /// Opens the addresses that a process with a socket of systemd needs. The predecessor of a
    /// successor serves calls until the successor answers on the admin socket.
    async fn open_needed(addresses: &[ApiAddress]) -> Result<Vec<Self>, RunError> {
        let (mut endpoints, is_successor) = (Vec::new(), predecessor_runs());
        for endpoint in Self::open_possible(addresses).await {
            match endpoint {
                Self { address: ApiAddress::Admin(..), listener: Err(error) } if is_successor => {
                    return Err(error);
                }
                endpoint => endpoints.push(endpoint),
            }
        }
        Ok(endpoints)
    }

    /// Returns the address with the port that the system has chosen.
    fn chosen_address(&self) -> ApiAddress {
        let chosen = self.listener.as_ref().ok().and_then(ApiListener::local_addr);
        let mut address = self.address.clone();
        match (&mut address, chosen) {
            (ApiAddress::Public(address), Some(chosen)) => *address = chosen,
            (ApiAddress::Metrics(settings), Some(chosen)) => settings.address = chosen,
            _ => {}
        }
        address
    }
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
        Some(tokens) => MetricsAccess::CertificateOrToken(Box::new(TokenAccess::new(tokens))),
    };
    Ok(MetricsEndpoint { listener, tls: tls.map(Arc::new), access })
}
