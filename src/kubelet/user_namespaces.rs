//! User namespaces of pods. Each has a range of ids of the host (kubelet:
//! `userns/userns_manager.go`).

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cri::v1::{IdMapping, NamespaceMode, UserNamespace};
use crate::gofmt::quote;
use crate::state::{Snapshot, StateError, StateStore, StateTable};

/// Number of ids of a user namespace, the kubelet's default (`userNamespaces.idsPerPod`).
const IDS_PER_POD: u32 = 65_536;

/// Number of ranges. The first one, which has the ids of the host's own users, is never allocated.
const RANGES: u32 = u32::MAX / IDS_PER_POD + 1;

/// Allocated ranges of ids, kept in the state store, so that a pod has the same range after a
/// restart of probeshim.
#[derive(Debug)]
pub(super) struct UserNamespaces {
    /// First ids of the ranges, by the uids of the pods.
    used_by: Mutex<BTreeMap<String, u32>>,
    state: StateStore,
}

/// Reason why a pod has no user namespace. The messages are the kubelet's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UserNamespaceError {
    /// The runtime does not support user namespaces.
    #[error("can't set `spec.hostUsers: false`, {}", unsupported(.handler, *.is_known))]
    Unsupported {
        /// Name of the runtime's handler; empty for the default handler.
        handler: String,
        /// Whether the runtime knows the handler.
        is_known: bool,
    },
    /// All ranges are allocated.
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    Exhausted,
}

fn unsupported(handler: &str, is_known: bool) -> String {
    let quoted = quote(handler);
    let subject =
        if handler.is_empty() { "runtime".to_owned() } else { format!("RuntimeClass handler {quoted}") };
    let cause = if is_known { String::new() } else { format!(": the handler {quoted} is not known") };
    format!("{subject} does not support user namespaces{cause}")
}

impl UserNamespaces {
    /// Restores the ranges that an earlier process allocated.
    pub(super) fn restore(snapshot: &Snapshot, state: StateStore) -> Result<Self, StateError> {
        let used_by = snapshot.entries(StateTable::UserNamespaces)?.into_iter().collect();
        Ok(Self { used_by: Mutex::new(used_by), state })
    }

    /// Returns the user namespace of a pod. Allocates a free range if the pod has none, beginning
    /// the search at a random one, so that several probeshims on a host rarely choose the same. The
    /// caller flushes the state store before it uses the range.
    pub(super) fn get_or_create(&self, uid: &str) -> Result<UserNamespace, UserNamespaceError> {
        let mut used_by = self.lock();
        if let Some(first) = used_by.get(uid) {
            return Ok(pod_namespace(*first));
        }
        let start = fastrand::u32(1..RANGES);
        let used: HashSet<u32> = used_by.values().copied().collect();
        let mut candidates = (start..RANGES).chain(1..start).map(|range| range * IDS_PER_POD);
        let first = candidates.find(|first| !used.contains(first));
        let first = first.ok_or(UserNamespaceError::Exhausted)?;
        used_by.insert(uid.to_owned(), first);
        self.state.upsert(StateTable::UserNamespaces, uid, &first);
        Ok(pod_namespace(first))
    }

    /// Releases the range of a pod of which nothing remains.
    pub(super) fn release(&self, uid: &str) {
        if self.lock().remove(uid).is_some() {
            self.state.remove(StateTable::UserNamespaces, uid);
        }
    }

    /// Returns the number of allocated ranges.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.used_by.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the user namespace of a pod that uses the users of the host.
pub(super) fn host_namespace() -> UserNamespace {
    UserNamespace { mode: NamespaceMode::Node.into(), ..UserNamespace::default() }
}

/// Returns a user namespace of a pod. Users and groups have the same range.
fn pod_namespace(first: u32) -> UserNamespace {
    let ids = vec![IdMapping { host_id: first, container_id: 0, length: IDS_PER_POD }];
    UserNamespace { mode: NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_id(namespace: &UserNamespace) -> u32 {
        namespace.uids[0].host_id
    }

    #[tokio::test]
    async fn pods_have_disjoint_ranges_of_ids_which_they_keep_in_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (state, snapshot) = StateStore::open(dir.path()).unwrap();
        let namespaces = UserNamespaces::restore(&snapshot, state.clone()).unwrap();
        let [a, b] = ["a", "b"].map(|uid| namespaces.get_or_create(uid).unwrap());
        assert_eq!(a.mode(), NamespaceMode::Pod);
        assert_eq!(a.uids, a.gids);
        let IdMapping { host_id, container_id, length } = a.uids[0];
        assert_eq!((host_id % 65_536, container_id, length), (0, 0, 65_536));
        assert!(host_id >= 65_536 && host_id != first_id(&b));
        assert_eq!(namespaces.get_or_create("a").unwrap(), a);
        namespaces.release("b");
        namespaces.release("b");
        state.close().await.unwrap();
        let (state, snapshot) = StateStore::open(dir.path()).unwrap();
        let namespaces = UserNamespaces::restore(&snapshot, state).unwrap();
        assert_eq!(namespaces.get_or_create("a").unwrap(), a);
        assert_eq!(*namespaces.lock(), BTreeMap::from([("a".to_owned(), host_id)]));
    }

    #[tokio::test]
    async fn the_last_free_range_is_found_and_then_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (state, snapshot) = StateStore::open(dir.path()).unwrap();
        let namespaces = UserNamespaces::restore(&snapshot, state).unwrap();
        let (all, free) = (1..65_536_u32, 7);
        let used = all.filter(|range| *range != free).map(|range| (range.to_string(), range * 65_536));
        namespaces.lock().extend(used);
        assert_eq!(first_id(&namespaces.get_or_create("a").unwrap()), free * 65_536);
        assert_eq!(namespaces.get_or_create("b"), Err(UserNamespaceError::Exhausted));
        namespaces.release("a");
        assert_eq!(first_id(&namespaces.get_or_create("b").unwrap()), free * 65_536);
    }

    #[test]
    fn the_error_of_a_runtime_without_user_namespaces_is_that_of_the_kubelet() {
        for (handler, is_known, expected) in [
            ("", true, "runtime does not support user namespaces"),
            ("", false, "runtime does not support user namespaces: the handler \"\" is not known"),
            ("kata", true, "RuntimeClass handler \"kata\" does not support user namespaces"),
            (
                "kata",
                false,
                "RuntimeClass handler \"kata\" does not support user namespaces: the handler \"kata\" is not known",
            ),
        ] {
            let error = UserNamespaceError::Unsupported { handler: handler.to_owned(), is_known };
            assert_eq!(error.to_string(), format!("can't set `spec.hostUsers: false`, {expected}"));
        }
    }
}
