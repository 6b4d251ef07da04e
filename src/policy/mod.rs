//! Policies that step in: faults that are injected into calls, pauses of probes, and limits and
//! coalescing of `ExecSync`, and its execution without the runtime. They implement the relay's
//! [`CallPolicy`](crate::relay::CallPolicy).
//!
//! ```text
//! config, flags, `fault add` ──► FaultRule ──► FaultRules ─┐
//! `pause` ─────────────────────► Pause ──────► Pauses ─────┼─► Policies ◄── relay: which calls?
//! config, flags ───────────────► ExecSettings ─────────────┘      │
//!                     request, inventory ──► PolicyInterceptor ◄──┘
//!                                                 └──► effects, then ExecAdmission
//! ```

mod active;
mod active_names;
mod admission;
mod call_match;
mod coalesce;
mod command_match;
mod command_pattern;
mod direct;
mod effects;
mod exec_queue;
mod fault;
mod forward_kind;
mod index;
mod interceptor;
mod known_execs;
mod lifetime;
mod limit;
mod metrics;
mod node_view;
mod offload;
mod own_calls;
mod pause;
mod pause_selector;
mod paused_containers;
mod plan;
mod policies;
mod rules;
mod target;

pub use active::RuleSource;
pub use call_match::CallMatch;
pub use command_pattern::MAX_COMMAND;
pub use direct::{DirectContainer, DirectExecutor, DirectOutcome, DirectRequest, DirectSettings, ExecMode};
pub(crate) use fault::rules;
pub use fault::{Action, FaultRule, FaultStep, Place, RuleError, StreamAction, When};
pub use forward_kind::ForwardKind;
pub use known_execs::KnownExecs;
pub(crate) use lifetime::is_lifetime;
pub use limit::{ExecLimits, Overflow};
pub use node_view::NodeView;
pub use pause::{Pause, PauseStatus, PausedProbe, Pauses};
pub use pause_selector::{PauseSelector, PauseSelectorError};
pub use paused_containers::{PausedContainer, ProbeTreatment, TreatedProbe};
pub use plan::{Plan, PlannedCall};
pub use policies::{ExecSettings, Policies};
pub use rules::{FaultRules, FaultStatus, MAX_RULES};
pub(crate) use target::read_request_names;

#[cfg(test)]
mod tests;
