//! What was played before: pods that go on, pods whose end goes on, and pods that nobody wants any more.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::context::WorkerContext;
use super::spec::{Pod, PodOrigin};
use crate::cri::labels::{POD_NAME, POD_NAMESPACE, POD_UID};
use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// From one attempt to ask a runtime that does not answer to the next.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

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
struct RegisteredPod {
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

    /// Those that nobody wants, as far as they are such.
    fn not_desired(&self, wanted: &[Arc<Pod>], is_such: impl Fn(&RegisteredPod) -> bool) -> Vec<Arc<Pod>> {
        let known = self.lock();
        let is_wanted = |uid: &String| wanted.iter().any(|pod| pod.uid == *uid);
        // One that is wanted again while it is being ended comes after its end.
        let unwanted =
            known.iter().filter(|(uid, memory)| (!is_wanted(uid) || memory.is_ending) && is_such(memory));
        unwanted.map(|(uid, memory)| orphan_pod(&memory.namespace, &memory.name, uid)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RegisteredPod>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pods that nobody wants any more.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// In the runtime, by what they are labelled with.
    pub(super) running: Vec<Arc<Pod>>,
    /// Not there any more, though they are remembered.
    pub(super) removed: Vec<Arc<Pod>>,
}

/// Looks for them, as soon as the runtime answers.
pub(super) async fn find_orphans(context: Arc<WorkerContext>, wanted: Vec<Arc<Pod>>) -> Orphans {
    let there = loop {
        match context.list_managed().await {
            Ok(there) => break there,
            // That is told by who looks all the time.
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    };
    let mut seen = HashSet::new();
    let mut orphans = Orphans::default();
    for labels in there {
        let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
        let uid = label(POD_UID);
        if !wanted.iter().any(|pod| pod.uid == uid) && seen.insert(uid.to_owned()) {
            orphans.running.push(orphan_pod(label(POD_NAMESPACE), label(POD_NAME), uid));
        }
    }
    orphans.removed = context.registry.not_desired(&wanted, |_| true);
    orphans.removed.retain(|pod| !seen.contains(&pod.uid) && !wanted.iter().any(|it| it.uid == pod.uid));
    orphans
}

/// A pod of which nothing is known but its names.
fn orphan_pod(namespace: &str, name: &str, uid: &str) -> Arc<Pod> {
    Arc::new(Pod::identity_only([namespace, name, uid].map(str::to_owned), PodOrigin::Orphan))
}
