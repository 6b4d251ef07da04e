//! The documents of what is played, as they are and as they change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::events::EventRecorder;
use crate::manifest::pod::Pod;
use crate::manifest::pod_reader::{ParsedDocument, PodSet, merge};
use crate::manifest::{Files, ReadOptions};
use crate::probe::{ProblemTracker, SpecResolver, rescan_blocking};

/// What is to be played.
#[derive(Clone, Debug, Default)]
pub struct ManifestSource {
    files: Files<ParsedDocument>,
    /// What they say together.
    pod_set: Arc<PodSet>,
    /// What else is told of probes.
    specs: SpecResolver,
    problems_reported: ProblemTracker,
    paths: BTreeSet<PathBuf>,
}

impl ManifestSource {
    /// Reads files and folders. Everything has to be right, or everything that is not is returned. `ignores_unsupported`: what is not to
    /// be had here is left out. `redacts`: what is written is not shown in what is wrong. `specs`: what else is told of probes.
    pub fn read(
        paths: &[PathBuf],
        ignores_unsupported: bool,
        redacts: bool,
        specs: SpecResolver,
    ) -> Result<Self, Vec<String>> {
        let files = Files::new(paths, ReadOptions { redacts, ignores_unsupported });
        let pod_set = Arc::new(merge(&files.documents().collect::<Vec<_>>()));
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
        for kind in self.files.documents().filter_map(ParsedDocument::passed_over) {
            *kinds.entry(kind.to_owned()).or_default() += 1;
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
        let mut merged = merge(&files.documents().collect::<Vec<_>>());
        let is_wrong = |pod: &&Arc<Pod>| merged.wrong.contains(&pod.full_name());
        let previous: Vec<Arc<Pod>> = pod_set.pods.iter().filter(is_wrong).cloned().collect();
        merged.pods.extend(previous);
        (Self { files, pod_set: Arc::new(merged), specs, problems_reported, paths }, true)
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
