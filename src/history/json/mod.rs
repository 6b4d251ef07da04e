//! JSON of calls and events, in the API and on disk. Fields may be added, never renamed. Times are
//! in RFC 3339 and UTC, durations in milliseconds.

mod call;
mod event;
mod in_flight;
mod insight;
mod read;

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

pub use call::{Call, Container, Exec, Failure, Fault, Kill, Peer, Pod};
pub use event::Event;
pub use in_flight::{CallInFlight, ListedCall};
pub use insight::{Cpu, Evidence, Phases, Pids, Pressures, Probe};

/// Formats a time, to the millisecond.
#[must_use]
pub fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}

/// Returns a duration in milliseconds, to the microsecond.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "exact for the first 285 years")]
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
