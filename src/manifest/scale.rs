//! Number and order of the pods of a workload.

/// Number and order of the pods of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Pods that run all the time.
    Replicas {
        /// Index of the first pod.
        first: u32,
        count: u32,
        /// Whether a pod is created only when all pods with lower indices are ready.
        is_ordered: bool,
    },
    /// Pods that run until they succeed.
    Job(JobSpec),
}

/// Number of the pods of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobSpec {
    /// Number of pods that must succeed. `None`: the pods share a queue of work, and the job is
    /// complete once one pod has succeeded and all have ended.
    pub(crate) completions: Option<u32>,
    /// Maximum number of pods that run at the same time.
    pub(crate) parallelism: u32,
    /// Number of failures after which no failed pod is replaced.
    pub(crate) backoff_limit: u32,
    /// Whether each pod has its own index, which its containers can read.
    pub(crate) is_indexed: bool,
    /// Time in seconds after which a job that is not complete has failed.
    pub(crate) active_deadline: Option<u32>,
    /// Whether the job has no active pods for now.
    pub(crate) is_suspended: bool,
    /// Whether the job may start. A suspended `CronJob` starts no job, and does not affect a job
    /// that has started.
    pub(crate) may_start: bool,
}

impl Scale {
    /// One pod.
    pub(crate) const ONE: Self = Self::Replicas { first: 0, count: 1, is_ordered: false };

    /// Returns the indices of the pods.
    pub(crate) fn indices(&self) -> std::ops::Range<u32> {
        match self {
            Self::Replicas { first, count, .. } => *first..first.saturating_add(*count),
            Self::Job(job) => 0..job.completions.unwrap_or(job.parallelism),
        }
    }

    /// Returns the number of pods that run at the same time.
    pub(crate) fn concurrent(&self) -> u32 {
        match self {
            Self::Replicas { count, .. } => *count,
            Self::Job(job) if job.is_suspended || !job.may_start => 0,
            Self::Job(job) => job.completions.unwrap_or(u32::MAX).min(job.parallelism),
        }
    }

    /// Returns the number of pods if none fails. Those of a job that have ended stay.
    pub(crate) fn total(&self) -> u32 {
        match self {
            Self::Replicas { count, .. } => *count,
            Self::Job(job) => job.completions.unwrap_or(0).max(job.parallelism),
        }
    }
}
