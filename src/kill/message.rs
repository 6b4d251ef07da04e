//! Messages of `Killing` events. All except [`killed`] are word for word those of the kubelet
//! (`kuberuntime_manager.go`: `computePodActions`, `computeInitContainerActions` and `SyncPod`;
//! `kuberuntime_container.go`: `killContainer`).

use crate::manifest::ProbeType;

/// Cause of a kill, as its message states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillCause {
    /// A liveness or startup probe has failed.
    FailedProbe(ProbeType),
    /// The specification of the container has changed.
    DefinitionChanged,
}

/// Message for a container whose state the runtime does not know.
pub(crate) const UNKNOWN_CONTAINER: &str = "Container is in \"unknown\" state, try killing it before restart";

/// Message for an init container whose state the runtime does not know.
pub(crate) const UNKNOWN_INIT_CONTAINER: &str =
    "Init container is in \"unknown\" state, try killing it before restart";

/// Message for a container whose postStart hook has failed.
pub(crate) const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";

/// Returns the message for a regular container.
pub(crate) fn container(name: &str, cause: KillCause, is_restarted: bool) -> String {
    let ending = if is_restarted { ", will be restarted" } else { "" };
    format!("Container {name} {}{ending}", cause.text())
}

/// Returns the message for a container that is killed, and that probeshim does not restart.
pub(crate) fn killed(name: &str, cause: KillCause) -> String {
    format!("Container {name} {}, will be killed", cause.text())
}

/// Returns the message for a restartable init container.
pub(crate) fn init_container(name: &str, cause: KillCause) -> String {
    format!("Init container {name} {}", cause.text())
}

/// Returns the message for a container that is stopped with its pod.
pub(crate) fn stopping(name: &str) -> String {
    format!("Stopping container {name}")
}

/// Message for a container that is restarted together with all others of its pod.
pub(crate) const RESTARTING_ALL: &str = "killing";

impl KillCause {
    fn text(self) -> String {
        match self {
            Self::FailedProbe(probe_type) => format!("failed {} probe", probe_type.name()),
            Self::DefinitionChanged => "definition changed".to_owned(),
        }
    }
}
