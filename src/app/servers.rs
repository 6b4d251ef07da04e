//! Servers of the admin API on its listeners.

use std::io;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::listeners::ApiListeners;
use crate::admin::{self, Admin};
use crate::socket::BoundPath;

/// Servers of the admin socket, of the public address and of the metrics.
pub(super) struct Servers {
    bound_paths: Vec<BoundPath>,
    servers: JoinSet<()>,
}

impl Servers {
    /// Serves the API on the admin socket and, if there are such, on the public listener and at the
    /// address of the metrics.
    pub(super) fn open(
        listen: Option<BoundPath>,
        listeners: ApiListeners,
        admin: Arc<Admin>,
    ) -> io::Result<Self> {
        let ApiListeners { admin: private, users, public, metrics } = listeners;
        let mut servers = JoinSet::new();
        let listener = UnixListener::from_std(private.listener)?;
        servers.spawn(admin::serve_admin(listener, users, admin.clone()));
        if let Some(public) = public {
            servers.spawn(admin::serve_public(public, admin.clone()));
        }
        if let Some(metrics) = metrics {
            servers.spawn(admin::serve_metrics(metrics, admin));
        }
        Ok(Self { bound_paths: listen.into_iter().chain(private.claim).collect(), servers })
    }

    /// Closes the address before the sockets: a probeshim that starts once a socket is removed
    /// finds the address free.
    pub(super) async fn close(mut self) {
        self.servers.shutdown().await;
        drop(self.bound_paths);
    }
}
