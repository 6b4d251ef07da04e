//! The status of a pod in the runtime: its sandboxes and containers, the newest first (kubelet:
//! `container/runtime.go`: `PodStatus`).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cri::labels::{CONTAINER_HASH, MESSAGE_PATH, RESTART_COUNT};
use crate::cri::v1;
use crate::manifest::ContainerSpec;
use crate::probe::kubelet_annotations;

/// The status of a pod in the runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct RuntimePodStatus {
    pub(super) sandboxes: Vec<SandboxInstance>,
    pub(super) containers: Vec<ContainerInstance>,
}

/// A sandbox of the pod.
#[derive(Clone, Debug)]
pub(super) struct SandboxInstance {
    pub(super) id: Arc<str>,
    pub(super) attempt: u32,
    pub(super) is_ready: bool,
    /// Whether the sandbox has no containers.
    pub(super) is_empty: bool,
    pub(super) is_host_network: bool,
    pub(super) created_at: i64,
    /// IP addresses of the sandbox, the primary one first.
    pub(super) addresses: Vec<String>,
}

/// A container instance of the pod.
#[derive(Clone, Debug)]
pub(super) struct ContainerInstance {
    pub(super) id: Arc<str>,
    /// Id of the sandbox.
    pub(super) sandbox: String,
    pub(super) name: String,
    pub(super) state: InstanceState,
    /// Time of creation in nanoseconds since 1970, as are the other times; 0 for an event that has
    /// not occurred.
    pub(super) created_at: i64,
    pub(super) started_at: i64,
    pub(super) finished_at: i64,
    pub(super) exit_code: i32,
    /// Reason of the container's end, as the runtime reports it.
    pub(super) reason: String,
    /// Message about the container's end, as the runtime reports it.
    pub(super) message: String,
    /// Hash of the container's specification at the time of creation.
    pub(super) hash: String,
    pub(super) restart_count: u32,
    pub(super) attempt: u32,
    /// Name of the image in the runtime.
    pub(super) image: String,
    pub(super) image_id: String,
    /// Path of the termination message on this host.
    pub(super) message_file: Option<PathBuf>,
    pub(super) log: PathBuf,
    pub(super) user: Option<v1::LinuxContainerUser>,
    /// `PreStop` hook, grace period and ports from the container's annotations. A kill uses them if
    /// the manifest is unknown.
    pub(super) annotations: Arc<ContainerSpec>,
}

/// The state of a container instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstanceState {
    Created,
    Running,
    Exited,
    Unknown,
}

impl RuntimePodStatus {
    /// Sorts sandboxes, each with whether it has no containers, and containers, each with the id of
    /// its sandbox. `is_newer` returns whether an object is known to be newer than all objects that
    /// existed at its creation, whatever their attempts: clients count attempts from 0 again when
    /// they replace an object.
    pub(super) fn new(
        sandboxes: Vec<(v1::PodSandboxStatus, bool)>,
        containers: Vec<(v1::ContainerStatus, String)>,
        is_newer: impl Fn(&str) -> bool,
    ) -> Self {
        let mut sandboxes: Vec<SandboxInstance> = sandboxes
            .into_iter()
            .map(|(status, is_empty)| SandboxInstance { is_empty, ..SandboxInstance::from(status) })
            .collect();
        let mut containers: Vec<ContainerInstance> = containers
            .into_iter()
            .map(|(status, sandbox)| ContainerInstance { sandbox, ..ContainerInstance::from(status) })
            .collect();
        newest_first(&mut sandboxes, &is_newer, |it| ("", &it.id, (it.attempt, it.created_at)));
        newest_first(&mut containers, &is_newer, |it| (&it.name, &it.id, (it.attempt, it.created_at)));
        Self { sandboxes, containers }
    }

    /// Returns the newest sandbox.
    pub(super) fn sandbox(&self) -> Option<&SandboxInstance> {
        self.sandboxes.first()
    }

    /// Returns the sandboxes that have stopped and have no containers, without the newest sandbox.
    pub(super) fn old_sandboxes(&self) -> impl Iterator<Item = &SandboxInstance> {
        self.sandboxes.iter().skip(1).filter(|sandbox| !sandbox.is_ready && sandbox.is_empty)
    }

    /// Returns the newest container instance of a name.
    pub(super) fn latest(&self, name: &str) -> Option<&ContainerInstance> {
        self.all(name).next()
    }

    /// Returns the newest container instance of a name that has exited.
    pub(super) fn latest_exited(&self, name: &str) -> Option<&ContainerInstance> {
        self.all(name).find(|instance| instance.state == InstanceState::Exited)
    }

    /// Returns the container instances in the newest sandbox; none if that sandbox is not ready
    /// (kubelet: `ActiveContainerStatuses`).
    pub(super) fn active(&self) -> impl Iterator<Item = &ContainerInstance> {
        let sandbox = self.sandbox().filter(|sandbox| sandbox.is_ready).map(|sandbox| &*sandbox.id);
        self.containers.iter().filter(move |instance| sandbox == Some(instance.sandbox.as_str()))
    }

    /// Returns all container instances of a name, the newest first.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &ContainerInstance> {
        self.containers.iter().filter(move |instance| instance.name == name)
    }

    /// Returns the containers that run or may run.
    pub(super) fn live(&self) -> impl Iterator<Item = &ContainerInstance> {
        self.containers
            .iter()
            .filter(|it| matches!(it.state, InstanceState::Running | InstanceState::Unknown))
    }

    /// Returns the containers to remove. Of each name, the newest container and the newest one that
    /// has exited are kept. Containers that run or may run are never returned.
    pub(super) fn garbage(&self) -> impl Iterator<Item = &ContainerInstance> {
        self.containers.iter().filter(|instance| {
            let newest = match instance.state {
                InstanceState::Exited => self.latest_exited(&instance.name),
                InstanceState::Created => self.latest(&instance.name),
                InstanceState::Running | InstanceState::Unknown => return false,
            };
            newest.is_some_and(|newest| newest.id != instance.id)
        })
    }

    /// Returns the IP addresses of the newest sandbox.
    pub(super) fn addresses(&self) -> &[String] {
        self.sandbox().map(|sandbox| sandbox.addresses.as_slice()).unwrap_or_default()
    }
}

/// Sorts by attempts, then by times of creation, because the clock may have been set back. `order`
/// returns the name of an item, its id, and its attempt with its time of creation.
fn newest_first<T>(
    items: &mut [T],
    is_newer: impl Fn(&str) -> bool,
    order: impl Fn(&T) -> (&str, &str, (u32, i64)),
) {
    let mut newer = HashMap::new();
    for (name, id, created_at) in items.iter().map(&order) {
        if is_newer(id) {
            newer.insert(name.to_owned(), created_at);
        }
    }
    items.sort_by_key(|item| {
        let (name, id, created_at) = order(item);
        Reverse((
            is_newer(id) || newer.get(name).is_some_and(|newer| was_created_after(created_at, *newer)),
            created_at,
        ))
    });
}

/// Returns whether an object was created after another one, by the attempts and times of creation
/// of both.
pub fn was_created_after<A: PartialOrd>((attempt, created): (A, i64), (before, then): (A, i64)) -> bool {
    attempt > before && created >= then
}

impl From<v1::PodSandboxStatus> for SandboxInstance {
    fn from(status: v1::PodSandboxStatus) -> Self {
        let network = status.network.unwrap_or_default();
        let more = network.additional_ips.into_iter().map(|address| address.ip);
        let addresses = [network.ip].into_iter().chain(more).filter(|address| !address.is_empty());
        let options = status.linux.and_then(|linux| linux.namespaces).and_then(|all| all.options);
        let is_host_network = options.is_some_and(|it| it.network() == v1::NamespaceMode::Node);
        Self {
            attempt: status.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
            is_ready: status.state == i32::from(v1::PodSandboxState::SandboxReady),
            is_empty: false,
            is_host_network,
            created_at: status.created_at,
            addresses: addresses.collect(),
            id: status.id.into(),
        }
    }
}

impl From<v1::ContainerStatus> for ContainerInstance {
    fn from(status: v1::ContainerStatus) -> Self {
        let state = match status.state() {
            v1::ContainerState::ContainerCreated => InstanceState::Created,
            v1::ContainerState::ContainerRunning => InstanceState::Running,
            v1::ContainerState::ContainerExited => InstanceState::Exited,
            v1::ContainerState::ContainerUnknown => InstanceState::Unknown,
        };
        let note = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
        let name = status.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default();
        let attempt = status.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        let noted =
            kubelet_annotations::container(&name, |key| status.annotations.get(key).map(String::as_str));
        let message_path = note(MESSAGE_PATH);
        let mount = status.mounts.iter().find(|mount| mount.container_path == message_path);
        Self {
            state,
            name,
            annotations: Arc::new(noted),
            hash: note(CONTAINER_HASH),
            restart_count: note(RESTART_COUNT).parse().unwrap_or(attempt),
            attempt,
            message_file: mount.map(|mount| PathBuf::from(&mount.host_path)),
            image: status.image.map(|image| image.image).unwrap_or_default(),
            image_id: status.image_ref,
            created_at: status.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code,
            user: status.user.and_then(|user| user.linux),
            reason: status.reason,
            message: status.message,
            log: status.log_path.into(),
            sandbox: String::new(),
            id: status.id.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kubelet: `kuberuntime_container.go`: `toKubeContainerStatus`.
    #[test]
    fn the_image_of_a_container_is_named_by_the_runtime() {
        let image = v1::ImageSpec {
            image: "docker.io/library/a:1".to_owned(),
            user_specified_image: "a@sha256:1".to_owned(),
            ..v1::ImageSpec::default()
        };
        let status = v1::ContainerStatus { image: Some(image), ..v1::ContainerStatus::default() };
        assert_eq!(ContainerInstance::from(status).image, "docker.io/library/a:1");
    }
}
