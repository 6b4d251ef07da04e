//! The calls in flight, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::CallInfo;

/// Maximum number of calls of a table. Further calls are not listed.
const MAX_CALLS: usize = 4_096;

/// The calls in flight.
///
/// The relay's thread enters and removes calls, and never waits: a reader holds one of two tables
/// at a time, and the relay's thread uses the other. If a reader holds the table of a call that
/// ends, the call stays there as a dangling reference until the next read.
#[derive(Debug, Default)]
pub struct CallsInFlight {
    relayed: [Mutex<HashMap<u64, Weak<CallInfo>>>; 2],
    internal: Mutex<HashMap<u64, InternalEntry>>,
    reader: Mutex<()>,
}

/// A call in flight, with the objects that an internal call is about.
#[derive(Clone, Debug)]
pub struct ListedCall {
    /// A copy of the call's information. A reference to the original would make a call that has
    /// ended look as if it were in flight.
    pub info: CallInfo,
    /// The pod, if the call is internal.
    pub pod: Option<Arc<PodRef>>,
    /// The container, if the call is internal.
    pub container: Option<Arc<ContainerRef>>,
}

#[derive(Debug)]
struct InternalEntry {
    info: Weak<CallInfo>,
    pod: Arc<PodRef>,
    container: Arc<ContainerRef>,
}

impl CallsInFlight {
    /// Enters a call of the relay.
    pub(super) fn insert(&self, info: &Arc<CallInfo>) {
        for table in &self.relayed {
            if let Ok(mut calls) = table.try_lock() {
                if calls.len() < MAX_CALLS {
                    calls.insert(info.id, Arc::downgrade(info));
                }
                return;
            }
        }
    }

    /// Removes a call of the relay.
    pub(super) fn remove(&self, id: u64) {
        for table in &self.relayed {
            if let Ok(mut calls) = table.try_lock()
                && calls.remove(&id).is_some()
            {
                return;
            }
        }
    }

    /// Enters an internal call.
    pub(super) fn insert_internal(
        &self,
        info: &Arc<CallInfo>,
        pod: Arc<PodRef>,
        container: Arc<ContainerRef>,
    ) {
        let mut calls = lock(&self.internal);
        if calls.len() >= MAX_CALLS {
            // Calls whose tasks were aborted have not been removed.
            calls.retain(|_, entry| entry.info.strong_count() > 0);
        }
        calls.insert(info.id, InternalEntry { info: Arc::downgrade(info), pod, container });
    }

    /// Removes an internal call.
    pub(super) fn remove_internal(&self, id: u64) {
        lock(&self.internal).remove(&id);
    }

    /// Returns the calls in flight, in the order of their ids.
    #[must_use]
    pub fn list(&self) -> Vec<ListedCall> {
        // Only one reader at a time, so that one of the two tables is free.
        let _reader = lock(&self.reader);
        let mut found = Vec::new();
        for table in &self.relayed {
            lock(table).retain(|_, info| {
                let info = info.upgrade().map(|info| CallInfo::clone(&info));
                let is_in_flight = info.is_some();
                found.extend(info.map(|info| ListedCall { info, pod: None, container: None }));
                is_in_flight
            });
        }
        let internal = lock(&self.internal);
        found.extend(internal.values().filter_map(|InternalEntry { info, pod, container }| {
            let (pod, container) = (Some(pod.clone()), Some(container.clone()));
            Some(ListedCall { info: CallInfo::clone(&*info.upgrade()?), pod, container })
        }));
        found.sort_unstable_by_key(|call| call.info.id);
        found
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock leaves a table that can still be used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tokio::time::Instant;

    use super::*;
    use crate::cri::MethodName;

    fn info(id: u64) -> Arc<CallInfo> {
        let method = MethodName::of_path("/a/B");
        let (start, since) = (SystemTime::UNIX_EPOCH, Instant::now());
        Arc::new(CallInfo { id, peer: None, method, start, since, trace: None, timeout: None })
    }

    fn ids(calls: &CallsInFlight) -> Vec<u64> {
        calls.list().iter().map(|call| call.info.id).collect()
    }

    #[test]
    fn calls_in_flight_are_listed_although_a_reader_holds_a_table() {
        let (calls, infos) = (CallsInFlight::default(), [1, 2, 3].map(info));
        calls.insert(&infos[0]);
        let held = calls.relayed[0].lock().unwrap();
        calls.insert(&infos[1]);
        // The removal cannot reach the table of call 1.
        calls.remove(1);
        drop(held);
        calls.insert_internal(&infos[2], Arc::default(), Arc::default());
        assert_eq!(ids(&calls), [1, 2, 3]);
        calls.remove(2);
        calls.remove_internal(3);
        assert_eq!(ids(&calls), [1]);
        let (reference, listed) = (Arc::downgrade(&infos[0]), calls.list());
        drop(infos);
        assert_eq!((reference.strong_count(), listed.len()), (0, 1), "a list does not hold its calls");
        assert_eq!(ids(&calls), [0; 0], "call 1 has ended");
        assert!(calls.relayed[0].lock().unwrap().is_empty(), "the read removed the dangling reference");
    }
}
