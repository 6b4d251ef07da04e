//! Detects whether a kubelet uses the runtime. While one does, the pod workers start and kill
//! nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::prober::KUBELET_TTL;
use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Key of the time at which a kubelet was last seen.
const LAST_SEEN_KEY: &str = "seen";

/// Age up to which the last observation of a kubelet in an earlier run counts as an observation at
/// our start.
const ACTIVE_WINDOW: Duration = Duration::from_secs(600);

/// The last observation of a kubelet, kept in the state store.
#[derive(Debug)]
pub(super) struct KubeletPresence {
    last_seen: Mutex<LastSeen>,
    state: StateStore,
}

#[derive(Debug)]
struct LastSeen {
    last: Option<Instant>,
    /// Time of the observation that was last stored.
    noted: Option<Instant>,
}

impl KubeletPresence {
    pub(super) fn new(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let before: Vec<(String, SystemTime)> = snapshot.entries(StateTable::Kubelet)?;
        // If the clock was set back, the age is unknown and counts as recent.
        let is_recent =
            |(_, seen): &(String, SystemTime)| seen.elapsed().map_or(true, |elapsed| elapsed < ACTIVE_WINDOW);
        let last = before.iter().any(is_recent).then(Instant::now);
        Ok(Self { last_seen: Mutex::new(LastSeen { last, noted: None }), state })
    }

    /// Records a call of a kubelet. Returns whether no kubelet was active before.
    pub(super) fn observed(&self) -> bool {
        let (was_there, now) = (self.is_active(), Instant::now());
        let mut last_seen = self.lock();
        last_seen.last = Some(now);
        if last_seen.noted.is_none_or(|noted| now - noted > KUBELET_TTL / 2) {
            last_seen.noted = Some(now);
            self.state.upsert(StateTable::Kubelet, LAST_SEEN_KEY, &SystemTime::now());
        }
        !was_there
    }

    /// Returns whether a kubelet is active. Two kubelets would act against each other.
    pub(super) fn is_active(&self) -> bool {
        self.lock().last.is_some_and(|last| last.elapsed() < KUBELET_TTL)
    }

    fn lock(&self) -> MutexGuard<'_, LastSeen> {
        self.last_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
