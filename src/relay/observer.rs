//! What the relay tells of its calls, and to whom.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::capture::{Capture, CaptureBudget};
use super::outcome::CallOutcome;
use super::peer::Peer;
use crate::cri::MethodName;

/// Bytes that are kept of a `traceparent`: version 00 has 55, others may have more.
const MAX_TRACEPARENT: usize = 128;

/// The same of a `tracestate`: what W3C asks everyone to pass on.
const MAX_TRACESTATE: usize = 512;

/// Watches calls. It is asked and told on the byte path: it must not wait, and must not work there.
pub trait Observer: fmt::Debug + Send + Sync {
    /// What to take of a call to this method, if its messages matter.
    fn capture_plan(&self, method: &MethodName) -> CapturePlan;

    /// The request of a call that was to be announced is whole, and on its way to upstream.
    fn on_request_sent(&self, call: RequestSent) {
        drop(call);
    }

    /// A message of a stream that was to be taken apart has passed.
    fn on_message(&self, info: &Arc<CallInfo>, message: Capture) {
        let _ = (info, message);
    }

    /// A call has ended.
    fn on_end(&self, call: CompletedCall);
}

/// What is to be taken of a call; nothing by default.
#[derive(Debug, Default)]
pub struct CapturePlan {
    /// Of what goes up.
    pub request: CaptureMode,
    /// Of what comes down.
    pub response: CaptureMode,
    /// Whether the call is told of as soon as its request is whole, and not only at its end.
    pub notify_on_request: bool,
}

/// What is to be taken of one direction.
#[derive(Debug, Default)]
pub enum CaptureMode {
    /// Nothing.
    #[default]
    None,
    /// What passes, for as long as the capture has room for it.
    Prefix(Capture),
    /// Each message, as it passes.
    Messages {
        /// Bytes that are captured of one, with its frame; a longer one is passed over.
        longest: usize,
        /// What the captures take their memory from.
        budget: CaptureBudget,
    },
}

/// What is known of a call once its head has come. Its observer is the only one to hold it after the call.
#[derive(Debug)]
pub struct CallInfo {
    /// Counts the calls of this relay in the order in which they came.
    pub id: u64,
    /// Who made it; `None` where the kernel did not tell.
    pub peer: Option<Arc<Peer>>,
    /// What was called.
    pub method: MethodName,
    /// When its head came, by the wall clock.
    pub start: SystemTime,
    /// When its head came.
    pub since: Instant,
    /// The trace that the caller says it belongs to, as it was written.
    pub trace: Option<TraceContext>,
}

impl CallInfo {
    /// Whether a kubelet made it, going by the name of its program.
    #[must_use]
    pub fn is_from_kubelet(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_kubelet())
    }
}

/// The headers of W3C's trace context.
#[derive(Clone, Debug)]
pub struct TraceContext {
    /// `traceparent`
    pub parent: HeaderValue,
    /// `tracestate`
    pub state: Option<HeaderValue>,
}

/// A call whose request is whole.
#[derive(Debug)]
pub struct RequestSent {
    /// Which call.
    pub info: Arc<CallInfo>,
    /// What was captured of the request.
    pub request: Arc<Capture>,
    /// When the end of the request came.
    pub received: Instant,
    /// When it had been handed to upstream.
    pub sent: Instant,
}

/// A call that has ended.
#[derive(Debug)]
pub struct CompletedCall {
    /// Which call.
    pub info: Arc<CallInfo>,
    /// From its head to its end.
    pub duration: Duration,
    /// How it ended.
    pub ending: CallOutcome,
    /// What went up.
    pub request: BodyStats,
    /// What came down.
    pub response: BodyStats,
}

/// What one direction of a call carried.
#[derive(Debug, Default)]
pub struct BodyStats {
    /// Bytes of DATA that were passed on: messages with their gRPC frames.
    pub bytes: u64,
    /// Their beginning, where it was to be captured.
    pub capture: Option<Arc<Capture>>,
    /// When its end came, if it did.
    pub received: Option<Instant>,
    /// When its end had been passed on, if it was.
    pub sent: Option<Instant>,
}

impl TraceContext {
    /// What a request's headers say. What is longer than it may be is passed on like everything else, and not kept.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let header = |name, longest| {
            let value: &HeaderValue = headers.get(name)?;
            // A copy: the value itself holds the whole of what came with it.
            (value.len() <= longest).then(|| HeaderValue::from_bytes(value.as_bytes()).ok())?
        };
        Some(Self {
            parent: header("traceparent", MAX_TRACEPARENT)?,
            state: header("tracestate", MAX_TRACESTATE),
        })
    }
}
