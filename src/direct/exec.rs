//! One exec of the helper: its streams, its timeout and its result, with the behaviour of
//! containerd (`internal/cri/server/container_execsync.go`: `execInternal`, `drainExecSyncIO`).

use std::io::{self, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use exec_helper::packet::MAX_PACKET_BYTES;
use exec_helper::protocol::{ChildStatus, Difference, Launch, NotStarted};
use prost::Message as _;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketFlags,
    SocketType, recvmsg, socketpair, sockopt,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::warn;

use super::helper_process::{ExecEnd, HelperProcess, PendingExec};
use super::init_process::InitProcess;
use crate::cri::v1::ExecSyncResponse;
use crate::exec_output::{DrainError, OutputReader, refused_length, timeout_message};
use crate::hex::random_id;

/// Begin of the message of every error of containerd's ExecSync.
const FAILED: &str = "failed to exec in container";

/// Time for which the end of a process is awaited whose helper has ended.
const LOST_LIMIT: Duration = Duration::from_secs(5);

/// Maximum length of a packet on a status socket, in bytes.
const MAX_STATUS_BYTES: usize = 4096;

/// A command to run, and the place in which it runs.
#[derive(Debug)]
pub(super) struct DirectCommand<'a> {
    pub(super) launch: Launch,
    pub(super) timeout: Option<Duration>,
    pub(super) init: &'a InitProcess,
    pub(super) cgroup: BorrowedFd<'a>,
    /// Maximum time for which the output is awaited after the exit; `None` for no limit.
    pub(super) drain_limit: Option<Duration>,
}

/// Result of an exec.
#[derive(Debug)]
pub(super) enum ExecResult {
    /// The command was executed: its response, and the times of the process.
    Done(Result<ExecSyncResponse, Status>, Option<ProcessTimes>),
    /// The helper has not received the command, for a reason. The runtime can run it.
    NotSent(String),
    /// Nothing was executed, so that the runtime can run the command.
    NotStarted {
        reason: String,
        /// Differences from the record, if these are the reason.
        differences: Vec<Difference>,
    },
}

/// Times of a process, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessTimes {
    pub(super) created: i64,
    pub(super) executed: i64,
    pub(super) ended: i64,
}

/// Socket on which a child reports that it executes the command, or why it does not.
#[derive(Debug)]
struct StatusSocket {
    socket: OwnedFd,
    last: Report,
}

/// Last report on a status socket, and the pid of its sender.
#[derive(Debug, Default)]
struct Report {
    status: ChildStatus,
    pid: Option<i32>,
}

impl DirectCommand<'_> {
    /// Runs the command, and kills it if `cancelled` is.
    pub(super) async fn run(mut self, helper: &HelperProcess, cancelled: &CancellationToken) -> ExecResult {
        match self.start(helper).await {
            Ok((exec, status, output)) => self.wait(helper, cancelled, exec, status, output).await,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => not_started(format!(
                "the arguments, the environment and the seccomp filters of the command have together more \
                 than {MAX_PACKET_BYTES} bytes"
            )),
            Err(error) => ExecResult::NotSent(format!("the exec helper cannot be reached: {error}")),
        }
    }

    async fn start(
        &mut self,
        helper: &HelperProcess,
    ) -> io::Result<(PendingExec, StatusSocket, OutputReader)> {
        let (stdout, stdout_writer) = io::pipe()?;
        let (stderr, stderr_writer) = io::pipe()?;
        let output = OutputReader::new(
            pipe::Receiver::from_owned_fd(stdout.into())?,
            pipe::Receiver::from_owned_fd(stderr.into())?,
        );
        let (status, child_status) = StatusSocket::pair()?;
        let descriptors = [
            stdout_writer.as_fd(),
            stderr_writer.as_fd(),
            child_status.as_fd(),
            self.init.pidfd.as_fd(),
            self.cgroup,
        ];
        let exec = helper.launch(mem::take(&mut self.launch), &descriptors).await?;
        Ok((exec, status, output))
    }

    async fn wait(
        &self,
        helper: &HelperProcess,
        cancelled: &CancellationToken,
        mut exec: PendingExec,
        mut status: StatusSocket,
        output: OutputReader,
    ) -> ExecResult {
        let timed_out = async {
            match self.timeout {
                Some(timeout) => sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let mut killed_after = None;
        let end = tokio::select! {
            biased;
            end = &mut exec.end => end,
            () = timed_out => {
                killed_after = self.timeout;
                helper.kill(exec.number).await;
                exec.end.await
            }
            () = cancelled.cancelled() => {
                helper.kill(exec.number).await;
                exec.end.await
            }
        };
        let exited = match end {
            Ok(ExecEnd::Exited(exited)) => exited,
            Ok(ExecEnd::NotStarted(NotStarted { mut reason, differences, .. })) => {
                // A child that failed knows the reason better than the helper.
                if status.read_to_end().await.is_ok() && !status.last.status.error.is_empty() {
                    reason = status.last.status.error;
                }
                return ExecResult::NotStarted { reason, differences };
            }
            Err(_) => return self.lost(status, cancelled).await,
        };
        if let Err(error) = status.read_to_end().await {
            // The command may have been executed, so the runtime must not execute it again.
            let message = format!("{FAILED}: the status of the command cannot be read: {error}");
            return ExecResult::Done(Err(Status::unknown(message)), None);
        }
        let report = status.last;
        if !report.status.error.is_empty() {
            return not_started(report.status.error);
        }
        let executed = report.status.executed_at;
        let times = ProcessTimes { created: exited.created_at, executed, ended: exited.ended_at };
        if let Some(timeout) = killed_after {
            tokio::select! {
                drained = output.drain(self.drain_limit) => if let Err(error) = drained {
                    warn!(%error, "the exec timed out, and its output did not end");
                },
                () = cancelled.cancelled() => {}
            }
            let message = format!("{FAILED}: {}", timeout_message(timeout));
            return ExecResult::Done(Err(Status::deadline_exceeded(message)), Some(times));
        }
        if executed == 0 {
            // The process was killed before its exec, such as by the memory limit of the container.
            return not_started(format!("the process ended with code {} before its exec", exited.code));
        }
        let drained = tokio::select! {
            drained = output.drain(self.drain_limit) => drained,
            () = cancelled.cancelled() => Ok((Vec::new(), Vec::new())),
        };
        ExecResult::Done(response(exited.code, drained), Some(times))
    }

    /// Returns the result of an exec whose helper has ended. A command that was executed is killed.
    async fn lost(&self, mut status: StatusSocket, cancelled: &CancellationToken) -> ExecResult {
        // A child that has not executed the command ends with the helper.
        let ended = tokio::select! {
            read = status.read_to_end() => read.is_ok(),
            () = sleep(LOST_LIMIT) => false,
            () = cancelled.cancelled() => false,
        };
        // Without the end, a process that hangs may still execute the command.
        if ended && status.last.status.executed_at == 0 {
            return not_started("the exec helper has ended".to_owned());
        }
        if let Some(pid) = status.last.pid
            && let Some(raw) = Pid::from_raw(pid)
            && let Ok(process) = pidfd_open(raw, PidfdFlags::empty())
            && self.init.shares_container(pid)
        {
            // The process may have exited.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        let message = format!("{FAILED}: the exec helper of probeshim ended while the command ran");
        ExecResult::Done(Err(Status::unknown(message)), None)
    }
}

impl StatusSocket {
    /// Returns the socket, and its other end for the child.
    fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, child) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // The pid of the sender accompanies each report.
        sockopt::set_socket_passcred(&socket, true)?;
        Ok((Self { socket, last: Report::default() }, child))
    }

    /// Reads reports until the child has closed its end, by an exec or its exit.
    async fn read_to_end(&mut self) -> io::Result<()> {
        loop {
            match read_report(self.socket.as_fd()) {
                // An error after the announcement of the exec takes its place.
                Ok(Some(report)) => self.last = report,
                Ok(None) => return Ok(()),
                // The socket is registered only here, so that no report wakes probeshim while the
                // command runs. All reports of a child that has exited are there already.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let socket = UnixStream::from_std(self.socket.try_clone()?.into())?;
                    socket.readable().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads a report; `None` at the end.
fn read_report(socket: BorrowedFd<'_>) -> io::Result<Option<Report>> {
    let mut bytes = [0; MAX_STATUS_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let pid = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_nonzero().get()),
        _ => None,
    });
    if received.bytes == 0 {
        return Ok(None);
    }
    // Only an error can be that long, and a process with an error does not execute its command.
    if received.flags.contains(ReturnFlags::TRUNC) {
        let error = format!("a step failed, whose error has more than {MAX_STATUS_BYTES} bytes");
        return Ok(Some(Report { status: ChildStatus { executed_at: 0, error }, pid }));
    }
    let status = ChildStatus::decode(&bytes[..received.bytes]);
    Ok(Some(Report { status: status.map_err(io::Error::other)?, pid }))
}

fn not_started(reason: String) -> ExecResult {
    ExecResult::NotStarted { reason, differences: Vec::new() }
}

fn response(
    exit_code: i32,
    drained: Result<(Vec<u8>, Vec<u8>), DrainError>,
) -> Result<ExecSyncResponse, Status> {
    let (stdout, stderr) =
        drained.map_err(|error| Status::unknown(format!("{FAILED}: {}", error.message(&random_id()))))?;
    let response = ExecSyncResponse { stdout, stderr, exit_code };
    match refused_length(response.encoded_len()) {
        Some(message) => Err(Status::resource_exhausted(message)),
        None => Ok(response),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_report_that_is_too_long_says_that_the_command_was_not_executed() {
        let report = |executed_at, error: String| ChildStatus { executed_at, error }.encode_to_vec();
        let (mut status, child) = StatusSocket::pair().unwrap();
        rustix::io::write(&child, &report(5, String::new())).unwrap();
        rustix::io::write(&child, &report(0, "a".repeat(MAX_STATUS_BYTES))).unwrap();
        drop(child);
        status.read_to_end().await.unwrap();
        let ChildStatus { executed_at, error } = status.last.status;
        assert_eq!((executed_at, &*error), (0, "a step failed, whose error has more than 4096 bytes"));
    }
}
