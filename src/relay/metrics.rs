//! What the byte path counts itself, so that it is exact whatever an observer drops.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Connections and calls in flight.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(super) connections: Counter,
    pub(super) connections_open: Gauge,
    pub(super) streams_open: Gauge,
}

impl Metrics {
    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Client connections accepted", self.connections.clone());
        registry.register(
            "connections_open",
            "Client connections that are open",
            self.connections_open.clone(),
        );
        registry.register("streams_open", "Calls in flight", self.streams_open.clone());
    }

    /// Client connections accepted since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.get()
    }

    /// Client connections that are open.
    #[must_use]
    pub fn connections_open(&self) -> i64 {
        self.connections_open.get()
    }

    /// Calls in flight.
    #[must_use]
    pub fn streams_open(&self) -> i64 {
        self.streams_open.get()
    }
}
