//! States of sandboxes and containers at the last relist (kubelet: `pleg/generic.go`:
//! `podRecords`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

/// The last states of each pod, and the time of the last relist.
#[derive(Debug, Default)]
pub(super) struct PlegCache {
    /// States by the identities of pods.
    records: Mutex<HashMap<String, PodStates>>,
    /// Start of the last relist that has ended.
    relisted: watch::Sender<Option<Instant>>,
}

/// States of the sandboxes and containers of a pod, by their ids.
pub(super) type PodStates = HashMap<String, i32>;

impl PlegCache {
    /// Stores the states of a pod. Returns whether they have changed.
    pub(super) fn set(&self, pod: &str, record: PodStates) -> bool {
        let mut records = self.lock();
        let is_new = records.get(pod) != Some(&record);
        if is_new {
            records.insert(pod.to_owned(), record);
        }
        is_new
    }

    /// Returns whether the runtime has ever been listed for a pod, even if the list held nothing of
    /// the pod.
    pub(super) fn knows(&self, pod: &str) -> bool {
        self.lock().contains_key(pod)
    }

    pub(super) fn forget(&self, pod: &str) {
        self.lock().remove(pod);
    }

    /// Records the end of a relist that began at `started`.
    pub(super) fn mark_relisted(&self, started: Instant) {
        self.relisted.send_replace(Some(started));
    }

    /// Waits for the end of a relist that began after `time` (kubelet: `container/cache.go`:
    /// `GetNewerThan`).
    pub(super) async fn newer_than(&self, time: Instant) {
        let is_newer = |started: &Option<Instant>| started.is_some_and(|started| started > time);
        // Waiting fails only if the sender is gone.
        let _ = self.relisted.subscribe().wait_for(is_newer).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PodStates>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_relist_that_began_before_a_time_is_not_newer_than_it() {
        let (cache, started) = (PlegCache::default(), Instant::now());
        let ended = started + Duration::from_millis(1);
        let mut newer = std::pin::pin!(cache.newer_than(ended));
        cache.mark_relisted(started);
        assert_eq!(newer.as_mut().now_or_never(), None);
        cache.mark_relisted(ended + Duration::from_millis(1));
        assert_eq!(newer.now_or_never(), Some(()));
    }
}
