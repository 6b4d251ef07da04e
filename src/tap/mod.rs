//! Captures CRI calls next to the byte path, and decodes them on another thread.
//!
//! ```text
//! relay ──captures──► Tap ──queue (drops when full)──► Decoder ──► TapEvent
//! ```

mod body_capture;
mod call;
mod decoder;
mod in_flight;
mod internal_calls;
mod messages;
mod methods;
mod metrics;
mod observation;
mod rate_limit;

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use crate::cri::MethodName;
use crate::relay::{
    CallIds, CallInfo, CallMarks, Capture, CaptureBudget, CaptureMode, CapturePlan, CompletedCall, Observer,
    RequestSent,
};

pub use body_capture::{BodyCapture, BodyCaptureGuard, BodyOmission, CallBodies, CapturedBody};
pub use call::{Call, ExecCall, ExecResult, KillRecord, ProbeFailure};
pub use decoder::{
    DecodedCall, Decoder, ExecRequest, HeldRequest, Observations, SendTimes, StopRequest, TapEvent,
};
pub use in_flight::{CallsInFlight, ListedCall};
pub use internal_calls::{EndedCall, InternalCall, InternalCalls};
pub use metrics::TapMetrics;
pub use observation::Observation;

pub use methods::{is_object_call, is_read_only, is_stream, is_subscription};

use methods::ResponseKind;
use rate_limit::RateLimit;

/// Configuration of the tap.
#[derive(Clone, Copy, Debug)]
pub struct TapConfig {
    /// Maximum number of calls, and of messages of streams, that wait to be decoded. Further ones
    /// are dropped and counted.
    pub queued_calls: usize,
    /// Maximum number of bytes of all captures together. A capture that would exceed it is given up
    /// and counted.
    pub captured_bytes: usize,
    /// Whether the decoder keeps the messages of requests that create sandboxes and containers.
    pub hands_on_requests: bool,
}

/// An item of the queue, to be decoded.
#[derive(Debug)]
enum QueueItem {
    /// A call that is reported before its end.
    RequestSent(RequestSent),
    /// A call that is held before its request is sent.
    RequestHeld(Arc<CallInfo>, Arc<Capture>, CallMarks),
    /// A message of a stream.
    StreamMessage(Arc<CallInfo>, Capture),
    /// A call that has ended.
    CallEnded(CompletedCall),
    /// An event of an internal call.
    Internal(Box<TapEvent>),
}

/// The side of the tap that faces the relay: captures and queues, and never waits.
#[derive(Debug)]
pub struct Tap {
    queue: mpsc::Sender<QueueItem>,
    budget: CaptureBudget,
    /// Budget for requests that stop or remove an object: they are short, and each of them matters.
    stop_budget: CaptureBudget,
    metrics: TapMetrics,
    /// Rate limit of each kind of list.
    paces: [RateLimit; 2],
    in_flight: Arc<CallsInFlight>,
    bodies: BodyCapture,
}

/// Maximum number of bytes of all captured requests that stop or remove an object.
const STOP_BUDGET_BYTES: usize = 1 << 20;

impl Default for TapConfig {
    fn default() -> Self {
        Self { queued_calls: 4096, captured_bytes: 8 << 20, hands_on_requests: false }
    }
}

impl Tap {
    /// Creates a tap, and the decoder at the other end of its queue.
    #[must_use]
    pub fn new(settings: TapConfig, metrics: TapMetrics) -> (Self, Decoder) {
        let (queue, observed) = mpsc::channel(settings.queued_calls);
        let budget = CaptureBudget::new(settings.captured_bytes);
        let stop_budget = CaptureBudget::new(STOP_BUDGET_BYTES);
        let bodies = BodyCapture::default();
        (
            Self {
                queue,
                budget,
                stop_budget,
                metrics: metrics.clone(),
                paces: Default::default(),
                in_flight: Arc::default(),
                bodies: bodies.clone(),
            },
            Decoder::new(observed, metrics, bodies, settings.hands_on_requests),
        )
    }

    /// Returns a handle that reports internal calls. `numbers` gives them their numbers.
    #[must_use]
    pub fn internal_calls(&self, numbers: CallIds) -> InternalCalls {
        InternalCalls::new(self.queue.downgrade(), numbers, self.metrics.clone(), self.in_flight.clone())
    }

    /// Returns the calls in flight.
    #[must_use]
    pub fn calls_in_flight(&self) -> Arc<CallsInFlight> {
        self.in_flight.clone()
    }

    /// Returns the switch for captures of all messages.
    #[must_use]
    pub fn body_capture(&self) -> BodyCapture {
        self.bodies.clone()
    }

    /// Returns the plan for the observations of a call.
    fn watched_plan(&self, method: &MethodName) -> CapturePlan {
        let Some(watched) = methods::spec_for(method) else { return CapturePlan::default() };
        if watched.list.is_some_and(|list| !self.paces[list as usize].allow(Instant::now())) {
            return CapturePlan::default();
        }
        let capture = |limit| CaptureMode::Prefix(Capture::new(limit, &self.budget));
        let response = match watched.response {
            None => CaptureMode::None,
            Some(ResponseKind::Unary(_)) => capture(methods::RESPONSE_LIMIT),
            Some(ResponseKind::Stream(_)) => {
                CaptureMode::Messages { longest: methods::RESPONSE_LIMIT, budget: self.budget.clone() }
            }
        };
        let budget = if watched.is_stop() { &self.stop_budget } else { &self.budget };
        let request = watched
            .request
            .map_or(CaptureMode::None, |_| CaptureMode::Prefix(Capture::new(watched.request_limit, budget)));
        CapturePlan { request, response, notify_on_request: watched.is_announced, keep_timeout: false }
    }

    fn queue(&self, queued: QueueItem) {
        if let Err(TrySendError::Full(queued) | TrySendError::Closed(queued)) = self.queue.try_send(queued) {
            self.metrics.record_dropped(&queued);
        }
    }
}

impl QueueItem {
    /// Returns whether the item is the end of a call, which is reported once.
    fn is_end(&self) -> bool {
        match self {
            Self::CallEnded(_) => true,
            Self::Internal(event) => matches!(**event, TapEvent::CallEnded(_)),
            Self::RequestSent(_) | Self::RequestHeld(..) | Self::StreamMessage(..) => false,
        }
    }
}

impl Observer for Tap {
    fn capture_plan(&self, method: &MethodName) -> CapturePlan {
        let plan = self.watched_plan(method);
        if self.bodies.is_active() { self.bodies.extended(plan, method) } else { plan }
    }

    fn on_start(&self, info: &Arc<CallInfo>) {
        self.in_flight.insert(info);
    }

    fn on_request_sent(&self, call: RequestSent) {
        self.queue(QueueItem::RequestSent(call));
    }

    fn on_request_held(&self, info: &Arc<CallInfo>, request: &Arc<Capture>, marks: CallMarks) {
        self.queue(QueueItem::RequestHeld(info.clone(), request.clone(), marks));
    }

    fn on_message(&self, info: &Arc<CallInfo>, message: Capture) {
        self.queue(QueueItem::StreamMessage(info.clone(), message));
    }

    fn on_end(&self, call: CompletedCall) {
        self.in_flight.remove(call.info.id);
        self.queue(QueueItem::CallEnded(call));
    }
}
