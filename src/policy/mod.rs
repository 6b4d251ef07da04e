//! Policies that step in: faults that are injected into calls. They implement the relay's
//! [`CallPolicy`](crate::relay::CallPolicy).
//!
//! ```text
//! config, flags, `fault add` ──► FaultRule ──► FaultRules ◄── relay: which calls are intercepted?
//!                                                 └──► Interceptor: request, inventory ──► effects
//! ```

mod active;
mod call_match;
mod effects;
mod fault;
mod index;
mod interceptor;
mod metrics;
mod node_view;
mod own_calls;
mod plan;
mod rules;
mod target;

pub use active::RuleSource;
pub use call_match::CallMatch;
pub use fault::{Action, FaultRule, FaultStep, Place, RuleError, StreamAction, When};
pub(crate) use fault::{is_lifetime, rules};
pub use node_view::NodeView;
pub use plan::{Plan, PlannedCall};
pub use rules::{FaultRules, FaultStatus, MAX_RULES};

#[cfg(test)]
mod tests;
