//! Containers that are ended for a probe, by their ids: whoever comes after us has to know what ended them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Those that are being ended, or have been, and are still there. It outlives us.
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

    /// It has been removed.
    pub(super) fn forget(&self, id: &str) {
        if self.lock().remove(id) {
            self.state.remove(StateTable::ProbeKilled, id);
        }
    }

    /// Those that are not on the node any more need not be remembered.
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
