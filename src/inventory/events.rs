//! Events about changes of the inventory.

use super::{Change, Container, Inventory};
use crate::events::{Event, reason};

impl Change {
    /// Returns the event of this change; `None` for an update that is not worth an event.
    #[must_use]
    pub fn event(&self, inventory: &Inventory) -> Option<Event> {
        let event = match self {
            // Its addresses may become known later.
            Self::SandboxStarted(sandbox) => {
                Event::normal(reason::SANDBOX_STARTED, "The sandbox is ready").for_pod(sandbox.pod.clone())
            }
            Self::SandboxStopped(sandbox) => {
                Event::normal(reason::SANDBOX_STOPPED, "The sandbox has stopped").for_pod(sandbox.pod.clone())
            }
            Self::SandboxRemoved(sandbox) => {
                Event::normal(reason::SANDBOX_REMOVED, "The sandbox has been removed")
                    .for_pod(sandbox.pod.clone())
            }
            Self::ContainerCreated(container) => {
                let attempt = container.container_ref.attempt.unwrap_or(0);
                // The response to CreateContainer does not name the image.
                let image = Some(&container.image).filter(|image| !image.is_empty());
                let image = image.map(|image| format!(" with image {image:?}")).unwrap_or_default();
                let message = format!("Created{image}, attempt {attempt}");
                inventory.with_container_refs(container, Event::normal(reason::CONTAINER_CREATED, message))
            }
            Self::ContainerStarted(container) => {
                inventory.with_container_refs(container, Event::normal(reason::CONTAINER_STARTED, "Started"))
            }
            Self::ContainerExited(container) => {
                let message = match &container.exit {
                    Some((code, reason)) if !reason.is_empty() => {
                        format!("Exited with code {code} ({reason})")
                    }
                    Some((code, _)) => format!("Exited with code {code}"),
                    None => "Exited".to_owned(),
                };
                inventory.with_container_refs(container, Event::normal(reason::CONTAINER_EXITED, message))
            }
            Self::ContainerRemoved(container) => {
                inventory.with_container_refs(container, Event::normal(reason::CONTAINER_REMOVED, "Removed"))
            }
            Self::SandboxUpdated(_) | Self::ContainerUpdated(_) => return None,
        };
        Some(event)
    }
}

impl Inventory {
    /// Returns the event with references to the container and, if its sandbox is known, to the pod.
    #[must_use]
    pub fn with_container_refs(&self, container: &Container, event: Event) -> Event {
        let pod = self.sandbox_of(container).map(|sandbox| sandbox.pod.clone());
        Event { pod, container: Some(container.container_ref.clone()), ..event }
    }
}
