//! Updates of sources that run on their own.

use super::name_sources::{FoundNode, SourceState};
use crate::manifest::{Manifests, Source};

/// The pods of a source, or of all sources that were found.
#[derive(Debug)]
pub(super) enum SourceUpdate {
    /// The pods of a configured source; `None` if they are unchanged.
    Pods { state: SourceState, pods: Option<Manifests>, problems: Vec<String> },
    /// Everything about the local kubelet.
    Found { found: Vec<FoundPods>, node: FoundNode },
}

/// The pods of a source that was found.
#[derive(Debug)]
pub(super) struct FoundPods {
    pub(super) source: Source,
    /// State of the source; `None` if it does not exist.
    pub(super) state: Option<SourceState>,
    /// The pods; `None` if those of the last update stay known.
    pub(super) pods: Option<Manifests>,
}
