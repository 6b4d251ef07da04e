//! What happens to pods that are played, as the kubelet's events tell it.

use std::fmt;
use std::sync::Arc;

use crate::probe::SpecResolver;
use crate::tap;

/// Something that has happened.
#[derive(Clone, Debug)]
pub struct PodEvent {
    /// The pod.
    pub pod: Arc<tap::PodRef>,
    /// The container, if it happened to one.
    pub container: Option<Arc<tap::ContainerRef>>,
    /// The kubelet's word for it.
    pub reason: &'static str,
    /// Whether somebody should look.
    pub is_warning: bool,
    /// A sentence for it.
    pub message: String,
}

/// Who is told. It must not wait.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Something has happened to a pod.
    fn pod_event(&self, event: PodEvent);

    /// What is told of probes is different from now on.
    fn specs_changed(&self, specs: SpecResolver);

    /// Something is wrong with what is to be played, or left out.
    fn problem(&self, problem: String);

    /// What was wrong is so no longer.
    fn problem_resolved(&self, problem: String);

    /// What is to outlive us cannot be written, for this reason; or can again.
    fn state_error(&self, reason: Option<String>);

    /// Mounts of probeshim do not reach the runtime, for this reason. Containers with a subPath are not created, and emptyDirs in memory are on disk.
    fn mounts_unreachable(&self, reason: String);

    /// A kubelet uses the runtime: nothing is started or ended any more until it has been gone for a minute.
    fn paused(&self);
}
