//! ExecSyncs, explained: whose each was, where its time went, and what on the node explains it.
//!
//! ```text
//!               Inspector
//! sightings ──► tracker ◄── events of what is executed      (matching, execution ──► phases; identity, habit)
//!                 │  ▲  └─► Watchdog, for what is stuck
//!             asks│  │answers
//!                 ▼  │
//!               sampler (evidence, on a thread of its own)
//! ```

mod assessment;
mod evidence;
mod execution;
mod explain;
mod habit;
mod identity;
mod insight;
mod inspector;
mod locate;
mod matching;
mod meter;
mod metrics;
mod phases;
mod span;
mod stuck;
mod tracker;

pub use assessment::{Assessment, Slow, SlownessConfig};
pub use evidence::{Cpu, Evidence, Pids, PressureStall, ProcessInfo};
pub use explain::explain;
pub use identity::ProbeMatch;
pub use insight::{CallRecord, CommandOutcome, ExecAnalysis, TimeoutMargin};
pub use inspector::{Inspector, SamplerReply};
pub use meter::{ExecMeter, PendingExec, Timing};
pub use metrics::ExecMetrics;
pub use phases::{MissingEvents, PhaseDurations, Phases};
pub use stuck::{Stuck, StuckExec, StuckKind};
