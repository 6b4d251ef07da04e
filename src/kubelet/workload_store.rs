//! Progress of workloads, kept in the state store, so that a job continues after a crash of
//! probeshim.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Progress of workloads, by their keys.
#[derive(Debug)]
pub(super) struct WorkloadStore {
    /// Progress that an earlier process has saved and that no controller has taken.
    restored: Mutex<BTreeMap<String, Value>>,
    state: StateStore,
}

impl WorkloadStore {
    /// Restores the progress of all workloads.
    pub(super) fn restore(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let restored = snapshot.entries(StateTable::Workloads)?.into_iter().collect();
        Ok(Self { restored: Mutex::new(restored), state })
    }

    /// Returns the progress of a workload in an earlier process, once.
    pub(super) fn take<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_value(self.lock().remove(key)?).ok()
    }

    /// Saves the progress of a workload.
    pub(super) fn save(&self, key: &str, progress: &impl Serialize) {
        self.state.upsert(StateTable::Workloads, key, progress);
    }

    /// Removes a workload that no longer exists.
    pub(super) fn remove(&self, key: &str) {
        self.lock().remove(key);
        self.state.remove(StateTable::Workloads, key);
    }

    /// Removes the workloads that no controller has taken.
    pub(super) fn remove_others(&self) {
        for key in std::mem::take(&mut *self.lock()).into_keys() {
            self.state.remove(StateTable::Workloads, &key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.restored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
