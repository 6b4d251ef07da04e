//! The far side of the queue: what the relay saw becomes calls.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::call::{Call, MethodName};
use super::metrics::{Metrics, Undecoded};
use super::watched::{self, Read};
use crate::cri::{Code, FrameError, only_message};
use crate::relay::{Copy, Ending, Missed, Observed};

/// How long calls are let gather under load: the relay's thread wakes this one once for all of them, not once for each.
const GATHER: Duration = Duration::from_millis(5);

/// Calls that are taken from the queue at once.
const BATCH: usize = 256;

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
                let call = self.decode(observed);
                self.metrics.count(&call);
                sink(call);
            }
            if self.queue.is_empty() && !self.queue.is_closed() {
                sleep(GATHER).await;
            }
        }
    }

    fn decode(&self, observed: Observed) -> Call {
        let Observed { id, peer, path, start, duration, ending, request, response } = observed;
        let path = path.as_ref().map_or("", |path| path.path());
        let mut call = Call {
            id,
            start,
            duration,
            method: MethodName::of_path(path),
            ending,
            request_bytes: request.bytes,
            response_bytes: response.bytes,
            peer,
            pod: None,
            container: None,
            exec: None,
        };
        if let Some(watched) = watched::at(path) {
            self.read(&mut call, request.copy.as_ref(), Some(watched.request));
            if ending == Ending::Answered(Some(Code::OK)) {
                self.read(&mut call, response.copy.as_ref(), watched.response);
            }
        }
        call
    }

    /// Reads a copy into the call, or counts why not.
    fn read(&self, call: &mut Call, copy: Option<&Copy>, read: Option<Read>) {
        let (Some(copy), Some(read)) = (copy, read) else { return };
        let result = match copy.whole().map(only_message) {
            Ok(Ok(message)) => read(call, message).map_err(|_| Undecoded::Malformed),
            Ok(Err(FrameError::Compressed)) => Err(Undecoded::Compressed),
            Ok(Err(FrameError::NotOne)) => Err(Undecoded::Incomplete),
            Err(Missed::TooLong) => Err(Undecoded::TooLong),
            Err(Missed::NoRoom) => Err(Undecoded::NoRoom),
        };
        if let Err(why) = result {
            self.metrics.undecoded(why);
        }
    }
}
