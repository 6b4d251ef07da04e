//! The documents of what is played, as they are and as they change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::events::EventRecorder;
use crate::manifest::pod::Pod;
use crate::manifest::{ConfigObjects, DocumentKind, Files, PodSet, Purpose, ReadOptions};
use crate::probe::{ProblemTracker, SpecResolver, rescan_blocking};

/// What is to be played.
#[derive(Clone, Debug, Default)]
pub struct ManifestSource {
    files: Files,
    /// What they say together.
    pod_set: Arc<PodSet>,
    /// What else is told of probes.
    specs: SpecResolver,
    problems_reported: ProblemTracker,
    paths: BTreeSet<PathBuf>,
}

impl ManifestSource {
    /// Reads files and directories. Fails with everything that is wrong with them. `ignore_unsupported`: unsupported fields are left out.
    /// `redact`: errors do not show values. `specs`: probes of other sources.
    pub fn read(
        paths: &[PathBuf],
        ignore_unsupported: bool,
        redact: bool,
        specs: SpecResolver,
    ) -> Result<Self, Vec<String>> {
        let files = Files::new(paths, ReadOptions { purpose: Purpose::Run, redact, ignore_unsupported });
        let pod_set = Arc::new(PodSet::new(files.documents()));
        let paths = paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let mut documents =
            Self { files, pod_set, specs, problems_reported: ProblemTracker::default(), paths };
        let problems: Vec<String> = documents.problems().into_iter().collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        // The caller reports what is left out.
        let known = documents.all_problems();
        documents.problems_reported.take(known);
        Ok(documents)
    }

    /// The pods.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.pod_set.pods.clone()
    }

    /// Returns the objects that the pods may refer to.
    pub(super) fn objects(&self) -> Arc<ConfigObjects> {
        self.pod_set.objects.clone()
    }

    /// The files and folders in which they are.
    #[must_use]
    pub fn paths(&self) -> &BTreeSet<PathBuf> {
        &self.paths
    }

    /// How many pods there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pod_set.pods.len()
    }

    /// What is left out because it is not to be had here.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.files.warnings().into_iter().collect()
    }

    /// How often each kind is there that nobody reads.
    #[must_use]
    pub fn ignored_kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for document in self.files.documents() {
            if let DocumentKind::Ignored(kind) = &document.kind {
                *kinds.entry(kind.clone()).or_default() += 1;
            }
        }
        kinds
    }

    /// What they tell of probes.
    #[must_use]
    pub fn specs(&self) -> SpecResolver {
        self.specs_with_running(&[])
    }

    /// The same, and of other pods that are still there.
    pub(super) fn specs_with_running(&self, others: &[Arc<Pod>]) -> SpecResolver {
        let pods = self.pod_set.pods.iter().chain(others).map(|pod| {
            let [namespace, name, uid] = [&pod.namespace, &pod.name, &pod.uid].map(Clone::clone);
            (namespace, name, uid, pod.spec.clone())
        });
        self.specs.clone().with_pods(pods)
    }

    /// Looks at them again. Tells whether they say something else. A pod of which something is wrong now stays what it was.
    pub(super) async fn rescan(self) -> (Self, bool) {
        let Self { files, pod_set, specs, problems_reported, paths } = self;
        let (files, has_changed) = rescan_blocking(files).await;
        if !has_changed {
            return (Self { files, pod_set, specs, problems_reported, paths }, false);
        }
        let mut new = PodSet::new(files.documents());
        let is_invalid = |pod: &&Arc<Pod>| new.invalid.contains(&pod.full_name());
        let previous: Vec<Arc<Pod>> = pod_set.pods.iter().filter(is_invalid).cloned().collect();
        new.pods.extend(previous);
        (Self { files, pod_set: Arc::new(new), specs, problems_reported, paths }, true)
    }

    /// Records events for new problems and for those that are resolved.
    pub(super) fn report_problems(&mut self, events: &EventRecorder) {
        let problems = self.all_problems();
        self.problems_reported.report(problems, events);
    }

    /// Returns what is wrong, and what is left out.
    fn all_problems(&self) -> BTreeSet<String> {
        let left_out = self.files.warnings().into_iter().map(|warning| format!("left out: {warning}"));
        self.problems().into_iter().chain(left_out).collect()
    }

    fn problems(&self) -> BTreeSet<String> {
        let mut problems = self.files.problems();
        problems.extend(self.pod_set.problems.iter().cloned());
        problems
    }
}
