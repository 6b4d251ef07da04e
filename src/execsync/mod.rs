//! Analysis of ExecSyncs: the probe of each call, its phases, and the evidence for slow ones.
//!
//! ```text
//!               ExecAnalyzer
//! tap events ─► Tracker ◄── events of exec instances  (matching, phases, periodicity)
//!                 │  ▲  └─► Watchdog, for stuck execs
//!   SampleRequest │  │ SampleResult
//!                 ▼  │
//!               Sampler (evidence, on a separate thread)
//! ```

mod analysis;
mod analyzer;
mod cause;
mod events;
mod evidence;
mod exec_instance;
mod explain;
mod identity;
mod in_flight;
mod init_pid;
mod interpret;
mod matching;
mod meter;
mod metrics;
mod periodicity;
mod phases;
mod slowness;
mod span;
mod tracker;
mod watchdog;

pub use analysis::{CallRecord, CommandOutcome, ExecAnalysis, TimeoutMargin};
pub use analyzer::{ExecAnalyzer, SamplerReply};
pub(crate) use cause::CRIO_TIMEOUT;
pub(crate) use cause::limits::cpu_limit;
pub use cause::name::{self as cause_name, cause_names};
pub(crate) use cause::remedy;
pub use cause::{Cause, CommandEnd, ExecFailure, ExecVerdict, FailedProgram};
pub use evidence::{
    CpuUsage, Evidence, Pids, PidsScope, PressureStall, ProcessInfo, ZombieParent, Zombies, session_processes,
};
pub(crate) use explain::DRAIN_ADVICE;
pub use explain::{ContainerStop, explain, explain_in_flight, explain_with_stop};
pub use identity::ProbeMatch;
pub use in_flight::{CallInFlight, CommandProgress, RequestDetails};
pub(crate) use interpret::{TrackerStep, interpret_steps};
pub use meter::{ExecMeter, ExecTiming, PendingExec};
pub use metrics::ExecMetrics;
pub use phases::{MissingEvents, PhaseDurations, Phases};
pub use slowness::{Assessment, Slow, SlownessConfig};
pub use watchdog::{Stuck, StuckExec, StuckKind};
