//! Sends the calls of a capture again, and compares codes, latencies and phases. Only calls that
//! read the state, and ExecSyncs, are sent. Those of hooks are sent on request.
//!
//! ```text
//! file ──► CaptureFile ──► Targets (containers of this node) ──► run_replay ──► ReplayReport
//! ```

mod file;
mod interpret;
mod report;
mod run;
mod targets;

pub use file::{CaptureFile, ReadError, RecordedCall};
pub(crate) use interpret::interpret_capture;
pub use report::{
    CallDifference, LatencyPair, PhaseAverage, PhaseAverages, ReplayGroup, ReplayLatency, ReplayReport,
    ShortenedDistances, SkippedCalls, UnknownTarget,
};
pub use run::{ReplayError, ReplaySpec, run_replay};
