//! Containers that were killed for a failed probe, by their ids. A later run of probeshim must know
//! why they ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restart {
    /// The restart has not been tried: the sync has not reached it, or probeshim crashed before.
    Pending,
    /// The restart has failed, is delayed by the back-off, or was not reached because the sync
    /// failed. From then on the restart policy decides.
    Tried,
}

impl ProbeKilled {
    pub(super) fn new(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let killed = snapshot.entries::<()>(StateTable::ProbeKilled)?;
        let mut containers: BTreeMap<_, _> =
            killed.into_iter().map(|(id, ())| (id, Restart::Pending)).collect();
        for (id, ()) in snapshot.entries::<()>(StateTable::RestartTried)? {
            if let Some(restart) = containers.get_mut(&id) {
                *restart = Restart::Tried;
            }
        }
        Ok(Self { containers: Mutex::new(containers), state })
    }

    /// Adds a container that is about to be killed, by a sync that tries to restart it.
    pub(super) fn add(&self, id: &str) {
        match self.lock().insert(id.to_owned(), Restart::Pending) {
            None => self.state.upsert(StateTable::ProbeKilled, id, &()),
            // The kill has failed before.
            Some(Restart::Tried) => self.state.remove(StateTable::RestartTried, id),
            Some(Restart::Pending) => {}
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

    /// Records that the restart of a container has failed, is delayed, or was not reached by the
    /// sync of the kill, if the container was killed.
    pub(super) fn set_restart_tried(&self, id: &str) {
        if let Some(restart) = self.lock().get_mut(id).filter(|restart| **restart == Restart::Pending) {
            *restart = Restart::Tried;
            self.state.upsert(StateTable::RestartTried, id, &());
        }
    }

    /// Removes a container that was removed from the runtime.
    pub(super) fn forget(&self, id: &str) {
        if self.lock().remove(id).is_some() {
            self.remove_from_state(id);
        }
    }

    /// Removes the containers that are no longer on the node.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|id, _| {
            let is_there = is_there(id);
            if !is_there {
                self.remove_from_state(id);
            }
            is_there
        });
    }

    fn remove_from_state(&self, id: &str) {
        self.state.remove(StateTable::ProbeKilled, id);
        self.state.remove(StateTable::RestartTried, id);
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
        killed.set_restart_tried("alive");
        // A sync whose kill has failed is followed by one that kills the container again.
        killed.add("killed twice");
        killed.set_restart_tried("killed twice");
        killed.add("killed twice");
        state.close().await.unwrap();
        let (state, snapshot) = StateStore::open(dir.path()).unwrap();
        let killed = ProbeKilled::new(&snapshot, state).unwrap();
        let known = ["pending", "tried", "alive", "killed twice"]
            .map(|id| (id, killed.has(id), killed.has_pending_restart(id)));
        let expected = [
            ("pending", true, true),
            ("tried", true, false),
            ("alive", false, false),
            ("killed twice", true, true),
        ];
        assert_eq!(known, expected);
    }
}
