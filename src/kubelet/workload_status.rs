//! The status of a workload.

use std::collections::BTreeSet;

/// The status of a workload, for those who wait for its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadStatus {
    /// `NAMESPACE/NAME` of each pod that is to run and has not been created yet.
    pub missing: Vec<String>,
    /// Whether all pods that are to run exist. For a job: whether it has ended.
    pub is_complete: bool,
    /// Uids of the pods of a job. A failed one matters only if the job has failed.
    pub job_pods: BTreeSet<String>,
    /// Reason why a job has failed.
    pub failure: Option<String>,
}
