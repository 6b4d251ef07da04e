//! Pods that run until they succeed: those of a Job, or of the job of a `CronJob`.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::slot::{Slot, StateOf, backoff};
use super::update::Update;
use crate::kubelet::workload_status::WorkloadStatus;
use crate::manifest::{JobSpec, RestartPolicy, WorkloadSpec};

/// Message about a job that has failed (`pkg/controller/job/job_controller.go`).
const BACKOFF_LIMIT_EXCEEDED: &str = "BackoffLimitExceeded: Job has reached the specified backoff limit";

/// Progress of a job that the pods that exist do not show.
#[derive(Debug, Default)]
pub(super) struct JobProgress {
    /// Number of failures that were counted.
    failures: u32,
    /// Number of successes that were counted, and of the failures before the last one.
    succeeded: u32,
    failures_before_success: u32,
    /// Time before which no pod is created.
    backoff_ends: Option<Instant>,
    has_failed: bool,
}

/// Numbers of pods.
#[derive(Debug, Default)]
struct Counts {
    active: u32,
    succeeded: u32,
    failed: u32,
    /// Restarts of the containers of active pods with the restart policy `OnFailure`.
    restarts: u32,
}

/// Creates the pods of a job, at most `parallelism` at the same time, until enough have succeeded.
/// Replaces a pod that has failed after the back-off of the job. Removes the pods that run when the
/// job has failed.
pub(super) fn update(
    workload: &WorkloadSpec,
    job: &JobSpec,
    slots: &mut BTreeMap<u32, Slot>,
    progress: &mut JobProgress,
    state: StateOf<'_>,
    now: Instant,
) -> Update {
    let counts = count(slots, state);
    progress.count(&counts, now);
    progress.has_failed |= is_limit_exceeded(job, &counts);
    let (mut has_changed, mut missing, mut next) = (false, Vec::new(), None);
    let is_complete = match job.completions {
        Some(wanted) => counts.succeeded >= wanted,
        None => counts.succeeded > 0 && counts.active == 0,
    };
    if progress.has_failed {
        for slot in slots.values_mut() {
            let before = slot.pods.len();
            slot.pods.retain(|pod| !state(pod).is_active());
            has_changed |= slot.pods.len() != before;
        }
    } else if !is_complete {
        let mut active = counts.active;
        let wanted = match job.completions {
            Some(wanted) => job.parallelism.min(wanted - counts.succeeded),
            // The other pods of a shared queue see that there is no work left.
            None if counts.succeeded > 0 => 0,
            None => job.parallelism,
        };
        let backoff_ends = progress.backoff_ends.filter(|ends| *ends > now);
        for (index, slot) in slots.iter_mut() {
            let newest = slot.newest().map(state);
            let is_needed = newest.is_none_or(|known| !known.is_active() && !known.has_succeeded());
            if !is_needed || active >= wanted {
                continue;
            }
            active += 1;
            if backoff_ends.is_some() {
                missing.push(slot.next_name(workload, *index));
            } else {
                slot.create(workload, *index);
                has_changed = true;
            }
        }
        next = backoff_ends;
    }
    let status = WorkloadStatus {
        missing,
        is_complete: is_complete || progress.has_failed,
        job_pods: slots.values().flat_map(|slot| &slot.pods).map(|pod| pod.uid.clone()).collect(),
        failure: progress.has_failed.then(|| {
            let (kind, namespace, name) = workload.key();
            format!("{} {namespace}/{name} has failed: {BACKOFF_LIMIT_EXCEEDED}", kind.name())
        }),
    };
    Update { has_changed, status, next }
}

impl JobProgress {
    /// Counts successes and failures. The back-off doubles with each failure since the last success
    /// (`pkg/controller/job/backoff_utils.go`: `newBackoffRecord`).
    fn count(&mut self, counts: &Counts, now: Instant) {
        if counts.succeeded > self.succeeded {
            (self.succeeded, self.failures_before_success) = (counts.succeeded, self.failures);
        }
        if counts.failed > self.failures {
            self.failures = counts.failed;
            self.backoff_ends = Some(now + backoff(self.failures - self.failures_before_success - 1));
        }
    }
}

fn count(slots: &BTreeMap<u32, Slot>, state: StateOf<'_>) -> Counts {
    let mut counts = Counts::default();
    for slot in slots.values() {
        let Some(newest) = slot.newest() else { continue };
        // The newest pod has replaced all others, which have failed.
        counts.failed += slot.created - 1;
        match state(newest) {
            known if known.has_succeeded() => counts.succeeded += 1,
            known if known.is_active() => {
                counts.active += 1;
                if newest.restart_policy() == RestartPolicy::OnFailure {
                    counts.restarts += known.restarts;
                }
            }
            _ => counts.failed += 1,
        }
    }
    counts
}

/// Returns whether a job has failed (`pkg/controller/job/job_controller.go`: `syncJob`,
/// `pastBackoffLimitOnFailure`).
fn is_limit_exceeded(job: &JobSpec, counts: &Counts) -> bool {
    counts.failed > job.backoff_limit || counts.restarts >= job.backoff_limit.max(1)
}
