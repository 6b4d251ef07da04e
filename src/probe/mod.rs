//! Probes and hooks of the pods on the node, as all sources specify them.
//!
//! ```text
//! rules of the config ────┐
//! --manifests files ──────┼──► SpecResolver ──► a pod with its probes
//! the API server ─────────┤                └──► what is executed in which container, and why
//! the kubelet's /pods ────┤                                              │
//! annotations ────────────┘                                              │ names only
//! static pods, read-only port of the kubelet that was found ─────────────┘
//! ```

mod annotation;
mod api_source;
mod described_probe;
mod expand;
mod found_source;
pub(crate) mod kubelet_annotations;
mod matching;
mod name_sources;
mod names_only;
mod resolver;
mod rule;
mod selector;
mod source_update;
mod watch;

pub use annotation::annotation_problems;
pub use api_source::ApiPodSource;
pub use described_probe::DescribedProbe;
pub(crate) use expand::{expand, expand_with};
pub use found_source::KubeletSearch;
pub(crate) use name_sources::alternative;
pub use name_sources::{
    FoundNode, KubeconfigFile, LocalKubelet, NameRemedy, NameSources, SourceState, config_line,
};
pub use resolver::SpecResolver;
pub use rule::{Rule, Selector};
pub use selector::SelectorError;
pub(crate) use selector::matches;
pub use watch::{KubeletSource, NameView, RefreshTrigger, SpecSources, WatchedSpecs};
pub(crate) use watch::{ProblemTracker, record_problem, rescan_blocking};
