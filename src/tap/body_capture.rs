//! Captures of whole messages, for `probeshim capture`. No call is affected while they are off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cri::{FrameError, MethodName, unary_message};
use crate::relay::{BodyStats, CallOutcome, Capture, CaptureBudget, CaptureError, CaptureMode, CapturePlan};

/// Maximum number of bytes that are captured of a message that the tap does not decode.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Maximum number of bytes of the captures of all calls in flight, in addition to those of the tap.
const IN_FLIGHT_BYTES: usize = 16 << 20;

/// Maximum number of bytes of all messages that wait for the readers of captures.
const RETAINED_BYTES: usize = 32 << 20;

/// Switch for captures of all messages. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyCapture {
    /// Number of guards.
    active: Arc<AtomicUsize>,
    in_flight: CaptureBudget,
    retained: CaptureBudget,
}

/// Keeps the captures on until it is dropped.
#[derive(Debug)]
pub struct BodyCaptureGuard(Arc<AtomicUsize>);

/// The messages of a call.
#[derive(Debug, Default)]
pub struct CallBodies {
    /// The request.
    pub request: CapturedBody,
    /// The response.
    pub response: CapturedBody,
}

/// The message of one direction of a call.
#[derive(Debug)]
pub enum CapturedBody {
    /// The message, without its gRPC frame.
    Message(Capture),
    /// There was no message, such as in the response of a failed call.
    Absent,
    /// The message is unknown.
    Omitted(BodyOmission),
}

/// Reason why a message is not in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyOmission {
    /// Nothing was captured: the call began before the capture, or probeshim made it.
    NotCaptured,
    /// The message is too long.
    TooLong,
    /// Other messages had taken the memory of the captures.
    NoRoom,
    /// The message is compressed.
    Compressed,
    /// The call ended before the message was complete.
    Incomplete,
    /// The messages of streams are not captured.
    Stream,
    /// The method is not in the CRI, so that secrets in its messages cannot be recognized.
    UnknownMethod,
    /// The message is malformed.
    Malformed,
}

impl BodyOmission {
    /// Returns the reason in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotCaptured => "not-captured",
            Self::TooLong => "too-long",
            Self::NoRoom => "no-room",
            Self::Compressed => "compressed",
            Self::Incomplete => "incomplete",
            Self::Stream => "stream",
            Self::UnknownMethod => "unknown-method",
            Self::Malformed => "malformed",
        }
    }
}

impl Default for CapturedBody {
    fn default() -> Self {
        Self::Omitted(BodyOmission::NotCaptured)
    }
}

impl Default for BodyCapture {
    fn default() -> Self {
        Self {
            active: Arc::default(),
            in_flight: CaptureBudget::new(IN_FLIGHT_BYTES),
            retained: CaptureBudget::new(RETAINED_BYTES),
        }
    }
}

impl BodyCapture {
    /// Switches the captures on until the guard is dropped.
    #[must_use]
    pub fn start(&self) -> BodyCaptureGuard {
        self.active.fetch_add(1, Ordering::Relaxed);
        BodyCaptureGuard(self.active.clone())
    }

    /// Returns whether messages are captured. The byte path calls it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Adds captures of the messages that the tap does not capture for itself. Those that it does
    /// capture stay as they are, so that a capture does not change other observations.
    pub(super) fn extended(&self, plan: CapturePlan, method: &MethodName) -> CapturePlan {
        let is_unary = matches!(method, MethodName::Known(method) if !method.is_streaming());
        let extended = |mode| match mode {
            CaptureMode::None if is_unary => {
                CaptureMode::Prefix(Capture::new(MAX_BODY_BYTES, &self.in_flight))
            }
            mode => mode,
        };
        CapturePlan {
            request: extended(plan.request),
            response: extended(plan.response),
            keep_timeout: true,
            ..plan
        }
    }

    /// Copies the messages of a call that has ended, so that a reader that is slow takes no memory
    /// from the tap.
    pub(super) fn messages(
        &self,
        method: &MethodName,
        ending: CallOutcome,
        [request, response]: [&BodyStats; 2],
    ) -> CallBodies {
        let reason = match method {
            MethodName::Unknown(_) => Some(BodyOmission::UnknownMethod),
            MethodName::Known(method) => method.is_streaming().then_some(BodyOmission::Stream),
        };
        if let Some(reason) = reason {
            let omitted = || CapturedBody::Omitted(reason);
            return CallBodies { request: omitted(), response: omitted() };
        }
        let response = match self.copied(response) {
            CapturedBody::Omitted(BodyOmission::Incomplete)
                if response.bytes == 0 && matches!(ending, CallOutcome::Completed(_)) =>
            {
                CapturedBody::Absent
            }
            copied => copied,
        };
        CallBodies { request: self.copied(request), response }
    }

    fn copied(&self, direction: &BodyStats) -> CapturedBody {
        let Some(capture) = &direction.capture else { return CapturedBody::default() };
        let copy = match capture.bytes().map(unary_message) {
            Ok(Ok(message)) => Capture::copied(message, &self.retained),
            Ok(Err(FrameError::Compressed)) => return CapturedBody::Omitted(BodyOmission::Compressed),
            Ok(Err(FrameError::NotOne)) => return CapturedBody::Omitted(BodyOmission::Incomplete),
            Err(CaptureError::TooLong) => return CapturedBody::Omitted(BodyOmission::TooLong),
            Err(CaptureError::BudgetExhausted) => return CapturedBody::Omitted(BodyOmission::NoRoom),
        };
        match copy.bytes() {
            Ok(_) => CapturedBody::Message(copy),
            Err(_) => CapturedBody::Omitted(BodyOmission::NoRoom),
        }
    }
}

impl Drop for BodyCaptureGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::{Code, framed_message};

    const VERSION: &str = "/runtime.v1.RuntimeService/Version";

    fn is_none(mode: &CaptureMode) -> bool {
        matches!(mode, CaptureMode::None)
    }

    #[test]
    fn all_unary_messages_of_the_cri_are_captured_and_no_others() {
        let bodies = BodyCapture::default();
        for (path, captured) in [
            (VERSION, true),
            ("/runtime.v1.ImageService/PullImage", true),
            ("/runtime.v1.RuntimeService/GetContainerEvents", false),
            ("/a.B/C", false),
        ] {
            let plan = bodies.extended(CapturePlan::default(), &MethodName::of_path(path));
            assert_eq!((!is_none(&plan.request), !is_none(&plan.response)), (captured, captured), "{path}");
        }
    }

    #[test]
    fn captures_are_on_while_there_is_a_guard() {
        let bodies = BodyCapture::default();
        let guards = [bodies.start(), bodies.clone().start()];
        assert!(bodies.is_active());
        drop(guards);
        assert!(!bodies.is_active());
    }

    #[test]
    fn a_message_that_is_not_captured_has_a_reason() {
        let bodies = BodyCapture::default();
        let captured = |bytes: &[u8], limit| {
            let mut capture = Capture::new(limit, &bodies.in_flight);
            capture.add(bytes);
            BodyStats { bytes: bytes.len() as u64, capture: Some(Arc::new(capture)), ..BodyStats::default() }
        };
        let ok = CallOutcome::Completed(Some(Code::OK));
        let messages = |ending, request: &BodyStats, response: &BodyStats| {
            bodies.messages(&MethodName::of_path(VERSION), ending, [request, response])
        };
        let frame = framed_message(b"text");
        let CallBodies { request, response } = messages(ok, &captured(&frame, 100), &captured(b"", 100));
        let CapturedBody::Message(message) = request else { panic!("{request:?}") };
        assert_eq!(message.bytes(), Ok(&b"text"[..]));
        assert!(matches!(response, CapturedBody::Absent), "{response:?}");
        let reason = |body| match body {
            CapturedBody::Omitted(reason) => reason.name(),
            body => panic!("{body:?}"),
        };
        let cut = messages(CallOutcome::ClientGone, &captured(&frame[..7], 100), &captured(b"", 100));
        assert_eq!((reason(cut.request), reason(cut.response)), ("incomplete", "incomplete"));
        let compressed = captured(b"\x01\0\0\0\x01a", 100);
        let other = messages(ok, &captured(&frame, 8), &compressed);
        assert_eq!((reason(other.request), reason(other.response)), ("too-long", "compressed"));
        let none = messages(ok, &BodyStats::default(), &BodyStats::default());
        assert_eq!(reason(none.request), "not-captured");
        let empty = BodyCapture { retained: CaptureBudget::new(3), ..bodies.clone() };
        let full = empty.messages(
            &MethodName::of_path(VERSION),
            ok,
            [&captured(&frame, 100), &captured(&frame, 100)],
        );
        assert_eq!(reason(full.request), "no-room");
        let unknown = bodies.messages(
            &MethodName::of_path("/a.B/C"),
            ok,
            [&captured(&frame, 100), &captured(&frame, 100)],
        );
        assert_eq!(reason(unknown.request), "unknown-method");
    }
}
