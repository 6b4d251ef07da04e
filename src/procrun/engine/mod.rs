//! The runtime: its sandboxes, containers and images, and the operations on them.

mod command;
mod create;
mod exec;
mod start;
mod stop;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::container::ProcrunContainer;
use super::error::CriError;
use super::events::EventBroadcast;
use super::images::Images;
use super::monitor::Monitors;
use super::root_dir::Root;
use super::sandbox::ProcrunSandbox;
use super::store::Store;
use super::{ProcrunConfig, clock};
use crate::containerd::TimestampedEvent;
use crate::cri::v1::{self, ContainerEventType as Event};

/// Time within which all processes must die of SIGKILL at the end of procrun. Processes that do
/// not, such as those of another user, are left behind.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// State and settings of a runtime.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) config: ProcrunConfig,
    pub(super) root: Root,
    pub(super) monitors: Monitors,
    /// Tasks that wait for the exits of containers.
    pub(super) exit_watchers: TaskTracker,
    pub(super) sandboxes: Store<ProcrunSandbox>,
    pub(super) containers: Store<ProcrunContainer>,
    pub(super) images: Images,
    pub(super) events: EventBroadcast<v1::ContainerEventResponse>,
    /// containerd's events about processes in containers.
    pub(super) task_events: EventBroadcast<TimestampedEvent>,
    /// Whether a container had settings that are not applied, which was logged as a warning.
    pub(super) has_reported_ignored: AtomicBool,
}

impl Engine {
    /// Returns a runtime without pods. Fails if the root directory cannot be locked.
    pub(super) fn new(config: ProcrunConfig) -> io::Result<Arc<Self>> {
        let has_reported_ignored = AtomicBool::new(!config.warn_of_ignored);
        Ok(Arc::new(Self {
            root: Root::lock(&config.root)?,
            monitors: Monitors::with_program(config.monitor_program.clone()),
            exit_watchers: TaskTracker::new(),
            config,
            sandboxes: Store::default(),
            containers: Store::default(),
            images: Images::default(),
            events: EventBroadcast::default(),
            task_events: EventBroadcast::default(),
            has_reported_ignored,
        }))
    }

    /// Creates a sandbox, which is ready immediately.
    pub(super) fn run_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<String, CriError> {
        let sandbox = ProcrunSandbox::new(request.config.unwrap_or_default(), false)?;
        if !request.runtime_handler.is_empty() {
            let (id, handler) = (&sandbox.id, request.runtime_handler);
            return Err(CriError::unknown(format!(
                "unable to get OCI runtime for sandbox {id:?}: no runtime for {handler:?} is configured"
            )));
        }
        let name = sandbox.name.clone();
        let reserve_error =
            |error: CriError| error.context(format!("failed to reserve sandbox name {name:?}"));
        let sandbox = self.sandboxes.add(sandbox).map_err(reserve_error)?;
        self.publish(&sandbox.id, &sandbox.id, Event::ContainerCreatedEvent);
        self.publish(&sandbox.id, &sandbox.id, Event::ContainerStartedEvent);
        Ok(sandbox.id.clone())
    }

    /// Makes a sandbox not ready, and kills the containers in it.
    pub(super) async fn stop_sandbox(&self, sandbox: &ProcrunSandbox) -> Result<(), CriError> {
        // A container that is about to start sees this, so it comes first.
        let was_ready = sandbox.end();
        for container in self.containers_of(&sandbox.id) {
            let stopped = self.stop(&container, 0).await;
            stopped.map_err(|error| error.context(format!("failed to stop container {:?}", container.id)))?;
        }
        if was_ready {
            self.publish(&sandbox.id, &sandbox.id, Event::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// Removes a sandbox and its containers. No container can be created in it from here on, unless
    /// the removal fails.
    pub(super) async fn remove_sandbox(&self, sandbox: &ProcrunSandbox) -> Result<(), CriError> {
        let _removal = sandbox.begin_removal().await;
        // If another caller has removed the sandbox, the steps below find nothing to do.
        let removed = self.remove_containers(sandbox).await;
        if removed.is_err() {
            sandbox.give_up_removal();
        } else if self.sandboxes.remove(sandbox) {
            self.publish(&sandbox.id, &sandbox.id, Event::ContainerDeletedEvent);
        }
        removed
    }

    async fn remove_containers(&self, sandbox: &ProcrunSandbox) -> Result<(), CriError> {
        let stopped = self.stop_sandbox(sandbox).await;
        stopped
            .map_err(|error| error.context(format!("failed to forcibly stop sandbox {:?}", sandbox.id)))?;
        for container in self.containers_of(&sandbox.id) {
            // A start that is in progress sees that the sandbox has ended.
            container.wait_not_starting().await;
            let removed = self.remove(&container).await;
            removed
                .map_err(|error| error.context(format!("failed to remove container {:?}", container.id)))?;
        }
        Ok(())
    }

    /// Returns the sandboxes that the filter selects.
    pub(super) fn list_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Vec<Arc<ProcrunSandbox>> {
        let mut filter = filter.unwrap_or_default();
        if let Ok(found) = self.sandboxes.get(&filter.id) {
            filter.id.clone_from(&found.id);
        }
        self.sandboxes.select(|sandbox| sandbox.matches(&filter))
    }

    /// Returns the containers that the filter selects.
    pub(super) fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Vec<Arc<ProcrunContainer>> {
        let mut filter = filter.unwrap_or_default();
        if let Ok(found) = self.containers.get(&filter.id) {
            filter.id.clone_from(&found.id);
        }
        if let Ok(found) = self.sandboxes.get(&filter.pod_sandbox_id) {
            filter.pod_sandbox_id.clone_from(&found.id);
        }
        self.containers.select(|container| container.matches(&filter))
    }

    /// Returns the containers of a sandbox.
    pub(super) fn containers_of(&self, sandbox: &str) -> Vec<Arc<ProcrunContainer>> {
        self.containers.select(|container| container.sandbox == sandbox)
    }

    /// Publishes an event about a container, or about a sandbox if `id` is the sandbox's.
    pub(super) fn publish(&self, id: &str, sandbox: &str, event: Event) {
        self.events.publish(|| v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: event.into(),
            created_at: clock::now(),
            pod_sandbox_status: self.sandboxes.get(sandbox).ok().map(|sandbox| sandbox.status()),
            containers_statuses: self
                .containers_of(sandbox)
                .iter()
                .map(|container| container.status())
                .collect(),
        });
    }

    /// Ends all containers and removes their directories.
    pub(super) async fn shut_down(&self) {
        self.exit_watchers.close();
        let ended = async {
            self.monitors.shut_down().await;
            self.exit_watchers.wait().await;
        };
        if timeout(KILL_TIMEOUT, ended).await.is_err() {
            warn!("some processes did not die of SIGKILL and are left behind");
        }
        self.root.clear().await;
    }
}
