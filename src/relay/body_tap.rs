//! The tap of one direction of a call: counts and captures its bytes, and reports it before the
//! call ends.

use std::sync::Arc;

use tokio::time::Instant;

use super::capture::Capture;
use super::grpc_frames::FrameSplitter;
use super::marks::CallMarks;
use super::observer::{BodyStats, CallInfo, CaptureMode, Observer, RequestSent};

/// Statistics and capture of one direction of a call.
#[derive(Debug)]
pub(super) struct BodyTap {
    bytes: u64,
    taken: CaptureState,
    /// Time at which the end of the direction was received.
    received: Option<Instant>,
    /// Time at which the end of the direction was passed on.
    sent: Option<Instant>,
    listener: Option<ObserverRef>,
}

/// An observer that is notified during a call, and the information about that call.
#[derive(Clone, Debug)]
pub(super) struct ObserverRef {
    pub(super) info: Arc<CallInfo>,
    pub(super) observer: Arc<dyn Observer>,
}

/// State of the capture of one direction.
#[derive(Debug)]
enum CaptureState {
    Nothing,
    Beginning(Arc<Capture>),
    Messages(FrameSplitter),
}

impl BodyTap {
    /// Creates the tap of a direction with a capture mode. The listener receives the messages of
    /// the direction, or its end.
    pub(super) fn new(take: CaptureMode, listener: Option<ObserverRef>) -> Self {
        let taken = match take {
            CaptureMode::None => CaptureState::Nothing,
            CaptureMode::Prefix(capture) => CaptureState::Beginning(Arc::new(capture)),
            CaptureMode::Messages { longest, budget } => {
                CaptureState::Messages(FrameSplitter::new(longest, budget))
            }
        };
        Self { bytes: 0, taken, received: None, sent: None, listener }
    }

    /// Handles received data. `is_last` is set if the data ends the direction.
    pub(super) fn on_data(&mut self, data: &[u8], is_last: bool) {
        match &mut self.taken {
            CaptureState::Nothing => {}
            // The capture is shared only once it is complete.
            CaptureState::Beginning(capture) => {
                if let Some(capture) = Arc::get_mut(capture) {
                    capture.add(data);
                }
            }
            CaptureState::Messages(messages) => {
                let Some(ObserverRef { info, observer }) = &self.listener else { return };
                messages.add(data, |message| observer.on_message(info, message));
            }
        }
        if is_last {
            self.on_eos();
        }
    }

    /// Records that the end of the direction was received.
    pub(super) fn on_eos(&mut self) {
        self.received.get_or_insert_with(Instant::now);
    }

    /// Counts bytes that were passed on.
    pub(super) fn on_forwarded(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Records that the end of the direction was passed on, and notifies the listener of a captured
    /// request.
    pub(super) fn on_eos_forwarded(&mut self) {
        let now = Instant::now();
        self.sent = Some(now);
        let received = *self.received.get_or_insert(now);
        if let (CaptureState::Beginning(request), Some(ObserverRef { info, observer })) =
            (&self.taken, &self.listener)
        {
            observer.on_request_sent(RequestSent {
                info: info.clone(),
                request: request.clone(),
                received,
                sent: now,
            });
        }
    }

    /// Notifies the listener that a captured request is complete, and is held.
    pub(super) fn on_held(&self, marks: CallMarks) {
        if let (CaptureState::Beginning(request), Some(ObserverRef { info, observer })) =
            (&self.taken, &self.listener)
        {
            observer.on_request_held(info, request, marks);
        }
    }

    /// Takes the statistics and the capture out, and stops recording.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(CaptureMode::None, None))
    }

    /// Converts the tap to the statistics that the observer receives at the end of the call.
    pub(super) fn into_direction(self) -> BodyStats {
        let capture = match self.taken {
            CaptureState::Beginning(capture) => Some(capture),
            CaptureState::Nothing | CaptureState::Messages(_) => None,
        };
        BodyStats { bytes: self.bytes, capture, received: self.received, sent: self.sent }
    }
}
