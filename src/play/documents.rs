//! The documents of what is played, as they are and as they change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tracing::error;

use super::read::{Document, Wanted, joined};
use super::spec::Pod;
use crate::probe::{Files, Specs, Terms};

/// What is to be played.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    files: Files<Document>,
    /// What else is told of probes.
    specs: Specs,
    /// What is wrong, and has been told.
    told: BTreeSet<String>,
}

impl Documents {
    /// Reads files and folders. Everything has to be right, or everything that is not is returned. `ignores_unsupported`: what is not to
    /// be had here is left out. `redacts`: what is written is not shown in what is wrong.
    pub fn read(
        paths: &[PathBuf],
        ignores_unsupported: bool,
        redacts: bool,
        specs: Specs,
    ) -> Result<Self, Vec<String>> {
        let files = Files::new(paths, Terms { redacts, ignores_unsupported });
        let documents = Self { files, specs, told: BTreeSet::new() };
        let problems: Vec<String> = documents.problems().into_iter().collect();
        if problems.is_empty() { Ok(documents) } else { Err(problems) }
    }

    /// The documents of this text, which have nothing wrong with them.
    pub(super) fn wanted(&self) -> Wanted {
        joined(&self.files.said().collect::<Vec<_>>())
    }

    /// The pods.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.wanted().pods
    }

    /// How many pods there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pods().len()
    }

    /// What is left out because it is not to be had here.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.files.warnings().into_iter().collect()
    }

    /// How often each kind is there that nobody reads.
    #[must_use]
    pub fn passed_over(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for kind in self.files.said().filter_map(Document::passed_over) {
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        kinds
    }

    /// What they tell of probes.
    #[must_use]
    pub fn specs(&self) -> Specs {
        let pods = self.pods();
        let pods = pods.iter().map(|pod| {
            let [namespace, name, uid] = [&pod.namespace, &pod.name, &pod.uid].map(Clone::clone);
            (namespace, name, uid, pod.spec.clone())
        });
        self.specs.clone().with_pods(pods)
    }

    /// Looks at them again. Tells whether they say something else.
    pub(super) async fn look(self) -> (Self, bool) {
        let kept = self.clone();
        let looked = spawn_blocking(move || {
            let mut documents = self;
            let has_changed = documents.files.look();
            (documents, has_changed)
        });
        looked.await.unwrap_or_else(|_| {
            error!("a fault of probeshim's own: manifests were not looked at, please report it");
            (kept, false)
        })
    }

    /// What is newly wrong.
    pub(super) fn news(&mut self) -> Vec<String> {
        let now = self.problems();
        let news = now.difference(&self.told).cloned().collect();
        self.told = now;
        news
    }

    fn problems(&self) -> BTreeSet<String> {
        let mut problems = self.files.problems();
        problems.extend(self.wanted().problems);
        problems
    }
}
