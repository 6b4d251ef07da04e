//! ExecSync, as containerd does it.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use rustix::process::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::Kills;
use super::container::{Container, Runs};
use super::engine::Engine;
use super::guardian::{Guardian, Process, Target};
use super::life::{Streams, not_launched};
use super::refusal::Refusal;
use super::store::new_id;
use crate::cri::v1;

/// Bytes that are kept of each stream; the rest is read and dropped.
const LONGEST_STREAM: usize = 16 << 20;

/// The longest answer, containerd's default limit for what it sends. A stream that is full does not fit.
const LONGEST_ANSWER: usize = 16 << 20;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A command that runs or is about to, killed when dropped: its caller has gone.
struct Execution<'a> {
    guardian: &'a Guardian,
    process: Process,
    has_ended: bool,
}

/// What a command says, read while it runs.
struct Output {
    reading: JoinSet<(Vec<u8>, Vec<u8>)>,
}

impl Engine {
    /// Runs a command in a container to its end, and to the end of what it says.
    pub(super) async fn exec_sync(
        &self,
        request: v1::ExecSyncRequest,
    ) -> Result<v1::ExecSyncResponse, Refusal> {
        let answer =
            self.exec(request).await.map_err(|refusal| refusal.when("failed to exec in container"))?;
        let length = answer.encoded_len();
        if length > LONGEST_ANSWER {
            return Err(Refusal::too_long(format!(
                "grpc: trying to send message larger than max ({length} vs. {LONGEST_ANSWER})"
            )));
        }
        Ok(answer)
    }

    async fn exec(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse, Refusal> {
        let container = self.running(&request.container_id)?;
        sleep(self.settings.exec_delay).await;
        match container.runs.get() {
            Some(Runs::Processes { guardian, .. }) => self.exec_process(&container, guardian, request).await,
            Some(Runs::Nothing) | None => Ok(synthetic(&request.cmd)),
        }
    }

    async fn exec_process(
        &self,
        container: &Arc<Container>,
        guardian: &Guardian,
        request: v1::ExecSyncRequest,
    ) -> Result<v1::ExecSyncResponse, Refusal> {
        let id = new_id();
        let failed = |refusal: Refusal| {
            refusal
                .when("exec failed")
                .when("OCI runtime exec failed")
                .when(format!("failed to start exec {id:?}"))
        };
        let command = self.command_of(container, request.cmd).map_err(failed)?;
        let streams = Streams::new().map_err(|error| failed(Refusal::unknown(error.to_string())))?;
        // From here on, whatever becomes of the call, the command ends with it.
        let process = guardian.launch(command, streams.theirs);
        let mut running = Execution { guardian, process, has_ended: false };
        running.process.start().await.map_err(|error| failed(not_launched(&error)))?;
        let output = Output::of(streams.stdout, streams.stderr);
        // Containerd's clock starts when the command has started.
        let limit =
            u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let in_time = match limit {
            Some(limit) => timeout(limit, running.end()).await.map_err(|_| limit),
            None => Ok(running.end().await),
        };
        let failed = |refusal: Refusal| refusal.when(format!("failed to drain exec process {id:?} io"));
        match in_time {
            Ok(exit_code) => {
                let (stdout, stderr) = output.drain(self.settings.drain_limit, &id).await.map_err(failed)?;
                Ok(v1::ExecSyncResponse { stdout, stderr, exit_code })
            }
            Err(limit) => {
                running.kill(self.settings.exec_timeout_kills);
                running.end().await;
                if let Err(reason) = output.drain(self.settings.drain_limit, &id).await.map_err(failed) {
                    warn!(container = %container.id, %reason, "an exec timed out");
                }
                let limit = go(limit);
                Err(Refusal::deadline_exceeded(format!(
                    "timeout {limit} exceeded: context deadline exceeded"
                )))
            }
        }
    }
}

impl Output {
    fn of(stdout: pipe::Receiver, stderr: pipe::Receiver) -> Self {
        let mut reading = JoinSet::new();
        reading.spawn(async move { tokio::join!(read(stdout), read(stderr)) });
        Self { reading }
    }

    /// Waits for the end of both streams, which comes when nobody holds them any more.
    async fn drain(mut self, limit: Option<Duration>, id: &str) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
        let read = match limit {
            None => self.reading.join_next().await,
            Some(limit) => timeout(limit, self.reading.join_next()).await.map_err(|_| {
                let limit = go(limit);
                Refusal::unknown(format!(
                    "failed to drain exec process {id:?} io in {limit} because io is still held by other processes"
                ))
            })?,
        };
        read.and_then(Result::ok).ok_or_else(|| Refusal::unknown("its output could not be read"))
    }
}

impl Execution<'_> {
    /// Waits until the command has ended; what it has started may live on.
    async fn end(&mut self) -> i32 {
        let exit = self.process.exit().await;
        self.has_ended = true;
        // Without a guardian, everything was killed.
        exit.code.unwrap_or(128 + Signal::KILL.as_raw())
    }

    fn kill(&self, kills: Kills) {
        let target = match kills {
            Kills::Process => Target::Process,
            Kills::Group => Target::Group,
        };
        self.guardian.strike(self.process.number, Signal::KILL.as_raw(), target);
    }
}

impl Drop for Execution<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill(Kills::Process);
        }
    }
}

/// Reads a stream to its end, and keeps as much as is kept.
async fn read(mut stream: pipe::Receiver) -> Vec<u8> {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        let room = LONGEST_STREAM - kept.len();
        kept.extend_from_slice(&chunk[..length.min(room)]);
    }
    kept
}

/// What a container without processes answers: `false` fails, everything else succeeds.
fn synthetic(command: &[String]) -> v1::ExecSyncResponse {
    let is_false = command.first().is_some_and(|name| name == "false");
    v1::ExecSyncResponse { exit_code: i32::from(is_false), ..v1::ExecSyncResponse::default() }
}

/// A duration as Go writes it: `1s`, `1m30s`, `1h0m0s`, `1.5s`, `200ms`.
fn go(duration: Duration) -> String {
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
    use super::*;

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
            assert_eq!(go(Duration::from_millis(milliseconds)), written);
        }
    }
}
