//! What the relay tells of its calls, and to whom.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use http::uri::PathAndQuery;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{Duration, Instant};

use super::copy::Copy;
use super::ending::Ending;
use super::peer::Peer;

/// Watches calls. It is asked and told on the byte path: it must not wait, and must not work there.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Where to copy the request and the response of a call to this path, if its messages matter.
    fn copies(&self, path: &str) -> [Option<Copy>; 2];

    /// A call has ended.
    fn ended(&self, call: Observed);
}

/// A call that has ended.
#[derive(Debug)]
pub struct Observed {
    /// Counts the calls of this relay in the order in which they came, from 1.
    pub id: u64,
    /// Who made it; `None` where the kernel did not tell.
    pub peer: Option<Arc<Peer>>,
    /// The path of the request, such as `/runtime.v1.RuntimeService/Version`. `None` for a request without one.
    pub path: Option<PathAndQuery>,
    /// When its head came, by the wall clock.
    pub start: SystemTime,
    /// From its head to its end.
    pub duration: Duration,
    /// How it ended.
    pub ending: Ending,
    /// What went up.
    pub request: Passed,
    /// What came down.
    pub response: Passed,
}

/// What one direction of a call carried.
#[derive(Debug, Default)]
pub struct Passed {
    /// Bytes of DATA that were passed on: messages with their gRPC frames.
    pub bytes: u64,
    /// A copy of their beginning, where one was asked for.
    pub copy: Option<Copy>,
}

/// Gauges and counters that the byte path keeps itself, so that they are exact whatever the observer drops.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    connections: Counter,
    connections_open: Gauge,
    streams_open: Gauge,
}

/// What the connections of a relay share in telling of their calls.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    observer: Arc<dyn Observer>,
    metrics: Metrics,
    ids: Arc<AtomicU64>,
}

/// A client connection, as the calls on it know it.
#[derive(Debug)]
pub(super) struct Caller {
    /// Counts connections, for the log.
    pub(super) connection: u64,
    pub(super) peer: Option<Arc<Peer>>,
    watch: Watch,
}

/// A call that goes on; it is told of when this is dropped, however it ended.
#[derive(Debug)]
pub(super) struct Call {
    caller: Arc<Caller>,
    id: u64,
    path: Option<PathAndQuery>,
    start: SystemTime,
    since: Instant,
    pub(super) ending: Ending,
    pub(super) request: Passed,
    pub(super) response: Passed,
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

impl Watch {
    pub(super) fn new(observer: Arc<dyn Observer>, metrics: Metrics) -> Self {
        Self { observer, metrics, ids: Arc::default() }
    }

    /// A connection has been accepted; it counts as open until the caller is dropped.
    pub(super) fn connected(&self, connection: u64, peer: Option<Peer>) -> Arc<Caller> {
        self.metrics.connections.inc();
        self.metrics.connections_open.inc();
        Arc::new(Caller { connection, peer: peer.map(Arc::new), watch: self.clone() })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.watch.metrics.connections_open.dec();
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer {
            Some(peer) => peer.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

impl Call {
    /// A call's head has come.
    pub(super) fn start(caller: Arc<Caller>, path: Option<PathAndQuery>) -> Self {
        let watch = &caller.watch;
        watch.metrics.streams_open.inc();
        let id = watch.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let [request, response] = watch
            .observer
            .copies(path.as_ref().map_or("", PathAndQuery::path))
            .map(|copy| Passed { bytes: 0, copy });
        Self {
            caller,
            id,
            path,
            start: SystemTime::now(),
            since: Instant::now(),
            // What a call is whose task is dropped in the middle, with its connection.
            ending: Ending::Abandoned,
            request,
            response,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn connection(&self) -> u64 {
        self.caller.connection
    }

    pub(super) fn path(&self) -> &str {
        self.path.as_ref().map_or("", PathAndQuery::path)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let watch = &self.caller.watch;
        watch.metrics.streams_open.dec();
        watch.observer.ended(Observed {
            id: self.id,
            peer: self.caller.peer.clone(),
            path: self.path.take(),
            start: self.start,
            duration: self.since.elapsed(),
            ending: self.ending,
            request: std::mem::take(&mut self.request),
            response: std::mem::take(&mut self.response),
        });
    }
}
