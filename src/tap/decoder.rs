//! The consumer of the queue: decodes calls into tap events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use prost::DecodeError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::QueueItem;
use super::call::{Call, ExecCall};
use super::messages::MessageContext;
use super::methods::{self, ReadMessage, ResponseKind};
use super::metrics::TapMetrics;
use super::observation::Observation;
use crate::cri::{Code, FrameError, RedactedBytes, unary_message};
use crate::object_ref::ContainerRef;
use crate::relay::{BodyStats, CallInfo, CallOutcome, Capture, CaptureError, CompletedCall, RequestSent};

/// How long calls are let gather under load: the relay's thread wakes this one once for all of them, not once for each.
const BATCH_DELAY: Duration = Duration::from_millis(5);

/// Calls that are taken from the queue at once.
const BATCH_ITEMS: usize = 256;

/// What was seen, decoded.
#[derive(Debug)]
pub enum TapEvent {
    /// An `ExecSync` is on its way to upstream.
    ExecRequested(Box<ExecRequest>),
    /// Somebody has a sandbox or container stopped or removed, for as long as the call goes on.
    StopRequested(StopRequest),
    /// A message of a stream has passed.
    Streamed(Observations),
    /// A call has ended.
    CallEnded(Box<DecodedCall>),
    /// Somebody waits until all that came before has been seen.
    Barrier(oneshot::Sender<()>),
}

/// An `ExecSync` that is on its way.
#[derive(Debug)]
pub struct ExecRequest {
    /// The call; gone once nobody holds it any more, because its end was seen or dropped.
    pub info: Weak<CallInfo>,
    /// Its number.
    pub id: u64,
    /// When it was sent.
    pub times: SendTimes,
    /// Where it executes.
    pub container: Option<Arc<ContainerRef>>,
    /// What it executes.
    pub exec: Box<ExecCall>,
}

/// A call on its way that stops or removes something.
#[derive(Debug)]
pub struct StopRequest {
    /// The call; gone once nobody holds it any more.
    pub info: Weak<CallInfo>,
    /// The process that makes it, where that is known.
    pub pid: Option<i32>,
    /// The sandbox, if it is one that is stopped.
    pub sandbox: Option<String>,
    /// The container, if it is one that is stopped.
    pub container: Option<String>,
    /// Whether it is removed, which stops it where it runs.
    pub is_removal: bool,
}

/// A call that has ended.
#[derive(Debug)]
pub struct DecodedCall {
    /// What was known of it when it began.
    pub info: Arc<CallInfo>,
    /// The times of its request, if the request was sent completely.
    pub times: Option<SendTimes>,
    /// The call.
    pub call: Call,
    /// What it told.
    pub observations: Observations,
    /// The request as its bytes came, where something was made by it and it is to be handed on; or why it is not known.
    pub request: Option<Result<RedactedBytes, String>>,
}

/// When a request was whole, and when it was on its way to upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTimes {
    /// The end of the request had come from the client.
    pub received: Instant,
    /// The end of the request had been handed to upstream.
    pub sent: Instant,
}

/// What was told of pods and containers.
#[derive(Debug)]
pub struct Observations {
    /// When the call that told it began: what was so before may not be so any more.
    pub observed_since: Instant,
    /// What is so.
    pub items: Vec<Observation>,
}

/// Why a message of a watched method was not read.
#[derive(Debug, thiserror::Error)]
enum CallDecodeError {
    /// It was not captured whole.
    #[error(transparent)]
    NotWhole(#[from] CaptureError),
    /// What was captured is not one message that can be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It is not the message that it should be.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A fault of ours.
    #[error("a fault of probeshim's own")]
    Fault,
}

/// Takes calls from the queue and decodes them.
#[derive(Debug)]
pub struct Decoder {
    queue: mpsc::Receiver<QueueItem>,
    batch: Vec<QueueItem>,
    /// Until when what comes is let gather.
    gather_until: Option<Instant>,
    metrics: TapMetrics,
    /// Whether requests that make something are handed on.
    keep_raw_requests: bool,
}

impl DecodedCall {
    /// Whether the runtime has done what it was asked for.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.call.ending == CallOutcome::Completed(Some(Code::OK))
    }
}

impl Decoder {
    pub(super) fn new(
        queue: mpsc::Receiver<QueueItem>,
        metrics: TapMetrics,
        keep_raw_requests: bool,
    ) -> Self {
        Self { queue, batch: Vec::with_capacity(BATCH_ITEMS), gather_until: None, metrics, keep_raw_requests }
    }

    /// Hands everything that waits to `sink`, in its order, once something does; `false` if the tap is gone and its queue is empty.
    /// Nothing is lost where it is cancelled.
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
        let CompletedCall { info, duration, ending, request, response } = observed;
        let mut read = MessageContext::new(Call {
            duration,
            ending,
            request_bytes: request.bytes,
            response_bytes: response.bytes,
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
        let times = request.received.zip(request.sent).map(|(received, sent)| SendTimes { received, sent });
        let observations = Observations { observed_since: info.since, items: read.facts };
        let is_to_be_had = self.keep_raw_requests && went_well && methods::creates_object(&info.method);
        let request = is_to_be_had.then(|| whole(&request).map_err(|why| why.to_string()));
        DecodedCall { info, times, call: read.call, observations, request }
    }

    /// Reads what was captured into the call, or counts why not.
    fn read(&self, reading: &mut MessageContext, direction: &BodyStats, read_message: ReadMessage) {
        let Some(capture) = &direction.capture else { return };
        match read(reading, capture, read_message) {
            // A call that ended before its message was whole, or had begun.
            Err(CallDecodeError::Frame(FrameError::NotOne))
                if direction.bytes == 0 || !matches!(reading.call.ending, CallOutcome::Completed(_)) => {}
            Err(why) => self.metrics.record_decode_failure(why.label()),
            Ok(()) => {}
        }
    }
}

/// A call that is announced: an ExecSync, or one that stops something.
fn decode_request(request_sent: RequestSent) -> Option<TapEvent> {
    let RequestSent { info, request, received, sent } = request_sent;
    let mut reading = MessageContext::new(Call::new(&info));
    // What cannot be read is counted when the call has ended.
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

/// The bytes of the one message that went up.
fn whole(request: &BodyStats) -> Result<RedactedBytes, CallDecodeError> {
    let capture = request.capture.as_ref().ok_or(FrameError::NotOne)?;
    Ok(RedactedBytes(unary_message(capture.bytes()?)?.into()))
}

/// Reads a message that somebody else has written. A fault of ours in that is the message's fate, and nobody else's.
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
    /// The reason as a label of metrics.
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
