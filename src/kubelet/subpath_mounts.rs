//! Recorded mount points of subPaths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Recorded mount points of subPaths, kept in the state store. A recorded mount point may not be
/// mounted yet.
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

    /// Records mounts that are about to be made. The caller flushes the state store before it
    /// mounts.
    pub(super) fn record(&self, points: &[PathBuf], owner: &MountOwner) {
        for point in points.iter().filter_map(|point| point.to_str()) {
            if self.lock().insert(point.to_owned(), owner.clone()).as_ref() != Some(owner) {
                self.state.upsert(StateTable::SubPathMounts, point, owner);
            }
        }
    }

    /// Removes the records of mounts that no longer exist.
    pub(super) fn forget(&self, is_gone: impl Fn(&MountOwner) -> bool) {
        self.lock().retain(|point, owner| {
            let is_gone = is_gone(owner);
            if is_gone {
                self.state.remove(StateTable::SubPathMounts, point);
            }
            !is_gone
        });
    }

    /// Removes the record of one mount.
    pub(super) fn forget_point(&self, point: &str) {
        if self.lock().remove(point).is_some() {
            self.state.remove(StateTable::SubPathMounts, point);
        }
    }

    /// Returns the names of a pod's containers with recorded mounts.
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
