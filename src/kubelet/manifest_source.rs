//! Pods from manifests: files and directories, which are watched (kubelet: `config/file.go`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use super::pod_source::with_pods;
use crate::events::EventRecorder;
use crate::manifest::{Files, PodSet, Purpose, ReadOptions, is_stdin};
use crate::probe::{ProblemTracker, SpecResolver, rescan_blocking};

/// Interval between checks of the files.
const RESCAN_INTERVAL: Duration = Duration::from_secs(2);

/// The pods of manifests.
#[derive(Clone, Debug, Default)]
pub struct ManifestSource {
    files: Files,
    /// Pods and objects of all files.
    pod_set: Arc<PodSet>,
    /// Probes of other sources.
    specs: SpecResolver,
    problems_reported: ProblemTracker,
    paths: BTreeSet<PathBuf>,
    /// Maximum number of pods of all manifests together.
    max_pods: usize,
    /// Problem of manifests with more pods. They keep their previous pods.
    excess: Option<String>,
}

/// Limits of the manifests of a [`ManifestSource`].
#[derive(Clone, Copy, Debug)]
pub struct ManifestLimits {
    /// Whether unsupported fields are left out. Otherwise they are errors.
    pub ignore_unsupported: bool,
    /// Whether a container must have a command, because images have none.
    pub needs_commands: bool,
    /// Whether errors omit values.
    pub redact: bool,
    /// Maximum number of pods of all manifests together.
    pub max_pods: usize,
}

impl ManifestSource {
    /// Reads files and directories. Fails with all problems in them. `specs`: probes of other
    /// sources.
    pub fn read(paths: &[PathBuf], limits: ManifestLimits, specs: SpecResolver) -> Result<Self, Vec<String>> {
        let ManifestLimits { ignore_unsupported, needs_commands, redact, max_pods } = limits;
        let purpose = Purpose::Run;
        let options =
            ReadOptions { purpose, redact, ignore_unsupported, needs_commands, ..ReadOptions::default() };
        let files = Files::new(paths, options);
        let pod_set = Arc::new(PodSet::new(files.documents()));
        // Pods of standard input belong to it, as pods of a file belong to the file.
        let canonical =
            |path: &PathBuf| if is_stdin(path) { Some(path.clone()) } else { path.canonicalize().ok() };
        let paths = paths.iter().filter_map(canonical).collect();
        let excess = excess(&pod_set, max_pods);
        let problems_reported = ProblemTracker::default();
        let mut source = Self { files, pod_set, specs, problems_reported, paths, max_pods, excess };
        let problems = source.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        // The caller reports the warnings.
        let known = source.all_problems();
        source.problems_reported.take(known);
        Ok(source)
    }

    /// Returns the paths of the files and directories.
    #[must_use]
    pub fn paths(&self) -> &BTreeSet<PathBuf> {
        &self.paths
    }

    /// Returns whether the manifests have neither pods nor workloads.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pod_set.is_empty()
    }

    /// Returns the number of pods with which the manifests begin.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pod_set.count()
    }

    /// Returns the name of each pod with the name of each of its containers.
    pub fn container_names(&self) -> impl Iterator<Item = (String, String)> {
        self.pod_set.container_names()
    }

    /// Returns warnings about unsupported parts of the manifests that are left out.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.files.warnings()
    }

    /// Returns what is probably a mistake in the manifests, and the kinds of objects that are
    /// ignored.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.files.remarks()
    }

    /// Returns the probes of the pods and of other sources.
    #[must_use]
    pub fn specs(&self) -> SpecResolver {
        with_pods(&self.specs, self.pod_set.pods.iter())
    }

    /// Rereads the files periodically until the returned source is dropped. Records problems as
    /// events.
    pub(crate) fn watch(mut self, events: Arc<EventRecorder>) -> ManifestWatch {
        let (specs, published) = (self.specs.clone(), watch::Sender::new(self.pod_set.clone()));
        let pod_sets = published.subscribe();
        let task = tokio::spawn(async move {
            loop {
                sleep(RESCAN_INTERVAL).await;
                if self.rescan().await {
                    published.send_replace(self.pod_set.clone());
                }
                self.report_problems(&events);
            }
        });
        ManifestWatch { pod_sets, specs, is_lost: false, _task: AbortOnDropHandle::new(task) }
    }

    /// Reads the files that have changed. Returns whether their content has changed. A pod with
    /// errors keeps its previous manifest.
    async fn rescan(&mut self) -> bool {
        let (files, has_changed) = rescan_blocking(std::mem::take(&mut self.files)).await;
        self.files = files;
        if has_changed {
            let mut new = PodSet::new(self.files.documents());
            new.keep_earlier(&self.pod_set);
            self.excess = excess(&new, self.max_pods);
            if self.excess.is_some() {
                return false;
            }
            self.pod_set = Arc::new(new);
        }
        has_changed
    }

    /// Records events for new problems and for resolved problems.
    fn report_problems(&mut self, events: &EventRecorder) {
        let problems = self.all_problems();
        self.problems_reported.report(problems, events);
    }

    /// Returns all problems and warnings.
    fn all_problems(&self) -> BTreeSet<String> {
        let left_out = self.files.warnings().into_iter().map(|warning| format!("left out: {warning}"));
        self.problems().into_iter().chain(left_out).collect()
    }

    /// Returns the errors of files in the order of files and lines, and then the conflicts between
    /// documents.
    fn problems(&self) -> Vec<String> {
        let excess = self.excess.iter().cloned().collect();
        [self.files.problems(), self.pod_set.problems.clone(), excess].concat()
    }
}

/// Returns the problem of manifests with more pods than the maximum.
fn excess(pod_set: &PodSet, max_pods: usize) -> Option<String> {
    let count = pod_set.total();
    let maximum = format!("the manifests have {count} pods together, and the maximum is {max_pods}");
    (count > max_pods).then(|| format!("{maximum}; --max-pods sets another"))
}

/// Publishes the pods of manifests as the manifests change.
#[derive(Debug)]
pub(crate) struct ManifestWatch {
    pod_sets: watch::Receiver<Arc<PodSet>>,
    specs: SpecResolver,
    /// Whether the task has panicked, and the panic was logged.
    is_lost: bool,
    _task: AbortOnDropHandle<()>,
}

impl ManifestWatch {
    /// Returns the pods and workloads, and marks them as seen.
    pub(super) fn pod_set(&mut self) -> Arc<PodSet> {
        self.pod_sets.borrow_and_update().clone()
    }

    /// Returns the probes of other sources.
    pub(super) fn specs(&self) -> &SpecResolver {
        &self.specs
    }

    /// Waits until the manifests change. This method is cancel-safe.
    pub(super) async fn changed(&mut self) {
        if self.pod_sets.changed().await.is_err() {
            if !std::mem::replace(&mut self.is_lost, true) {
                error!(
                    "bug in probeshim: manifest watch panicked; changes are ignored until a restart; please report it"
                );
            }
            std::future::pending::<()>().await;
        }
    }
}
