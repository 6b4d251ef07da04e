//! Captures of calls, taken beside the byte path and decoded off it.
//!
//! ```text
//! relay ──captures──► Tap ──queue (drops when full)──► Decoder ──► Call
//! ```

mod call;
mod decoder;
mod messages;
mod metrics;
mod watched;

use tokio::sync::mpsc;

use crate::cri::MethodName;
use crate::relay::{Capture, CaptureBudget, Captures, Observed, Observer};

pub use call::{Call, Container, Exec, ExecResult, Pod};
pub use decoder::Decoder;
pub use metrics::Metrics;

/// What the tap runs on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Calls that may wait to be decoded; more are dropped and counted.
    pub queued_calls: usize,
    /// Bytes that the captures of all calls may take together; one that finds no room is given up and counted.
    pub captured_bytes: usize,
}

/// The side of the tap that faces the relay: it captures and hands over, and never waits.
#[derive(Debug)]
pub struct Tap {
    queue: mpsc::Sender<Observed>,
    budget: CaptureBudget,
    metrics: Metrics,
}

impl Default for Settings {
    fn default() -> Self {
        Self { queued_calls: 4096, captured_bytes: 8 << 20 }
    }
}

impl Tap {
    /// A tap, and the other side of its queue.
    #[must_use]
    pub fn new(settings: Settings, metrics: Metrics) -> (Self, Decoder) {
        let (queue, observed) = mpsc::channel(settings.queued_calls);
        let budget = CaptureBudget::new(settings.captured_bytes);
        (Self { queue, budget, metrics: metrics.clone() }, Decoder::new(observed, metrics))
    }
}

impl Observer for Tap {
    fn captures(&self, method: &MethodName) -> Captures {
        let Some(watched) = watched::of(method) else { return Captures::default() };
        let capture = |limit| Capture::new(limit, &self.budget);
        Captures {
            request: Some(capture(watched.request_limit)),
            response: watched.response.map(|_| capture(watched::RESPONSE_LIMIT)),
        }
    }

    fn ended(&self, call: Observed) {
        if self.queue.try_send(call).is_err() {
            self.metrics.dropped();
        }
    }
}
