//! ExecSync, as containerd does it.

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
use crate::procrun::container::{ContainerBackend, ProcrunContainer};
use crate::procrun::error::{CriError, error_text};
use crate::procrun::monitor::{Monitor, MonitoredProcess, SignalTarget, StdStreams};
use crate::procrun::{TimeoutKillScope, clock, id, signal};

/// Bytes that are kept of each stream; the rest is read and dropped.
const MAX_STREAM_BYTES: usize = 16 << 20;

/// The longest answer, containerd's default limit for what it sends. A stream that is full does not fit.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A command that runs or is about to, killed when dropped: its caller has gone.
struct ExecProcess<'a> {
    monitor: &'a Monitor,
    process: MonitoredProcess,
    kills: TimeoutKillScope,
    has_ended: bool,
}

/// What a command says, read while it runs.
struct OutputReader {
    reading: AbortOnDropHandle<(Vec<u8>, Vec<u8>)>,
}

impl Engine {
    /// Runs a command in a container to its end, and to the end of what it says.
    pub(in crate::procrun) async fn exec_sync(
        &self,
        request: ExecSyncRequest,
    ) -> Result<ExecSyncResponse, CriError> {
        let answer =
            self.exec(request).await.map_err(|refusal| refusal.context("failed to exec in container"))?;
        let length = answer.encoded_len();
        if length > MAX_RESPONSE_BYTES {
            return Err(CriError::too_long(format!(
                "grpc: trying to send message larger than max ({length} vs. {MAX_RESPONSE_BYTES})"
            )));
        }
        Ok(answer)
    }

    async fn exec(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, CriError> {
        let container = self.require_running(&request.container_id)?;
        clock::sleep_if_nonzero(self.settings.exec_delay).await;
        // Much may have happened meanwhile.
        let container = self.require_running(&container.id)?;
        match container.runner.get() {
            Some(ContainerBackend::Processes { monitor, .. }) => {
                self.exec_process(&container, monitor, request).await
            }
            Some(ContainerBackend::Synthetic) | None => Ok(synthetic_reply(&request.cmd)),
        }
    }

    /// The container of this id, if it runs.
    fn require_running(&self, id: &str) -> Result<Arc<ProcrunContainer>, CriError> {
        let container = self.containers.get(id);
        let container = container
            .map_err(|refusal| refusal.context(format!("failed to find container {id:?} in store")))?;
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
        let id = id::new();
        let not_started = |refusal: CriError| {
            refusal.with_path(&[
                &format!("failed to start exec {id:?}"),
                "OCI runtime exec failed",
                "exec failed",
            ])
        };
        let command = self.command(container, request.cmd).map_err(not_started)?;
        let streams =
            StdStreams::new().map_err(|error| not_started(CriError::unknown(error_text(&error))))?;
        // From here on, whatever becomes of the call, the command ends with it.
        let process = monitor.launch(command, streams.theirs);
        let kills = self.settings.exec_timeout_kills;
        let mut running = ExecProcess { monitor, process, kills, has_ended: false };
        running.process.start().await.map_err(|error| {
            not_started(CriError::unknown(error.to_string()).context("unable to start container process"))
        })?;
        let output = OutputReader::new(streams.stdout, streams.stderr);
        // Containerd's clock starts when the command has started.
        let limit =
            u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let in_time = match limit {
            Some(limit) => timeout(limit, running.wait_exit()).await.map_err(|_| limit),
            None => Ok(running.wait_exit().await),
        };
        let not_drained =
            |refusal: CriError| refusal.context(format!("failed to drain exec process {id:?} io"));
        match in_time {
            Ok(exit_code) => {
                let (stdout, stderr) =
                    output.drain(self.settings.exec_io_drain_timeout, &id).await.map_err(not_drained)?;
                Ok(ExecSyncResponse { stdout, stderr, exit_code })
            }
            Err(limit) => {
                running.kill();
                running.wait_exit().await;
                if let Err(reason) =
                    output.drain(self.settings.exec_io_drain_timeout, &id).await.map_err(not_drained)
                {
                    warn!(container = %container.id, %reason, "an exec timed out");
                }
                let limit = go_duration(limit);
                Err(CriError::deadline_exceeded(format!(
                    "timeout {limit} exceeded: context deadline exceeded"
                )))
            }
        }
    }
}

impl ExecProcess<'_> {
    /// Waits until the command has ended; what it has started may live on.
    async fn wait_exit(&mut self) -> i32 {
        let exit = self.process.exit().await;
        self.has_ended = true;
        // Without a monitor, everything was killed.
        exit.map_or(signal::exit_code(Signal::KILL.as_raw()), |exit| exit.code)
    }

    fn kill(&self) {
        let target = match self.kills {
            TimeoutKillScope::Process => SignalTarget::Process,
            TimeoutKillScope::Group => SignalTarget::Group,
        };
        self.monitor.signal(self.process.number, Signal::KILL.as_raw(), target);
    }
}

impl Drop for ExecProcess<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill();
        }
    }
}

impl OutputReader {
    fn new(stdout: pipe::Receiver, stderr: pipe::Receiver) -> Self {
        let reading = tokio::spawn(async move { tokio::join!(read(stdout), read(stderr)) });
        Self { reading: AbortOnDropHandle::new(reading) }
    }

    /// Waits for the end of both streams, which comes when nobody holds them any more.
    async fn drain(self, limit: Option<Duration>, id: &str) -> Result<(Vec<u8>, Vec<u8>), CriError> {
        let read = match limit {
            None => self.reading.await,
            Some(limit) => timeout(limit, self.reading).await.map_err(|_| {
                let limit = go_duration(limit);
                CriError::unknown(format!(
                    "failed to drain exec process {id:?} io in {limit} because io is still held by other processes"
                ))
            })?,
        };
        read.map_err(|fault| CriError::unknown(fault.to_string()))
    }
}

/// Reads a stream to its end and returns the first [`LONGEST_STREAM`] bytes. Other tasks run after each chunk: the stream of a command
/// that writes without pause is always readable.
async fn read(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        let room = MAX_STREAM_BYTES - kept.len();
        kept.extend_from_slice(&chunk[..length.min(room)]);
        yield_now().await;
    }
    kept
}

/// What a container without processes answers: `false` fails, everything else succeeds.
fn synthetic_reply(command: &[String]) -> ExecSyncResponse {
    let is_false = command.first().is_some_and(|name| name == "false");
    ExecSyncResponse { exit_code: i32::from(is_false), ..ExecSyncResponse::default() }
}

/// A duration as Go writes it: `1s`, `1m30s`, `1h0m0s`, `1.5s`, `200ms`.
fn go_duration(duration: Duration) -> String {
    let whole = duration.as_secs();
    let (hours, minutes) = (whole / 3600, whole / 60 % 60);
    let rest = duration.saturating_sub(Duration::from_secs(whole / 60 * 60));
    let seconds = rest.as_secs_f64();
    match (hours, minutes) {
        (0, 0) if whole == 0 && !duration.is_zero() => format!("{}ms", seconds * 1e3),
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_between_the_chunks_of_a_stream_that_is_always_readable() {
        const CHUNKS: usize = 100;
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        let all = vec![b'x'; CHUNKS * CHUNK];
        assert_eq!(read(all.as_slice()).await.len(), all.len());
        let turns = turns.load(Ordering::Relaxed);
        assert!(turns > CHUNKS / 2, "{turns} turns of another task beside {CHUNKS} chunks");
        other.abort();
    }

    #[test]
    fn durations_are_written_as_in_go() {
        for (milliseconds, written) in [
            (0, "0s"),
            (200, "200ms"),
            (1000, "1s"),
            (1500, "1.5s"),
            (90_000, "1m30s"),
            (120_000, "2m0s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(milliseconds)), written);
        }
    }
}
