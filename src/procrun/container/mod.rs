//! A container: its configuration, where it is in its life, and what runs it.

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

/// A container.
#[derive(Debug)]
pub(super) struct ProcrunContainer {
    pub(super) id: String,
    /// The name that no other may have.
    pub(super) name: String,
    /// The id of its sandbox.
    pub(super) sandbox: String,
    pub(super) config: v1::ContainerConfig,
    pub(super) image: Arc<Image>,
    /// Where its logs go, if anywhere.
    pub(super) log_path: Option<PathBuf>,
    /// Its own folder, in which its working directory is.
    pub(super) dir: PathBuf,
    /// Its backend, set when it starts.
    pub(super) backend: OnceLock<ContainerBackend>,
    created_at: i64,
    state: Mutex<ContainerFsm>,
    resources: Mutex<Option<v1::LinuxContainerResources>>,
    /// Told of each change in its life.
    state_changed: watch::Sender<()>,
}

/// What runs a container.
#[derive(Debug)]
pub(super) enum ContainerBackend {
    /// Processes, below a monitor.
    Processes {
        /// Their monitor.
        monitor: Monitor,
        /// The first of them.
        first: InitProcess,
        /// Where their output goes.
        log: Arc<LogFile>,
    },
    /// Nothing: it only answers.
    Synthetic,
}

/// The first process of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitProcess {
    /// The number by which its monitor knows it.
    pub(super) number: u64,
    /// Its process id.
    pub(super) pid: i32,
}

/// What a new container is made of.
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
    /// A container that is created.
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

    /// Where it is in its life.
    pub(super) fn stage(&self) -> ContainerStage {
        self.life().stage.clone()
    }

    /// Marks it as starting.
    pub(super) fn begin_start(&self) -> Result<(), CriError> {
        self.life().start_started()
    }

    /// It runs.
    pub(super) fn mark_running(&self, at: i64) {
        self.life().run(at);
        self.state_changed.send_replace(());
    }

    /// It has ended.
    pub(super) fn mark_exited(&self, at: i64, outcome: ContainerExit) {
        self.life().end(at, outcome);
        self.state_changed.send_replace(());
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) {
        self.wait_until(|stage| matches!(stage, ContainerStage::Exited { .. })).await;
    }

    /// Waits until a start that is under way has come to its end.
    pub(super) async fn wait_not_starting(&self) {
        self.wait_until(|stage| *stage != ContainerStage::Starting).await;
    }

    async fn wait_until(&self, is_there: impl Fn(&ContainerStage) -> bool) {
        let mut changes = self.state_changed.subscribe();
        while !is_there(&self.life().stage) {
            let _ = changes.changed().await;
        }
    }

    /// Marks it as being removed.
    pub(super) fn begin_removal(&self) -> Result<(), CriError> {
        self.life().begin_removal()
    }

    /// It is still there.
    pub(super) fn has_not_been_removed(&self) {
        self.life().abort_removal();
    }

    /// Whether its stop signal is still to be sent; true once.
    pub(super) fn takes_stop_signal(&self) -> bool {
        self.life().takes_stop_signal()
    }

    /// Records what it may use.
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

/// The name that no other container may have: its own and that of its sandbox, and its attempt.
pub(super) fn name(
    metadata: Option<&v1::ContainerMetadata>,
    sandbox: Option<&v1::PodSandboxMetadata>,
) -> Result<String, CriError> {
    let own = metadata.ok_or_else(|| CriError::unknown("container config must include metadata"))?;
    let pod = sandbox.ok_or_else(|| CriError::unknown("pod sandbox config must include metadata"))?;
    Ok(format!("{}_{}_{}_{}_{}", own.name, pod.name, pod.namespace, pod.uid, own.attempt))
}
