//! Reports internal `ExecSync`s and `StopContainer`s to the tap. They are explained and recorded
//! like those of clients, and their exec instances are not attributed to other callers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Status;

use super::CallsInFlight;
use super::QueueItem;
use super::call::MAX_OUTPUT_BYTES;
use super::call::{Call, ExecCall, ExecResult, KillRecord};
use super::decoder::{DecodedCall, ExecRequest, Observations, SendTimes, TapEvent};
use super::messages::cut;
use super::messages::exec::first_output;
use super::metrics::TapMetrics;
use crate::cri::v1::ExecSyncResponse;
use crate::cri::{Code, MethodName};
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallIds, CallInfo, CallMarks, CallOutcome, Peer};

/// Paths of the methods.
const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";
const STOP_CONTAINER: &str = "/runtime.v1.RuntimeService/StopContainer";

/// Maximum number of `ExecSync`s that are reported each second: more than a node has, and more than
/// a container runtime executes. Further ones are only counted.
const MAX_EXECS_PER_SECOND: u32 = 200;

/// Reports internal calls to the tap, without waiting. An event is dropped and counted if the queue
/// is full.
#[derive(Clone, Debug)]
pub struct InternalCalls {
    queue: mpsc::WeakSender<QueueItem>,
    numbers: CallIds,
    metrics: TapMetrics,
    peer: Arc<Peer>,
    second: Arc<Mutex<RateWindow>>,
    in_flight: Arc<CallsInFlight>,
}

/// A second, and the number of `ExecSync`s in it.
#[derive(Debug)]
struct RateWindow {
    since: Instant,
    count: u32,
}

/// An internal call in flight.
#[derive(Debug)]
pub struct InternalCall {
    calls: InternalCalls,
    info: Arc<CallInfo>,
    call: Call,
    is_reported: bool,
    /// Time at which an `ExecSync` was sent to the runtime.
    sent: Option<Instant>,
}

/// An internal call that has ended. It is reported when this value is dropped, so that the prober
/// can decide first whether it discards the attempt.
#[derive(Debug)]
pub struct EndedCall {
    calls: InternalCalls,
    /// The end of the call; `None` if the call is not reported.
    end: Option<Box<DecodedCall>>,
}

impl InternalCalls {
    pub(super) fn new(
        queue: mpsc::WeakSender<QueueItem>,
        numbers: CallIds,
        metrics: TapMetrics,
        in_flight: Arc<CallsInFlight>,
    ) -> Self {
        let peer = Peer {
            uid: rustix::process::geteuid().as_raw(),
            pid: i32::try_from(std::process::id()).ok(),
            program: Some(env!("CARGO_PKG_NAME").to_owned()),
        };
        let second = RateWindow { since: Instant::now(), count: 0 };
        Self {
            queue,
            numbers,
            metrics,
            peer: Arc::new(peer),
            second: Arc::new(Mutex::new(second)),
            in_flight,
        }
    }

    /// Starts an internal `ExecSync`. It is not reported if there are too many to report each.
    #[must_use]
    pub fn exec(
        &self,
        pod: Arc<PodRef>,
        container: Arc<ContainerRef>,
        command: &[String],
        timeout_seconds: i64,
    ) -> InternalCall {
        let is_reported = self.second.lock().unwrap_or_else(PoisonError::into_inner).has_room(Instant::now());
        if !is_reported {
            self.metrics.record_internal_exec_dropped();
        }
        let mut internal_call = self.new_call(EXEC_SYNC, pod, container, is_reported);
        let exec = ExecCall { command: command.to_vec(), timeout_seconds, ..ExecCall::default() };
        internal_call.call.exec = Some(Box::new(exec));
        internal_call
    }

    /// Starts an internal `StopContainer`. `kill` is the reason, if a probe has failed.
    #[must_use]
    pub fn stop(
        &self,
        pod: Arc<PodRef>,
        container: Arc<ContainerRef>,
        kill: Option<KillRecord>,
    ) -> InternalCall {
        let mut internal_call = self.new_call(STOP_CONTAINER, pod, container, true);
        internal_call.call.kill = kill.map(Box::new);
        internal_call
    }

    /// Waits until all earlier events have been processed. Returns false if the queue is full or
    /// the tap is gone.
    pub async fn flush(&self) -> bool {
        let (seen, all_seen) = oneshot::channel();
        self.send(TapEvent::Barrier(seen));
        all_seen.await.is_ok()
    }

    fn new_call(
        &self,
        path: &str,
        pod: Arc<PodRef>,
        container: Arc<ContainerRef>,
        is_reported: bool,
    ) -> InternalCall {
        let info = Arc::new(CallInfo {
            id: self.numbers.next(),
            peer: Some(self.peer.clone()),
            method: MethodName::of_path(path),
            start: SystemTime::now(),
            since: Instant::now(),
            trace: None,
            timeout: None,
        });
        if is_reported {
            self.in_flight.insert_internal(&info, pod.clone(), container.clone());
        }
        let call = Call { pod: Some(pod), container: Some(container), ..Call::new(&info) };
        InternalCall { calls: self.clone(), info, call, is_reported, sent: None }
    }

    fn send(&self, event: TapEvent) {
        // Without the tap, nothing receives the event.
        let Some(queue) = self.queue.upgrade() else { return };
        if let Err(TrySendError::Full(queued) | TrySendError::Closed(queued)) =
            queue.try_send(QueueItem::Internal(Box::new(event)))
        {
            self.metrics.record_dropped(&queued);
        }
    }
}

impl RateWindow {
    fn has_room(&mut self, now: Instant) -> bool {
        if now - self.since >= Duration::from_secs(1) {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count <= MAX_EXECS_PER_SECOND
    }
}

impl InternalCall {
    /// Returns the information about the call.
    #[must_use]
    pub fn info(&self) -> &Arc<CallInfo> {
        &self.info
    }

    /// Reports that an `ExecSync` is sent to the runtime now.
    pub fn sent(&mut self) {
        let Self { calls, info, call, is_reported, sent } = self;
        let now = Instant::now();
        *sent = Some(now);
        let Some(exec) = call.exec.clone().filter(|_| *is_reported) else { return };
        calls.send(TapEvent::ExecRequested(Box::new(ExecRequest {
            info: Arc::downgrade(info),
            id: info.id,
            times: SendTimes { received: info.since, sent: now },
            container: call.container.clone(),
            exec,
        })));
    }

    /// Returns the call with its marks.
    #[must_use]
    pub fn marked(mut self, marks: CallMarks) -> Self {
        self.call.marks = (!marks.is_empty()).then(|| Box::new(marks));
        self
    }

    /// Ends an `ExecSync`. The first part of its output is kept.
    #[must_use]
    pub fn end_exec(mut self, result: Result<&ExecSyncResponse, &Status>) -> EndedCall {
        if let (Some(exec), Ok(response)) = (&mut self.call.exec, result) {
            exec.result = Some(ExecResult::from(response));
            exec.output = Some(first_output(response));
        }
        self.into_ended(result.map(drop))
    }

    /// Reports the end of the call.
    pub fn end(self, result: Result<(), &Status>) {
        drop(self.into_ended(result));
    }

    fn into_ended(self, result: Result<(), &Status>) -> EndedCall {
        let Self { calls, info, mut call, is_reported, sent } = self;
        if !is_reported {
            return EndedCall { calls, end: None };
        }
        let code = result.map_or_else(|status| Code::from(status.code()), |()| Code::OK);
        let message = result.err().map(Status::message).filter(|message| !message.is_empty());
        call.message = message.map(|message| cut(message.to_owned(), MAX_OUTPUT_BYTES).into());
        (call.duration, call.ending) = (info.since.elapsed(), CallOutcome::Completed(Some(code)));
        let times = sent.map(|sent| SendTimes { received: info.since, sent });
        let observations = Observations { observed_since: info.since, items: Vec::new() };
        calls.in_flight.remove_internal(info.id);
        let end = DecodedCall {
            received: Some(info.since),
            info,
            times,
            call,
            observations,
            request: None,
            bodies: None,
        };
        EndedCall { calls, end: Some(Box::new(end)) }
    }
}

impl EndedCall {
    /// Marks an `ExecSync` as the last try of an attempt that the prober discards.
    pub fn discard(&mut self) {
        if let Some(exec) = self.end.as_mut().and_then(|end| end.call.exec.as_mut()) {
            exec.is_discarded = true;
        }
    }
}

impl Drop for EndedCall {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.calls.send(TapEvent::CallEnded(end));
        }
    }
}
