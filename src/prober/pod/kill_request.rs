//! That a container is to be killed, or why it is not after all.

use std::sync::Arc;

use crate::kill::KillPlan;
use crate::manifest::ProbeType;
use crate::object_ref::ContainerRef;
use crate::tap;

/// A container that is to be killed.
#[derive(Clone, Debug)]
pub(in crate::prober) struct KillRequest {
    pub(in crate::prober) container: Arc<ContainerRef>,
    pub(in crate::prober) container_id: Arc<str>,
    pub(in crate::prober) probe_type: ProbeType,
    pub(in crate::prober) kill: KillPlan,
    /// Failures in a row that it takes, and the last of them.
    pub(in crate::prober) threshold: u32,
    pub(in crate::prober) failures: Vec<tap::ProbeFailure>,
}

/// Why a container that was to be killed is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prober) enum KillAbort {
    /// It is not there any more, or does not run: there is nothing to do.
    Gone,
    /// Somebody else ends it, or its pod.
    Others,
    /// It is never killed, by now.
    Excluded,
    /// Nobody is killed by now.
    Switched,
}

impl KillAbort {
    /// Why that is.
    pub(in crate::prober) fn reason(self) -> &'static str {
        match self {
            Self::Gone => "it does not run any more",
            Self::Others => "it, or its pod, is being ended already",
            Self::Excluded => "it is excluded by now",
            Self::Switched => "nobody is killed by now",
        }
    }
}
