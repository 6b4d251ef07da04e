//! What the prober tells of as it happens.

use std::fmt;
use std::sync::Arc;

use super::enforcement::{EnforcementMode, KillLimit};
use crate::probe::ProbeType;
use crate::tap::{ContainerRef, PodRef};

/// Something that has happened to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEvent {
    /// The pod.
    pub pod: Arc<PodRef>,
    /// The container.
    pub container: Arc<ContainerRef>,
    /// Which of its probes.
    pub probe_type: ProbeType,
    /// What has happened.
    pub what: ContainerEventKind,
    /// A sentence for it, the kubelet's where it has one.
    pub message: String,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEventKind {
    /// An attempt failed, or it is not known what came of it.
    Unhealthy,
    /// An attempt went well, in a way that somebody should look at.
    ProbeWarning,
    /// The attempt was discarded because the prober's thread was late.
    Discarded,
    /// The container would be killed now, if somebody were to.
    WouldKill,
    /// The container is killed now.
    Killing,
    /// What is done before it is stopped has failed.
    FailedPreStopHook,
    /// The runtime has not stopped it; it is tried again.
    KillFailed,
    /// A kill that had begun was given up: the container is left alone.
    KillAborted,
    /// The container is not killed, although its probe failed: a reason speaks against it.
    KillSkipped,
    /// The kubelet kills the container, as the prober predicted.
    Predicted,
    /// The kubelet killed the container, and the prober had not predicted it.
    Unpredicted,
    /// The prober predicted a kill, and the kubelet did not make it.
    NotObserved,
    /// An attempt ended with a panic of the prober.
    Panicked,
}

/// Something that concerns no pod alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GlobalEvent {
    /// The limit of kills is reached: further kills are skipped.
    KillRateLimited(KillLimit),
    /// Nobody on the node is whom this selector spares.
    SelectorUnmatched(String),
    /// Somebody has switched what is done about probes.
    Switched {
        /// From what.
        from: EnforcementMode,
        /// To what.
        to: EnforcementMode,
        /// Who.
        by: String,
    },
}

/// Who is told. It must not wait.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Something has happened to a container.
    fn container_event(&self, notice: ContainerEvent);

    /// Something has happened that concerns no pod alone.
    fn global_event(&self, remark: GlobalEvent);

    /// A probe of a pod says something else than before, in a way that whoever acts on it has to know.
    fn result_changed(&self, _pod: &PodRef) {}
}
