//! Containers that were killed for a failed probe, by their ids. A later run of probeshim must know
//! why they ended.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Killed containers that still exist, and containers that are being killed. The ids are kept in
/// the state store.
#[derive(Debug)]
pub(super) struct ProbeKilled {
    ids: Mutex<BTreeSet<String>>,
    state: StateStore,
}

impl ProbeKilled {
    pub(super) fn new(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let ids = snapshot.entries::<()>(StateTable::ProbeKilled)?.into_iter().map(|(id, ())| id).collect();
        Ok(Self { ids: Mutex::new(ids), state })
    }

    pub(super) fn add(&self, id: &str) {
        if self.lock().insert(id.to_owned()) {
            self.state.upsert(StateTable::ProbeKilled, id, &());
        }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.lock().contains(id)
    }

    /// Removes a container that was removed from the runtime.
    pub(super) fn forget(&self, id: &str) {
        if self.lock().remove(id) {
            self.state.remove(StateTable::ProbeKilled, id);
        }
    }

    /// Removes the containers that are no longer on the node.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|id| {
            let is_there = is_there(id);
            if !is_there {
                self.state.remove(StateTable::ProbeKilled, id);
            }
            is_there
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
