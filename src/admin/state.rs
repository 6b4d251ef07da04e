//! What the API tells of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::registry::Registry;

use crate::record::Calls;
use crate::socket::SocketPath;
use crate::{metrics, relay, tap};

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
