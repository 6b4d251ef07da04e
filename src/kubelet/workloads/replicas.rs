//! Pods that run all the time: those of a Deployment, `ReplicaSet`, `DaemonSet` or
//! `StatefulSet`.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::slot::{Slot, StateOf, backoff};
use super::update::Update;
use crate::kubelet::workload_status::WorkloadStatus;
use crate::manifest::WorkloadSpec;

/// Creates the pods of each index, in order one after the other if `is_ordered`. Replaces a pod
/// that was deleted at once, and a pod that has ended after its back-off.
pub(super) fn update(
    workload: &WorkloadSpec,
    is_ordered: bool,
    slots: &mut BTreeMap<u32, Slot>,
    state: StateOf<'_>,
    now: Instant,
) -> Update {
    let (mut has_changed, mut missing, mut next) = (false, Vec::new(), None);
    let mut are_earlier_ready = true;
    for (index, slot) in slots {
        if let Some(known) = slot.newest().map(state).filter(|known| !known.is_active()) {
            let due = *slot.replace_at.get_or_insert_with(|| now + backoff(slot.created - 1));
            if known.is_deleted || due <= now {
                slot.clear();
                has_changed = true;
            } else {
                next = next.into_iter().chain([due]).min();
            }
        }
        if slot.newest().is_none() && (are_earlier_ready || !is_ordered) {
            slot.create(workload, *index);
            has_changed = true;
        } else if slot.newest().is_none() {
            missing.push(slot.next_name(workload, *index));
        }
        are_earlier_ready &=
            slot.newest().map(state).is_some_and(|known| known.is_active() && known.is_ready);
    }
    let is_complete = missing.is_empty();
    Update { has_changed, status: WorkloadStatus { missing, is_complete, ..WorkloadStatus::default() }, next }
}
