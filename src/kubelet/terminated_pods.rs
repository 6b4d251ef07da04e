//! Pods that are gone, whose final status can still be read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::published_pod::PublishedPod;
use crate::manifest::pod::Pod;

/// How long a final status can be read.
const RETENTION: Duration = Duration::from_secs(300);

/// Statuses that are kept; if there are more, the oldest go first.
const CAPACITY: usize = 1024;

/// The final status of pods that are gone, oldest first.
#[derive(Debug, Default)]
pub(super) struct TerminatedPods(Mutex<VecDeque<(Instant, PublishedPod)>>);

impl TerminatedPods {
    /// Keeps the final status of a pod.
    pub(super) fn add(&self, published: PublishedPod) {
        let mut pods = self.lock();
        let removed = Some(SystemTime::now());
        pods.push_back((Instant::now() + RETENTION, PublishedPod { removed, ..published }));
        if pods.len() > CAPACITY {
            pods.pop_front();
        }
    }

    /// Forgets pods with the name or the uid of one that starts: either identifies one pod.
    pub(super) fn replace_by(&self, pod: &Pod) {
        self.lock().retain(|(_, PublishedPod { pod: known, .. })| {
            known.uid != pod.uid && (&known.namespace, &known.name) != (&pod.namespace, &pod.name)
        });
    }

    /// Returns whether the final status of this pod is kept.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.lock().iter().any(|(_, published)| published.pod.uid == uid)
    }

    /// Returns the pods whose status is kept.
    pub(super) fn all(&self) -> Vec<PublishedPod> {
        self.lock().iter().map(|(_, published)| published.clone()).collect()
    }

    /// Waits until the oldest status has been kept long enough, and forgets it. Waits for ever if there is none.
    pub(super) async fn expire_next(&self) {
        let Some(expires) = self.lock().front().map(|(expires, _)| *expires) else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(expires).await;
        self.lock().retain(|(expires, _)| *expires > Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, PublishedPod)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
