//! The runtime itself: its sandboxes, its containers, its images, and what is told of them.

use std::io;
use std::sync::Arc;

use super::Settings;
use super::clock;
use super::container::{Container, Runs, State};
use super::events::Events;
use super::guardian::Guardians;
use super::images::Images;
use super::refusal::Refusal;
use super::root::Root;
use super::sandbox::Sandbox;
use super::store::Store;
use crate::cri::v1::{self, ContainerEventType as Event};

/// Everything that a runtime is made of.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) settings: Settings,
    pub(super) root: Root,
    pub(super) guardians: Guardians,
    pub(super) sandboxes: Store<Sandbox>,
    pub(super) containers: Store<Container>,
    pub(super) images: Images,
    pub(super) events: Events,
}

impl Engine {
    /// A runtime without pods, but for those that only answer.
    pub(super) fn new(settings: Settings) -> io::Result<Arc<Self>> {
        let engine = Self {
            root: Root::claim(&settings.root)?,
            guardians: Guardians::of(settings.guardian.clone()),
            settings,
            sandboxes: Store::default(),
            containers: Store::default(),
            images: Images::default(),
            events: Events::default(),
        };
        engine.make_synthetic();
        Ok(Arc::new(engine))
    }

    /// Makes a sandbox, ready at once.
    pub(super) fn run_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<String, Refusal> {
        let config = request.config.unwrap_or_default();
        let sandbox = Sandbox::new(config, false)?;
        if !request.runtime_handler.is_empty() {
            let (id, handler) = (&sandbox.id, request.runtime_handler);
            return Err(Refusal::unknown(format!(
                "unable to get OCI runtime for sandbox {id:?}: no runtime for {handler:?} is configured"
            )));
        }
        let name = sandbox.name.clone();
        let sandbox = self
            .sandboxes
            .add(sandbox)
            .map_err(|refusal| refusal.when(format!("failed to reserve sandbox name {name:?}")))?;
        self.tell(&sandbox.id, &sandbox.id, Event::ContainerCreatedEvent);
        self.tell(&sandbox.id, &sandbox.id, Event::ContainerStartedEvent);
        Ok(sandbox.id.clone())
    }

    /// Kills what runs in a sandbox, and makes it not ready.
    pub(super) async fn stop_sandbox(&self, sandbox: &Sandbox) -> Result<(), Refusal> {
        for container in self.containers_of(&sandbox.id) {
            let stopped = self.stop(&container, 0).await;
            stopped
                .map_err(|refusal| refusal.when(format!("failed to stop container {:?}", container.id)))?;
        }
        if sandbox.end() {
            self.tell(&sandbox.id, &sandbox.id, Event::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// Removes a sandbox, with all that is in it.
    pub(super) async fn remove_sandbox(&self, sandbox: &Sandbox) -> Result<(), Refusal> {
        let stopped = self.stop_sandbox(sandbox).await;
        stopped
            .map_err(|refusal| refusal.when(format!("failed to forcibly stop sandbox {:?}", sandbox.id)))?;
        for container in self.containers_of(&sandbox.id) {
            let removed = self.remove(&container).await;
            removed
                .map_err(|refusal| refusal.when(format!("failed to remove container {:?}", container.id)))?;
        }
        if self.sandboxes.remove(sandbox) {
            self.tell(&sandbox.id, &sandbox.id, Event::ContainerDeletedEvent);
        }
        Ok(())
    }

    /// The sandboxes that a filter lets through.
    pub(super) fn list_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Vec<Arc<Sandbox>> {
        let mut filter = filter.unwrap_or_default();
        if let Ok(meant) = self.sandboxes.get(&filter.id) {
            filter.id.clone_from(&meant.id);
        }
        self.sandboxes.select(|sandbox| sandbox.is_in(&filter))
    }

    /// The containers that a filter lets through.
    pub(super) fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Vec<Arc<Container>> {
        let mut filter = filter.unwrap_or_default();
        if let Ok(meant) = self.containers.get(&filter.id) {
            filter.id.clone_from(&meant.id);
        }
        if let Ok(meant) = self.sandboxes.get(&filter.pod_sandbox_id) {
            filter.pod_sandbox_id.clone_from(&meant.id);
        }
        self.containers.select(|container| container.is_in(&filter))
    }

    /// The containers of a sandbox.
    pub(super) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.containers.select(|container| container.sandbox == sandbox)
    }

    /// Tells subscribers what has become of a container, or of a sandbox by its own id.
    pub(super) fn tell(&self, id: &str, sandbox: &str, event: Event) {
        self.events.tell(|| v1::ContainerEventResponse {
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

    /// Ends everything that runs, and removes every folder.
    pub(super) async fn shut_down(&self) {
        self.guardians.end().await;
        self.root.clear();
    }

    /// Fills the runtime with pods of one container each that answer without a process.
    fn make_synthetic(&self) {
        for number in 0..self.settings.synthetic {
            let (name, uid) =
                (format!("synthetic-{number}"), format!("00000000-0000-0000-0000-{number:012}"));
            let labels = |more: &[(&str, &str)]| {
                let pod = [
                    ("io.kubernetes.pod.name", name.as_str()),
                    ("io.kubernetes.pod.namespace", "synthetic"),
                    ("io.kubernetes.pod.uid", &uid),
                ];
                let all = pod.iter().chain(more);
                all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
            };
            let pod = v1::PodSandboxConfig {
                metadata: Some(v1::PodSandboxMetadata {
                    name: name.clone(),
                    uid: uid.clone(),
                    namespace: "synthetic".to_owned(),
                    attempt: 0,
                }),
                labels: labels(&[]),
                ..v1::PodSandboxConfig::default()
            };
            let config = v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
                image: Some(v1::ImageSpec { image: "synthetic".to_owned(), ..v1::ImageSpec::default() }),
                labels: labels(&[("io.kubernetes.container.name", "main")]),
                ..v1::ContainerConfig::default()
            };
            let made = Sandbox::new(pod.clone(), true).and_then(|sandbox| {
                let sandbox = self.sandboxes.add(sandbox)?;
                let container = self.create(v1::CreateContainerRequest {
                    pod_sandbox_id: sandbox.id.clone(),
                    config: Some(config),
                    sandbox_config: Some(pod),
                })?;
                container.begin_start()?;
                let _ = container.runs.set(Runs::Nothing);
                container.has_started(None);
                Ok(())
            });
            made.expect("nothing else has these names");
        }
    }

    /// A container that runs, for those who need one that does.
    pub(super) fn running(&self, id: &str) -> Result<Arc<Container>, Refusal> {
        let container = self
            .containers
            .get(id)
            .map_err(|refusal| refusal.when(format!("failed to find container {id:?} in store")))?;
        match container.state() {
            State::Running => Ok(container),
            other => Err(Refusal::unknown(format!("container is in {} state", other.name()))),
        }
    }
}
