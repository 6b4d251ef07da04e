//! The far side of the queue: what the relay saw becomes calls.

use std::time::Duration;

use prost::DecodeError;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::call::Call;
use super::metrics::Metrics;
use super::watched::{self, ReadMessage};
use crate::cri::{Code, FrameError, unary_message};
use crate::relay::{Capture, Direction, Ending, NotWhole, Observed};

/// How long calls are let gather under load: the relay's thread wakes this one once for all of them, not once for each.
const GATHER: Duration = Duration::from_millis(5);

/// Calls that are taken from the queue at once.
const BATCH: usize = 256;

/// Why a message of a watched method was not read.
#[derive(Debug, thiserror::Error)]
enum Undecoded {
    /// It was not captured whole.
    #[error(transparent)]
    NotWhole(#[from] NotWhole),
    /// What was captured is not one message that can be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It is not the message that it should be.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
}

/// Takes calls from the queue and decodes them.
#[derive(Debug)]
pub struct Decoder {
    queue: mpsc::Receiver<Observed>,
    metrics: Metrics,
}

impl Decoder {
    pub(super) fn new(queue: mpsc::Receiver<Observed>, metrics: Metrics) -> Self {
        Self { queue, metrics }
    }

    /// Hands every call to `sink`, until the tap is gone and its queue is empty.
    pub async fn run(mut self, mut sink: impl FnMut(Call)) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.queue.recv_many(&mut batch, BATCH).await > 0 {
            for observed in batch.drain(..) {
                let call = self.decode(&observed);
                self.metrics.count(&call);
                sink(call);
            }
            if self.queue.is_empty() && !self.queue.is_closed() {
                sleep(GATHER).await;
            }
        }
    }

    fn decode(&self, observed: &Observed) -> Call {
        let mut call = Call::from(observed);
        let Some(watched) = watched::of(&observed.method) else { return call };
        self.read(&mut call, &observed.request, watched.request);
        if let Some(response) = watched.response
            && observed.ending == Ending::Answered(Some(Code::OK))
        {
            self.read(&mut call, &observed.response, response);
        }
        call
    }

    /// Reads what was captured into the call, or counts why not.
    fn read(&self, call: &mut Call, direction: &Direction, read_message: ReadMessage) {
        let Some(capture) = &direction.capture else { return };
        match read(call, capture, read_message) {
            // A call that ended before its message was whole, or had begun.
            Err(Undecoded::Frame(FrameError::NotOne))
                if direction.bytes == 0 || !matches!(call.ending, Ending::Answered(_)) => {}
            Err(why) => self.metrics.undecoded(why.label()),
            Ok(()) => {}
        }
    }
}

fn read(call: &mut Call, capture: &Capture, read_message: ReadMessage) -> Result<(), Undecoded> {
    Ok(read_message(call, unary_message(capture.whole()?)?)?)
}

impl Undecoded {
    /// The reason as a label of metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::NotWhole(NotWhole::TooLong) => "too-long",
            Self::NotWhole(NotWhole::NoRoom) => "no-room",
            Self::Frame(FrameError::Compressed) => "compressed",
            Self::Frame(FrameError::NotOne) => "not-one-message",
            Self::Malformed(_) => "malformed",
        }
    }
}

impl From<&Observed> for Call {
    /// What is known before any message is read.
    fn from(observed: &Observed) -> Self {
        Self {
            id: observed.id,
            start: observed.start,
            duration: observed.duration,
            method: observed.method.clone(),
            ending: observed.ending,
            request_bytes: observed.request.bytes,
            response_bytes: observed.response.bytes,
            peer: observed.peer.clone(),
            pod: None,
            container: None,
            exec: None,
        }
    }
}
