//! Observations of sandboxes and containers in the messages of calls.

use crate::cri::{ContainerObservation, SandboxObservation, v1};

/// A statement of the runtime about sandboxes or containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The sandbox exists.
    Sandbox(SandboxObservation),
    /// The container exists.
    Container(ContainerObservation),
    /// The sandbox has been removed, and its containers with it.
    SandboxRemoved(String),
    /// The container has been removed.
    ContainerRemoved(String),
    /// These sandboxes exist, and no others.
    SandboxList(Vec<SandboxObservation>),
    /// These containers exist, and no others.
    ContainerList(Vec<ContainerObservation>),
}

impl Observation {
    /// Returns the observations in an event of the CRI: the pod with all its containers, and the
    /// removed object.
    #[must_use]
    pub fn of_event(event: v1::ContainerEventResponse) -> Vec<Self> {
        let is_deleted = event.container_event_type() == v1::ContainerEventType::ContainerDeletedEvent;
        let sandbox = event.pod_sandbox_status.map(SandboxObservation::from);
        let sandbox_id = sandbox.as_ref().map(|sandbox| sandbox.id.clone());
        let containers = event.containers_statuses.into_iter().map(|status| {
            Self::Container(ContainerObservation { sandbox: sandbox_id.clone(), ..status.into() })
        });
        let mut facts: Vec<Self> = containers.collect();
        facts.extend(sandbox.map(Self::Sandbox));
        if is_deleted {
            // The runtime reports the removal of a sandbox in the same way as that of a container.
            facts.extend([
                Self::ContainerRemoved(event.container_id.clone()),
                Self::SandboxRemoved(event.container_id),
            ]);
        }
        facts
    }
}
