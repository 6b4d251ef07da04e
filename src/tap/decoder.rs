//! The far side of the queue: what the relay saw becomes sightings.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use prost::DecodeError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::Queued;
use super::call::{Call, Container, Exec};
use super::fact::Fact;
use super::messages::Reading;
use super::metrics::Metrics;
use super::watched::{self, ReadMessage, Response};
use crate::cri::{Code, FrameError, RedactedBytes, unary_message};
use crate::relay::{BodyStats, CallInfo, CallOutcome, Capture, CaptureError, CompletedCall, RequestSent};

/// How long calls are let gather under load: the relay's thread wakes this one once for all of them, not once for each.
const GATHER: Duration = Duration::from_millis(5);

/// Calls that are taken from the queue at once.
const BATCH: usize = 256;

/// What was seen, decoded.
#[derive(Debug)]
pub enum Sighting {
    /// An `ExecSync` is on its way to upstream.
    Asked(Box<AskedExec>),
    /// Somebody has a sandbox or container stopped or removed, for as long as the call goes on.
    Stopping(Stopping),
    /// A message of a stream has passed.
    Streamed(Told),
    /// A call has ended.
    Ended(Box<Ended>),
    /// Somebody waits until all that came before has been seen.
    Mark(oneshot::Sender<()>),
}

/// An `ExecSync` that is on its way.
#[derive(Debug)]
pub struct AskedExec {
    /// The call; gone once nobody holds it any more, because its end was seen or dropped.
    pub head: Weak<CallInfo>,
    /// Its number.
    pub id: u64,
    /// When it was sent.
    pub sent: Sent,
    /// Where it executes.
    pub container: Option<Arc<Container>>,
    /// What it executes.
    pub exec: Box<Exec>,
}

/// A call on its way that stops or removes something.
#[derive(Debug)]
pub struct Stopping {
    /// The call; gone once nobody holds it any more.
    pub head: Weak<CallInfo>,
    /// The process that makes it, where that is known.
    pub pid: Option<i32>,
    /// The sandbox, if it is one that is stopped.
    pub sandbox: Option<String>,
    /// The container, if it is one that is stopped.
    pub container: Option<String>,
    /// Whether it is removed, which stops it where it runs.
    pub is_removal: bool,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What was known of it when it began.
    pub head: Arc<CallInfo>,
    /// When its request was sent, if the whole of it was.
    pub sent: Option<Sent>,
    /// The call.
    pub call: Call,
    /// What it told.
    pub told: Told,
    /// The request as its bytes came, where something was made by it and it is to be handed on; or why it is not known.
    pub request: Option<Result<RedactedBytes, String>>,
}

/// When a request was whole, and when it was on its way to upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The end of the request had come from the client.
    pub whole: Instant,
    /// The end of the request had been handed to upstream.
    pub sent: Instant,
}

/// What was told of pods and containers.
#[derive(Debug)]
pub struct Told {
    /// When the call that told it began: what was so before may not be so any more.
    pub since: Instant,
    /// What is so.
    pub facts: Vec<Fact>,
}

/// Why a message of a watched method was not read.
#[derive(Debug, thiserror::Error)]
enum Undecoded {
    /// It was not captured whole.
    #[error(transparent)]
    NotWhole(#[from] CaptureError),
    /// What was captured is not one message that can be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It is not the message that it should be.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A fault of ours.
    #[error("a fault of probeshim's own")]
    Fault,
}

/// Takes calls from the queue and decodes them.
#[derive(Debug)]
pub struct Decoder {
    queue: mpsc::Receiver<Queued>,
    batch: Vec<Queued>,
    /// Until when what comes is let gather.
    gather_until: Option<Instant>,
    metrics: Metrics,
    /// Whether requests that make something are handed on.
    hands_on: bool,
}

impl Ended {
    /// Whether the runtime has done what it was asked for.
    #[must_use]
    pub fn went_well(&self) -> bool {
        self.call.ending == CallOutcome::Completed(Some(Code::OK))
    }
}

impl Decoder {
    pub(super) fn new(queue: mpsc::Receiver<Queued>, metrics: Metrics, hands_on: bool) -> Self {
        Self { queue, batch: Vec::with_capacity(BATCH), gather_until: None, metrics, hands_on }
    }

    /// Hands everything that waits to `sink`, in its order, once something does; `false` if the tap is gone and its queue is empty.
    /// Nothing is lost where it is cancelled.
    pub async fn next(&mut self, mut sink: impl FnMut(Sighting)) -> bool {
        if let Some(until) = self.gather_until
            && !self.queue.is_closed()
        {
            sleep_until(until).await;
        }
        self.gather_until = None;
        let mut batch = std::mem::take(&mut self.batch);
        let taken = self.queue.recv_many(&mut batch, BATCH).await;
        for queued in batch.drain(..) {
            if let Some(sighting) = self.decode(queued) {
                sink(sighting);
            }
        }
        self.batch = batch;
        if self.queue.is_empty() {
            self.gather_until = Some(Instant::now() + GATHER);
        }
        taken > 0
    }

    fn decode(&self, queued: Queued) -> Option<Sighting> {
        match queued {
            Queued::Asked(asked) => self::asked(asked),
            Queued::Streamed(head, message) => self.streamed(&head, &message).map(Sighting::Streamed),
            Queued::Ended(observed) => Some(Sighting::Ended(Box::new(self.ended(observed)))),
            Queued::Own(sighting) => Some(*sighting),
        }
    }

    fn streamed(&self, head: &CallInfo, message: &Capture) -> Option<Told> {
        let Some(Response::Stream(read_message)) = watched::of(&head.method)?.response else { return None };
        let mut read = Reading::new(Call::begun(head));
        match self::read(&mut read, message, read_message) {
            Ok(()) => Some(Told { since: head.since, facts: read.facts }),
            Err(why) => {
                self.metrics.undecoded(why.label());
                None
            }
        }
    }

    fn ended(&self, observed: CompletedCall) -> Ended {
        let CompletedCall { head, duration, ending, request, response } = observed;
        let mut read = Reading::new(Call {
            duration,
            ending,
            request_bytes: request.bytes,
            response_bytes: response.bytes,
            ..Call::begun(&head)
        });
        let went_well = ending == CallOutcome::Completed(Some(Code::OK));
        if let Some(watched) = watched::of(&head.method) {
            if let Some(read_message) = watched.request {
                self.read(&mut read, &request, read_message);
            }
            if let Some(Response::Unary(read_message)) = watched.response.filter(|_| went_well) {
                self.read(&mut read, &response, read_message);
            }
        }
        self.metrics.count(&read.call);
        if !went_well {
            read.facts.clear();
        }
        let sent = request.whole.zip(request.passed).map(|(whole, sent)| Sent { whole, sent });
        let told = Told { since: head.since, facts: read.facts };
        let is_to_be_had = self.hands_on && went_well && watched::makes_something(&head.method);
        let request = is_to_be_had.then(|| whole(&request).map_err(|why| why.to_string()));
        Ended { head, sent, call: read.call, told, request }
    }

    /// Reads what was captured into the call, or counts why not.
    fn read(&self, reading: &mut Reading, direction: &BodyStats, read_message: ReadMessage) {
        let Some(capture) = &direction.capture else { return };
        match read(reading, capture, read_message) {
            // A call that ended before its message was whole, or had begun.
            Err(Undecoded::Frame(FrameError::NotOne))
                if direction.bytes == 0 || !matches!(reading.call.ending, CallOutcome::Completed(_)) => {}
            Err(why) => self.metrics.undecoded(why.label()),
            Ok(()) => {}
        }
    }
}

/// A call that is announced: an ExecSync, or one that stops something.
fn asked(asked: RequestSent) -> Option<Sighting> {
    let RequestSent { head, request, whole, sent } = asked;
    let mut reading = Reading::new(Call::begun(&head));
    // What cannot be read is counted when the call has ended.
    read(&mut reading, &request, watched::of(&head.method)?.request?).ok()?;
    let Call { id, container, pod, exec, .. } = reading.call;
    let head_of_it = Arc::downgrade(&head);
    let Some(exec) = exec else {
        let (sandbox, container) =
            (pod.and_then(|pod| pod.id.clone()), container.and_then(|it| it.id.clone()));
        let (pid, is_removal) =
            (head.peer.as_ref().and_then(|peer| peer.pid), watched::removes(&head.method));
        return Some(Sighting::Stopping(Stopping { head: head_of_it, pid, sandbox, container, is_removal }));
    };
    let sent = Sent { whole, sent };
    Some(Sighting::Asked(Box::new(AskedExec { head: head_of_it, id, sent, container, exec })))
}

/// The bytes of the one message that went up.
fn whole(request: &BodyStats) -> Result<RedactedBytes, Undecoded> {
    let capture = request.capture.as_ref().ok_or(FrameError::NotOne)?;
    Ok(RedactedBytes(unary_message(capture.bytes()?)?.into()))
}

/// Reads a message that somebody else has written. A fault of ours in that is the message's fate, and nobody else's.
fn read(read: &mut Reading, capture: &Capture, read_message: ReadMessage) -> Result<(), Undecoded> {
    let message = unary_message(capture.bytes()?)?;
    Ok(catch_unwind(AssertUnwindSafe(|| read_message(read, message))).map_err(|_| Undecoded::Fault)??)
}

impl Undecoded {
    /// The reason as a label of metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::NotWhole(CaptureError::TooLong) => "too-long",
            Self::NotWhole(CaptureError::BudgetExhausted) => "no-room",
            Self::Frame(FrameError::Compressed) => "compressed",
            Self::Frame(FrameError::NotOne) => "not-one-message",
            Self::Malformed(_) => "malformed",
            Self::Fault => "fault",
        }
    }
}
