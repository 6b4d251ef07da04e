//! One direction of a call while it passes: what is counted of it, captured, and told before the call has ended.

use std::sync::Arc;

use tokio::time::Instant;

use super::capture::Capture;
use super::grpc_frames::FrameSplitter;
use super::observer::{BodyStats, CallInfo, CaptureMode, Observer, RequestSent};

/// What is noted of a direction as it passes.
#[derive(Debug)]
pub(super) struct BodyTap {
    bytes: u64,
    taken: CaptureState,
    /// When its end came.
    received: Option<Instant>,
    /// When its end had been passed on.
    sent: Option<Instant>,
    listener: Option<ObserverRef>,
}

/// Who is told while the call goes on, and of which call.
#[derive(Clone, Debug)]
pub(super) struct ObserverRef {
    pub(super) info: Arc<CallInfo>,
    pub(super) observer: Arc<dyn Observer>,
}

/// What is taken of what passes.
#[derive(Debug)]
enum CaptureState {
    Nothing,
    Beginning(Arc<Capture>),
    Messages(FrameSplitter),
}

impl BodyTap {
    /// A direction of which so much is to be taken. The listener is told of its messages, or of its end.
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

    /// Data has come; `is_last` if that is all.
    pub(super) fn on_data(&mut self, data: &[u8], is_last: bool) {
        match &mut self.taken {
            CaptureState::Nothing => {}
            // Shared only once it is whole.
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

    /// The end has come.
    pub(super) fn on_eos(&mut self) {
        self.received.get_or_insert_with(Instant::now);
    }

    /// Data has been passed on.
    pub(super) fn on_forwarded(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The end has been passed on.
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

    /// What has passed, and nothing from now on.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(CaptureMode::None, None))
    }

    /// What there is to tell of it at the end of its call.
    pub(super) fn into_direction(self) -> BodyStats {
        let capture = match self.taken {
            CaptureState::Beginning(capture) => Some(capture),
            CaptureState::Nothing | CaptureState::Messages(_) => None,
        };
        BodyStats { bytes: self.bytes, capture, received: self.received, sent: self.sent }
    }
}
