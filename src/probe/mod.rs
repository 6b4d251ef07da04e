//! Probes and hooks of the pods on the node, as all sources specify them.
//!
//! ```text
//! rules of the config ────┐
//! --manifests files ──────┼──► SpecResolver ──► a pod with its probes
//! the kubelet's /pods ────┤                └──► what is executed in which container, and why
//! annotations ────────────┘
//! ```

mod annotation;
mod expand;
pub(crate) mod kubelet_annotations;
mod matching;
mod resolver;
mod rule;
mod selector;
mod watch;

pub use annotation::annotation_problems;
pub(crate) use expand::{expand, expand_with};
pub use resolver::{DescribedProbe, SpecResolver};
pub use rule::{Rule, Selector};
pub use selector::SelectorError;
pub(crate) use selector::matches;
pub(crate) use watch::{ProblemTracker, record_problem, rescan_blocking};
pub use watch::{RefreshTrigger, SpecSources};
