//! Copies of calls, taken beside the byte path and decoded off it.
//!
//! ```text
//! relay ──copies──► Tap ──queue (drops when full)──► Decoder ──► Call
//! ```

mod call;
mod decode;
mod decoder;
mod metrics;
mod watched;

use tokio::sync::mpsc;

use crate::relay::{Copy, Observed, Observer, Room};

use watched::Watched;

pub use call::{Call, Container, Exec, ExecResult, MethodName, Pod};
pub use decoder::Decoder;
pub use metrics::Metrics;

/// What the tap runs on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Calls that may wait to be decoded; more are dropped and counted.
    pub queue: usize,
    /// Bytes that the copies of all calls may take together; a copy that finds no room is given up and counted.
    pub copies: usize,
}

/// The side of the tap that faces the relay: it copies and hands over, and never waits.
#[derive(Debug)]
pub struct Tap {
    queue: mpsc::Sender<Observed>,
    room: Room,
    metrics: Metrics,
}

impl Default for Settings {
    fn default() -> Self {
        Self { queue: 4096, copies: 16 << 20 }
    }
}

impl Tap {
    /// A tap, and the other side of its queue.
    #[must_use]
    pub fn new(settings: Settings, metrics: Metrics) -> (Self, Decoder) {
        let (queue, observed) = mpsc::channel(settings.queue);
        let tap = Self { queue, room: Room::new(settings.copies), metrics: metrics.clone() };
        (tap, Decoder::new(observed, metrics))
    }
}

impl Observer for Tap {
    fn copies(&self, path: &str) -> [Option<Copy>; 2] {
        let limits = watched::at(path).map_or([None, None], Watched::limits);
        limits.map(|limit| limit.map(|limit| Copy::new(limit, &self.room)))
    }

    fn ended(&self, call: Observed) {
        if self.queue.try_send(call).is_err() {
            self.metrics.dropped();
        }
    }
}
