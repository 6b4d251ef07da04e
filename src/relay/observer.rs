//! The observer of calls, and the data that the relay reports to it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::capture::{Capture, CaptureBudget};
use super::marks::CallMarks;
use super::outcome::CallOutcome;
use super::peer::Peer;
use crate::cri::{MethodName, StatusMessage};

/// Maximum bytes that are kept of a `traceparent`. Version 00 has 55; other versions may have more.
const MAX_TRACEPARENT: usize = 128;

/// Maximum bytes that are kept of a `tracestate`. W3C Trace Context recommends that everyone
/// propagates that many.
const MAX_TRACESTATE: usize = 512;

/// Receives the calls of the relay, on the byte path. Its methods must neither block nor do
/// expensive work.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Returns the plan that selects the data to be captured of a call to this method.
    fn capture_plan(&self, method: &MethodName) -> CapturePlan;

    /// Called when the head of a call was received, after [`Self::capture_plan`].
    fn on_start(&self, info: &Arc<CallInfo>) {
        let _ = info;
    }

    /// Called when the request of a call whose plan has `notify_on_request` is complete and has
    /// been handed to upstream.
    fn on_request_sent(&self, call: RequestSent) {
        drop(call);
    }

    /// Called when the policy holds a call whose plan has `notify_on_request` before its request is
    /// handed to upstream, with its marks up to now.
    fn on_request_held(&self, info: &Arc<CallInfo>, request: &Arc<Capture>, marks: CallMarks) {
        let _ = (info, request, marks);
    }

    /// Called for each message of a stream whose capture mode is [`CaptureMode::Messages`].
    fn on_message(&self, info: &Arc<CallInfo>, message: Capture) {
        let _ = (info, message);
    }

    /// Called when a call has ended.
    fn on_end(&self, call: CompletedCall);
}

/// Selects the data that is captured of a call. The default captures nothing.
#[derive(Debug, Default)]
pub struct CapturePlan {
    /// Capture mode of the request.
    pub request: CaptureMode,
    /// Capture mode of the response.
    pub response: CaptureMode,
    /// Whether the call is reported as soon as its request is complete, and not only at its end.
    pub notify_on_request: bool,
    /// Whether the deadline of the call is kept.
    pub keep_timeout: bool,
}

/// Selects the data that is captured of one direction of a call.
#[derive(Debug, Default)]
pub enum CaptureMode {
    /// Nothing is captured.
    #[default]
    None,
    /// The data is captured for as long as the capture has room for it.
    Prefix(Capture),
    /// Each message is captured separately, and reported as it passes.
    Messages {
        /// Maximum bytes of one message, with its gRPC frame. A longer message is reported without
        /// its bytes.
        longest: usize,
        /// Budget from which the captures take their memory.
        budget: CaptureBudget,
    },
}

/// Information that is available once the head of a call was received. After the call, only its
/// observer holds it.
#[derive(Clone, Debug)]
pub struct CallInfo {
    /// Number of the call, in the order in which the calls of this relay arrived.
    pub id: u64,
    /// Process that made the call. `None` if the kernel did not report it.
    pub peer: Option<Arc<Peer>>,
    /// Method of the call.
    pub method: MethodName,
    /// Wall-clock time at which the head of the request was received.
    pub start: SystemTime,
    /// Monotonic time at which the head of the request was received.
    pub since: Instant,
    /// Trace context in the headers of the request, unchanged.
    pub trace: Option<TraceContext>,
    /// Time that the client gives the call, if the plan keeps it and the client sent it.
    pub timeout: Option<Duration>,
}

impl CallInfo {
    /// Returns whether a kubelet made the call, judging by the name of its program.
    #[must_use]
    pub fn is_from_kubelet(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_kubelet())
    }
}

/// Headers of W3C Trace Context.
#[derive(Clone, Debug)]
pub struct TraceContext {
    /// Value of the header `traceparent`.
    pub parent: HeaderValue,
    /// Value of the header `tracestate`.
    pub state: Option<HeaderValue>,
}

/// A call whose request is complete.
#[derive(Debug)]
pub struct RequestSent {
    /// Information about the call.
    pub info: Arc<CallInfo>,
    /// Capture of the request.
    pub request: Arc<Capture>,
    /// Time at which the end of the request was received.
    pub received: Instant,
    /// Time at which the request had been handed to upstream.
    pub sent: Instant,
}

/// A call that has ended.
#[derive(Debug)]
pub struct CompletedCall {
    /// Information about the call.
    pub info: Arc<CallInfo>,
    /// Time from the head of the request to the end of the call.
    pub duration: Duration,
    /// Outcome of the call.
    pub ending: CallOutcome,
    /// Beginning of the status message, if the call has failed and has one.
    pub message: Option<StatusMessage>,
    /// Statistics of the request.
    pub request: BodyStats,
    /// Statistics of the response.
    pub response: BodyStats,
    /// Marks of the call, if the policy affected it.
    pub marks: CallMarks,
}

/// Statistics of the data of one direction of a call.
#[derive(Debug, Default)]
pub struct BodyStats {
    /// Number of DATA bytes that were passed on: messages with their gRPC frames.
    pub bytes: u64,
    /// Capture of the data, if the capture mode is [`CaptureMode::Prefix`].
    pub capture: Option<Arc<Capture>>,
    /// Time at which the end of the direction was received, if it was.
    pub received: Option<Instant>,
    /// Time at which the end of the direction had been passed on, if it was.
    pub sent: Option<Instant>,
}

impl TraceContext {
    /// Returns the trace context in the headers of a request. A value that is too long is forwarded
    /// like any other header, but not kept.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let header = |name, longest| {
            let value: &HeaderValue = headers.get(name)?;
            // The value is copied, because it shares the memory of everything that arrived with it.
            (value.len() <= longest).then(|| HeaderValue::from_bytes(value.as_bytes()).ok())?
        };
        Some(Self {
            parent: header("traceparent", MAX_TRACEPARENT)?,
            state: header("tracestate", MAX_TRACESTATE),
        })
    }
}
