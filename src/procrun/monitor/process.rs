//! A process below a monitor, as procrun sees it.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::protocol::Exited;

/// A process that is to be launched, runs or has ended.
#[derive(Debug)]
pub(in crate::procrun) struct MonitoredProcess {
    /// The number by which its monitor knows it.
    pub(in crate::procrun) number: u64,
    start: oneshot::Receiver<Result<Start, LaunchError>>,
    exit: oneshot::Receiver<Exited>,
}

/// How a process began.
#[derive(Clone, Copy, Debug)]
pub(in crate::procrun) struct Start {
    /// Its process id.
    pub(in crate::procrun) pid: i32,
    /// When, in nanoseconds since 1970.
    pub(in crate::procrun) at: i64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::procrun) struct Exit {
    /// Its exit code, or 128 and the signal that ended it.
    pub(in crate::procrun) code: i32,
    /// When, in nanoseconds since 1970.
    pub(in crate::procrun) at: i64,
}

/// The ends of a process's output: those that it gets, and ours.
#[derive(Debug)]
pub(in crate::procrun) struct StdStreams {
    pub(in crate::procrun) theirs: [OwnedFd; 2],
    pub(in crate::procrun) stdout: pipe::Receiver,
    pub(in crate::procrun) stderr: pipe::Receiver,
}

/// Why a process was not launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::procrun) enum LaunchError {
    /// The system refused it.
    #[error("{0}")]
    Refused(String),
    /// The monitor has ended.
    #[error("its monitor has ended")]
    MonitorExited,
}

impl StdStreams {
    /// Two pipes, non-blocking for us and blocking for them.
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

    /// Waits until it runs. Asked once.
    pub(in crate::procrun) async fn start(&mut self) -> Result<Start, LaunchError> {
        (&mut self.start).await.unwrap_or(Err(LaunchError::MonitorExited))
    }

    /// Waits for its end; `None` where its monitor was killed, and told nothing.
    pub(in crate::procrun) async fn exit(&mut self) -> Option<Exit> {
        let exited = (&mut self.exit).await.ok()?;
        Some(Exit { code: exited.code, at: exited.at })
    }
}
