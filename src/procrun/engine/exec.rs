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
use crate::procrun::monitor::{Monitor, MonitoredProcess, SignalTarget, StdStreams};
use crate::procrun::{TimeoutKillScope, clock, signal};

/// A command that is being launched or runs. Dropping the value kills the command, for example when
/// the caller disconnects.
struct ExecProcess<'a> {
    monitor: &'a Monitor,
    process: MonitoredProcess,
    kill_scope: TimeoutKillScope,
    exited: bool,
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
        clock::sleep_if_nonzero(self.config.exec_delay).await;
        // The container may have ended during the delay.
        let container = self.require_running(&container.id)?;
        match container.backend.get() {
            Some(ContainerBackend::Processes { monitor, .. }) => {
                self.exec_process(&container, monitor, request).await
            }
            Some(ContainerBackend::Synthetic) | None => Ok(synthetic_response(&request.cmd)),
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
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse, CriError> {
        let id = random_id();
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
        let kill_scope = self.config.exec_timeout_kills;
        let mut exec = ExecProcess { monitor, process, kill_scope, exited: false };
        exec.process.start().await.map_err(|error| {
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
    /// Waits until the command has exited and returns its exit code. Processes that the command
    /// started may still run.
    async fn wait_exit(&mut self) -> i32 {
        let exit = self.process.exit().await;
        self.exited = true;
        // The monitor was killed, and with it the command.
        exit.map_or(signal::exit_code(Signal::KILL.as_raw()), |exit| exit.code)
    }

    fn kill(&self) {
        let target = match self.kill_scope {
            TimeoutKillScope::Process => SignalTarget::Process,
            TimeoutKillScope::Group => SignalTarget::Group,
        };
        self.monitor.signal(self.process.number, Signal::KILL.as_raw(), target);
    }
}

impl Drop for ExecProcess<'_> {
    fn drop(&mut self) {
        if !self.exited {
            self.kill();
        }
    }
}

/// Response of a synthetic container: `false` fails, everything else succeeds.
fn synthetic_response(command: &[String]) -> ExecSyncResponse {
    let is_false = command.first().is_some_and(|name| name == "false");
    ExecSyncResponse { exit_code: i32::from(is_false), ..ExecSyncResponse::default() }
}
