//! Sends the calls of a capture again, and compares codes, latencies and phases. Only calls that
//! read the state, and ExecSyncs, are sent.
//!
//! ```text
//! file ──► Recording ──► Targets (containers of this node) ──► run_replay ──► ReplayReport
//! ```

mod file;
mod report;
mod run;
mod targets;

pub use file::{ReadError, RecordedCall, Recording};
pub use report::{
    CallDifference, LatencyPair, PhaseMean, PhaseMeans, ReplayGroup, ReplayLatency, ReplayReport,
    SkippedCalls, UnknownTarget,
};
pub use run::{ReplayError, ReplaySpec, run_replay};
