//! States of sandboxes and containers at the last relist (kubelet: `pleg/generic.go`:
//! `podRecords`).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The last states of each pod, by the pod's identity.
#[derive(Debug, Default)]
pub(super) struct PlegCache(Mutex<HashMap<String, PodStates>>);

/// States of the sandboxes and containers of a pod, by their ids.
pub(super) type PodStates = HashMap<String, i32>;

impl PlegCache {
    /// Stores the states of a pod. Returns whether they have changed.
    pub(super) fn set(&self, pod: &str, record: PodStates) -> bool {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = records.get(pod) != Some(&record);
        if is_new {
            records.insert(pod.to_owned(), record);
        }
        is_new
    }

    /// Returns whether the runtime has ever been listed for a pod, even if the list held nothing of
    /// the pod.
    pub(super) fn knows(&self, pod: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(pod)
    }

    pub(super) fn forget(&self, pod: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(pod);
    }
}
