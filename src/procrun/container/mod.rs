//! A container: its configuration, its stage, and its backend.

mod cri;
mod resources;
mod state;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;

use super::clock;
use super::error::CriError;
use super::images::Image;
use super::log::LogFile;
use super::monitor::Monitor;
use super::store::Keyed;
use crate::cri::v1;
use state::ContainerFsm;

pub(super) use state::{ContainerExit, ContainerStage};

/// A container that exists in the runtime.
#[derive(Debug)]
pub(super) struct ProcrunContainer {
    pub(super) id: String,
    /// Name, unique among all containers.
    pub(super) name: String,
    /// Id of the container's sandbox.
    pub(super) sandbox: String,
    pub(super) config: v1::ContainerConfig,
    pub(super) image: Arc<Image>,
    /// Path of the log; `None` if the container has no log.
    pub(super) log_path: Option<PathBuf>,
    /// Directory of the container, which contains its working directory.
    pub(super) dir: PathBuf,
    /// Backend, set when the container starts.
    pub(super) backend: OnceLock<ContainerBackend>,
    created_at: i64,
    state: Mutex<ContainerFsm>,
    resources: Mutex<Option<v1::LinuxContainerResources>>,
    /// Notifies of each change of the stage.
    state_changed: watch::Sender<()>,
}

/// Backend that runs a container.
#[derive(Debug)]
pub(super) enum ContainerBackend {
    /// Processes below a monitor.
    Processes {
        /// Monitor of the processes.
        monitor: Monitor,
        /// First process of the container.
        first: InitProcess,
        /// Log of the processes' output.
        log: Arc<LogFile>,
    },
    /// No process: procrun itself answers ExecSync.
    Synthetic,
}

/// First process of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitProcess {
    /// Number of the process in the protocol of its monitor.
    pub(super) number: u64,
    /// Process id.
    pub(super) pid: i32,
}

/// Parameters of a new container.
#[derive(Debug)]
pub(super) struct ContainerParams {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) sandbox: String,
    pub(super) config: v1::ContainerConfig,
    pub(super) image: Arc<Image>,
    pub(super) log_path: Option<PathBuf>,
    pub(super) dir: PathBuf,
}

impl ProcrunContainer {
    /// Returns a container in the stage `Created`.
    pub(super) fn new(params: ContainerParams) -> Self {
        let ContainerParams { id, name, sandbox, config, image, log_path, dir } = params;
        let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        Self {
            id,
            name,
            sandbox,
            config,
            image,
            log_path,
            dir,
            backend: OnceLock::new(),
            created_at: clock::now(),
            state: Mutex::default(),
            resources: Mutex::new(resources),
            state_changed: watch::Sender::new(()),
        }
    }

    /// Returns the current stage.
    pub(super) fn stage(&self) -> ContainerStage {
        self.life().stage.clone()
    }

    /// Marks the container as starting. Fails unless its stage is `Created`, or if it is being
    /// removed.
    pub(super) fn begin_start(&self) -> Result<(), CriError> {
        self.life().start_started()
    }

    /// Marks the container as running since `at`, in nanoseconds since 1970.
    pub(super) fn mark_running(&self, at: i64) {
        self.life().run(at);
        self.state_changed.send_replace(());
    }

    /// Marks the container as exited at `at`, in nanoseconds since 1970.
    pub(super) fn mark_exited(&self, at: i64, outcome: ContainerExit) {
        self.life().end(at, outcome);
        self.state_changed.send_replace(());
    }

    /// Waits until the container has exited.
    pub(super) async fn ended(&self) {
        self.wait_until(|stage| matches!(stage, ContainerStage::Exited { .. })).await;
    }

    /// Waits while the container is starting.
    pub(super) async fn wait_not_starting(&self) {
        self.wait_until(|stage| *stage != ContainerStage::Starting).await;
    }

    async fn wait_until(&self, is_there: impl Fn(&ContainerStage) -> bool) {
        let mut changes = self.state_changed.subscribe();
        while !is_there(&self.life().stage) {
            let _ = changes.changed().await;
        }
    }

    /// Marks the container as being removed. Fails while the container starts or runs, or if it is
    /// already being removed.
    pub(super) fn begin_removal(&self) -> Result<(), CriError> {
        self.life().begin_removal()
    }

    /// Removes the mark of [`Self::begin_removal`] after the removal has failed.
    pub(super) fn has_not_been_removed(&self) {
        self.life().abort_removal();
    }

    /// Whether the stop signal is still to be sent. Returns true once.
    pub(super) fn takes_stop_signal(&self) -> bool {
        self.life().takes_stop_signal()
    }

    /// Records a change of the container's resources. Fails if the container is being removed.
    pub(super) fn update_resources(
        &self,
        update: Option<v1::LinuxContainerResources>,
    ) -> Result<(), CriError> {
        if self.life().is_removing() {
            return Err(CriError::unknown(format!("container {:?} is in removing state", self.id)));
        }
        if let Some(update) = update {
            let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
            *resources = Some(resources::updated(resources.take().unwrap_or_default(), update));
        }
        Ok(())
    }

    fn resources(&self) -> Option<v1::ContainerResources> {
        let linux = self.resources.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(v1::ContainerResources { linux: Some(linux), windows: None })
    }

    fn life(&self) -> MutexGuard<'_, ContainerFsm> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keyed for ProcrunContainer {
    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the unique name of a container: `container_pod_namespace_uid_attempt`.
pub(super) fn name(
    metadata: Option<&v1::ContainerMetadata>,
    sandbox: Option<&v1::PodSandboxMetadata>,
) -> Result<String, CriError> {
    let own = metadata.ok_or_else(|| CriError::unknown("container config must include metadata"))?;
    let pod = sandbox.ok_or_else(|| CriError::unknown("pod sandbox config must include metadata"))?;
    Ok(format!("{}_{}_{}_{}_{}", own.name, pod.name, pod.namespace, pod.uid, own.attempt))
}
