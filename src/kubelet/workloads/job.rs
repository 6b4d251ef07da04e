//! Pods that run until they succeed: those of a Job, or of the job of a `CronJob`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::slot::{Slot, StateOf, backoff};
use super::update::{Update, names};
use crate::kubelet::workload_status::WorkloadStatus;
use crate::manifest::{JobSpec, RestartPolicy, WorkloadSpec};

/// Progress of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobProgress {
    /// Number of failures that were counted.
    failures: u32,
    /// Number of successes that were counted.
    successes: u32,
    /// Number of failures before the last success.
    failures_before_success: u32,
    /// Time since which the job has been active without a suspension.
    started: Option<SystemTime>,
    /// Result of the job; `None` before it has ended.
    end: Option<JobEnd>,
    /// `started` on the monotonic clock.
    #[serde(skip)]
    started_at: Option<Instant>,
    /// Time before which no pod is created.
    #[serde(skip)]
    backoff_ends: Option<Instant>,
}

/// Result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum JobEnd {
    Complete,
    BackoffLimitExceeded,
    DeadlineExceeded,
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

/// Creates the pods of a job, at most `parallelism` at the same time, until enough have succeeded,
/// and removes those that are too many. Replaces a pod that has failed after the back-off of the
/// job. Removes the active pods of a job that has ended or is suspended
/// (`pkg/controller/job/job_controller.go`: `syncJob`, `manageJob`).
pub(super) fn update(
    workload: &WorkloadSpec,
    job: &JobSpec,
    slots: &mut BTreeMap<u32, Slot>,
    progress: &mut JobProgress,
    state: StateOf<'_>,
    now: Instant,
) -> Update {
    let mut has_changed = false;
    for slot in slots.values_mut() {
        slot.count_end(state);
        has_changed |= slot.remove_deleted(state);
    }
    let counts = count(slots, state);
    progress.count(&counts, now);
    let is_held = !job.may_start && !slots.values().any(Slot::has_started);
    let deadline = progress.deadline(job, is_held, now);
    progress.end = progress.end.or_else(|| end(job, &counts, deadline.is_some_and(|at| at <= now)));
    let wanted = wanted(job, progress, &counts).filter(|_| !is_held).unwrap_or(0);
    let excess = usize::try_from(counts.active.saturating_sub(wanted)).unwrap_or(usize::MAX);
    for slot in slots.values_mut().rev().filter(|slot| slot.is_active).take(excess) {
        has_changed |= slot.remove_active();
    }
    if excess > 0 {
        // A pod that is removed has failed.
        progress.count(&count(slots, state), now);
    }
    let backoff_ends = progress.backoff_ends.filter(|ends| *ends > now);
    let mut names = names(slots);
    let mut missing = Vec::new();
    let lacking = usize::try_from(wanted.saturating_sub(counts.active)).unwrap_or(usize::MAX);
    let indices = workload.scale.indices();
    let is_free =
        |(index, slot): &(&u32, &mut Slot)| indices.contains(index) && !slot.is_active && !slot.has_succeeded;
    for (index, slot) in slots.iter_mut().filter(is_free).take(lacking) {
        if backoff_ends.is_some() {
            missing.push(slot.next_name(workload, *index, &mut names));
        } else {
            slot.create(workload, *index, &mut names);
            has_changed = true;
        }
    }
    let is_waiting = progress.end.is_none();
    let status = WorkloadStatus {
        is_complete: !is_waiting,
        job_pods: slots.values().flat_map(Slot::pods).map(|pod| pod.uid.clone()).collect(),
        failure: progress
            .end
            .and_then(JobEnd::failure)
            .map(|failure| format!("{} has failed: {failure}", workload.full_name())),
        missing,
    };
    let next = [backoff_ends.filter(|_| lacking > 0), deadline].into_iter().flatten();
    Update { has_changed, status, next: next.filter(|_| is_waiting).min() }
}

/// Returns the number of pods that are to be active; `None` if the job has ended or is suspended.
fn wanted(job: &JobSpec, progress: &JobProgress, counts: &Counts) -> Option<u32> {
    if progress.end.is_some() || job.is_suspended {
        return None;
    }
    Some(match job.completions {
        Some(completions) => job.parallelism.min(completions.saturating_sub(counts.succeeded)),
        // The other pods of a shared queue see that there is no work left.
        None if counts.succeeded > 0 => counts.active,
        None => job.parallelism,
    })
}

/// Returns the result of a job; `None` if it continues (`pkg/controller/job/job_controller.go`:
/// `syncJob`, `pastBackoffLimitOnFailure`).
fn end(job: &JobSpec, counts: &Counts, is_past_deadline: bool) -> Option<JobEnd> {
    if counts.failed > job.backoff_limit || counts.restarts >= job.backoff_limit.max(1) {
        return Some(JobEnd::BackoffLimitExceeded);
    }
    if is_past_deadline {
        return Some(JobEnd::DeadlineExceeded);
    }
    let is_complete = counts.active == 0
        && match job.completions {
            Some(completions) => counts.succeeded >= completions,
            None => counts.succeeded > 0,
        };
    is_complete.then_some(JobEnd::Complete)
}

impl JobEnd {
    /// Returns reason and message of a failed job; `None` for a complete one.
    fn failure(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::BackoffLimitExceeded => {
                Some("BackoffLimitExceeded: Job has reached the specified backoff limit")
            }
            Self::DeadlineExceeded => Some("DeadlineExceeded: Job was active longer than specified deadline"),
        }
    }
}

impl JobProgress {
    /// Returns the progress of an earlier process. The back-off starts again.
    pub(super) fn restored(self, now: Instant) -> Self {
        let failures = self.failures.saturating_sub(self.failures_before_success);
        Self { backoff_ends: (failures > 0).then(|| now + backoff(failures)), ..self }
    }

    /// Counts successes and failures. The back-off doubles with each failure since the last success
    /// (`pkg/controller/job/backoff_utils.go`: `newBackoffRecord`).
    fn count(&mut self, counts: &Counts, now: Instant) {
        if counts.succeeded > self.successes {
            (self.successes, self.failures_before_success) = (counts.succeeded, self.failures);
        }
        if counts.failed > self.failures {
            self.failures = counts.failed;
            self.backoff_ends = Some(now + backoff(self.failures - self.failures_before_success));
        }
    }

    /// Returns the time at which the job has exceeded its deadline. A suspension of the
    /// job resets it.
    fn deadline(&mut self, job: &JobSpec, is_held: bool, now: Instant) -> Option<Instant> {
        if job.is_suspended || is_held {
            (self.started, self.started_at) = (None, None);
            return None;
        }
        let Some(started) = self.started else {
            (self.started, self.started_at) = (Some(SystemTime::now()), Some(now));
            return self.deadline(job, is_held, now);
        };
        let started_at = *self.started_at.get_or_insert_with(|| {
            // An earlier process has started the job.
            now.checked_sub(started.elapsed().unwrap_or_default()).unwrap_or(now)
        });
        Some(started_at + Duration::from_secs(job.active_deadline?.into()))
    }
}

fn count(slots: &BTreeMap<u32, Slot>, state: StateOf<'_>) -> Counts {
    let mut counts = Counts::default();
    for slot in slots.values() {
        counts.failed += slot.failures;
        counts.succeeded += u32::from(slot.has_succeeded);
        if let Some(pod) = slot.active() {
            counts.active += 1;
            if pod.restart_policy() == RestartPolicy::OnFailure {
                counts.restarts += state(pod).restarts;
            }
        }
    }
    counts
}
