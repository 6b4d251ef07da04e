//! One direction of a call while it passes: what is counted of it, captured, and told before the call has ended.

use std::sync::Arc;

use tokio::time::Instant;

use super::capture::Capture;
use super::messages::Messages;
use super::observe::{Asked, Direction, Head, Observer, Take};

/// What is noted of a direction as it passes.
#[derive(Debug)]
pub(super) struct Passing {
    bytes: u64,
    taken: Taken,
    /// When its end came.
    whole: Option<Instant>,
    /// When its end had been passed on.
    passed: Option<Instant>,
    listener: Option<Listener>,
}

/// Who is told while the call goes on, and of which call.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) head: Arc<Head>,
    pub(super) observer: Arc<dyn Observer>,
}

/// What is taken of what passes.
#[derive(Debug)]
enum Taken {
    Nothing,
    Beginning(Arc<Capture>),
    Messages(Messages),
}

impl Passing {
    /// A direction of which so much is to be taken. The listener is told of its messages, or of its end.
    pub(super) fn new(take: Take, listener: Option<Listener>) -> Self {
        let taken = match take {
            Take::Nothing => Taken::Nothing,
            Take::Beginning(capture) => Taken::Beginning(Arc::new(capture)),
            Take::Messages { longest, budget } => Taken::Messages(Messages::new(longest, budget)),
        };
        Self { bytes: 0, taken, whole: None, passed: None, listener }
    }

    /// Data has come; `is_last` if that is all.
    pub(super) fn came(&mut self, data: &[u8], is_last: bool) {
        match &mut self.taken {
            Taken::Nothing => {}
            // Shared only once it is whole.
            Taken::Beginning(capture) => {
                if let Some(capture) = Arc::get_mut(capture) {
                    capture.add(data);
                }
            }
            Taken::Messages(messages) => {
                let Some(Listener { head, observer }) = &self.listener else { return };
                messages.add(data, |message| observer.streamed(head, message));
            }
        }
        if is_last {
            self.ended();
        }
    }

    /// The end has come.
    pub(super) fn ended(&mut self) {
        self.whole.get_or_insert_with(Instant::now);
    }

    /// Data has been passed on.
    pub(super) fn passed(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The end has been passed on.
    pub(super) fn passed_whole(&mut self) {
        let now = Instant::now();
        self.passed = Some(now);
        let whole = *self.whole.get_or_insert(now);
        if let (Taken::Beginning(request), Some(Listener { head, observer })) = (&self.taken, &self.listener)
        {
            observer.asked(Asked { head: head.clone(), request: request.clone(), whole, sent: now });
        }
    }

    /// What has passed, and nothing from now on.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(Take::Nothing, None))
    }

    /// What there is to tell of it at the end of its call.
    pub(super) fn into_direction(self) -> Direction {
        let capture = match self.taken {
            Taken::Beginning(capture) => Some(capture),
            Taken::Nothing | Taken::Messages(_) => None,
        };
        Direction { bytes: self.bytes, capture, whole: self.whole, passed: self.passed }
    }
}
