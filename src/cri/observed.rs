//! What the messages of the interface tell of sandboxes and containers, in one form for all of them.

use std::collections::HashMap;

use super::v1;

/// What one message tells of a sandbox. What it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxObservation {
    /// The sandbox.
    pub id: String,
    /// The pod that it is made for: namespace, name, uid, attempt.
    pub metadata: Option<v1::PodSandboxMetadata>,
    /// Whether it is ready, that is, running.
    pub is_ready: Option<bool>,
    /// In nanoseconds since 1970.
    pub created_at: Option<i64>,
    /// Its labels.
    pub labels: Option<HashMap<String, String>>,
    /// Its annotations, which are those of the pod.
    pub annotations: Option<HashMap<String, String>>,
    /// Its addresses, the first one first.
    pub addresses: Option<Vec<String>>,
    /// Whether it is in the network of its host.
    pub is_host_network: Option<bool>,
}

/// What one message tells of a container. What it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerObservation {
    /// The container.
    pub id: String,
    /// Its sandbox.
    pub sandbox: Option<String>,
    /// Its name in the pod, and how often a container of this name had been created before.
    pub metadata: Option<v1::ContainerMetadata>,
    /// How far it has come.
    pub state: Option<v1::ContainerState>,
    /// In nanoseconds since 1970.
    pub created_at: Option<i64>,
    /// Once it has been started: when, in nanoseconds since 1970.
    pub started_at: Option<i64>,
    /// Once it has exited: with which code, and the runtime's word for it.
    pub exit: Option<(i32, String)>,
    /// The image as it was asked for.
    pub image: Option<String>,
    /// Its labels.
    pub labels: Option<HashMap<String, String>>,
    /// Its annotations.
    pub annotations: Option<HashMap<String, String>>,
}

impl From<v1::PodSandbox> for SandboxObservation {
    fn from(sandbox: v1::PodSandbox) -> Self {
        Self {
            is_ready: Some(sandbox.state() == v1::PodSandboxState::SandboxReady),
            id: sandbox.id,
            metadata: sandbox.metadata,
            created_at: Some(sandbox.created_at),
            labels: Some(sandbox.labels),
            annotations: Some(sandbox.annotations),
            addresses: None,
            is_host_network: None,
        }
    }
}

impl From<v1::PodSandboxStatus> for SandboxObservation {
    fn from(sandbox: v1::PodSandboxStatus) -> Self {
        let addresses = sandbox.network.map(|network| {
            let others = network.additional_ips.into_iter().map(|other| other.ip);
            let all = std::iter::once(network.ip).chain(others);
            all.filter(|address| !address.is_empty()).collect()
        });
        let namespaces = sandbox.linux.and_then(|linux| linux.namespaces).and_then(|all| all.options);
        let is_host_network = namespaces.map(|options| options.network() == v1::NamespaceMode::Node);
        Self {
            is_ready: Some(sandbox.state == v1::PodSandboxState::SandboxReady as i32),
            id: sandbox.id,
            metadata: sandbox.metadata,
            created_at: Some(sandbox.created_at),
            labels: Some(sandbox.labels),
            annotations: Some(sandbox.annotations),
            addresses,
            is_host_network,
        }
    }
}

impl From<v1::Container> for ContainerObservation {
    fn from(container: v1::Container) -> Self {
        Self {
            state: Some(container.state()),
            id: container.id,
            sandbox: Some(container.pod_sandbox_id),
            metadata: container.metadata,
            created_at: Some(container.created_at),
            started_at: None,
            exit: None,
            image: container.image.map(name_of),
            labels: Some(container.labels),
            annotations: Some(container.annotations),
        }
    }
}

impl From<v1::ContainerStatus> for ContainerObservation {
    fn from(container: v1::ContainerStatus) -> Self {
        let state = container.state();
        let has_exited = state == v1::ContainerState::ContainerExited;
        Self {
            state: Some(state),
            id: container.id,
            sandbox: None,
            metadata: container.metadata,
            created_at: Some(container.created_at),
            started_at: Some(container.started_at),
            exit: has_exited.then_some((container.exit_code, container.reason)),
            // containerd tells another name here than the one that was asked for.
            image: container.image.map(|image| image.user_specified_image).filter(|name| !name.is_empty()),
            labels: Some(container.labels),
            annotations: Some(container.annotations),
        }
    }
}

/// The name by which an image was asked for, where the runtime keeps it apart from what it resolved it to.
fn name_of(image: v1::ImageSpec) -> String {
    if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image }
}
