//! A process below a monitor, from the view of procrun.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::protocol::Exited;

/// A process that is being launched, runs or has exited.
#[derive(Debug)]
pub(in crate::procrun) struct MonitoredProcess {
    /// Number of the process in the protocol of its monitor.
    pub(in crate::procrun) number: u64,
    start: oneshot::Receiver<Result<Start, LaunchError>>,
    exit: oneshot::Receiver<Exited>,
}

/// Start of a process.
#[derive(Clone, Copy, Debug)]
pub(in crate::procrun) struct Start {
    /// Process id.
    pub(in crate::procrun) pid: i32,
    /// Time of the start, in nanoseconds since 1970.
    pub(in crate::procrun) at: i64,
}

/// Exit of a process.
#[derive(Clone, Copy, Debug)]
pub(in crate::procrun) struct Exit {
    /// Exit code, or 128 and the number of the signal that ended the process.
    pub(in crate::procrun) code: i32,
    /// Time of the exit, in nanoseconds since 1970.
    pub(in crate::procrun) at: i64,
}

/// Pipes for the output of a process: write ends for the process, read ends for procrun.
#[derive(Debug)]
pub(in crate::procrun) struct StdStreams {
    pub(in crate::procrun) theirs: [OwnedFd; 2],
    pub(in crate::procrun) stdout: pipe::Receiver,
    pub(in crate::procrun) stderr: pipe::Receiver,
}

/// Reason for which a process was not launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::procrun) enum LaunchError {
    /// The system refused to run the program.
    #[error("{0}")]
    Refused(String),
    /// The monitor has exited.
    #[error("the container's monitor has exited")]
    MonitorExited,
}

impl StdStreams {
    /// Creates two pipes. The read ends are non-blocking, and the write ends are blocking.
    pub(in crate::procrun) fn new() -> io::Result<Self> {
        let (out, stdout) = pipe::pipe()?;
        let (err, stderr) = pipe::pipe()?;
        Ok(Self { theirs: [out.into_blocking_fd()?, err.into_blocking_fd()?], stdout, stderr })
    }
}

impl MonitoredProcess {
    pub(super) fn new(
        number: u64,
        start: oneshot::Receiver<Result<Start, LaunchError>>,
        exit: oneshot::Receiver<Exited>,
    ) -> Self {
        Self { number, start, exit }
    }

    /// Waits until the process has been launched. Must not be called again after it returned.
    pub(in crate::procrun) async fn start(&mut self) -> Result<Start, LaunchError> {
        (&mut self.start).await.unwrap_or(Err(LaunchError::MonitorExited))
    }

    /// Waits for the exit of the process. Returns `None` if the monitor was killed before it
    /// reported the exit. Must not be called again after it returned.
    pub(in crate::procrun) async fn exit(&mut self) -> Option<Exit> {
        let exited = (&mut self.exit).await.ok()?;
        Some(Exit { code: exited.code, at: exited.at })
    }
}
