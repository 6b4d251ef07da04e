//! The sources of the names of probes, as users see them, and what helps if names are missing.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::manifest::{KnownExec, Source};

/// Page that explains the sources of names.
const GUIDE: &str = "docs/guides/execsync.md";

/// Source that helps without a kubelet.
const MANIFESTS: &str = "--manifests DIR names the probes of manifests";

/// A source that is read or watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The kind of source.
    pub source: Source,
    /// Address or directory of the source.
    pub place: String,
    /// Number of pods and workloads that the source specifies.
    pub pods: usize,
    /// Reason why the source is not read, or not complete.
    pub problem: Option<String>,
}

/// A kubelet that runs on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalKubelet {
    /// Process id.
    pub pid: u32,
    /// Kubeconfig of the kubelet; `None` if it has no API server.
    pub kubeconfig: Option<KubeconfigFile>,
}

/// A kubeconfig that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason why it does not suffice as a source, with the path; `None` if it suffices.
    pub problem: Option<String>,
}

/// The node as the search for its kubelet has found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundNode {
    /// The kubelet of this node that uses the runtime, if one was found.
    pub kubelet: Option<LocalKubelet>,
    /// Sentences about processes with the name of a kubelet that are ignored, with the reasons.
    pub ignored_kubelets: Vec<String>,
    /// Kubeconfig that a distribution has written for a kubelet of this node.
    pub installed_kubeconfig: Option<KubeconfigFile>,
}

/// All sources that are read or watched, and the facts from which a remedy follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSources {
    /// The sources, in the order of precedence.
    pub sources: Vec<SourceState>,
    /// The node.
    pub node: FoundNode,
    /// Configuration file to which a line can be added; `None` if probeshim runs the pods itself.
    pub config_file: Option<PathBuf>,
}

/// Remedy for unknown probes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRemedy {
    /// A line for the configuration file.
    AddLine {
        /// The line.
        line: String,
        /// The configuration file.
        file: PathBuf,
    },
    /// A source has a problem.
    Solve(String),
    /// Manifests have to be given: no kubelet was found, except these ignored processes.
    GiveManifests(Vec<String>),
}

impl SourceState {
    /// Returns whether two states differ in the number of pods only.
    pub(super) fn is_same_but_pods(&self, other: &Self) -> bool {
        (self.source, &self.place, &self.problem) == (other.source, &other.place, &other.problem)
    }

    /// Returns the name of the source with its place.
    #[must_use]
    pub fn describe(&self) -> String {
        let place = &self.place;
        match self.source {
            Source::Manifest => format!("manifests in {place}"),
            Source::Kubelet => format!("the kubelet at {place}"),
            Source::ApiServer => format!("the API server {place}"),
            Source::ReadOnlyPort => format!("the kubelet's read-only port {place}"),
            Source::StaticPods => format!("static pods in {place}"),
            other => format!("{} {place}", other.name()),
        }
    }
}

impl NameSources {
    /// Returns what helps if the probes of a pod are unknown; `None` if every pod of the kubelet is
    /// known.
    #[must_use]
    pub fn remedy(&self) -> Option<NameRemedy> {
        let of_all_pods = [Source::Kubelet, Source::ApiServer, Source::ReadOnlyPort];
        let mut complete = self.sources.iter().filter(|state| of_all_pods.contains(&state.source));
        let is_configured = |state: &&SourceState| state.source != Source::ReadOnlyPort;
        if let Some(state) = complete.clone().find(is_configured) {
            let problem = state.problem.as_ref()?;
            return Some(NameRemedy::Solve(format!("{}: {problem}", state.describe())));
        }
        if complete.any(|state| state.problem.is_none()) {
            return None;
        }
        let file = self.config_file.clone()?;
        let FoundNode { kubelet, ignored_kubelets, installed_kubeconfig } = &self.node;
        let kubeconfig = match kubelet {
            Some(kubelet) => kubelet.kubeconfig.as_ref(),
            None => installed_kubeconfig.as_ref(),
        };
        match (kubeconfig, kubelet) {
            (Some(KubeconfigFile { path, problem: None }), _) => {
                Some(NameRemedy::AddLine { line: config_line(path), file })
            }
            (Some(KubeconfigFile { problem: Some(problem), .. }), _) => {
                Some(NameRemedy::Solve(format!("{problem}; {}", alternative(&file))))
            }
            // A kubelet without an API server has only static pods.
            (None, Some(_)) => {
                let with_problem = self.sources.iter().find(|state| state.problem.is_some())?;
                let problem = with_problem.problem.as_deref().unwrap_or_default();
                Some(NameRemedy::Solve(format!("{}: {problem}", with_problem.describe())))
            }
            (None, None) => Some(NameRemedy::GiveManifests(ignored_kubelets.clone())),
        }
    }

    /// Returns a sentence about a call of a pod that had no known probe when it ended. `known_from`
    /// is the source that specifies the pod, and `known_now` the probe or hook with the command and
    /// the timeout of the call.
    #[must_use]
    pub fn explain_unknown(
        &self,
        known_from: Option<Source>,
        known_now: Option<&KnownExec>,
    ) -> Option<String> {
        if let Some(KnownExec { purpose, source, .. }) = known_now {
            let (kind, source) = (if purpose.is_probe() { "probe" } else { "hook" }, source.name());
            return Some(format!(
                "A {} {kind} of this container has this command and timeout (source: {source}), but was not known when \
                 the call was recorded.",
                purpose.name()
            ));
        }
        if let Some(source) = known_from {
            return Some(format!(
                "The probes of this pod are known (source: {}), and none of its probes and hooks has this command and \
                 timeout.",
                source.name()
            ));
        }
        self.config_file.as_ref()?;
        if let Some(remedy) = self.remedy() {
            return Some(format!("The probes of this pod are not known: {remedy} ({GUIDE})."));
        }
        let known: Vec<String> = self.sources.iter().map(SourceState::describe).collect();
        Some(format!("No source of probes has this pod: {}.", known.join(", ")))
    }
}

/// Returns the line of the configuration that names a kubeconfig.
#[must_use]
pub fn config_line(kubeconfig: &Path) -> String {
    let path = kubeconfig.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let is_plain = path.starts_with('/') && path.bytes().all(is_plain);
    // A text of JSON is a quoted text of YAML.
    let path = if is_plain { path } else { serde_json::Value::from(path).to_string() };
    format!("kubelet: {{kubeconfig: {path}}}")
}

/// Returns the sources that help if the kubeconfig of the kubelet does not, and the configuration
/// file that names one.
#[must_use]
pub(crate) fn alternative(file: &Path) -> String {
    let file = file.display();
    format!(
        "from kubelet 1.33 on, a token or a client certificate that may get nodes/pods names the probes as well: add \
         `kubelet: {{url: https://127.0.0.1:10250, tokenFile: FILE, authorityFile: FILE}}` to {file}; earlier kubelets \
         know only nodes/proxy, so use the API server and a kubeconfig whose user may list and watch pods: \
         `kubelet: {{kubeconfig: FILE, nodeName: NODE}}`"
    )
}

impl NameRemedy {
    /// Returns the line for the configuration file, if that is the remedy.
    #[must_use]
    pub fn line(&self) -> Option<&str> {
        match self {
            Self::AddLine { line, .. } => Some(line),
            Self::Solve(_) | Self::GiveManifests(_) => None,
        }
    }
}

impl fmt::Display for NameRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddLine { line, file } => {
                write!(f, "add `{line}` to {}, and restart or reload probeshim", file.display())
            }
            Self::Solve(problem) => f.write_str(problem),
            Self::GiveManifests(ignored) if ignored.is_empty() => {
                write!(f, "no kubelet was found on this node; {MANIFESTS}")
            }
            Self::GiveManifests(ignored) => write!(f, "{}; {MANIFESTS}", ignored.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests;
