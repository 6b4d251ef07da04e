//! The hub through which the engine passes calls to active captures. It never waits for a reader.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::execsync::CallRecord;
use crate::history::Filter;
use crate::tap::{BodyCapture, BodyCaptureGuard, CallBodies, DecodedCall};

/// Maximum number of captures at the same time.
const MAX_CAPTURES: usize = 4;

/// Maximum number of calls that wait for the reader of a capture. Further ones are dropped and
/// counted.
const QUEUE_CAPACITY: usize = 1024;

/// Maximum number of calls with messages that have ended and are not analyzed yet. Further ones are
/// dropped, and counted if they match the filter.
const MAX_PENDING: usize = 8192;

/// Maximum number of all calls that have ended and are not analyzed yet. Further ones are dropped,
/// and counted if they may match the filter.
const MAX_COUNTED: usize = 8 * MAX_PENDING;

/// Hub of the captures. Clones share it.
#[derive(Clone, Debug)]
pub struct CaptureHub {
    bodies: BodyCapture,
    table: Arc<Mutex<CaptureTable>>,
}

/// A capture that is active until it is dropped.
#[derive(Debug)]
pub struct CaptureSession {
    hub: CaptureHub,
    id: u64,
    queue: mpsc::Receiver<CaptureItem>,
}

/// A call of a capture.
#[derive(Clone, Debug)]
pub struct CaptureItem {
    /// The call.
    pub record: Arc<CallRecord>,
    /// Its messages.
    pub bodies: Arc<CallBodies>,
    /// Time that the client gave the call.
    pub timeout: Option<Duration>,
    /// Number of calls that were dropped immediately before this one.
    pub missed: u64,
}

/// The maximum number of captures is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_CAPTURES} captures are active, which is the limit; try again once one has ended")]
pub struct TooManyCaptures;

#[derive(Debug, Default)]
struct CaptureTable {
    next_id: u64,
    active: Vec<ActiveCapture>,
    /// Calls that have ended and are not analyzed yet, by id.
    pending: HashMap<u64, PendingCall>,
}

#[derive(Debug)]
struct ActiveCapture {
    id: u64,
    filter: Filter,
    /// Queue of the reader; `None` once all calls of the capture have been queued.
    queue: Option<mpsc::Sender<CaptureItem>>,
    /// Number of calls that were dropped since the last queued call.
    missed: u64,
    /// Number of pending calls.
    pending: usize,
    /// Whether calls that end from now on are not captured.
    finishing: bool,
    _guard: BodyCaptureGuard,
}

#[derive(Debug)]
struct PendingCall {
    /// The messages; `None` if there was no room for the call, which is only counted.
    bodies: Option<Arc<CallBodies>>,
    timeout: Option<Duration>,
    /// The captures of the call.
    captures: Vec<u64>,
}

impl CaptureHub {
    /// Creates the hub of a tap.
    #[must_use]
    pub fn new(bodies: BodyCapture) -> Self {
        Self { bodies, table: Arc::default() }
    }

    /// Starts a capture of the calls that match a filter.
    pub fn start(&self, filter: Filter) -> Result<CaptureSession, TooManyCaptures> {
        let mut table = self.lock();
        if table.active.len() >= MAX_CAPTURES {
            return Err(TooManyCaptures);
        }
        let (id, (sender, queue)) = (table.next_id, mpsc::channel(QUEUE_CAPACITY));
        table.next_id += 1;
        table.active.push(ActiveCapture {
            id,
            filter,
            queue: Some(sender),
            missed: 0,
            pending: 0,
            finishing: false,
            _guard: self.bodies.start(),
        });
        drop(table);
        Ok(CaptureSession { hub: self.clone(), id, queue })
    }

    /// Takes the messages of a call that has ended, until the call is recorded.
    pub(crate) fn on_call_ended(&self, call: &mut DecodedCall) {
        let bodies = call.bodies.take();
        if !self.bodies.is_active() {
            return;
        }
        let table = &mut *self.lock();
        let waiting = table.pending.len();
        let is_its =
            |capture: &&mut ActiveCapture| !capture.finishing && capture.filter.may_match(&call.call);
        let mut captures = Vec::new();
        for capture in table.active.iter_mut().filter(is_its) {
            if waiting < MAX_COUNTED {
                capture.pending += 1;
                captures.push(capture.id);
            } else {
                capture.missed += 1;
            }
        }
        if !captures.is_empty() {
            let bodies = (waiting < MAX_PENDING).then(|| Arc::new(bodies.map(|it| *it).unwrap_or_default()));
            let pending = PendingCall { bodies, timeout: call.info.timeout, captures };
            table.pending.insert(call.call.id, pending);
        }
    }

    /// Passes a recorded call to its captures.
    pub(crate) fn on_record(&self, record: &Arc<CallRecord>) {
        if !self.bodies.is_active() {
            return;
        }
        let table = &mut *self.lock();
        let Some(pending) = table.pending.remove(&record.call.id) else { return };
        for capture in table.active.iter_mut().filter(|capture| pending.captures.contains(&capture.id)) {
            capture.push(record, &pending);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CaptureTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveCapture {
    fn push(&mut self, record: &Arc<CallRecord>, call: &PendingCall) {
        if let Some(queue) = self.queue.as_ref().filter(|_| self.filter.matches(record)) {
            let PendingCall { bodies, timeout, .. } = call;
            let sent = bodies.as_ref().is_some_and(|bodies| {
                let (record, bodies) = (record.clone(), bodies.clone());
                let item = CaptureItem { record, bodies, timeout: *timeout, missed: self.missed };
                queue.try_send(item).is_ok()
            });
            self.missed = if sent { 0 } else { self.missed + 1 };
        }
        self.pending -= 1;
        self.close_if_finished();
    }

    fn close_if_finished(&mut self) {
        if self.finishing && self.pending == 0 {
            self.queue = None;
        }
    }
}

impl CaptureSession {
    /// Waits for calls and appends up to `limit` of them. Returns 0 once the capture is finished
    /// and all its calls have been received. Cancel safe.
    pub async fn recv_many(&mut self, items: &mut Vec<CaptureItem>, limit: usize) -> usize {
        self.queue.recv_many(items, limit).await
    }

    /// Ends the capture: only calls that have already ended are still received.
    pub fn finish(&self) {
        if let Some(capture) = self.hub.lock().active.iter_mut().find(|capture| capture.id == self.id) {
            capture.finishing = true;
            capture.close_if_finished();
        }
    }

    /// Returns the number of calls that were dropped after the last received one. It includes those
    /// that are not analyzed yet, and may match the filter.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let table = self.hub.lock();
        let capture = table.active.iter().find(|capture| capture.id == self.id);
        capture.map_or(0, |capture| capture.missed + capture.pending as u64)
    }
}

impl Drop for CaptureSession {
    fn drop(&mut self) {
        let mut table = self.hub.lock();
        table.active.retain(|capture| capture.id != self.id);
        table.pending.retain(|_, pending| {
            pending.captures.retain(|id| *id != self.id);
            !pending.captures.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tokio::time::Instant;

    use super::*;
    use crate::cri::MethodName;
    use crate::object_ref::ContainerRef;
    use crate::relay::CallInfo;
    use crate::tap::{Call, Observations};

    const VERSION: &str = "/runtime.v1.RuntimeService/Version";
    const STATUS: &str = "/runtime.v1.RuntimeService/Status";

    fn ended(hub: &CaptureHub, id: u64, path: &str) -> Arc<CallRecord> {
        let (start, since) = (SystemTime::now(), Instant::now());
        let method = MethodName::of_path(path);
        let info = Arc::new(CallInfo { id, peer: None, method, start, since, trace: None, timeout: None });
        let mut call = DecodedCall {
            call: Call::new(&info),
            info,
            received: None,
            times: None,
            observations: Observations { observed_since: since, items: Vec::new() },
            request: None,
            bodies: None,
        };
        hub.on_call_ended(&mut call);
        Arc::new(CallRecord::unanalyzed(call.call, None, None))
    }

    async fn received(session: &mut CaptureSession) -> Vec<(u64, u64)> {
        let mut items = Vec::new();
        session.recv_many(&mut items, usize::MAX).await;
        items.iter().map(|item| (item.record.call.id, item.missed)).collect()
    }

    #[tokio::test]
    async fn a_capture_receives_the_matching_calls_that_end_before_it_is_finished() {
        let hub = CaptureHub::new(BodyCapture::default());
        let early = ended(&hub, 1, VERSION);
        let method = Some(MethodName::of_path(VERSION));
        let mut session = hub.start(Filter { method, ..Filter::default() }).unwrap();
        hub.on_record(&early);
        let calls = [ended(&hub, 2, VERSION), ended(&hub, 3, STATUS), ended(&hub, 4, VERSION)];
        session.finish();
        let late = ended(&hub, 5, VERSION);
        for record in calls.iter().chain([&late]) {
            hub.on_record(record);
        }
        assert_eq!(received(&mut session).await, [(2, 0), (4, 0)]);
        assert_eq!(received(&mut session).await, [], "the capture has ended");
        assert!(hub.bodies.is_active());
        drop(session);
        assert!(!hub.bodies.is_active() && hub.lock().pending.is_empty());
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_misses_calls_which_are_counted() {
        let hub = CaptureHub::new(BodyCapture::default());
        let mut session = hub.start(Filter::default()).unwrap();
        let record = |id| hub.on_record(&ended(&hub, id, VERSION));
        (0..QUEUE_CAPACITY as u64 + 3).for_each(record);
        assert_eq!(session.missed(), 3);
        assert_eq!(received(&mut session).await.len(), QUEUE_CAPACITY);
        record(5000);
        assert_eq!(received(&mut session).await, [(5000, 3)]);
        let unanalyzed = ended(&hub, 5001, VERSION);
        session.finish();
        assert_eq!(session.missed(), 1);
        hub.on_record(&unanalyzed);
        assert_eq!((received(&mut session).await, session.missed()), (vec![(5001, 0)], 0));
    }

    #[tokio::test]
    async fn only_calls_that_match_the_filter_count_as_missed() {
        let hub = CaptureHub::new(BodyCapture::default());
        let filter = Filter {
            method: Some(MethodName::of_path(VERSION)),
            container: Some("main".to_owned()),
            ..Filter::default()
        };
        let mut session = hub.start(filter).unwrap();
        let in_container = |record: &CallRecord, name: &str| {
            let mut call = (*record.call).clone();
            call.container =
                Some(Arc::new(ContainerRef { name: Some(name.to_owned()), ..ContainerRef::default() }));
            Arc::new(CallRecord::unanalyzed(call, None, None))
        };
        let waiting: Vec<_> = (0..MAX_PENDING as u64).map(|id| ended(&hub, id, VERSION)).collect();
        let [other_method, other, own] =
            [(10_000, STATUS), (10_001, VERSION), (10_002, VERSION)].map(|(id, path)| ended(&hub, id, path));
        for record in &waiting {
            hub.on_record(&in_container(record, "other"));
        }
        hub.on_record(&in_container(&other_method, "main"));
        hub.on_record(&in_container(&other, "other"));
        assert_eq!(session.missed(), 1, "a call is not analyzed yet");
        hub.on_record(&in_container(&own, "main"));
        assert_eq!(session.missed(), 1, "there was no room for it");
        hub.on_record(&in_container(&ended(&hub, 10_003, VERSION), "main"));
        assert_eq!(received(&mut session).await, [(10_003, 1)]);
    }

    #[test]
    fn the_number_of_captures_is_limited() {
        let hub = CaptureHub::new(BodyCapture::default());
        let mut sessions: Vec<_> = (0..MAX_CAPTURES).map(|_| hub.start(Filter::default()).unwrap()).collect();
        assert_eq!(hub.start(Filter::default()).unwrap_err(), TooManyCaptures);
        sessions.pop();
        assert!(hub.start(Filter::default()).is_ok());
    }
}
