//! What the relay tells of its calls, and to whom.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::capture::Capture;
use super::ending::Ending;
use super::peer::Peer;
use crate::cri::MethodName;

/// Watches calls. It is asked and told on the byte path: it must not wait, and must not work there.
pub trait Observer: fmt::Debug + Send + Sync {
    /// What to capture of a call to this method, if its messages matter.
    fn captures(&self, method: &MethodName) -> Captures;

    /// A call has ended.
    fn ended(&self, call: Observed);
}

/// What is to be captured of a call; nothing by default.
#[derive(Debug, Default)]
pub struct Captures {
    /// Of what goes up.
    pub request: Option<Capture>,
    /// Of what comes down.
    pub response: Option<Capture>,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Observed {
    /// Counts the calls of this relay in the order in which they came, from 1.
    pub id: u64,
    /// Who made it; `None` where the kernel did not tell.
    pub peer: Option<Arc<Peer>>,
    /// What was called.
    pub method: MethodName,
    /// When its head came, by the wall clock.
    pub start: SystemTime,
    /// From its head to its end.
    pub duration: Duration,
    /// How it ended.
    pub ending: Ending,
    /// What went up.
    pub request: Direction,
    /// What came down.
    pub response: Direction,
}

/// What one direction of a call carried.
#[derive(Debug, Default)]
pub struct Direction {
    /// Bytes of DATA that were passed on: messages with their gRPC frames.
    pub bytes: u64,
    /// Their beginning, where it was to be captured.
    pub capture: Option<Capture>,
}

impl Direction {
    pub(super) fn new(capture: Option<Capture>) -> Self {
        Self { bytes: 0, capture }
    }
}
