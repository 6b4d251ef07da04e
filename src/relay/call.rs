//! Connections and calls in flight. They are counted while they exist, and reported when they are
//! dropped, however they end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use h2::RecvStream;
use http::Request;
use tokio::time::Instant;
use tracing::debug;

use super::body_tap::{BodyTap, ObserverRef};
use super::capture::CaptureBudget;
use super::marks::MarkSet;
use super::metrics::{Limit, RelayMetrics};
use super::observer::{CallInfo, CaptureMode, CapturePlan, CompletedCall, Observer, TraceContext};
use super::outcome::CallOutcome;
use super::peer::Peer;
use super::policy::{CallPolicy, Interceptor};
use super::turn::Turns;
use crate::cri::{MethodName, StatusMessage, grpc_timeout};
use crate::terminal::sanitize;

/// Maximum bytes of all requests together that the policy reads before they are forwarded. Further
/// ones are forwarded unread.
const INTERCEPTED_BYTES: usize = 64 << 20;

/// State that the connections of a relay share to report their calls.
#[derive(Clone, Debug)]
pub(super) struct CallRegistry {
    observer: Arc<dyn Observer>,
    policy: Arc<dyn CallPolicy>,
    /// Memory for the requests that the policy reads.
    interception_budget: CaptureBudget,
    metrics: RelayMetrics,
    numbers: CallIds,
}

/// Numbers of calls, in the order in which the calls arrive. Clones share the counter.
#[derive(Clone, Debug)]
pub struct CallIds(Arc<AtomicU64>);

/// A client connection, as its calls see it. It counts as open until it is dropped.
#[derive(Debug)]
pub(super) struct ClientConnection {
    /// Number of the connection, for the log.
    pub(super) id: u64,
    peer: Option<Arc<Peer>>,
    /// Set once upstream is gone. Calls that are cut off after that are connection-lost, not
    /// client-gone.
    upstream_is_gone: AtomicBool,
    tracker: CallRegistry,
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct CallInFlight {
    connection: Arc<ClientConnection>,
    info: Arc<CallInfo>,
    pub(super) end: CallEnd,
    pub(super) request: BodyTap,
    pub(super) response: BodyTap,
    /// Marks of the call, if the policy affected it.
    pub(super) marks: MarkSet,
}

/// Outcome of a call, time of its end, and status message.
#[derive(Debug, Default)]
pub(super) struct CallEnd {
    /// The first recorded outcome, which counts, with its time.
    outcome: Option<(CallOutcome, Instant)>,
    /// Status message, if the response is complete and the call has failed.
    pub(super) message: Option<StatusMessage>,
}

impl CallIds {
    /// Creates a sequence whose first number is `first`.
    #[must_use]
    pub fn starting_at(first: u64) -> Self {
        Self(Arc::new(AtomicU64::new(first)))
    }

    /// Returns the number that the next call receives.
    #[must_use]
    pub fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the next number, which no other call receives.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl CallEnd {
    pub(super) fn note(&mut self, ending: CallOutcome) {
        self.outcome.get_or_insert_with(|| (ending, Instant::now()));
    }
}

impl CallRegistry {
    pub(super) fn new(
        observer: Arc<dyn Observer>,
        policy: Arc<dyn CallPolicy>,
        metrics: RelayMetrics,
        numbers: CallIds,
    ) -> Self {
        let interception_budget = CaptureBudget::new(INTERCEPTED_BYTES);
        Self { observer, policy, interception_budget, metrics, numbers }
    }

    /// Returns whether the policy closes the connection of a client before it is read.
    pub(super) fn refuses(&self, peer: Option<&Peer>) -> bool {
        self.policy.refuses(peer)
    }

    /// Returns the turns of a connection.
    pub(super) fn turns(&self) -> Turns {
        Turns::new(self.metrics.clone())
    }

    /// Registers an accepted connection.
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
    /// Counts that the connection has reached a limit.
    pub(super) fn reached(&self, limit: Limit) {
        self.tracker.metrics.reached(limit);
    }

    pub(super) fn mark_upstream_gone(&self) {
        self.upstream_is_gone.store(true, Ordering::Relaxed);
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.tracker.metrics.connections_open.dec();
    }
}

impl fmt::Display for ClientConnection {
    /// Writes the peer of the connection.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer {
            Some(peer) => peer.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

impl CallInFlight {
    /// Starts a call whose request head was received.
    pub(super) fn start(connection: Arc<ClientConnection>, request: &Request<RecvStream>) -> Self {
        let tracker = &connection.tracker;
        tracker.metrics.streams_open.inc();
        let id = tracker.numbers.next();
        let method = MethodName::of_path(request.uri().path());
        let CapturePlan { request: up, response: down, notify_on_request, keep_timeout } =
            tracker.observer.capture_plan(&method);
        let info = Arc::new(CallInfo {
            id,
            peer: connection.peer.clone(),
            method,
            start: SystemTime::now(),
            since: Instant::now(),
            trace: TraceContext::from_headers(request.headers()),
            timeout: keep_timeout.then(|| grpc_timeout(request.headers())).flatten(),
        });
        tracker.observer.on_start(&info);
        let listener = || ObserverRef { info: info.clone(), observer: tracker.observer.clone() };
        let to_announce = notify_on_request.then(listener);
        let to_stream = matches!(down, CaptureMode::Messages { .. }).then(listener);
        let (request, response) = (BodyTap::new(up, to_announce), BodyTap::new(down, to_stream));
        Self { info, connection, end: CallEnd::default(), request, response, marks: MarkSet::default() }
    }

    /// Returns the memory for the requests that the policy reads, which all calls share.
    pub(super) fn interception_budget(&self) -> CaptureBudget {
        self.connection.tracker.interception_budget.clone()
    }

    /// Returns the interceptor of the call, if the policy may affect the call.
    pub(super) fn interceptor(&self) -> Option<Box<dyn Interceptor>> {
        self.connection.tracker.policy.interceptor(&self.info)
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        // A call whose task is dropped early ends with the connection that was closed first.
        let cut_off = if self.connection.upstream_is_gone.load(Ordering::Relaxed) {
            CallOutcome::ConnectionLost
        } else {
            CallOutcome::ClientGone
        };
        let (status, at) = self.end.outcome.unwrap_or_else(|| (cut_off, Instant::now()));
        let Self { info, connection, .. } = &*self;
        let duration = at.duration_since(info.since);
        debug!(
            id = info.id,
            connection = connection.id,
            method = sanitize(&info.method.to_string()),
            %status,
            reason = status.reason().map(tracing::field::debug),
            ?duration,
            "call"
        );
        let tracker = &self.connection.tracker;
        tracker.metrics.streams_open.dec();
        tracker.observer.on_end(CompletedCall {
            info: info.clone(),
            duration,
            ending: status,
            message: self.end.message.take(),
            request: self.request.take().into_direction(),
            response: self.response.take().into_direction(),
            marks: self.marks.take(),
        });
    }
}
