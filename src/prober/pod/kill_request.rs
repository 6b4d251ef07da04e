//! Requests to kill a container, and the reasons to abort a kill.

use std::sync::Arc;

use crate::kill::KillPlan;
use crate::manifest::ProbeType;
use crate::object_ref::ContainerRef;
use crate::tap;

/// Request to kill a container.
#[derive(Clone, Debug)]
pub(in crate::prober) struct KillRequest {
    pub(in crate::prober) container: Arc<ContainerRef>,
    pub(in crate::prober) container_id: Arc<str>,
    pub(in crate::prober) probe_type: ProbeType,
    pub(in crate::prober) kill: KillPlan,
    /// Failure threshold of the probe.
    pub(in crate::prober) threshold: u32,
    /// Last failures of the probe in a row, at most as many as the threshold.
    pub(in crate::prober) failures: Vec<tap::ProbeFailure>,
}

/// Reason to abort a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prober) enum KillAbort {
    /// The container was removed or does not run, so there is nothing to stop.
    Gone,
    /// Another call stops the container or its pod.
    Others,
    /// The container has become protected.
    Excluded,
    /// The probes of the container are paused.
    Paused,
    /// The enforcement mode no longer permits kills.
    Switched,
}

impl KillAbort {
    /// Returns the reason as a clause for an event's message.
    pub(in crate::prober) fn reason(self) -> &'static str {
        match self {
            Self::Gone => "the container no longer runs",
            Self::Others => "the container or its pod is already being stopped",
            Self::Excluded => "the container now matches --never-kill",
            Self::Paused => "the probes of the container are paused now",
            Self::Switched => "the enforcement mode no longer permits kills",
        }
    }
}
