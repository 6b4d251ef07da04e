//! Connections and calls while they go on: counted while they live, and told of when they are dropped, however they end.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use h2::RecvStream;
use http::Request;
use tokio::time::Instant;
use tracing::debug;

use super::ending::Ending;
use super::metrics::Metrics;
use super::observe::{Captures, Direction, Observed, Observer};
use super::peer::Peer;
use crate::cri::MethodName;
use crate::terminal::harmless;

/// What the connections of a relay share in telling of their calls.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    observer: Arc<dyn Observer>,
    metrics: Metrics,
    ids: Arc<AtomicU64>,
}

/// A client connection, as the calls on it know it. Counts as open until it is dropped.
#[derive(Debug)]
pub(super) struct ClientConnection {
    /// Counts connections, for the log.
    pub(super) id: u64,
    peer: Option<Arc<Peer>>,
    /// Set once upstream has gone: calls that are then cut off are lost, not abandoned.
    upstream_is_gone: AtomicBool,
    tracker: Tracker,
}

/// A call that goes on.
#[derive(Debug)]
pub(super) struct CallInFlight {
    connection: Arc<ClientConnection>,
    id: u64,
    method: MethodName,
    start: SystemTime,
    since: Instant,
    pub(super) end: End,
    pub(super) request: Direction,
    pub(super) response: Direction,
}

/// How and when a call ended. What is noted first counts.
#[derive(Debug)]
pub(super) struct End(Option<(Ending, Instant)>);

impl End {
    pub(super) fn note(&mut self, ending: Ending) {
        self.0.get_or_insert_with(|| (ending, Instant::now()));
    }
}

impl Tracker {
    pub(super) fn new(observer: Arc<dyn Observer>, metrics: Metrics) -> Self {
        Self { observer, metrics, ids: Arc::default() }
    }

    /// A connection has been accepted.
    pub(super) fn connected(&self, id: u64, peer: Option<Peer>) -> Arc<ClientConnection> {
        self.metrics.connections.inc();
        self.metrics.connections_open.inc();
        let peer = peer.map(Arc::new);
        Arc::new(ClientConnection {
            id,
            peer,
            upstream_is_gone: AtomicBool::new(false),
            tracker: self.clone(),
        })
    }
}

impl ClientConnection {
    /// Upstream has gone.
    pub(super) fn lost_upstream(&self) {
        self.upstream_is_gone.store(true, Ordering::Relaxed);
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.tracker.metrics.connections_open.dec();
    }
}

impl fmt::Display for ClientConnection {
    /// Who is at its other end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer {
            Some(peer) => peer.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

impl CallInFlight {
    /// A call's head has come.
    pub(super) fn start(connection: Arc<ClientConnection>, request: &Request<RecvStream>) -> Self {
        let tracker = &connection.tracker;
        tracker.metrics.streams_open.inc();
        let id = tracker.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let method = MethodName::of_path(request.uri().path());
        let Captures { request, response } = tracker.observer.captures(&method);
        Self {
            connection,
            id,
            method,
            start: SystemTime::now(),
            since: Instant::now(),
            end: End(None),
            request: Direction::new(request),
            response: Direction::new(response),
        }
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        // A call whose task is dropped in the middle ends with the connection that went first.
        let cut_off = if self.connection.upstream_is_gone.load(Ordering::Relaxed) {
            Ending::Lost
        } else {
            Ending::Abandoned
        };
        let (status, at) = self.end.0.unwrap_or_else(|| (cut_off, Instant::now()));
        let (id, connection) = (self.id, self.connection.id);
        let method = mem::replace(&mut self.method, MethodName::Other(Box::default()));
        let (duration, reason) = (at.duration_since(self.since), status.reason().map(tracing::field::debug));
        debug!(id, connection, method = harmless(&method.to_string()), %status, reason, ?duration, "call");
        let tracker = &self.connection.tracker;
        tracker.metrics.streams_open.dec();
        tracker.observer.ended(Observed {
            id,
            peer: self.connection.peer.clone(),
            method,
            start: self.start,
            duration,
            ending: status,
            request: mem::take(&mut self.request),
            response: mem::take(&mut self.response),
        });
    }
}
