//! Captures of calls, taken beside the byte path and decoded off it.
//!
//! ```text
//! relay ──captures──► Tap ──queue (drops when full)──► Decoder ──► Sighting (a Call, Facts)
//! ```

mod call;
mod decoder;
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
    CallIds, CallInfo, Capture, CaptureBudget, CaptureMode, CapturePlan, CompletedCall, Observer, RequestSent,
};

pub use call::{Call, ExecCall, ExecResult, KillRecord, ProbeFailure};
pub use decoder::{DecodedCall, Decoder, ExecRequest, Observations, SendTimes, StopRequest, TapEvent};
pub use internal_calls::{InternalCall, InternalCalls};
pub use metrics::TapMetrics;
pub use observation::Observation;

pub use methods::{is_object_call, is_read_only};

use methods::ResponseKind;
use rate_limit::RateLimit;

/// What the tap runs on.
#[derive(Clone, Copy, Debug)]
pub struct TapConfig {
    /// Calls, and messages of streams, that may wait to be decoded; more are dropped and counted.
    pub queued_calls: usize,
    /// Bytes that the captures of all calls may take together; one that finds no room is given up and counted.
    pub captured_bytes: usize,
    /// Whether requests that make sandboxes and containers are handed on as their bytes came.
    pub hands_on_requests: bool,
}

/// What waits to be decoded.
#[derive(Debug)]
enum QueueItem {
    /// A call that is told of before its end.
    RequestSent(RequestSent),
    /// A message of a stream.
    StreamMessage(Arc<CallInfo>, Capture),
    /// A call that has ended.
    CallEnded(CompletedCall),
    /// A call of our own.
    Internal(Box<TapEvent>),
}

/// The side of the tap that faces the relay: it captures and hands over, and never waits.
#[derive(Debug)]
pub struct Tap {
    queue: mpsc::Sender<QueueItem>,
    budget: CaptureBudget,
    /// For requests that stop or remove something: they are short, and each of them counts.
    stop_budget: CaptureBudget,
    metrics: TapMetrics,
    /// Of each kind of list.
    paces: [RateLimit; 2],
}

/// What requests that stop or remove something may take of memory at once.
const STOP_BUDGET_BYTES: usize = 1 << 20;

impl Default for TapConfig {
    fn default() -> Self {
        Self { queued_calls: 4096, captured_bytes: 8 << 20, hands_on_requests: false }
    }
}

impl Tap {
    /// A tap, and the other side of its queue.
    #[must_use]
    pub fn new(settings: TapConfig, metrics: TapMetrics) -> (Self, Decoder) {
        let (queue, observed) = mpsc::channel(settings.queued_calls);
        let budget = CaptureBudget::new(settings.captured_bytes);
        let stop_budget = CaptureBudget::new(STOP_BUDGET_BYTES);
        (
            Self { queue, budget, stop_budget, metrics: metrics.clone(), paces: Default::default() },
            Decoder::new(observed, metrics, settings.hands_on_requests),
        )
    }

    /// Through which calls of our own are seen as those of clients are. They have `numbers` of their own among them.
    #[must_use]
    pub fn internal_calls(&self, numbers: CallIds) -> InternalCalls {
        InternalCalls::new(self.queue.downgrade(), numbers, self.metrics.clone())
    }

    fn queue(&self, queued: QueueItem) {
        if let Err(TrySendError::Full(queued) | TrySendError::Closed(queued)) = self.queue.try_send(queued) {
            self.metrics.record_dropped(&queued);
        }
    }
}

impl QueueItem {
    /// Whether it is the end of a call, which is told once.
    fn is_end(&self) -> bool {
        match self {
            Self::CallEnded(_) => true,
            Self::Internal(event) => matches!(**event, TapEvent::CallEnded(_)),
            Self::RequestSent(_) | Self::StreamMessage(..) => false,
        }
    }
}

impl Observer for Tap {
    fn capture_plan(&self, method: &MethodName) -> CapturePlan {
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
        CapturePlan { request, response, notify_on_request: watched.is_announced }
    }

    fn on_request_sent(&self, call: RequestSent) {
        self.queue(QueueItem::RequestSent(call));
    }

    fn on_message(&self, info: &Arc<CallInfo>, message: Capture) {
        self.queue(QueueItem::StreamMessage(info.clone(), message));
    }

    fn on_end(&self, call: CompletedCall) {
        self.queue(QueueItem::CallEnded(call));
    }
}
