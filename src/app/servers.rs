//! Servers of the admin API on its listeners.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::error::RunError;
use super::listeners::{ApiAddress, ApiEndpoint, ApiListener};
use crate::admin::{self, Admin, AdminUsers, MetricsEndpoint};
use crate::socket::BoundPath;
use crate::web;

/// Interval between attempts to open an address of the API.
const REOPEN_INTERVAL: Duration = Duration::from_secs(2);

/// Servers of the admin socket, of the public address and of the metrics.
pub(super) struct Servers {
    bound_paths: BoundPaths,
    servers: JoinSet<()>,
}

/// Paths that are removed when the servers are closed.
type BoundPaths = Arc<Mutex<Vec<BoundPath>>>;

impl Servers {
    /// Serves the API on its listeners. An address that is not open is opened as soon as that is
    /// possible, and the status has the reason until then.
    pub(super) fn open(
        listen: Option<BoundPath>,
        endpoints: Vec<ApiEndpoint>,
        admin: &Arc<Admin>,
    ) -> io::Result<Self> {
        let bound_paths: BoundPaths = Arc::new(Mutex::new(listen.into_iter().collect()));
        let mut servers = JoinSet::new();
        for ApiEndpoint { address, listener } in endpoints {
            match listener {
                Ok(listener) => {
                    admin.set_failure(address.name(), None);
                    let server = ReadyListener::new(listener, &bound_paths)?;
                    servers.spawn(server.serve(admin.clone()));
                }
                Err(error) => {
                    servers.spawn(reopen(address, error, admin.clone(), bound_paths.clone()));
                }
            }
        }
        Ok(Self { bound_paths, servers })
    }

    /// Closes the address before the sockets: a probeshim that starts once a socket is removed
    /// finds the address free.
    pub(super) async fn close(mut self) {
        self.servers.shutdown().await;
        drop(self.bound_paths);
    }
}

/// A listener that can be served. The path of the admin socket is removed when the servers are
/// closed.
enum ReadyListener {
    Admin(UnixListener, AdminUsers),
    Public(TcpListener),
    Metrics(MetricsEndpoint),
}

impl ReadyListener {
    fn new(listener: ApiListener, bound_paths: &BoundPaths) -> io::Result<Self> {
        Ok(match listener {
            ApiListener::Admin(bound, users) => {
                bound_paths.lock().unwrap_or_else(PoisonError::into_inner).extend(bound.claim);
                Self::Admin(UnixListener::from_std(bound.listener)?, users)
            }
            ApiListener::Public(listener) => Self::Public(listener),
            ApiListener::Metrics(endpoint) => Self::Metrics(endpoint),
        })
    }

    async fn serve(self, admin: Arc<Admin>) {
        match self {
            Self::Admin(listener, users) => admin::serve_admin(listener, users, admin).await,
            Self::Public(listener) => admin::serve_public(listener, admin, web::routes()).await,
            Self::Metrics(endpoint) => admin::serve_metrics(endpoint, admin).await,
        }
    }
}

/// Opens an address as soon as that is possible, and serves it. Each reason why it is not possible
/// is logged once.
async fn reopen(address: ApiAddress, error: RunError, admin: Arc<Admin>, bound_paths: BoundPaths) {
    let mut reason = error.to_string();
    let server = loop {
        warn!(
            error = reason,
            "an address of the API cannot be opened yet: it is tried again, and calls are served"
        );
        admin.set_failure(address.name(), Some(reason.clone()));
        match open_changed(&address, &reason, &bound_paths).await {
            Ok(server) => break server,
            Err(error) => reason = error,
        }
    };
    info!(address = address.name(), "an address of the API is open");
    admin.set_failure(address.name(), None);
    server.serve(admin).await;
}

/// Tries to open an address until it succeeds, or fails for another reason than `reason`.
async fn open_changed(
    address: &ApiAddress,
    reason: &str,
    bound_paths: &BoundPaths,
) -> Result<ReadyListener, String> {
    loop {
        sleep(REOPEN_INTERVAL).await;
        let opened = address.open().await;
        let opened = opened.and_then(|listener| Ok(ReadyListener::new(listener, bound_paths)?));
        match opened.map_err(|error| error.to_string()) {
            Err(error) if error == reason => {}
            opened => return opened,
        }
    }
}
