//! Recorded mount points of subPaths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Recorded mount points of subPaths. A recorded point may not be mounted yet. The record outlives the process.
#[derive(Debug)]
pub(super) struct SubPathMounts {
    known: Mutex<BTreeMap<String, MountOwner>>,
    state: StateStore,
}

/// The container for which a subPath is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountOwner {
    /// Uid of the pod.
    pub(super) uid: String,
    /// Name of the container.
    pub(super) container: String,
}

impl SubPathMounts {
    pub(super) fn new(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let known = snapshot.entries(StateTable::SubPathMounts)?.into_iter().collect();
        Ok(Self { known: Mutex::new(known), state })
    }

    /// Records mounts that are about to be made. They may be made once the state has settled.
    pub(super) fn record(&self, points: &[PathBuf], owner: &MountOwner) {
        for point in points.iter().filter_map(|point| point.to_str()) {
            if self.lock().insert(point.to_owned(), owner.clone()).as_ref() != Some(owner) {
                self.state.upsert(StateTable::SubPathMounts, point, owner);
            }
        }
    }

    /// Forgets mounts that are no longer there.
    pub(super) fn forget(&self, is_gone: impl Fn(&MountOwner) -> bool) {
        self.lock().retain(|point, owner| {
            let is_gone = is_gone(owner);
            if is_gone {
                self.state.remove(StateTable::SubPathMounts, point);
            }
            !is_gone
        });
    }

    /// Forgets one mount.
    pub(super) fn forget_point(&self, point: &str) {
        if self.lock().remove(point).is_some() {
            self.state.remove(StateTable::SubPathMounts, point);
        }
    }

    /// Returns the names of the containers of a pod of which mounts are recorded.
    pub(super) fn containers_of(&self, uid: &str) -> BTreeSet<String> {
        let lock = self.lock();
        let owners = lock.values().filter(|owner| owner.uid == uid);
        owners.map(|owner| owner.container.clone()).collect()
    }

    /// Returns all mount points with their owners.
    pub(super) fn all(&self) -> Vec<(String, MountOwner)> {
        self.lock().iter().map(|(point, owner)| (point.clone(), owner.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, MountOwner>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
