//! JSON of the sources of probe names.

use serde::{Deserialize, Serialize};

use crate::history::NameCoverage;
use crate::probe::{NameSources, SourceState};

/// The sources of probe names, and the containers without names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeNames {
    /// The sources that are read or watched, in the order of precedence.
    pub sources: Vec<ProbeNameSource>,
    /// Number of running containers whose commands all belong to known probes and hooks.
    pub named_containers: usize,
    /// Number of running containers with a command that belongs to no known probe or hook, although
    /// a kubelet executes it, or it is executed at regular intervals.
    pub unnamed_containers: usize,
    /// Sentence about what helps if names are missing; null if every pod of the kubelet is known.
    pub remedy: Option<String>,
    /// Line for the configuration file that helps; null if that is not the remedy.
    pub line: Option<String>,
}

/// A source of probe names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeNameSource {
    /// `manifest`, `kubelet`, `api-server`, `read-only-port` or `static-pods`.
    pub source: String,
    /// Address or directory of the source.
    pub place: String,
    /// The source with its place, in words.
    pub description: String,
    /// Number of pods and workloads that the source specifies.
    pub pods: usize,
    /// Reason why the source is not read, or not complete; null if there is none.
    pub problem: Option<String>,
}

impl ProbeNames {
    pub(in crate::admin) fn new(sources: &NameSources, coverage: NameCoverage) -> Self {
        let remedy = sources.remedy();
        Self {
            sources: sources.sources.iter().map(ProbeNameSource::from).collect(),
            named_containers: coverage.named,
            unnamed_containers: coverage.unnamed,
            line: remedy.as_ref().and_then(|remedy| remedy.line()).map(str::to_owned),
            remedy: remedy.map(|remedy| remedy.to_string()),
        }
    }

    /// Describes the sources in a line; `None` if probeshim runs the pods itself.
    #[must_use]
    pub fn describe_sources(&self) -> Option<String> {
        let counted = |count| if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") };
        let describe = |it: &ProbeNameSource| match &it.problem {
            Some(problem) => format!("{}: {problem}", it.description),
            None => format!("{} ({})", it.description, counted(it.pods)),
        };
        let all: Vec<String> = self.sources.iter().map(describe).collect();
        let none = || self.remedy.as_ref().map(|remedy| format!("none: {remedy}"));
        if all.is_empty() { none() } else { Some(all.join("; ")) }
    }

    /// Describes the containers without names, and what helps; `None` if names are not missing.
    #[must_use]
    pub fn describe_missing(&self) -> Option<String> {
        let all = self.named_containers + self.unnamed_containers;
        let remedy = || self.remedy.as_ref().map(|remedy| format!(": {remedy}")).unwrap_or_default();
        (self.unnamed_containers > 0).then(|| {
            format!("missing in {} of {all} containers with exec calls{}", self.unnamed_containers, remedy())
        })
    }
}

impl From<&SourceState> for ProbeNameSource {
    fn from(state: &SourceState) -> Self {
        Self {
            source: state.source.name().to_owned(),
            place: state.place.clone(),
            description: state.describe(),
            pods: state.pods,
            problem: state.problem.clone(),
        }
    }
}
