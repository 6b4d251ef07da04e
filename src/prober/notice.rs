//! What the prober tells of as it happens.

use std::fmt;
use std::sync::Arc;

use crate::probe::ProbeType;
use crate::tap::{Container, Pod};

/// Something that has happened to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The container.
    pub container: Arc<Container>,
    /// Which of its probes.
    pub probe_type: ProbeType,
    /// What has happened.
    pub what: What,
    /// A sentence for it, the kubelet's where it has one.
    pub message: String,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An attempt failed, or it is not known what came of it.
    Unhealthy,
    /// An attempt went well, in a way that somebody should look at.
    ProbeWarning,
    /// The container would be killed now, if somebody were to.
    WouldKill,
    /// It would have been killed, and somebody has stopped it.
    StoppedToo,
    /// It would have been killed, and the kubelet has not.
    NotStopped,
    /// Somebody has stopped it before it would have been killed.
    StoppedBefore,
    /// A fault of our own ended an attempt.
    Fault,
}

/// Who is told. It must not wait.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Something has happened.
    fn notice(&self, notice: Notice);
}
