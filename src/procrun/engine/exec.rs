//! ExecSync, with the behaviour of containerd.

use std::sync::Arc;

use prost::Message as _;
use rustix::process::Signal;
use tokio::time::timeout;
use tracing::warn;

use super::Engine;
use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use crate::exec_output::{DrainError, OutputReader, exec_timeout, refused_length, timeout_message};
use crate::gofmt::system_error;
use crate::hex::random_id;
use crate::procrun::container::{ContainerBackend, ProcrunContainer};
use crate::procrun::error::CriError;
use crate::procrun::events::ExecEvents;
use crate::procrun::monitor::{Exit, LaunchError, Monitor, MonitoredProcess, SignalTarget, StdStreams};
use crate::procrun::{TimeoutKillScope, clock, signal};

/// A command that is being launched or runs. Dropping the value kills the command, for example when
/// the caller disconnects.
struct ExecProcess<'a> {
    monitor: &'a Monitor,
    number: u64,
    kill_scope: TimeoutKillScope,
    /// The process, until it has exited or could not be started.
    process: Option<ObservedProcess>,
}

/// A process, with the events about it.
struct ObservedProcess {
    process: MonitoredProcess,
    events: ExecEvents,
    /// Process id, once the process has started.
    pid: Option<i32>,
}

impl Engine {
    /// Runs a command in a container. Returns after the command has exited and its output has
    /// ended.
    pub(in crate::procrun) async fn exec_sync(
        &self,
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse, CriError> {
        let response =
            self.exec(request).await.map_err(|error| error.context("failed to exec in container"))?;
        match refused_length(response.encoded_len()) {
            Some(message) => Err(CriError::too_long(message)),
            None => Ok(response),
        }
    }

    async fn exec(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, CriError> {
        let container = self.require_running(&request.container_id)?;
        let has_process = matches!(container.backend.get(), Some(ContainerBackend::Processes { .. }));
        let events = has_process.then(|| ExecEvents::added(&self.task_events, &container.id, random_id()));
        clock::sleep_if_nonzero(self.config.exec_delay).await;
        // The container may have ended during the delay.
        let container = self.require_running(&container.id)?;
        match (container.backend.get(), events) {
            (Some(ContainerBackend::Processes { monitor, .. }), Some(events)) => {
                self.exec_process(&container, monitor, events, request).await
            }
            _ => Ok(synthetic_response(&request.cmd)),
        }
    }

    /// Returns the container with this id. Fails if it does not run.
    fn require_running(&self, id: &str) -> Result<Arc<ProcrunContainer>, CriError> {
        let container = self.containers.get(id);
        let container =
            container.map_err(|error| error.context(format!("failed to find container {id:?} in store")))?;
        let stage = container.stage();
        if !stage.is_running() {
            return Err(CriError::unknown(format!("container is in {} state", stage.name())));
        }
        Ok(container)
    }

    async fn exec_process(
        &self,
        container: &ProcrunContainer,
        monitor: &Monitor,
        events: ExecEvents,
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse, CriError> {
        let id = events.exec().to_owned();
        let not_started = |error: CriError| {
            error.with_path(&[
                &format!("failed to start exec {id:?}"),
                "OCI runtime exec failed",
                "exec failed",
            ])
        };
        let command = self.command(container, request.cmd).map_err(not_started)?;
        let streams =
            StdStreams::new().map_err(|error| not_started(CriError::unknown(system_error(&error))))?;
        // From here on the command is killed if the call fails or is cancelled.
        let process = monitor.launch(command, streams.theirs);
        let mut exec = ExecProcess {
            monitor,
            number: process.number,
            kill_scope: self.config.exec_timeout_kills,
            process: Some(ObservedProcess { process, events, pid: None }),
        };
        exec.start().await.map_err(|error| {
            not_started(CriError::unknown(error.to_string()).context("unable to start container process"))
        })?;
        let output = OutputReader::new(streams.stdout, streams.stderr);
        // The timeout begins when the command has started, as in containerd.
        let limit = exec_timeout(request.timeout);
        let exit = match limit {
            Some(limit) => timeout(limit, exec.wait_exit()).await.map_err(|_| limit),
            None => Ok(exec.wait_exit().await),
        };
        let not_drained = |error: DrainError| CriError::unknown(error.message(&id));
        let drain_limit = self.config.exec_io_drain_timeout;
        match exit {
            Ok(exit_code) => {
                let (stdout, stderr) = output.drain(drain_limit).await.map_err(not_drained)?;
                Ok(ExecSyncResponse { stdout, stderr, exit_code })
            }
            Err(limit) => {
                exec.kill();
                exec.wait_exit().await;
                if let Err(reason) = output.drain(drain_limit).await.map_err(not_drained) {
                    warn!(container = %container.id, %reason, "exec timed out and its output did not end");
                }
                Err(CriError::deadline_exceeded(timeout_message(limit)))
            }
        }
    }
}

impl ExecProcess<'_> {
    /// Waits until the command has been started.
    async fn start(&mut self) -> Result<(), LaunchError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let started = process.start().await;
        if started.is_err() {
            self.process = None;
        }
        started
    }

    /// Waits until the command has exited and returns its exit code. Processes that the command
    /// started may still run.
    async fn wait_exit(&mut self) -> i32 {
        // Without a process there is no success to report.
        let Some(process) = &mut self.process else { return signal::exit_code(Signal::KILL.as_raw()) };
        let code = process.exit().await;
        self.process = None;
        code
    }

    fn kill(&self) {
        let target = match self.kill_scope {
            TimeoutKillScope::Process => SignalTarget::Process,
            TimeoutKillScope::Group => SignalTarget::Group,
        };
        self.monitor.signal(self.number, Signal::KILL.as_raw(), target);
    }
}

impl Drop for ExecProcess<'_> {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            self.kill();
            // The exit is still to be published.
            tokio::spawn(async move {
                if process.pid.is_some() || process.start().await.is_ok() {
                    process.exit().await;
                }
            });
        }
    }
}

impl ObservedProcess {
    /// Waits until the process has been started, and publishes that.
    async fn start(&mut self) -> Result<(), LaunchError> {
        let start = self.process.start().await?;
        self.pid = Some(start.pid);
        self.events.started(start.at, start.pid);
        Ok(())
    }

    /// Waits until the process has exited, and publishes that. Returns the exit code.
    async fn exit(&mut self) -> i32 {
        // Without a report, the monitor was killed, and with it the command.
        let killed = || Exit { code: signal::exit_code(Signal::KILL.as_raw()), at: clock::now() };
        let exit = self.process.exit().await.unwrap_or_else(killed);
        self.events.exited(exit.at, self.pid.unwrap_or_default(), exit.code);
        exit.code
    }
}

/// Response of a synthetic container: `false` fails, everything else succeeds.
fn synthetic_response(command: &[String]) -> ExecSyncResponse {
    let is_false = command.first().is_some_and(|name| name == "false");
    ExecSyncResponse { exit_code: i32::from(is_false), ..ExecSyncResponse::default() }
}
