//! ExecSyncs that run without the runtime: which calls may, and the interface of their executor.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use prometheus_client::registry::Registry;
use prost::Message as _;
use tonic::Status;

use super::forward_kind::ForwardKind;
use super::metrics::DirectMetrics;
use super::target::Target;
use crate::cri::framed_message;
use crate::cri::v1::ExecSyncResponse;
use crate::exec_output::exec_timeout;
use crate::probe::Selector;
use crate::relay::{DirectMark, DirectTimes, MarkSet, UnaryResponse};

/// Way in which ExecSyncs are executed. `--help` prints the comments of the variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExecMode {
    /// The runtime executes every command
    #[default]
    Runtime,
    /// probeshim executes the commands of exec probes itself, in containers where its processes
    /// equal those of the runtime
    Direct,
    /// As direct, for every ExecSync
    DirectAll,
}

/// Settings of direct exec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectSettings {
    /// Calls that run without the runtime.
    pub mode: ExecMode,
    /// Containers whose calls do.
    pub selector: Selector,
}

/// The settings of direct exec, and the executor. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectPolicies(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether calls may run without the runtime. Otherwise, calls take no lock.
    is_active: AtomicBool,
    settings: Mutex<Arc<DirectSettings>>,
    executor: OnceLock<Arc<dyn DirectExecutor>>,
    metrics: DirectMetrics,
}

/// The policy of direct exec, if it is active.
#[derive(Clone, Debug)]
pub(super) struct DirectPolicy {
    settings: Arc<DirectSettings>,
    executor: Arc<dyn DirectExecutor>,
    metrics: DirectMetrics,
}

/// A call that the policy has selected.
#[derive(Debug)]
pub(super) struct DirectCall {
    executor: Arc<dyn DirectExecutor>,
    metrics: DirectMetrics,
    request: DirectRequest,
}

/// A command to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectRequest {
    /// Id of the container.
    pub container: Arc<str>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Timeout of the command; `None` for no timeout.
    pub timeout: Option<Duration>,
}

/// Result of a request.
pub enum DirectOutcome {
    /// The command was executed: the response, and the times of its process.
    Executed(Result<ExecSyncResponse, Status>, Option<DirectTimes>),
    /// Nothing was executed, so the runtime has to.
    Forwarded {
        /// Kind of the reason.
        kind: ForwardKind,
        /// Reason for which nothing was executed.
        reason: Arc<str>,
        /// Kept until the runtime has answered.
        guard: Option<Box<dyn Any + Send>>,
    },
}

/// Verification of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectContainer {
    /// Id of the container.
    pub id: Arc<str>,
    /// State: `unverified`, `recorded`, `verified` or `forwarded`.
    pub state: &'static str,
    /// Number of attempts to record a process of the runtime, if the container is unverified.
    pub attempts: u32,
    /// Reason for which the runtime executes all commands, or for which the last command was
    /// neither recorded nor executed; `None` without one, and once the container is verified.
    pub reason: Option<String>,
}

/// Executes commands in containers without the runtime.
pub trait DirectExecutor: fmt::Debug + Send + Sync {
    /// Executes a command. Dropping the future kills it.
    fn execute(&self, request: DirectRequest) -> Pin<Box<dyn Future<Output = DirectOutcome> + Send>>;

    /// Returns the containers of which commands were requested.
    fn containers(&self) -> Vec<DirectContainer>;

    /// Stops to execute commands, until another is requested.
    fn stop(&self);
}

impl DirectPolicies {
    pub(super) fn set_executor(&self, executor: Arc<dyn DirectExecutor>) {
        // The executor is set once, at the start.
        let _ = self.0.executor.set(executor);
        self.set(self.settings());
    }

    /// Changes the settings. The executor stops if no call may run without the runtime any more.
    pub(super) fn set(&self, settings: DirectSettings) {
        let executor = self.0.executor.get();
        let is_active = settings.mode != ExecMode::Runtime && executor.is_some();
        *self.lock() = Arc::new(settings);
        let was_active = self.0.is_active.swap(is_active, Ordering::Relaxed);
        if let Some(executor) = executor.filter(|_| was_active && !is_active) {
            executor.stop();
        }
    }

    /// Returns the containers of which commands were requested, sorted by id.
    pub(super) fn containers(&self) -> Vec<DirectContainer> {
        let executor = self.0.executor.get().filter(|_| self.0.is_active.load(Ordering::Relaxed));
        let mut containers = executor.map_or_else(Vec::new, |executor| executor.containers());
        containers.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        containers
    }

    pub(super) fn settings(&self) -> DirectSettings {
        (**self.lock()).clone()
    }

    /// Returns the policy, if calls may run without the runtime.
    pub(super) fn active(&self) -> Option<DirectPolicy> {
        let executor = self.0.executor.get().filter(|_| self.0.is_active.load(Ordering::Relaxed))?;
        let (settings, metrics) = (self.lock().clone(), self.0.metrics.clone());
        Some(DirectPolicy { settings, executor: executor.clone(), metrics })
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.0.metrics.register(registry);
    }

    fn lock(&self) -> MutexGuard<'_, Arc<DirectSettings>> {
        self.0.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectPolicy {
    /// Returns the call if the policy selects it. `is_probe` returns whether it is an exec probe.
    pub(super) fn call(&self, target: &Target, is_probe: impl FnOnce() -> bool) -> Option<DirectCall> {
        let Self { settings, executor, metrics } = self;
        let (argv, timeout) = target.exec()?;
        let id = target.container_id()?;
        let is_selected = settings.selector.matches_names(target.names(), |key| target.label(key));
        if !is_selected || (settings.mode != ExecMode::DirectAll && !is_probe()) {
            return None;
        }
        let timeout = exec_timeout(timeout);
        let request = DirectRequest { container: id.into(), argv: argv.to_vec(), timeout };
        Some(DirectCall { executor: executor.clone(), metrics: metrics.clone(), request })
    }
}

impl DirectCall {
    /// Executes the command. Returns the response, or the guard of a call that the runtime has to
    /// execute. `marks` receives the result.
    pub(super) async fn execute(self, marks: &MarkSet) -> Result<UnaryResponse, Option<Box<dyn Any + Send>>> {
        marks.set_direct(DirectMark::Executed(None));
        match self.executor.execute(self.request).await {
            DirectOutcome::Executed(response, times) => {
                self.metrics.executed.inc();
                marks.set_direct(DirectMark::Executed(times));
                Ok(match response {
                    Ok(response) => UnaryResponse::from_message(framed_message(&response.encode_to_vec())),
                    Err(status) => UnaryResponse::from_status(&status),
                })
            }
            DirectOutcome::Forwarded { kind, reason, guard } => {
                self.metrics.add_forwarded(kind);
                marks.set_direct(DirectMark::Forwarded(reason));
                Err(guard)
            }
        }
    }
}

impl fmt::Debug for DirectOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executed(response, times) => {
                f.debug_tuple("Executed").field(response).field(times).finish()
            }
            Self::Forwarded { reason, .. } => f.debug_tuple("Forwarded").field(reason).finish(),
        }
    }
}
