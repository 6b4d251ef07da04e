//! Start of containers, and the task that waits for their exit.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Engine;
use crate::containerd::TaskEvent;
use crate::cri::v1::ContainerEventType as Event;
use crate::gofmt::system_error;
use crate::procrun::clock;
use crate::procrun::container::{ContainerBackend, ContainerExit, InitProcess, ProcrunContainer};
use crate::procrun::error::CriError;
use crate::procrun::log::LogFile;
use crate::procrun::monitor::{MonitoredProcess, Orphan, StdStreams};
use crate::procrun::sandbox::ProcrunSandbox;

/// Time that a container whose first process has exited waits for the end of its output, which a
/// process outside the container may hold open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Prefix of containerd's error if the task of a container cannot be created.
const TASK: [&str; 1] = ["failed to create containerd task"];

/// Prefixes of containerd's error if runc cannot run the first process.
const RUNC: [&str; 4] = [
    "failed to create containerd task",
    "failed to create shim task",
    "OCI runtime create failed",
    "runc create failed",
];

/// A first process that was launched, and the tasks that read its output.
struct StartedProcess {
    at: i64,
    pid: i32,
    process: MonitoredProcess,
    output: JoinSet<()>,
}

impl Engine {
    /// Starts a container. A container that cannot be started becomes exited, as in containerd,
    /// with exit code 128 and reason `StartError`.
    pub(in crate::procrun) async fn start(self: Arc<Self>, id: String) -> Result<(), CriError> {
        let container = self.containers.get(&id);
        let container = container
            .map_err(|error| error.context(format!("an error occurred when try to find container {id:?}")))?;
        container.begin_start().map_err(|error| {
            error.context(format!("failed to set starting state for container {:?}", container.id))
        })?;
        match self.run(&container).await {
            Ok(()) => Ok(()),
            Err(error) => {
                container.mark_exited(clock::now(), ContainerExit::StartError(error.to_string()));
                Err(error)
            }
        }
    }

    async fn run(self: &Arc<Self>, container: &Arc<ProcrunContainer>) -> Result<(), CriError> {
        let sandbox = self
            .sandboxes
            .get(&container.sandbox)
            .map_err(|error| error.context(format!("sandbox {:?} not found", container.sandbox)))?;
        tokio::select! {
            () = sandbox.ended() => {}
            () = clock::sleep_if_nonzero(self.config.start_delay) => {}
        }
        check_ready(&sandbox)?;
        let started = if sandbox.is_synthetic {
            let _ = container.backend.set(ContainerBackend::Synthetic);
            None
        } else {
            Some(self.launch(container).await?)
        };
        container.mark_running(started.as_ref().map_or_else(clock::now, |started| started.at));
        if let Some(StartedProcess { at, pid, .. }) = started {
            let id = || container.id.clone();
            self.task_events
                .publish_task(at, || TaskEvent::Started { container: id(), pid: pid.unsigned_abs() });
        }
        self.publish(&container.id, &container.sandbox, Event::ContainerStartedEvent);
        if let Some(started) = started {
            self.exit_watchers.spawn(self.clone().watch(container.clone(), started));
        }
        // A stop of the sandbox in the meantime has skipped this container, which was not running.
        if let Err(error) = check_ready(&sandbox) {
            self.stop(container, 0).await?;
            return Err(error);
        }
        Ok(())
    }

    /// Launches the first process of a container below a new monitor.
    async fn launch(&self, container: &Arc<ProcrunContainer>) -> Result<StartedProcess, CriError> {
        let log = LogFile::open(container.log_path.clone())
            .await
            .map_err(|error| error.context("failed to create container loggers").with_path(&TASK))?;
        let config = &container.config;
        let args = config.command.iter().chain(&config.args).cloned().collect();
        let command = self.command(container, args).map_err(|error| error.with_path(&RUNC))?;
        let (owner, name, dir) = (container.clone(), &container.name, &container.dir);
        let monitor =
            self.monitors.start(name, dir, move |orphan| report(&owner, &orphan)).map_err(|error| {
                CriError::unknown(system_error(&error)).context("cannot start a monitor").with_path(&TASK)
            })?;
        let streams =
            StdStreams::new().map_err(|error| CriError::unknown(system_error(&error)).with_path(&TASK))?;
        let mut process = monitor.launch(command, streams.theirs);
        let start = process.start().await.map_err(|error| {
            CriError::unknown(error.to_string()).context("unable to start container process").with_path(&RUNC)
        })?;
        let log = Arc::new(log);
        let mut output = JoinSet::new();
        output.spawn(log.clone().follow("stdout", streams.stdout));
        output.spawn(log.clone().follow("stderr", streams.stderr));
        let first = InitProcess { number: process.number, pid: start.pid };
        let _ = container.backend.set(ContainerBackend::Processes { monitor, first, log });
        Ok(StartedProcess { at: start.at, pid: start.pid, process, output })
    }

    /// Waits for the exit of a container and for the end of its output, and publishes the event.
    async fn watch(self: Arc<Self>, container: Arc<ProcrunContainer>, started: StartedProcess) {
        let StartedProcess { pid, mut process, output, .. } = started;
        let exit = process.exit().await;
        let (at, outcome) = match exit {
            Some(exit) => (exit.at, ContainerExit::Code(exit.code)),
            None => (clock::now(), ContainerExit::MonitorKilled),
        };
        self.task_events.publish_task(at, || {
            let (pid, status) = (pid.unsigned_abs(), outcome.exit_code().unsigned_abs());
            TaskEvent::Exit { container: container.id.clone(), pid, status }
        });
        if timeout(OUTPUT_GRACE, output.join_all()).await.is_err() {
            warn!(container = %container.id, "output is held by another process and no longer read");
        }
        if let Some(ContainerBackend::Processes { log, .. }) = container.backend.get() {
            log.close().await;
        }
        container.mark_exited(at, outcome);
        self.publish(&container.id, &container.sandbox, Event::ContainerStoppedEvent);
    }
}

fn check_ready(sandbox: &ProcrunSandbox) -> Result<(), CriError> {
    if sandbox.is_ready() {
        return Ok(());
    }
    Err(CriError::unknown(format!("sandbox container {:?} is not running", sandbox.id)))
}

fn report(container: &ProcrunContainer, orphan: &Orphan) {
    info!(
        container = %container.id, name = container.name,
        pid = orphan.pid, program = orphan.program, exit = orphan.code,
        "process that had left the container's process groups exited"
    );
}
