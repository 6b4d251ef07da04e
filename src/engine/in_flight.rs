//! The calls in flight, with the details that the engine knows, and the wait for the records of
//! those that have ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::execsync::{CallInFlight, RequestDetails};
use crate::object_ref::{ContainerRef, PodRef};
use crate::tap::{CallsInFlight, HeldRequest, InternalCalls, StopRequest};

/// Maximum number of queries that wait for the engine.
const MAX_QUERIES: usize = 16;

/// Time to wait for details. Without them, calls have only a method, a client and an age.
const DETAILS_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to wait until the calls that have ended are recorded. A record waits for events and
/// evidence for at most a second.
const RECORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// Details of calls in flight, by id.
pub(super) type Details = HashMap<u64, RequestDetails>;

/// A query of the reader.
#[derive(Debug)]
pub(crate) enum InFlightQuery {
    /// A query of the details.
    Details(oneshot::Sender<Details>),
    /// A query that is answered once the calls that have ended are recorded.
    Records(oneshot::Sender<()>),
}

/// A query that waits for the records of calls.
#[derive(Debug)]
pub(super) struct RecordsQuery {
    /// Ids of the calls that are not recorded yet.
    missing: HashSet<u64>,
    answer: oneshot::Sender<()>,
}

/// Reader of the calls in flight. Nothing is collected for it before it reads.
#[derive(Clone, Debug)]
pub struct InFlightReader {
    calls: Arc<CallsInFlight>,
    /// Orders a query after the ends of earlier calls.
    internal_calls: InternalCalls,
    queries: mpsc::Sender<InFlightQuery>,
}

/// Requests in flight that stop or remove an object, or that the policy holds.
#[derive(Debug, Default)]
pub(super) struct RequestsInFlight {
    stops: HashMap<u64, StopRequest>,
    held: HashMap<u64, HeldRequest>,
}

impl InFlightReader {
    /// Creates a reader, and the receiver of its queries.
    pub(crate) fn new(
        calls: Arc<CallsInFlight>,
        internal_calls: InternalCalls,
    ) -> (Self, mpsc::Receiver<InFlightQuery>) {
        let (queries, receiver) = mpsc::channel(MAX_QUERIES);
        (Self { calls, internal_calls, queries }, receiver)
    }

    /// Waits until the calls that have ended are recorded, or for `RECORDS_TIMEOUT`.
    pub async fn wait_for_records(&self) {
        let recorded = async {
            self.internal_calls.flush().await;
            let (query, answer) = oneshot::channel();
            if self.queries.try_send(InFlightQuery::Records(query)).is_ok() {
                // The engine may have ended.
                let _ = answer.await;
            }
        };
        // After the timeout the records are read as they are.
        let _ = timeout(RECORDS_TIMEOUT, recorded).await;
    }

    /// Returns the calls in flight, in the order of their ids.
    pub async fn list(&self) -> Vec<CallInFlight> {
        let calls = self.calls.list();
        if calls.is_empty() {
            return Vec::new();
        }
        let (query, answer) = oneshot::channel();
        let mut details = Details::new();
        if self.queries.try_send(InFlightQuery::Details(query)).is_ok()
            && let Ok(Ok(known)) = timeout(DETAILS_TIMEOUT, answer).await
        {
            details = known;
        }
        let with_details = calls.into_iter().map(|call| {
            let mut details = details.remove(&call.info.id).unwrap_or_default();
            details.pod = details.pod.or(call.pod);
            details.container = details.container.or(call.container);
            CallInFlight { info: call.info, details }
        });
        with_details.collect()
    }
}

impl RecordsQuery {
    /// Returns the query, unless it is answered because all calls that have ended are recorded.
    pub(super) fn new(missing: HashSet<u64>, answer: oneshot::Sender<()>) -> Option<Self> {
        Self { missing, answer }.unless_complete()
    }

    /// Removes a call that has been recorded. Returns the query, unless it is answered or its
    /// reader has given up.
    pub(super) fn without(mut self, call: u64) -> Option<Self> {
        self.missing.remove(&call);
        self.unless_complete()
    }

    fn unless_complete(self) -> Option<Self> {
        if self.missing.is_empty() {
            // The reader may have given up.
            let _ = self.answer.send(());
            return None;
        }
        (!self.answer.is_closed()).then_some(self)
    }
}

impl RequestsInFlight {
    /// Adds a request that stops or removes an object. It is no longer held.
    pub(super) fn stop(&mut self, request: StopRequest) {
        // The end of a call is not reported if the tap's queue is full.
        self.stops.retain(|_, request| request.info.strong_count() > 0);
        if let Some(info) = request.info.upgrade() {
            self.held.remove(&info.id);
            self.stops.insert(info.id, request);
        }
    }

    /// Adds a request that the policy holds.
    pub(super) fn hold(&mut self, request: HeldRequest) {
        self.held.retain(|_, request| request.info.strong_count() > 0);
        if let Some(info) = request.info.upgrade() {
            self.held.insert(info.id, request);
        }
    }

    /// Removes the request of a call that has ended, or that is no longer held.
    pub(super) fn remove(&mut self, id: u64) {
        self.stops.remove(&id);
        self.held.remove(&id);
    }

    /// Returns the details of the requests, with only the ids of their objects. `redacts` leaves
    /// out the arguments of commands.
    pub(super) fn details(&self, redacts: bool) -> impl Iterator<Item = (u64, RequestDetails)> {
        let stops = self.stops.iter().map(|(id, request)| {
            let pod = request.sandbox.clone().map(|id| PodRef { id: Some(id), ..PodRef::default() });
            let container =
                request.container.clone().map(|id| ContainerRef { id: Some(id), ..ContainerRef::default() });
            let (pod, container) = (pod.map(Arc::new), container.map(Arc::new));
            (*id, RequestDetails { pod, container, ..RequestDetails::default() })
        });
        let held = self.held.iter().map(move |(id, request)| {
            let HeldRequest { info: _, pod, container, exec, marks } = request;
            let exec = exec.as_deref().map(|exec| if redacts { exec.redacted() } else { exec.clone() });
            let (pod, container, exec) = (pod.clone(), container.clone(), exec.map(Arc::new));
            let held = Some(marks.clone());
            (*id, RequestDetails { pod, container, exec, held, ..RequestDetails::default() })
        });
        stops.chain(held)
    }
}
