//! procrun's end of a monitor: started, asked to launch and to signal, ended.

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
use crate::procrun::processes;
use crate::terminal::harmless_name;

/// All monitors of a runtime.
#[derive(Debug)]
pub(in crate::procrun) struct Monitors {
    program: PathBuf,
    ending: CancellationToken,
    tasks: TaskTracker,
}

/// A monitor that runs. It ends everything below it when this is dropped.
#[derive(Debug)]
pub(in crate::procrun) struct Monitor {
    pid: i32,
    orders: mpsc::UnboundedSender<OutgoingFrame>,
    awaited: Arc<Mutex<PendingReplies>>,
    next: AtomicU64,
    gone: CancellationToken,
}

impl Monitors {
    /// Monitors that will be started from `program`, which is this program.
    pub(in crate::procrun) fn with_program(program: PathBuf) -> Self {
        Self { program, ending: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Starts one; `name` and `folder`, the container's, are for those who look at a list of processes. `orphan` is told
    /// of each descendant that had left its process group and has ended.
    pub(in crate::procrun) fn start(
        &self,
        name: &str,
        dir: &Path,
        orphan: impl Fn(Orphan) + Send + 'static,
    ) -> io::Result<Monitor> {
        if self.ending.is_cancelled() {
            return Err(io::Error::other("procrun is ending"));
        }
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = UnixStream::from_std(ours)?;
        let mut command = tokio::process::Command::new(&self.program);
        // The name is for people who look at processes, and an argument has at most 128 KiB.
        command
            .arg0("probeshim")
            .arg(SUBCOMMAND)
            .arg("--")
            .arg(harmless_name(name))
            .arg(dir)
            .current_dir("/");
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        let awaited = Arc::new(Mutex::new(PendingReplies::default()));
        let (orders, outgoing) = mpsc::unbounded_channel();
        let (gone, ending, heard) = (CancellationToken::new(), self.ending.clone(), awaited.clone());
        let monitor = Monitor { pid, orders, awaited, next: AtomicU64::new(1), gone: gone.clone() };
        self.tasks.spawn(async move {
            run_io(&ours, outgoing, &heard, orphan, &ending).await;
            drop(ours);
            let ended = process.wait().await;
            if !ended.as_ref().is_ok_and(ExitStatus::success) {
                warn!(pid, ?ended, "a guardian did not end by itself; what it guarded is killed");
                // A container can make this scan long: it may have started any number of processes.
                let _ = spawn_blocking(move || kill_session(pid)).await;
            }
            heard.lock().unwrap_or_else(PoisonError::into_inner).forget_all();
            gone.cancel();
        });
        Ok(monitor)
    }

    /// Ends all of them with everything below them, and lets no new one be.
    pub(in crate::procrun) async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Monitor {
    /// Waits until its process and all below it are gone.
    pub(in crate::procrun) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// The monitor's own process id, which is also its session.
    pub(in crate::procrun) fn pid(&self) -> i32 {
        self.pid
    }

    /// Launches a process. The first is the container itself: when it ends, all end.
    pub(in crate::procrun) fn launch(&self, command: Command, streams: [OwnedFd; 2]) -> MonitoredProcess {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (launched, start) = oneshot::channel();
        let (exited, exit) = oneshot::channel();
        {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            awaited.launches.insert(number, launched);
            awaited.exits.insert(number, exited);
        }
        let launch = Launch { process: number, command: Some(command) };
        if self.request(MonitorCommand::Launch(launch), streams.into()).is_err() {
            self.awaited.lock().unwrap_or_else(PoisonError::into_inner).forget(number);
        }
        MonitoredProcess::new(number, start, exit)
    }

    /// Sends a signal to a process that was launched, or to its group.
    pub(in crate::procrun) fn signal(&self, process: u64, number: i32, target: SignalTarget) {
        // Without a monitor there is nobody left to hear it.
        let _ = self
            .request(MonitorCommand::Signal(Signal { process, number, target: target.into() }), Vec::new());
    }

    /// Kills every process; the container is over then.
    pub(in crate::procrun) fn kill_all(&self) {
        let _ = self.request(MonitorCommand::KillAll(KillAll {}), Vec::new());
    }

    fn request(
        &self,
        act: MonitorCommand,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), mpsc::error::SendError<OutgoingFrame>> {
        self.orders.send(OutgoingFrame { frame: framed(&MonitorRequest::for_command(act)), descriptors })
    }
}

/// Kills what a monitor leaves behind that was killed itself: what is still in its session. Several times, for those who are just being
/// born.
fn kill_session(session: i32) {
    for _ in 0..10 {
        let left = processes::all()
            .filter(|stat| stat.session == session && !matches!(stat.state(), Ok(ProcState::Zombie)));
        let mut killed = 0;
        for pid in left.filter_map(|stat| Pid::from_raw(stat.pid)) {
            killed += usize::from(kill_process(pid, rustix::process::Signal::KILL).is_ok());
        }
        if killed == 0 {
            return;
        }
    }
}
