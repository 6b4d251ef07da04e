//! Consumer of the tap's queue: decodes calls into tap events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use prost::DecodeError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::QueueItem;
use super::body_capture::{BodyCapture, CallBodies};
use super::call::{Call, ExecCall};
use super::messages::MessageContext;
use super::methods::{self, ReadMessage, ResponseKind};
use super::metrics::TapMetrics;
use super::observation::Observation;
use crate::cri::{Code, FrameError, RedactedBytes, unary_message};
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{
    BodyStats, CallInfo, CallMarks, CallOutcome, Capture, CaptureError, CompletedCall, RequestSent,
};

/// Time for which calls gather under load: the relay's thread then wakes this thread once for all
/// of them, and not for each call.
const BATCH_DELAY: Duration = Duration::from_millis(5);

/// Maximum number of items that are taken from the queue together.
const BATCH_ITEMS: usize = 256;

/// A decoded event of the tap.
#[derive(Debug)]
pub enum TapEvent {
    /// The request of an `ExecSync` has been sent to upstream.
    ExecRequested(Box<ExecRequest>),
    /// The request of a call that stops or removes a sandbox or container has been sent to
    /// upstream.
    StopRequested(StopRequest),
    /// The policy holds a call before its request is sent to upstream.
    RequestHeld(Box<HeldRequest>),
    /// A message of a stream has passed the relay.
    Streamed(Observations),
    /// A call has ended.
    CallEnded(Box<DecodedCall>),
    /// The sender waits until all earlier events have been processed.
    Barrier(oneshot::Sender<()>),
}

/// An `ExecSync` in flight.
#[derive(Debug)]
pub struct ExecRequest {
    /// The call. The reference is dangling once the end of the call has been processed or dropped.
    pub info: Weak<CallInfo>,
    /// The number of the call.
    pub id: u64,
    /// The times of the request.
    pub times: SendTimes,
    /// The container.
    pub container: Option<Arc<ContainerRef>>,
    /// The command.
    pub exec: Box<ExecCall>,
}

/// A call in flight whose request is held.
#[derive(Debug)]
pub struct HeldRequest {
    /// The call. The reference is dangling once the end of the call has been processed or dropped.
    pub info: Weak<CallInfo>,
    /// The pod, with its id only.
    pub pod: Option<Arc<PodRef>>,
    /// The container, with its id only.
    pub container: Option<Arc<ContainerRef>>,
    /// The command, if the call is an `ExecSync`.
    pub exec: Option<Box<ExecCall>>,
    /// The marks of the call up to now.
    pub marks: CallMarks,
}

/// A call in flight that stops or removes a sandbox or container.
#[derive(Debug)]
pub struct StopRequest {
    /// The call. The reference is dangling once the end of the call has been processed or dropped.
    pub info: Weak<CallInfo>,
    /// The pid of the client, if it is known.
    pub pid: Option<i32>,
    /// The id of the sandbox, if the call is about a sandbox.
    pub sandbox: Option<String>,
    /// The id of the container, if the call is about a container.
    pub container: Option<String>,
    /// Whether the call removes the object. A removal also stops the object if it runs.
    pub is_removal: bool,
}

/// A call that has ended.
#[derive(Debug)]
pub struct DecodedCall {
    /// Information from the start of the call.
    pub info: Arc<CallInfo>,
    /// Time at which the request from the client was complete, if it was.
    pub received: Option<Instant>,
    /// The times of its request, if the request was sent completely.
    pub times: Option<SendTimes>,
    /// The call.
    pub call: Call,
    /// Observations from the messages of the call.
    pub observations: Observations,
    /// The message of a request that created a sandbox or container, if the tap keeps it; or the
    /// reason why the message is unknown.
    pub request: Option<Result<RedactedBytes, String>>,
    /// The messages of the call, while messages are captured.
    pub bodies: Option<Box<CallBodies>>,
}

/// Times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTimes {
    /// Time at which the request from the client was complete.
    pub received: Instant,
    /// Time at which the complete request had been handed to upstream.
    pub sent: Instant,
}

/// Observations from the messages of a call or stream.
#[derive(Debug)]
pub struct Observations {
    /// Start of the call or stream. The observations were true at some later time.
    pub observed_since: Instant,
    /// The observations.
    pub items: Vec<Observation>,
}

/// Reason why a message was not decoded.
#[derive(Debug, thiserror::Error)]
enum CallDecodeError {
    /// The message was not captured completely.
    #[error(transparent)]
    NotWhole(#[from] CaptureError),
    /// The captured bytes are not exactly one message.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The message is malformed.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The decoding panicked.
    #[error("probeshim panicked while it decoded the message")]
    Fault,
}

/// Takes calls from the queue and decodes them.
#[derive(Debug)]
pub struct Decoder {
    queue: mpsc::Receiver<QueueItem>,
    batch: Vec<QueueItem>,
    /// Time until which calls gather.
    gather_until: Option<Instant>,
    metrics: TapMetrics,
    bodies: BodyCapture,
    /// Whether the messages of requests that create sandboxes and containers are kept.
    keep_raw_requests: bool,
}

impl DecodedCall {
    /// Returns whether the call succeeded.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.call.ending == CallOutcome::Completed(Some(Code::OK))
    }
}

impl Decoder {
    pub(super) fn new(
        queue: mpsc::Receiver<QueueItem>,
        metrics: TapMetrics,
        bodies: BodyCapture,
        keep_raw_requests: bool,
    ) -> Self {
        let batch = Vec::with_capacity(BATCH_ITEMS);
        Self { queue, batch, gather_until: None, metrics, bodies, keep_raw_requests }
    }

    /// Waits for items of the queue, and passes their events to `sink`, in order. Returns false if
    /// the tap is gone and its queue is empty. Cancel safe.
    pub async fn next(&mut self, mut sink: impl FnMut(TapEvent)) -> bool {
        if let Some(until) = self.gather_until
            && !self.queue.is_closed()
        {
            sleep_until(until).await;
        }
        self.gather_until = None;
        let mut batch = std::mem::take(&mut self.batch);
        let taken = self.queue.recv_many(&mut batch, BATCH_ITEMS).await;
        for queued in batch.drain(..) {
            if let Some(event) = self.decode(queued) {
                sink(event);
            }
        }
        self.batch = batch;
        if self.queue.is_empty() {
            self.gather_until = Some(Instant::now() + BATCH_DELAY);
        }
        taken > 0
    }

    fn decode(&self, queued: QueueItem) -> Option<TapEvent> {
        match queued {
            QueueItem::RequestSent(request) => decode_request(request),
            QueueItem::RequestHeld(info, request, marks) => decode_held(&info, &request, marks),
            QueueItem::StreamMessage(info, message) => self.streamed(&info, &message).map(TapEvent::Streamed),
            QueueItem::CallEnded(observed) => Some(TapEvent::CallEnded(Box::new(self.ended(observed)))),
            QueueItem::Internal(event) => Some(*event),
        }
    }

    fn streamed(&self, info: &CallInfo, message: &Capture) -> Option<Observations> {
        let Some(ResponseKind::Stream(read_message)) = methods::spec_for(&info.method)?.response else {
            return None;
        };
        let mut read = MessageContext::new(Call::new(info));
        match self::read(&mut read, message, read_message) {
            Ok(()) => Some(Observations { observed_since: info.since, items: read.facts }),
            Err(why) => {
                self.metrics.record_decode_failure(why.label());
                None
            }
        }
    }

    fn ended(&self, observed: CompletedCall) -> DecodedCall {
        let CompletedCall { info, duration, ending, message, request, response, marks } = observed;
        let mut read = MessageContext::new(Call {
            duration,
            ending,
            message: message.map(|message| message.decoded()),
            request_bytes: request.bytes,
            response_bytes: response.bytes,
            marks: (!marks.is_empty()).then(|| Box::new(marks)),
            ..Call::new(&info)
        });
        let went_well = ending == CallOutcome::Completed(Some(Code::OK));
        if let Some(watched) = methods::spec_for(&info.method) {
            if let Some(read_message) = watched.request {
                self.read(&mut read, &request, read_message);
            }
            if let Some(ResponseKind::Unary(read_message)) = watched.response.filter(|_| went_well) {
                self.read(&mut read, &response, read_message);
            }
        }
        self.metrics.record_call(&read.call);
        if !went_well {
            read.facts.clear();
        }
        let received = request.received;
        let times = received.zip(request.sent).map(|(received, sent)| SendTimes { received, sent });
        let observations = Observations { observed_since: info.since, items: read.facts };
        let is_to_be_had = self.keep_raw_requests && went_well && methods::creates_object(&info.method);
        let bodies = self
            .bodies
            .is_active()
            .then(|| Box::new(self.bodies.messages(&info.method, ending, [&request, &response])));
        let request = is_to_be_had.then(|| whole(&request).map_err(|why| why.to_string()));
        DecodedCall { info, received, times, call: read.call, observations, request, bodies }
    }

    /// Decodes a captured message into the context, or counts the failure.
    fn read(&self, reading: &mut MessageContext, direction: &BodyStats, read_message: ReadMessage) {
        let Some(capture) = &direction.capture else { return };
        match read(reading, capture, read_message) {
            // The call ended before its message was complete, or before its message began.
            Err(CallDecodeError::Frame(FrameError::NotOne))
                if direction.bytes == 0 || !matches!(reading.call.ending, CallOutcome::Completed(_)) => {}
            Err(why) => self.metrics.record_decode_failure(why.label()),
            Ok(()) => {}
        }
    }
}

/// Decodes the request of a call that is reported before its end: an ExecSync, or a call that stops
/// or removes an object.
fn decode_request(request_sent: RequestSent) -> Option<TapEvent> {
    let RequestSent { info, request, received, sent } = request_sent;
    let mut reading = MessageContext::new(Call::new(&info));
    // A request that cannot be decoded is counted at the end of the call.
    read(&mut reading, &request, methods::spec_for(&info.method)?.request?).ok()?;
    let Call { id, container, pod, exec, .. } = reading.call;
    let weak_info = Arc::downgrade(&info);
    let Some(exec) = exec else {
        let (sandbox, container) =
            (pod.and_then(|pod| pod.id.clone()), container.and_then(|it| it.id.clone()));
        let (pid, is_removal) =
            (info.peer.as_ref().and_then(|peer| peer.pid), methods::removes(&info.method));
        return Some(TapEvent::StopRequested(StopRequest {
            info: weak_info,
            pid,
            sandbox,
            container,
            is_removal,
        }));
    };
    let times = SendTimes { received, sent };
    Some(TapEvent::ExecRequested(Box::new(ExecRequest { info: weak_info, id, times, container, exec })))
}

/// Decodes the request of a call that the policy holds.
fn decode_held(info: &Arc<CallInfo>, request: &Capture, marks: CallMarks) -> Option<TapEvent> {
    let mut reading = MessageContext::new(Call::new(info));
    read(&mut reading, request, methods::spec_for(&info.method)?.request?).ok()?;
    let Call { pod, container, exec, .. } = reading.call;
    let info = Arc::downgrade(info);
    Some(TapEvent::RequestHeld(Box::new(HeldRequest { info, pod, container, exec, marks })))
}

/// Returns the message of a request.
fn whole(request: &BodyStats) -> Result<RedactedBytes, CallDecodeError> {
    let capture = request.capture.as_ref().ok_or(FrameError::NotOne)?;
    Ok(RedactedBytes(unary_message(capture.bytes()?)?.into()))
}

/// Decodes a message of another program. A panic makes only this message fail.
fn read(
    read: &mut MessageContext,
    capture: &Capture,
    read_message: ReadMessage,
) -> Result<(), CallDecodeError> {
    let message = unary_message(capture.bytes()?)?;
    Ok(catch_unwind(AssertUnwindSafe(|| read_message(read, message)))
        .map_err(|_| CallDecodeError::Fault)??)
}

impl CallDecodeError {
    /// Returns the reason as a label of metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::NotWhole(CaptureError::TooLong) => "too-long",
            Self::NotWhole(CaptureError::BudgetExhausted) => "no-room",
            Self::Frame(FrameError::Compressed) => "compressed",
            Self::Frame(FrameError::NotOne) => "not-one-message",
            Self::Malformed(_) => "malformed",
            Self::Fault => "fault",
        }
    }
}
