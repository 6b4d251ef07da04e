//! Handle of a monitor: starts the monitor, sends it requests, and waits for its exit.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use procfs::process::ProcState;
use rustix::process::{Pid, kill_process};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::SUBCOMMAND;
use super::message_io::{OutgoingFrame, PendingReplies, run_io};
use super::process::MonitoredProcess;
use super::protocol::{
    Command, KillAll, Launch, MonitorCommand, MonitorRequest, Orphan, Signal, SignalTarget, framed,
};
use crate::processes;
use crate::terminal::harmless_name;

/// All monitors of a runtime.
#[derive(Debug)]
pub(in crate::procrun) struct Monitors {
    program: PathBuf,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

/// Handle of a running monitor. Dropping the handle ends the monitor and all processes below it.
#[derive(Debug)]
pub(in crate::procrun) struct Monitor {
    pid: i32,
    frames: mpsc::UnboundedSender<OutgoingFrame>,
    pending_replies: Arc<Mutex<PendingReplies>>,
    next_number: AtomicU64,
    exited: CancellationToken,
}

impl Monitors {
    /// Returns an empty set. Monitors are started from `program`, which must be this program.
    pub(in crate::procrun) fn with_program(program: PathBuf) -> Self {
        Self { program, shutdown: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Starts a monitor. `name` and `dir` are those of the container, for readers of a process
    /// list. `on_orphan` is called for each descendant that has left its process group and exited.
    pub(in crate::procrun) fn start(
        &self,
        name: &str,
        dir: &Path,
        on_orphan: impl Fn(Orphan) + Send + 'static,
    ) -> io::Result<Monitor> {
        if self.shutdown.is_cancelled() {
            return Err(io::Error::other("procrun is shutting down"));
        }
        let (our_socket, monitor_socket) = std::os::unix::net::UnixStream::pair()?;
        our_socket.set_nonblocking(true)?;
        let our_socket = UnixStream::from_std(our_socket)?;
        let mut command = tokio::process::Command::new(&self.program);
        // The name is for readers of process lists, and is shortened: an argument is limited to
        // 128 KiB.
        command
            .arg0("probeshim")
            .arg(SUBCOMMAND)
            .arg("--")
            .arg(harmless_name(name))
            .arg(dir)
            .current_dir("/");
        command.stdin(Stdio::from(OwnedFd::from(monitor_socket))).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        let pending_replies = Arc::new(Mutex::new(PendingReplies::default()));
        let (frames, outgoing) = mpsc::unbounded_channel();
        let (exited, shutdown, replies) =
            (CancellationToken::new(), self.shutdown.clone(), pending_replies.clone());
        let monitor =
            Monitor { pid, frames, pending_replies, next_number: AtomicU64::new(1), exited: exited.clone() };
        self.tasks.spawn(async move {
            run_io(&our_socket, outgoing, &replies, on_orphan, &shutdown).await;
            drop(our_socket);
            let exit_status = process.wait().await;
            if !exit_status.as_ref().is_ok_and(ExitStatus::success) {
                warn!(pid, ended = ?exit_status, "monitor ended unexpectedly; killing its session");
                // The scan may take long, because a container can start any number of processes.
                let _ = spawn_blocking(move || kill_session(pid)).await;
            }
            replies.lock().unwrap_or_else(PoisonError::into_inner).forget_all();
            exited.cancel();
        });
        Ok(monitor)
    }

    /// Ends all monitors and the processes below them, and refuses new monitors.
    pub(in crate::procrun) async fn shut_down(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Monitor {
    /// Waits until the monitor and all processes below it have exited.
    pub(in crate::procrun) async fn wait_exit(&self) {
        self.exited.cancelled().await;
    }

    /// Returns the monitor's process id, which is also its session id.
    pub(in crate::procrun) fn pid(&self) -> i32 {
        self.pid
    }

    /// Launches a process. The first process is the container itself: when it exits, all others are
    /// killed.
    pub(in crate::procrun) fn launch(&self, command: Command, streams: [OwnedFd; 2]) -> MonitoredProcess {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (launched, start) = oneshot::channel();
        let (exited, exit) = oneshot::channel();
        {
            let mut pending_replies = self.pending_replies.lock().unwrap_or_else(PoisonError::into_inner);
            pending_replies.launches.insert(number, launched);
            pending_replies.exits.insert(number, exited);
        }
        let launch = Launch { process: number, command: Some(command) };
        if self.request(MonitorCommand::Launch(launch), streams.into()).is_err() {
            self.pending_replies.lock().unwrap_or_else(PoisonError::into_inner).forget(number);
        }
        MonitoredProcess::new(number, start, exit)
    }

    /// Sends a signal to a launched process or to its process group.
    pub(in crate::procrun) fn signal(&self, process: u64, number: i32, target: SignalTarget) {
        // If the monitor has exited, its processes have exited too.
        let _ = self
            .request(MonitorCommand::Signal(Signal { process, number, target: target.into() }), Vec::new());
    }

    /// Kills every process, which ends the container.
    pub(in crate::procrun) fn kill_all(&self) {
        let _ = self.request(MonitorCommand::KillAll(KillAll {}), Vec::new());
    }

    fn request(
        &self,
        command: MonitorCommand,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), mpsc::error::SendError<OutgoingFrame>> {
        self.frames.send(OutgoingFrame { frame: framed(&MonitorRequest::for_command(command)), descriptors })
    }
}

/// Kills the processes that are left in the session of a monitor that was killed. Repeats the scan
/// up to ten times, because processes may be forked during it.
fn kill_session(session: i32) {
    for _ in 0..10 {
        let survivors = processes::all()
            .filter(|stat| stat.session == session && !matches!(stat.state(), Ok(ProcState::Zombie)));
        let mut killed = 0;
        for pid in survivors.filter_map(|stat| Pid::from_raw(stat.pid)) {
            killed += usize::from(kill_process(pid, rustix::process::Signal::KILL).is_ok());
        }
        if killed == 0 {
            return;
        }
    }
}
