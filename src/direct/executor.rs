//! Executes commands in containers by the helper, once a container is verified.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use exec_helper::text::shortened;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;
use tracing::{debug, info, warn};

use super::exec::{DirectCommand, ExecResult, ProcessTimes};
use super::helper_process::HelperProcess;
use super::init_process::InitError;
use super::inspection::{InspectError, Inspected, inspect};
use super::process_lists::ProcessLists;
use super::requested_container::RequestedContainer;
use super::verification::{Argv, ForwardReason, MAX_REASON_BYTES, Route, UNVERIFIED};
use crate::cri::MeteredRuntimeClient;
use crate::cri::v1::ExecSyncResponse;
use crate::file_id::FileId;
use crate::policy::{DirectContainer, DirectExecutor, DirectOutcome, DirectRequest, ForwardKind};
use crate::relay::DirectTimes;

/// Minimum time between two starts of the helper.
const START_INTERVAL: Duration = Duration::from_secs(1);

/// Executes commands by the helper. Clones share it.
#[derive(Clone, Debug)]
pub struct HelperExecutor {
    shared: Arc<ExecutorState>,
    /// The runtime of the tasks that execute commands.
    tasks: Handle,
}

#[derive(Debug)]
struct ExecutorState {
    client: MeteredRuntimeClient,
    /// Path of the runtime's socket, which a restarted runtime creates again.
    socket: PathBuf,
    /// The lists of the processes of helpers.
    lists: ProcessLists,
    helper: Mutex<HelperSlot>,
    containers: Mutex<HashMap<Arc<str>, Arc<RequestedContainer>>>,
}

/// The helper, if it runs.
#[derive(Debug, Default)]
struct HelperSlot {
    helper: Option<Arc<HelperProcess>>,
    /// Time of the last start, and its error.
    last_start: Option<(Instant, Option<Arc<str>>)>,
}

/// A command that was executed.
struct Executed {
    response: Result<ExecSyncResponse, Status>,
    times: Option<DirectTimes>,
}

/// A command that the runtime has to execute.
struct Forward {
    kind: ForwardKind,
    reason: String,
    /// Kept until the runtime has answered.
    guard: Option<DropGuard>,
}

impl DirectExecutor for HelperExecutor {
    fn execute(&self, request: DirectRequest) -> Pin<Box<dyn Future<Output = DirectOutcome> + Send>> {
        let (shared, cancelled) = (self.shared.clone(), CancellationToken::new());
        let (guard, container) = (cancelled.clone().drop_guard(), request.container.clone());
        // The task continues after the future was dropped, to kill the command.
        let task = self.tasks.spawn(async move { shared.execute(request, &cancelled).await });
        Box::pin(async move {
            // A task that panicked may have executed the command, so the runtime must not.
            let result = task.await.unwrap_or_else(|error| {
                let response =
                    Err(Status::internal(format!("probeshim failed to execute the command: {error}")));
                Ok(Executed { response, times: None })
            });
            drop(guard);
            match result {
                Ok(Executed { response, times }) => DirectOutcome::Executed(response, times),
                Err(Forward { kind, reason, guard }) => {
                    debug!(%container, reason, "the runtime executes a command");
                    let guard = guard.map(|guard| Box::new(guard) as Box<dyn Any + Send>);
                    DirectOutcome::Forwarded { kind, reason: reason.into(), guard }
                }
            }
        })
    }

    fn containers(&self) -> Vec<DirectContainer> {
        self.shared.states()
    }

    fn stop(&self) {
        // The helper ends after the commands that it runs.
        *lock(&self.shared.helper) = HelperSlot::default();
        lock(&self.shared.containers).clear();
    }
}

impl HelperExecutor {
    /// Creates an executor, whose tasks run on the current runtime. It starts the helper at the
    /// first command. Ends the commands that an earlier probeshim with the same admin socket has
    /// left behind.
    #[must_use]
    pub fn new(client: MeteredRuntimeClient, socket: PathBuf, admin_socket: &Path) -> Self {
        let (lists, tasks) = (ProcessLists::beside(admin_socket), Handle::current());
        let left_behind = lists.clone();
        tasks.spawn_blocking(move || left_behind.end_left_behind());
        let (helper, containers) = Default::default();
        let shared = ExecutorState { client, socket, lists, helper, containers };
        Self { shared: Arc::new(shared), tasks }
    }
}

impl ExecutorState {
    async fn execute(
        self: Arc<Self>,
        request: DirectRequest,
        cancelled: &CancellationToken,
    ) -> Result<Executed, Forward> {
        let requested = SystemTime::now();
        let helper = self.helper().map_err(|reason| not_started(&reason))?;
        let container = self.container(&request.container);
        let argv: Argv = request.argv.into_iter().map(String::into_bytes).collect();
        let route = container.lock().route(&argv);
        if let Route::Forward(kind, reason) = route {
            return Err(Forward { kind, reason, guard: None });
        }
        let inspected = container.inspected.get();
        let inspected = inspected.ok_or_else(|| unverified("the container is being inspected"))?;
        if let Err(error) = inspected.init.check() {
            if !matches!(error, InitError::Frozen) {
                self.forget(&container);
            }
            return Err(not_started(&error.to_string()));
        }
        let (record, compares) = match route {
            Route::Compare(record) => (record, true),
            Route::Direct(record) => (record, false),
            Route::Record | Route::Forward(..) => {
                return Err(self.record(&helper, &container, inspected, argv).await);
            }
        };
        if !record.has_same_runtime() {
            self.forget(&container);
            return Err(unverified("the OCI runtime has changed"));
        }
        let command = DirectCommand {
            launch: record.launch(argv, compares),
            timeout: request.timeout,
            init: &inspected.init,
            cgroup: record.cgroup.as_fd(),
            drain_limit: inspected.drain_limit,
        };
        match command.run(&helper, cancelled).await {
            ExecResult::Done(response, process) => {
                // Without times, the helper ended before it reported the comparison.
                if process.is_some() {
                    container.lock().on_executed();
                    if compares {
                        container.lock().on_equal(&record);
                        info!(container = %container.id, "direct exec: the container is verified");
                    }
                }
                Ok(Executed { response, times: process.map(|process| times(requested, process)) })
            }
            ExecResult::NotSent(reason) => Err(not_started(&reason)),
            ExecResult::NotStarted { reason, differences } if differences.is_empty() => {
                if !helper.has_ended() {
                    container.lock().on_failure(&reason);
                }
                Err(not_started(&reason))
            }
            ExecResult::NotStarted { differences, .. } => {
                let reason = ForwardReason::Differs(differences);
                warn!(container = %container.id, %reason, "direct exec: the runtime runs all commands of the container");
                let text = reason.to_string();
                container.lock().forward(reason);
                Err(Forward { kind: ForwardKind::Unsupported, reason: text, guard: None })
            }
        }
    }

    /// Returns the running helper, and starts it if necessary. The error is the reason of a
    /// failure.
    fn helper(&self) -> Result<Arc<HelperProcess>, String> {
        let mut slot = lock(&self.helper);
        if let Some(helper) = slot.helper.as_ref().filter(|helper| !helper.has_ended()) {
            return Ok(helper.clone());
        }
        if let Some((at, error)) = &slot.last_start
            && at.elapsed() < START_INTERVAL
        {
            let reason = error.as_deref().unwrap_or("it has ended, and is started again later");
            return Err(format!("the exec helper does not run: {reason}"));
        }
        let started = HelperProcess::start(&self.lists);
        let error = started.as_ref().err().map(|error| error.to_string().into());
        slot.last_start = Some((Instant::now(), error));
        slot.helper = started.as_ref().ok().cloned();
        started.map_err(|error| format!("the exec helper cannot be started: {error}"))
    }

    /// Returns the container with this id. Starts to inspect it if it is new, or if the runtime has
    /// been restarted.
    fn container(self: &Arc<Self>, id: &Arc<str>) -> Arc<RequestedContainer> {
        let socket = FileId::from_path(&self.socket).ok();
        let mut containers = lock(&self.containers);
        if let Some(known) = containers.get(id).filter(|known| known.is_current(socket)) {
            return known.clone();
        }
        let dropped = CancellationToken::new();
        let container = Arc::new(RequestedContainer::new(id.clone(), socket, dropped.clone()));
        containers.retain(|_, known| known.may_be_kept());
        containers.insert(id.clone(), container.clone());
        tokio::spawn(self.clone().inspect(container.clone(), dropped));
        container
    }

    /// Removes a container, so that its next command inspects it again.
    fn forget(&self, container: &Arc<RequestedContainer>) {
        let mut containers = lock(&self.containers);
        if containers.get(&container.id).is_some_and(|known| Arc::ptr_eq(known, container)) {
            containers.remove(&container.id);
        }
    }

    /// Requests the specification of a container and opens its init process. Forgets the container
    /// when that exits.
    async fn inspect(self: Arc<Self>, container: Arc<RequestedContainer>, dropped: CancellationToken) {
        let inspected = match inspect(&self.client, &container.id).await {
            Ok(inspected) => inspected,
            Err(InspectError::Unavailable) => return self.forget(&container),
            Err(InspectError::Unsupported(reason)) => {
                return container.lock().forward(ForwardReason::Unsupported(reason));
            }
        };
        // The receiver only waits until the pidfd is readable, which needs no pipe.
        let pidfd = inspected.init.pidfd.try_clone().and_then(pipe::Receiver::from_owned_fd_unchecked);
        let _ = container.inspected.set(inspected);
        let Ok(exit) = pidfd else { return };
        // The task must not keep a container that was forgotten meanwhile, nor its descriptors.
        let weak = Arc::downgrade(&container);
        drop(container);
        tokio::select! {
            _ = exit.readable() => if let Some(container) = weak.upgrade() {
                self.forget(&container);
            },
            () = dropped.cancelled() => {}
        }
    }

    /// Lets the runtime run a command, and records its process.
    async fn record(
        &self,
        helper: &Arc<HelperProcess>,
        container: &Arc<RequestedContainer>,
        inspected: &Inspected,
        argv: Argv,
    ) -> Forward {
        if container.recording.swap(true, Ordering::Relaxed) {
            return unverified("another command is being recorded");
        }
        container.lock().on_attempt();
        let watched = async {
            let cgroups = inspected.init.watched_cgroups().map_err(|error| error.to_string())?;
            let watch = helper.watch(argv.clone(), inspected.init.pid, cgroups).await;
            watch.map_err(|error| format!("the exec helper cannot be reached: {error}"))
        };
        let watch = match watched.await {
            Ok(watch) => watch,
            Err(reason) => {
                container.recording.store(false, Ordering::Relaxed);
                return unverified(&reason);
            }
        };
        let answered = CancellationToken::new();
        let guard = Some(answered.clone().drop_guard());
        tokio::spawn(container.clone().finish_record(watch, argv, answered));
        Forward { guard, ..unverified("the process of the runtime is recorded") }
    }

    fn states(&self) -> Vec<DirectContainer> {
        lock(&self.containers).values().map(|container| container.state()).collect()
    }
}

fn times(requested: SystemTime, times: ProcessTimes) -> DirectTimes {
    let time = |nanoseconds: i64| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds.unsigned_abs());
    let ProcessTimes { created, executed, ended } = times;
    DirectTimes { requested, created: time(created), executed: time(executed), exited: time(ended) }
}

fn unverified(reason: &str) -> Forward {
    let reason = format!("{UNVERIFIED}{reason}");
    Forward { kind: ForwardKind::Unverified, reason, guard: None }
}

fn not_started(reason: &str) -> Forward {
    let reason = shortened(reason.as_bytes(), MAX_REASON_BYTES);
    Forward { kind: ForwardKind::NotStarted, reason, guard: None }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
