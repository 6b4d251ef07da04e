//! The remedy for a failed pull of an image that is on the node.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::events::{Event, reason};
use crate::kubelet::Kubelet;
use crate::progress::PULL_FAILED;
use crate::terminal::sanitize;

/// Starts a task that logs a hint, once for each image, when an image cannot be pulled and is on
/// the node. The task ends when the returned handle is dropped.
pub(super) fn hint_at_local_images(
    kubelet: Kubelet,
    mut events: Receiver<Arc<Event>>,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut hinted = BTreeSet::new();
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            if event.reason != reason::FAILED || !event.message.starts_with(PULL_FAILED) {
                continue;
            }
            let (Some(pod), Some(container)) = (&event.pod, &event.container) else { continue };
            let Some(container) = &container.name else { continue };
            if let Some(image) = kubelet.needlessly_pulled(pod, container).await
                && hinted.insert(image.clone())
            {
                warn!(
                    "image {:?} is on the node, but is always pulled; to use it, set imagePullPolicy: IfNotPresent \
                     (the default for the tag latest, or no tag, is Always)",
                    sanitize(&image)
                );
            }
        }
    }))
}
