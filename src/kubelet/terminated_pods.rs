//! Pods that have terminated. Their final status can still be read, and a pod that its source still
//! lists is not started again.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep_until};

use super::published_pod::PublishedPod;
use crate::manifest::pod::Pod;

/// Time for which a final status can be read.
const RETENTION: Duration = Duration::from_secs(300);

/// Maximum number of final statuses. The oldest ones are removed first.
const CAPACITY: usize = 1024;

/// Pods that have terminated.
#[derive(Debug, Default)]
pub(super) struct TerminatedPods(Mutex<Terminated>);

#[derive(Debug, Default)]
struct Terminated {
    /// Final statuses, the oldest first.
    statuses: VecDeque<FinalStatus>,
    /// Uids of the pods, until their source no longer lists them.
    uids: HashSet<String>,
}

#[derive(Debug)]
struct FinalStatus {
    published: PublishedPod,
    expires: Instant,
}

impl TerminatedPods {
    /// Adds a pod. Keeps its final status, if there is one.
    pub(super) fn add(&self, published: PublishedPod) {
        let mut terminated = self.lock();
        terminated.uids.insert(published.pod.uid.clone());
        if published.status.is_none() {
            return;
        }
        let removed = Some(SystemTime::now());
        let published = PublishedPod { removed, ..published };
        terminated.statuses.push_back(FinalStatus { published, expires: Instant::now() + RETENTION });
        if terminated.statuses.len() > CAPACITY {
            terminated.statuses.pop_front();
        }
    }

    /// Removes the statuses of pods with the name or the uid of a pod that starts, because either
    /// identifies one pod.
    pub(super) fn replace_by(&self, pod: &Pod) {
        self.lock().statuses.retain(|FinalStatus { published, .. }| {
            let known = &published.pod;
            known.uid != pod.uid && (&known.namespace, &known.name) != (&pod.namespace, &pod.name)
        });
    }

    /// Removes all uids except those of pods that a source lists as deleted.
    pub(super) fn retain_deleted(&self, deleted: &HashSet<&str>) {
        self.lock().uids.retain(|uid| deleted.contains(uid.as_str()));
    }

    /// Returns whether a pod that its source lists as deleted has terminated.
    pub(super) fn is_deleted(&self, uid: &str) -> bool {
        self.lock().uids.contains(uid)
    }

    /// Returns the pods with a final status.
    pub(super) fn all(&self) -> Vec<PublishedPod> {
        self.lock().statuses.iter().map(|status| status.published.clone()).collect()
    }

    /// Waits until the oldest status expires, and removes it. Waits forever if there is none.
    pub(super) async fn expire_next(&self) {
        let Some(expires) = self.lock().statuses.front().map(|status| status.expires) else {
            return std::future::pending().await;
        };
        sleep_until(expires).await;
        self.lock().statuses.retain(|status| status.expires > Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Terminated> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::PodStatus;

    use super::*;
    use crate::manifest::reader::tests::pod;

    fn ended(name: &str, uid: &str) -> PublishedPod {
        let pod = pod("{containers: [{name: a, image: i}]}");
        let pod = Pod { name: name.to_owned(), uid: uid.to_owned(), ..pod };
        let mut published = PublishedPod::new(Arc::new(pod), SystemTime::now());
        published.update(PodStatus::default(), &[]);
        published
    }

    fn names(pods: &TerminatedPods) -> Vec<String> {
        pods.all().iter().map(|published| published.names().1.to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_final_status_is_kept_for_five_minutes() {
        let (pods, started) = (TerminatedPods::default(), Instant::now());
        pods.add(ended("a", "1"));
        tokio::time::advance(Duration::from_secs(60)).await;
        pods.add(ended("b", "2"));
        assert!(pods.all().iter().all(|published| published.removed().is_some()));
        pods.expire_next().await;
        assert_eq!((names(&pods), started.elapsed()), (vec!["b".to_owned()], RETENTION));
        pods.expire_next().await;
        assert_eq!((names(&pods).len(), started.elapsed()), (0, RETENTION + Duration::from_secs(60)));
    }

    #[tokio::test]
    async fn a_starting_pod_replaces_terminated_pods_with_its_name_or_uid() {
        let pods = TerminatedPods::default();
        for (name, uid) in [("a", "1"), ("b", "2"), ("c", "3")] {
            pods.add(ended(name, uid));
        }
        pods.replace_by(&ended("a", "2").pod);
        assert_eq!(names(&pods), ["c"]);
        for number in 0..CAPACITY {
            pods.add(ended(&format!("p-{number}"), &format!("u-{number}")));
        }
        assert_eq!(
            (names(&pods).len(), names(&pods)[0].as_str()),
            (CAPACITY, "p-0"),
            "the oldest goes first"
        );
    }

    #[tokio::test]
    async fn the_uid_of_a_deleted_pod_is_known_while_a_kubelet_lists_the_pod() {
        let pods = TerminatedPods::default();
        pods.add(ended("a", "1"));
        pods.retain_deleted(&HashSet::from(["1"]));
        assert!(pods.is_deleted("1"));
        pods.retain_deleted(&HashSet::new());
        assert!(!pods.is_deleted("1"));
    }
}
