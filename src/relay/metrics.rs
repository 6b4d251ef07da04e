//! Metrics of the byte path. They are exact even if an observer drops calls.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::h2_settings;

/// Numbers of connections and calls in flight, and limits of connections.
#[derive(Clone, Debug, Default)]
pub struct RelayMetrics {
    pub(super) connections: Counter,
    pub(super) connections_open: Gauge,
    pub(super) streams_open: Gauge,
    limited: Family<LimitLabel, Counter>,
    pub(super) turns_exhausted: Counter,
}

/// A limit that a connection can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Number of calls in flight.
    Streams,
    /// Number of bytes that wait to be written to the runtime.
    UnwrittenBytes,
    /// Number of calls reset per second.
    Resets,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

impl Limit {
    pub(super) const ALL: [Self; 3] = [Self::Streams, Self::UnwrittenBytes, Self::Resets];

    fn label(self) -> LimitLabel {
        let limit = match self {
            Self::Streams => "streams",
            Self::UnwrittenBytes => "unwritten_bytes",
            Self::Resets => "resets",
        };
        LimitLabel { limit }
    }
}

impl RelayMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Client connections accepted", self.connections.clone());
        registry.register(
            "connections_open",
            "Client connections that are open",
            self.connections_open.clone(),
        );
        registry.register("streams_open", "Calls in flight", self.streams_open.clone());
        for limit in Limit::ALL {
            drop(self.limited.get_or_create(&limit.label()));
        }
        registry.register(
            "connections_limited",
            "Times that a connection reached a limit",
            self.limited.clone(),
        );
        registry.register(
            "connection_turns_exhausted",
            "Times that a connection had to wait for its next turn with more to do",
            self.turns_exhausted.clone(),
        );
        let limits = [
            (
                "connection_streams_limit",
                "Calls that one connection may have in flight",
                u64::from(h2_settings::MAX_CONCURRENT_STREAMS),
            ),
            (
                "connection_unread_bytes_limit",
                "Bytes that may be unread in each direction of one connection",
                u64::from(h2_settings::CONNECTION_WINDOW),
            ),
            (
                "connection_unwritten_bytes_limit",
                "Bytes that may wait to be written in each direction of one connection",
                h2_settings::MAX_UNWRITTEN_BYTES as u64,
            ),
        ];
        for (name, help, limit) in limits {
            registry.register(name, help, ConstGauge::new(limit));
        }
    }

    /// Counts a connection that has reached a limit.
    pub(super) fn reached(&self, limit: Limit) {
        self.limited.get_or_create(&limit.label()).inc();
    }

    /// Returns the number of client connections accepted since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.get()
    }

    /// Returns the number of open client connections.
    #[must_use]
    pub fn connections_open(&self) -> i64 {
        self.connections_open.get()
    }

    /// Returns the number of calls in flight.
    #[must_use]
    pub fn streams_open(&self) -> i64 {
        self.streams_open.get()
    }

    /// Returns the number of times that a connection reached the limit of calls in flight.
    #[must_use]
    pub fn streams_limited(&self) -> u64 {
        self.limited.get_or_create(&Limit::Streams.label()).get()
    }

    /// Returns the number of times that a connection reached the limit of bytes that wait to be
    /// written to the runtime.
    #[must_use]
    pub fn unwritten_limited(&self) -> u64 {
        self.limited.get_or_create(&Limit::UnwrittenBytes.label()).get()
    }

    /// Returns the number of times that a client was not read because it had reset too many calls.
    #[must_use]
    pub fn resets_limited(&self) -> u64 {
        self.limited.get_or_create(&Limit::Resets.label()).get()
    }

    /// Returns the number of times that a connection had to wait for its next turn with more to do.
    #[must_use]
    pub fn turns_exhausted(&self) -> u64 {
        self.turns_exhausted.get()
    }
}
