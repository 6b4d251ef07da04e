//! ExecSync, with the behaviour of containerd.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::unix::pipe;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::Engine;
use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use crate::gofmt::format_duration;
use crate::gofmt::system_error;
use crate::procrun::container::{ContainerBackend, ProcrunContainer};
use crate::procrun::error::CriError;
use crate::procrun::monitor::{Monitor, MonitoredProcess, SignalTarget, StdStreams};
use crate::procrun::{TimeoutKillScope, clock, id, signal};

/// Maximum number of bytes that are kept of each stream. The rest is read and dropped.
const MAX_STREAM_BYTES: usize = 16 << 20;

/// Maximum size of a response: containerd's default limit for messages that it sends. A response
/// with a stream of [`MAX_STREAM_BYTES`] exceeds it.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Size of the buffer for reads of a stream.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// A command that is being launched or runs. Dropping the value kills the command, for example when
/// the caller disconnects.
struct ExecProcess<'a> {
    monitor: &'a Monitor,
    process: MonitoredProcess,
    kill_scope: TimeoutKillScope,
    exited: bool,
}

/// Reads the output of a command while the command runs.
struct OutputReader {
    read_task: AbortOnDropHandle<(Vec<u8>, Vec<u8>)>,
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
        let length = response.encoded_len();
        if length > MAX_RESPONSE_BYTES {
            return Err(CriError::too_long(format!(
                "grpc: trying to send message larger than max ({length} vs. {MAX_RESPONSE_BYTES})"
            )));
        }
        Ok(response)
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
        let id = id::generate();
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
        let limit =
            u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let exit = match limit {
            Some(limit) => timeout(limit, exec.wait_exit()).await.map_err(|_| limit),
            None => Ok(exec.wait_exit().await),
        };
        let not_drained = |error: CriError| error.context(format!("failed to drain exec process {id:?} io"));
        match exit {
            Ok(exit_code) => {
                let (stdout, stderr) =
                    output.drain(self.config.exec_io_drain_timeout, &id).await.map_err(not_drained)?;
                Ok(ExecSyncResponse { stdout, stderr, exit_code })
            }
            Err(limit) => {
                exec.kill();
                exec.wait_exit().await;
                if let Err(reason) =
                    output.drain(self.config.exec_io_drain_timeout, &id).await.map_err(not_drained)
                {
                    warn!(container = %container.id, %reason, "exec timed out and its output did not end");
                }
                let limit = format_duration(limit);
                Err(CriError::deadline_exceeded(format!(
                    "timeout {limit} exceeded: context deadline exceeded"
                )))
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

impl OutputReader {
    fn new(stdout: pipe::Receiver, stderr: pipe::Receiver) -> Self {
        let read_task = tokio::spawn(async move { tokio::join!(read_stream(stdout), read_stream(stderr)) });
        Self { read_task: AbortOnDropHandle::new(read_task) }
    }

    /// Waits for the end of both streams, which is reached when no process holds them any more.
    /// Fails if `limit` elapses first.
    async fn drain(self, limit: Option<Duration>, id: &str) -> Result<(Vec<u8>, Vec<u8>), CriError> {
        let read = match limit {
            None => self.read_task.await,
            Some(limit) => timeout(limit, self.read_task).await.map_err(|_| {
                let limit = format_duration(limit);
                CriError::unknown(format!(
                    "failed to drain exec process {id:?} io in {limit} because io is still held by other processes"
                ))
            })?,
        };
        read.map_err(|fault| CriError::unknown(fault.to_string()))
    }
}

/// Reads a stream to its end and returns the first [`MAX_STREAM_BYTES`] bytes. Other tasks run
/// after each chunk: the stream of a command that writes without pause is always readable.
async fn read_stream(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut output, mut buffer) = (Vec::new(), vec![0; READ_BUFFER_BYTES]);
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let room = MAX_STREAM_BYTES - output.len();
        output.extend_from_slice(&buffer[..length.min(room)]);
        yield_now().await;
    }
    output
}

/// Response of a synthetic container: `false` fails, everything else succeeds.
fn synthetic_response(command: &[String]) -> ExecSyncResponse {
    let is_false = command.first().is_some_and(|name| name == "false");
    ExecSyncResponse { exit_code: i32::from(is_false), ..ExecSyncResponse::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_between_the_chunks_of_a_stream_that_is_always_readable() {
        const CHUNKS: usize = 100;
        let iterations = Arc::new(AtomicUsize::new(0));
        let counter = iterations.clone();
        let other = tokio::spawn(async move {
            loop {
                counter.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        let all = vec![b'x'; CHUNKS * READ_BUFFER_BYTES];
        assert_eq!(read_stream(all.as_slice()).await.len(), all.len());
        let iterations = iterations.load(Ordering::Relaxed);
        assert!(iterations > CHUNKS / 2, "{iterations} turns of another task beside {CHUNKS} chunks");
        other.abort();
    }
}
