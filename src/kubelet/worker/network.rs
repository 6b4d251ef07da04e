//! Pods that need the network of the runtime wait until it is ready.

use super::{PodWorker, SyncError};
use crate::events::{Event, reason};
use crate::terminal::sanitize;

impl PodWorker {
    /// Fails, with an event, if the pod needs the network of the runtime and that is not ready
    /// (kubelet: `kubelet.go`: `SyncPod`). Sandboxes of client pods are the choice of the client.
    pub(super) async fn check_network(&self) -> Result<(), SyncError> {
        if self.pod.host.network || self.pod.is_client_pod() {
            return Ok(());
        }
        let Some(cause) = self.context.runtime_state.network_error().await else { return Ok(()) };
        let error = SyncError::NetworkNotReady(sanitize(&cause));
        self.record_event(None, Event::warning(reason::NETWORK_NOT_READY, error.to_string()));
        Err(error)
    }
}
