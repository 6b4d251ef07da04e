//! The information about sandboxes and containers in the messages of the CRI, in one form for all
//! messages.

use std::collections::HashMap;

use super::v1;

/// Information in one message about a sandbox. A field that the message lacks is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxObservation {
    /// ID of the sandbox.
    pub id: String,
    /// Namespace, name, UID and attempt of the sandbox's pod.
    pub metadata: Option<v1::PodSandboxMetadata>,
    /// Whether the sandbox is ready, that is, running.
    pub is_ready: Option<bool>,
    /// Creation time in nanoseconds since 1970.
    pub created_at: Option<i64>,
    /// Labels of the sandbox.
    pub labels: Option<HashMap<String, String>>,
    /// Annotations of the sandbox, which are those of its pod.
    pub annotations: Option<HashMap<String, String>>,
    /// IP addresses of the sandbox, the primary address first.
    pub addresses: Option<Vec<String>>,
    /// Whether the sandbox uses the network of the host.
    pub is_host_network: Option<bool>,
}

/// Information in one message about a container. A field that the message lacks is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerObservation {
    /// ID of the container.
    pub id: String,
    /// ID of the container's sandbox.
    pub sandbox: Option<String>,
    /// Name of the container in its pod, and its attempt.
    pub metadata: Option<v1::ContainerMetadata>,
    /// State of the container.
    pub state: Option<v1::ContainerState>,
    /// Creation time in nanoseconds since 1970.
    pub created_at: Option<i64>,
    /// Start time in nanoseconds since 1970, once the container has been started.
    pub started_at: Option<i64>,
    /// Exit code and the runtime's reason, once the container has exited.
    pub exit: Option<(i32, String)>,
    /// Name of the image as it was requested.
    pub image: Option<String>,
    /// Labels of the container.
    pub labels: Option<HashMap<String, String>>,
    /// Annotations of the container.
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
            // The name in containerd's `image` differs here from the requested one.
            image: container.image.map(|image| image.user_specified_image).filter(|name| !name.is_empty()),
            labels: Some(container.labels),
            annotations: Some(container.annotations),
        }
    }
}

/// Returns the requested name of an image, if the runtime keeps it separate from the resolved one.
fn name_of(image: v1::ImageSpec) -> String {
    if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image }
}
