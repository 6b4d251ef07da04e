//! What a call told of the sandboxes and containers of the node.

use crate::cri::{ContainerObservation, SandboxObservation, v1};

/// Something that is so, as far as the runtime answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A sandbox is there.
    Sandbox(SandboxObservation),
    /// A container is there.
    Container(ContainerObservation),
    /// A sandbox has been removed, and its containers with it.
    SandboxRemoved(String),
    /// A container has been removed.
    ContainerRemoved(String),
    /// These sandboxes are there, and no others.
    SandboxList(Vec<SandboxObservation>),
    /// These containers are there, and no others.
    ContainerList(Vec<ContainerObservation>),
}

impl Observation {
    /// What an event of the CRI tells: the pod with all its containers, and which of them is gone.
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
            // The runtime tells of the end of a sandbox as of a container's.
            facts.extend([
                Self::ContainerRemoved(event.container_id.clone()),
                Self::SandboxRemoved(event.container_id),
            ]);
        }
        facts
    }
}
