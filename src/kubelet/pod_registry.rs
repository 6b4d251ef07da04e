//! The registered pods, which outlive the process: pods that continue, and pods whose termination continues (kubelet: pod manager).

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::manifest::pod::{Pod, PodOrigin};
use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// What is remembered of pods that are played, by their uids. It outlives us.
#[derive(Debug)]
pub(super) struct PodRegistry {
    known: Mutex<HashMap<String, RegisteredPod>>,
    state: StateStore,
    /// What is played now: files and folders.
    paths: BTreeSet<PathBuf>,
}

/// What is remembered of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegisteredPod {
    namespace: String,
    name: String,
    /// The files and folders that were played when it was.
    paths: BTreeSet<PathBuf>,
    /// When it was seen first.
    started: SystemTime,
    is_ending: bool,
    /// Whether it was not there before us.
    #[serde(skip)]
    is_new: bool,
}

impl PodRegistry {
    /// Those that are kept, where these files and folders are played.
    pub(super) fn new(
        snapshot: &Snapshot,
        state: StateStore,
        paths: BTreeSet<PathBuf>,
    ) -> Result<Self, StateError> {
        let known = snapshot.entries(StateTable::Pods)?.into_iter().collect();
        Ok(Self { known: Mutex::new(known), state, paths })
    }

    /// A pod is played. Returns since when.
    pub(super) fn register(&self, pod: &Pod) -> SystemTime {
        let mut known = self.lock();
        let memory = known.entry(pod.uid.clone()).or_insert_with(|| RegisteredPod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            paths: BTreeSet::new(),
            started: SystemTime::now(),
            is_ending: false,
            is_new: true,
        });
        (memory.is_ending, memory.paths) = (false, self.paths.clone());
        self.state.upsert(StateTable::Pods, &pod.uid, memory);
        memory.started
    }

    /// Whether a pod was not there before us.
    pub(super) fn is_new(&self, uid: &str) -> bool {
        self.lock().get(uid).is_some_and(|memory| memory.is_new)
    }

    /// Whether a pod is played, or has been and is not known to be gone.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// A pod is being ended.
    pub(super) fn mark_terminating(&self, uid: &str) {
        if let Some(memory) = self.lock().get_mut(uid) {
            memory.is_ending = true;
            self.state.upsert(StateTable::Pods, uid, memory);
        }
    }

    /// Nothing is left of it.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
        self.state.remove(StateTable::Pods, uid);
    }

    /// Those whose end has to go on; or to begin, because what is played had them, or because another of their name is to come.
    pub(super) fn pods_to_terminate(&self, wanted: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let is_named = |memory: &RegisteredPod| {
            wanted.iter().any(|pod| (&pod.namespace, &pod.name) == (&memory.namespace, &memory.name))
        };
        self.not_desired(wanted, |memory| {
            memory.is_ending || memory.paths.is_subset(&self.paths) || is_named(memory)
        })
    }

    /// Returns the registered pods that are not wanted and match.
    pub(super) fn not_desired(
        &self,
        wanted: &[Arc<Pod>],
        matches: impl Fn(&RegisteredPod) -> bool,
    ) -> Vec<Arc<Pod>> {
        let known = self.lock();
        let is_wanted = |uid: &String| wanted.iter().any(|pod| pod.uid == *uid);
        // One that is wanted again while it is being ended comes after its end.
        let unwanted =
            known.iter().filter(|(uid, memory)| (!is_wanted(uid) || memory.is_ending) && matches(memory));
        unwanted.map(|(uid, memory)| orphan_pod(&memory.namespace, &memory.name, uid)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RegisteredPod>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a pod of which only the identity is known.
pub(super) fn orphan_pod(namespace: &str, name: &str, uid: &str) -> Arc<Pod> {
    Arc::new(Pod::identity_only([namespace, name, uid].map(str::to_owned), PodOrigin::Orphan))
}
