//! The sockets and the TCP address on which a process listens.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use tokio::net::TcpListener;

use super::error::{RunError, both};
use crate::admin::ServerInfo;
use crate::config::ServerConfig;
use crate::socket::{self, BindMode, BoundListener, bind, from_systemd};

/// Open sockets that are not served yet.
pub(super) struct Listeners {
    pub(super) relay: BoundListener,
    pub(super) admin: BoundListener,
    pub(super) public: Option<TcpListener>,
    /// The socket that systemd passed, for a successor.
    pub(super) passed: Option<OwnedFd>,
    pub(super) info: ServerInfo,
}

impl Listeners {
    /// Opens the relay's socket, or takes it from systemd, the admin socket, and the public address
    /// if there is one. The error has all that failed; the others are then closed.
    pub(super) async fn open(config: &ServerConfig) -> Result<Self, RunError> {
        let upstream = &config.relay.upstream;
        let relay = match &config.listen {
            Some(path) => bind(path, BindMode::InheritFrom(upstream)).map_err(RunError::Listen),
            None => from_systemd(upstream).map_err(RunError::from),
        };
        let admin = bind(&config.admin, BindMode::OwnerOnly).map_err(RunError::Admin);
        let public = match config.http {
            Some(address) => bind_tcp(address).await.map(Some),
            None => Ok(None),
        };
        let (relay, (admin, public)) = both(relay, both(admin, public))?;
        let passed = match &config.listen {
            Some(_) => None,
            None => Some(relay.listener.try_clone().map_err(RunError::System)?.into()),
        };
        let info = ServerInfo {
            started: SystemTime::now(),
            listen: socket::display_name(&relay.listener),
            http: public.as_ref().and_then(|listener| listener.local_addr().ok()),
            http_pods: config.http_pods,
        };
        Ok(Self { relay, admin, public, passed, info })
    }
}

async fn bind_tcp(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Http { address, source })
}
