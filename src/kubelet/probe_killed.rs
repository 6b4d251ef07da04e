//! Containers that were killed for a failed probe, by their ids. A later run of probeshim must know
//! why they ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Killed containers that still exist, and containers that are being killed. They are kept in the
/// state store.
#[derive(Debug)]
pub(super) struct ProbeKilled {
    containers: Mutex<BTreeMap<String, Restart>>,
    state: StateStore,
}

/// State of the restart that belongs to a kill. One sync of the kubelet kills a container and tries
/// to start it again (`kuberuntime_manager.go`: `SyncPod`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Restart {
    /// The restart has not been tried: the sync has not reached it, or was interrupted before.
    #[default]
    Pending,
    /// The restart has failed, or is delayed by the back-off. From then on the restart policy
    /// decides.
    Tried,
}

impl ProbeKilled {
    pub(super) fn new(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let entries = snapshot.entries::<Option<Restart>>(StateTable::ProbeKilled)?;
        let containers = entries.into_iter().map(|(id, restart)| (id, restart.unwrap_or_default()));
        Ok(Self { containers: Mutex::new(containers.collect()), state })
    }

    /// Adds a container that is about to be killed.
    pub(super) fn add(&self, id: &str) {
        let mut containers = self.lock();
        if !containers.contains_key(id) {
            containers.insert(id.to_owned(), Restart::Pending);
            self.state.upsert(StateTable::ProbeKilled, id, &Restart::Pending);
        }
    }

    /// Returns whether a container is being or was killed because of a probe.
    pub(super) fn has(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Returns whether a container is being or was killed because of a probe, and its restart has
    /// not been tried.
    pub(super) fn has_pending_restart(&self, id: &str) -> bool {
        self.lock().get(id) == Some(&Restart::Pending)
    }

    /// Records that the restart of a container has failed or is delayed, if the container was
    /// killed.
    pub(super) fn set_restart_tried(&self, id: &str) {
        if let Some(restart) = self.lock().get_mut(id).filter(|restart| **restart == Restart::Pending) {
            *restart = Restart::Tried;
            self.state.upsert(StateTable::ProbeKilled, id, &Restart::Tried);
        }
    }

    /// Removes a container that was removed from the runtime.
    pub(super) fn forget(&self, id: &str) {
        if self.lock().remove(id).is_some() {
            self.state.remove(StateTable::ProbeKilled, id);
        }
    }

    /// Removes the containers that are no longer on the node.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|id, _| {
            let is_there = is_there(id);
            if !is_there {
                self.state.remove(StateTable::ProbeKilled, id);
            }
            is_there
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Restart>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_later_run_knows_whether_the_restart_after_a_kill_was_tried() {
        let dir = tempfile::tempdir().unwrap();
        let (state, snapshot) = StateStore::open(dir.path()).unwrap();
        let killed = ProbeKilled::new(&snapshot, state.clone()).unwrap();
        killed.add("pending");
        killed.add("tried");
        killed.set_restart_tried("tried");
        // The sync that finds the failed probe again does not make the restart pending again.
        killed.add("tried");
        killed.set_restart_tried("alive");
        // An earlier version recorded no restart.
        state.upsert(StateTable::ProbeKilled, "earlier", &());
        state.close().await.unwrap();
        let (state, snapshot) = StateStore::open(dir.path()).unwrap();
        let killed = ProbeKilled::new(&snapshot, state).unwrap();
        let known = ["pending", "tried", "earlier", "alive"]
            .map(|id| (id, killed.has(id), killed.has_pending_restart(id)));
        let expected = [
            ("pending", true, true),
            ("tried", true, false),
            ("earlier", true, true),
            ("alive", false, false),
        ];
        assert_eq!(known, expected);
    }
}
