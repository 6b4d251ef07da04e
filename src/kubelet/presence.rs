//! Whether a kubelet uses the runtime: where one does, we hold back.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::prober::KUBELET_TTL;
use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// The key of when one was seen last.
const LAST_SEEN_KEY: &str = "seen";

/// One that was there so long before us is taken to be there still, for as long as one that has just gone.
const ACTIVE_WINDOW: Duration = Duration::from_secs(600);

/// What is known of a kubelet. It outlives us.
#[derive(Debug)]
pub(super) struct KubeletPresence {
    last_seen: Mutex<LastSeen>,
    state: StateStore,
}

#[derive(Debug)]
struct LastSeen {
    last: Option<Instant>,
    /// When the last one was that has been written down.
    noted: Option<Instant>,
}

impl KubeletPresence {
    pub(super) fn new(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let before: Vec<(String, SystemTime)> = snapshot.entries(StateTable::Kubelet)?;
        // Where the clock was set back meanwhile, it cannot be told how long ago that was.
        let is_recent =
            |(_, seen): &(String, SystemTime)| seen.elapsed().map_or(true, |elapsed| elapsed < ACTIVE_WINDOW);
        let last = before.iter().any(is_recent).then(Instant::now);
        Ok(Self { last_seen: Mutex::new(LastSeen { last, noted: None }), state })
    }

    /// One has been seen. Tells whether none was there just before.
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

    /// Whether one is there: two masters would be at odds.
    pub(super) fn is_active(&self) -> bool {
        self.lock().last.is_some_and(|last| last.elapsed() < KUBELET_TTL)
    }

    fn lock(&self) -> MutexGuard<'_, LastSeen> {
        self.last_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
