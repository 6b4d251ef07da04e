//! The sources of the names of probes, as users see them, and what helps if names are missing.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::manifest::{KnownExec, Source};

/// Page that explains the sources of names.
const GUIDE: &str = "docs/guides/execsync.md";

/// Source that helps if the kubeconfig of the kubelet does not.
pub(crate) const ALTERNATIVE: &str = "a token or a client certificate that may get nodes/pods names the probes as well: \
                                      add `kubelet: {url: https://127.0.0.1:10250, tokenFile: FILE, authorityFile: FILE}`";

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

/// All sources that are read or watched, and the facts from which a remedy follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSources {
    /// The sources, in the order of precedence.
    pub sources: Vec<SourceState>,
    /// The kubelet of this node that uses the runtime, if one was found.
    pub kubelet: Option<LocalKubelet>,
    /// Kubeconfig that a distribution has written for a kubelet of this node.
    pub installed_kubeconfig: Option<KubeconfigFile>,
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
    /// Manifests have to be given: no kubelet was found.
    GiveManifests,
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
        let of_kubelet = self.kubelet.as_ref().and_then(|kubelet| kubelet.kubeconfig.as_ref());
        let kubeconfig = match &self.kubelet {
            Some(_) => of_kubelet,
            None => self.installed_kubeconfig.as_ref(),
        };
        match (kubeconfig, &self.kubelet) {
            (Some(KubeconfigFile { path, problem: None }), _) => {
                Some(NameRemedy::AddLine { line: config_line(path), file })
            }
            (Some(KubeconfigFile { problem: Some(problem), .. }), _) => {
                Some(NameRemedy::Solve(format!("{problem}; {ALTERNATIVE} to {}", file.display())))
            }
            // A kubelet without an API server has only static pods.
            (None, Some(_)) => {
                let with_problem = self.sources.iter().find(|state| state.problem.is_some())?;
                let problem = with_problem.problem.as_deref().unwrap_or_default();
                Some(NameRemedy::Solve(format!("{}: {problem}", with_problem.describe())))
            }
            (None, None) => Some(NameRemedy::GiveManifests),
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

impl NameRemedy {
    /// Returns the line for the configuration file, if that is the remedy.
    #[must_use]
    pub fn line(&self) -> Option<&str> {
        match self {
            Self::AddLine { line, .. } => Some(line),
            Self::Solve(_) | Self::GiveManifests => None,
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
            Self::GiveManifests => f.write_str(
                "no kubelet was found on this node; --manifests DIR names the probes of manifests",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::ExecPurpose;

    fn sources(states: &[(Source, Option<&str>)]) -> NameSources {
        let state = |(source, problem): &(Source, Option<&str>)| SourceState {
            source: *source,
            place: "X".to_owned(),
            pods: 2,
            problem: problem.map(str::to_owned),
        };
        let config_file = Some(PathBuf::from("/etc/probeshim/config.yaml"));
        NameSources { sources: states.iter().map(state).collect(), config_file, ..NameSources::default() }
    }

    fn shown(sources: &NameSources) -> Option<String> {
        sources.remedy().map(|remedy| remedy.to_string())
    }

    #[test]
    fn the_remedy_for_missing_names_is_the_line_with_the_kubeconfig_of_the_kubelet() {
        let file = |path: &str| KubeconfigFile { path: path.into(), problem: None };
        let kubelet =
            |kubeconfig: Option<&str>| Some(LocalKubelet { pid: 7, kubeconfig: kubeconfig.map(file) });
        let found = NameSources {
            kubelet: kubelet(Some("/etc/kubernetes/kubelet.conf")),
            ..sources(&[(Source::StaticPods, None)])
        };
        let line = "add `kubelet: {kubeconfig: /etc/kubernetes/kubelet.conf}` to /etc/probeshim/config.yaml, and \
                    restart or reload probeshim";
        assert_eq!(shown(&found), Some(line.to_owned()));
        let port = NameSources {
            kubelet: kubelet(Some("/etc/kubernetes/kubelet.conf")),
            ..sources(&[(Source::ReadOnlyPort, None), (Source::StaticPods, None)])
        };
        assert_eq!(shown(&port), None, "the read-only port has all pods");
        let foreign = NameSources {
            kubelet: kubelet(Some("/etc/kubernetes/kubelet.conf")),
            ..sources(&[(Source::ReadOnlyPort, Some("is ignored"))])
        };
        assert_eq!(shown(&foreign), Some(line.to_owned()));
        let standalone = NameSources { kubelet: kubelet(None), ..sources(&[(Source::StaticPods, None)]) };
        assert_eq!(shown(&standalone), None, "it has only static pods");
        let k3s = NameSources { installed_kubeconfig: Some(file("/k3s")), ..sources(&[]) };
        assert!(shown(&k3s).unwrap().starts_with("add `kubelet: {kubeconfig: /k3s}` to "));
        assert_eq!(sources(&[]).remedy(), Some(NameRemedy::GiveManifests));
    }

    #[test]
    fn a_kubeconfig_that_does_not_suffice_is_not_recommended() {
        let kubeconfig =
            KubeconfigFile { path: "/a".into(), problem: Some("/a: exec is not supported".to_owned()) };
        let kubelet = LocalKubelet { pid: 7, kubeconfig: Some(kubeconfig.clone()) };
        let of_kubelet = NameSources { kubelet: Some(kubelet), ..sources(&[(Source::StaticPods, None)]) };
        let installed = NameSources { installed_kubeconfig: Some(kubeconfig), ..sources(&[]) };
        for sources in [of_kubelet, installed] {
            let remedy = sources.remedy().unwrap();
            assert_eq!(remedy.line(), None);
            let text = remedy.to_string();
            assert!(text.starts_with("/a: exec is not supported; a token or a client certificate"), "{text}");
            assert!(
                text.ends_with(
                    "https://127.0.0.1:10250, tokenFile: FILE, authorityFile: FILE}` to \
                                    /etc/probeshim/config.yaml"
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn the_line_is_yaml_whatever_the_path_is() {
        for path in ["/etc/kubernetes/kubelet.conf", "/a b", "/a: {b", "/a\"\\# ", "a", "/a}\n"] {
            let value: serde_json::Value = serde_saphyr::from_str(&config_line(Path::new(path))).unwrap();
            assert_eq!(value, serde_json::json!({"kubelet": {"kubeconfig": path}}));
        }
    }

    #[test]
    fn a_configured_source_with_a_problem_is_named_instead_of_a_line() {
        let broken = sources(&[(Source::ApiServer, Some("status 403")), (Source::StaticPods, None)]);
        assert_eq!(shown(&broken).as_deref(), Some("the API server X: status 403"));
        assert_eq!(shown(&sources(&[(Source::ApiServer, None)])), None);
    }

    #[test]
    fn a_call_without_a_name_is_explained_by_what_is_known_of_its_pod() {
        let all = sources(&[(Source::ApiServer, None)]);
        let known = all.explain_unknown(Some(Source::ApiServer), None).unwrap();
        assert!(known.contains("(source: api-server), and none of its probes"), "{known}");
        let later = KnownExec {
            purpose: ExecPurpose::Startup,
            command: vec!["a".to_owned()],
            timeout_seconds: 1,
            period: None,
            failure_threshold: None,
            source: Source::ApiServer,
        };
        assert_eq!(
            all.explain_unknown(Some(Source::ApiServer), Some(&later)).unwrap(),
            "A startup probe of this container has this command and timeout (source: api-server), but was not known \
             when the call was recorded."
        );
        assert_eq!(
            all.explain_unknown(None, None).unwrap(),
            "No source of probes has this pod: the API server X."
        );
        let none = sources(&[]).explain_unknown(None, None).unwrap();
        assert!(none.starts_with("The probes of this pod are not known: no kubelet was found"), "{none}");
        assert_eq!(NameSources::default().explain_unknown(None, None), None, "probeshim runs the pods");
    }
}
