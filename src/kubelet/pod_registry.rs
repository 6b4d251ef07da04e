//! Registered pods. The registry survives a restart of probeshim, so that pods and their
//! terminations continue (kubelet: pod manager).

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::manifest::pod::{Pod, PodOrigin};
use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Registered pods by their uids, kept in the state store.
#[derive(Debug)]
pub(super) struct PodRegistry {
    known: Mutex<HashMap<String, RegisteredPod>>,
    state: StateStore,
    /// Files and directories of the current manifests.
    paths: BTreeSet<PathBuf>,
}

/// A registered pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegisteredPod {
    namespace: String,
    name: String,
    /// Files and directories of the manifests when the pod was last registered.
    paths: BTreeSet<PathBuf>,
    /// Time at which the pod was first registered.
    started: SystemTime,
    /// Whether the termination of the pod was requested.
    is_ending: bool,
    /// Whether this process registered the pod first.
    #[serde(skip)]
    is_new: bool,
}

impl PodRegistry {
    /// Restores the registered pods. `paths` are the files and directories of the current
    /// manifests.
    pub(super) fn new(
        snapshot: &Snapshot,
        state: StateStore,
        paths: BTreeSet<PathBuf>,
    ) -> Result<Self, StateError> {
        let known = snapshot.entries(StateTable::Pods)?.into_iter().collect();
        Ok(Self { known: Mutex::new(known), state, paths })
    }

    /// Registers a pod. Returns the time at which the pod was first registered.
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

    /// Returns whether this process registered a pod first.
    pub(super) fn is_new(&self, uid: &str) -> bool {
        self.lock().get(uid).is_some_and(|memory| memory.is_new)
    }

    /// Returns whether a pod is registered: it is managed, or it was managed and may still exist.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// Records that the termination of a pod was requested.
    pub(super) fn mark_terminating(&self, uid: &str) {
        if let Some(memory) = self.lock().get_mut(uid) {
            memory.is_ending = true;
            self.state.upsert(StateTable::Pods, uid, memory);
        }
    }

    /// Removes a pod of which nothing remains.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
        self.state.remove(StateTable::Pods, uid);
    }

    /// Returns the pods to terminate: pods with an unfinished termination, pods that the current
    /// manifests no longer contain, and pods with the name of a desired pod.
    pub(super) fn pods_to_terminate(&self, wanted: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let is_named = |memory: &RegisteredPod| {
            wanted.iter().any(|pod| (&pod.namespace, &pod.name) == (&memory.namespace, &memory.name))
        };
        self.not_desired(wanted, |memory| {
            memory.is_ending || memory.paths.is_subset(&self.paths) || is_named(memory)
        })
    }

    /// Returns the registered pods that are not desired and that match.
    pub(super) fn not_desired(
        &self,
        wanted: &[Arc<Pod>],
        matches: impl Fn(&RegisteredPod) -> bool,
    ) -> Vec<Arc<Pod>> {
        let known = self.lock();
        let is_wanted = |uid: &String| wanted.iter().any(|pod| pod.uid == *uid);
        // A pod that is desired again during its termination is started after the termination.
        let unwanted =
            known.iter().filter(|(uid, memory)| (!is_wanted(uid) || memory.is_ending) && matches(memory));
        unwanted.map(|(uid, memory)| orphan_pod(&memory.namespace, &memory.name, uid)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RegisteredPod>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a pod with a known identity and nothing else.
pub(super) fn orphan_pod(namespace: &str, name: &str, uid: &str) -> Arc<Pod> {
    Arc::new(Pod::identity_only([namespace, name, uid].map(str::to_owned), PodOrigin::Orphan))
}
