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

pub use assessment::{Assessment, Settings, Slow};
pub use evidence::{Cpu, Evidence, Pids, Pressures, Process};
pub use explain::explain;
pub use identity::Identity;
pub use insight::{Fate, Insight, Margin, Record};
pub use inspector::{Heard, Inspector};
pub use meter::{Measured, Meter, Timing};
pub use metrics::Metrics;
pub use phases::{Missing, Parts, Phases};
pub use stuck::{Stuck, StuckExec, StuckKind};
