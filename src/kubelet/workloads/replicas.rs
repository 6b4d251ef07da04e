//! Pods that run all the time: those of a Deployment, `ReplicaSet`, `DaemonSet` or
//! `StatefulSet`.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::slot::{Slot, StateOf, backoff};
use super::update::{Update, names};
use crate::kubelet::workload_status::WorkloadStatus;
use crate::manifest::WorkloadSpec;

/// Creates the pods of each index, in order one after the other if `is_ordered`. Replaces a pod
/// that was deleted at once, and a pod that has ended after its back-off, which a ready pod
/// resets.
pub(super) fn update(
    workload: &WorkloadSpec,
    is_ordered: bool,
    slots: &mut BTreeMap<u32, Slot>,
    state: StateOf<'_>,
    now: Instant,
) -> Update {
    let (mut has_changed, mut missing, mut next) = (false, Vec::new(), None);
    let mut names = names(slots);
    let mut are_earlier_ready = true;
    for (index, slot) in slots {
        if slot.pods().last().is_some_and(|pod| state(pod).is_deleted) {
            slot.clear();
            has_changed = true;
        }
        slot.count_end(state);
        if slot.failures > 0 && slot.active().is_some_and(|pod| state(pod).is_ready) {
            (slot.failures, slot.is_modified) = (0, true);
        }
        if !slot.is_active && !slot.pods().is_empty() {
            let due = *slot.replace_at.get_or_insert_with(|| now + backoff(slot.failures));
            if due <= now {
                slot.clear();
                has_changed = true;
            } else {
                next = next.into_iter().chain([due]).min();
            }
        }
        if slot.pods().is_empty() && (are_earlier_ready || !is_ordered) {
            slot.create(workload, *index, &mut names);
            has_changed = true;
        } else if !slot.is_active {
            missing.push(slot.next_name(workload, *index, &mut names));
        }
        are_earlier_ready &= slot.active().is_some_and(|pod| state(pod).is_ready);
    }
    let is_complete = missing.is_empty();
    Update { has_changed, status: WorkloadStatus { missing, is_complete, ..WorkloadStatus::default() }, next }
}
