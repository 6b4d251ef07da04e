//! procrun's end of a guardian: orders go out, what it reports comes in.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use procfs::process::{ProcState, all_processes};
use rustix::process::{Pid, kill_process};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::SUBCOMMAND;
use super::protocol::{
    Act, Command, Event, Exited, Inbox, KillAll, Launch, Order, Orphan, Report, Signal, Target, framed, send,
};

/// All guardians of a runtime.
#[derive(Debug)]
pub(in crate::procrun) struct Guardians {
    program: PathBuf,
    ending: CancellationToken,
    tasks: TaskTracker,
}

/// A guardian that runs. It ends everything below it when this is dropped.
#[derive(Debug)]
pub(in crate::procrun) struct Guardian {
    pid: i32,
    orders: mpsc::UnboundedSender<Outgoing>,
    awaited: Arc<Mutex<Awaited>>,
    next: AtomicU64,
    gone: CancellationToken,
}

/// A process that is to be launched, runs or has ended.
#[derive(Debug)]
pub(in crate::procrun) struct Process {
    /// The number by which its guardian knows it.
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
pub(in crate::procrun) struct Streams {
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
    /// The guardian has ended.
    #[error("its guardian has ended")]
    NoGuardian,
}

#[derive(Debug)]
struct Outgoing {
    frame: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Awaited {
    launches: HashMap<u64, oneshot::Sender<Result<Start, LaunchError>>>,
    exits: HashMap<u64, oneshot::Sender<Exited>>,
}

impl Guardians {
    /// Guardians that will be started from `program`, which is this program.
    pub(in crate::procrun) fn of(program: PathBuf) -> Self {
        Self { program, ending: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Starts one; `name` and `folder`, the container's, are for those who look at a list of processes. `orphan` is told
    /// of each descendant that had left its process group and has ended.
    pub(in crate::procrun) fn start(
        &self,
        name: &str,
        folder: &Path,
        orphan: impl Fn(Orphan) + Send + 'static,
    ) -> io::Result<Guardian> {
        if self.ending.is_cancelled() {
            return Err(io::Error::other("procrun is ending"));
        }
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = UnixStream::from_std(ours)?;
        let mut command = tokio::process::Command::new(&self.program);
        command
            .arg0("probeshim")
            .arg(SUBCOMMAND)
            .arg("--")
            .arg(name)
            .arg(folder)
            .current_dir("/")
            .env_clear();
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        let awaited = Arc::new(Mutex::new(Awaited::default()));
        let (orders, outgoing) = mpsc::unbounded_channel();
        let (gone, ending, heard) = (CancellationToken::new(), self.ending.clone(), awaited.clone());
        let guardian = Guardian { pid, orders, awaited, next: AtomicU64::new(1), gone: gone.clone() };
        self.tasks.spawn(async move {
            converse(&ours, outgoing, &heard, orphan, &ending).await;
            drop(ours);
            let ended = process.wait().await;
            if !ended.as_ref().is_ok_and(ExitStatus::success) {
                warn!(pid, ?ended, "a guardian did not end by itself; what it guarded is killed");
                kill_session(pid);
            }
            heard.lock().unwrap_or_else(PoisonError::into_inner).forget_all();
            gone.cancel();
        });
        Ok(guardian)
    }

    /// Ends all of them with everything below them, and lets no new one be.
    pub(in crate::procrun) async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Guardian {
    /// Waits until its process and all below it are gone.
    pub(in crate::procrun) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// The guardian's own process id, which is also its session.
    pub(in crate::procrun) fn pid(&self) -> i32 {
        self.pid
    }

    /// Launches a process. The first is the container itself: when it ends, all end.
    pub(in crate::procrun) fn launch(&self, command: Command, streams: [OwnedFd; 2]) -> Process {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (launched, start) = oneshot::channel();
        let (exited, exit) = oneshot::channel();
        {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            awaited.launches.insert(number, launched);
            awaited.exits.insert(number, exited);
        }
        let launch = Launch { process: number, command: Some(command) };
        if self.order(Act::Launch(launch), streams.into()).is_err() {
            self.awaited.lock().unwrap_or_else(PoisonError::into_inner).forget(number);
        }
        Process { number, start, exit }
    }

    /// Sends a signal to a process that was launched, or to its group.
    pub(in crate::procrun) fn signal(&self, process: u64, number: i32, target: Target) {
        // Without a guardian there is nobody left to hear it.
        let _ = self.order(Act::Signal(Signal { process, number, target: target.into() }), Vec::new());
    }

    /// Kills every process; the container is over then.
    pub(in crate::procrun) fn kill_all(&self) {
        let _ = self.order(Act::KillAll(KillAll {}), Vec::new());
    }

    fn order(&self, act: Act, descriptors: Vec<OwnedFd>) -> Result<(), mpsc::error::SendError<Outgoing>> {
        self.orders.send(Outgoing { frame: framed(&Order::of(act)), descriptors })
    }
}

impl Streams {
    /// Two pipes, non-blocking for us and blocking for them.
    pub(in crate::procrun) fn new() -> io::Result<Self> {
        let (out, stdout) = pipe::pipe()?;
        let (err, stderr) = pipe::pipe()?;
        Ok(Self { theirs: [out.into_blocking_fd()?, err.into_blocking_fd()?], stdout, stderr })
    }
}

impl Process {
    /// Waits until it runs. Asked once.
    pub(in crate::procrun) async fn start(&mut self) -> Result<Start, LaunchError> {
        (&mut self.start).await.unwrap_or(Err(LaunchError::NoGuardian))
    }

    /// Waits for its end; `None` where its guardian was killed, and told nothing.
    pub(in crate::procrun) async fn exit(&mut self) -> Option<Exit> {
        let exited = (&mut self.exit).await.ok()?;
        Some(Exit { code: exited.code, at: exited.at })
    }
}

impl Awaited {
    fn tell(&mut self, event: Event, orphan: &impl Fn(Orphan)) {
        match event {
            Event::Launched(launched) => {
                if let Some(waiting) = self.launches.remove(&launched.process) {
                    let _ = waiting.send(Ok(Start { pid: launched.pid, at: launched.at }));
                }
            }
            Event::Refused(refused) => {
                self.exits.remove(&refused.process);
                if let Some(waiting) = self.launches.remove(&refused.process) {
                    let _ = waiting.send(Err(LaunchError::Refused(refused.reason)));
                }
            }
            Event::Exited(exited) => {
                if let Some(waiting) = self.exits.remove(&exited.process) {
                    let _ = waiting.send(exited);
                }
            }
            Event::Orphan(left) => orphan(left),
        }
    }

    fn forget(&mut self, number: u64) {
        self.launches.remove(&number);
        self.exits.remove(&number);
    }

    fn forget_all(&mut self) {
        self.launches.clear();
        self.exits.clear();
    }
}

/// Sends orders and hands on reports, until the guardian has said all that it has to say: an order that cannot be sent any more is not
/// the end, for the last report may still be on its way.
async fn converse(
    socket: &UnixStream,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    awaited: &Mutex<Awaited>,
    orphan: impl Fn(Orphan),
    ending: &CancellationToken,
) {
    let ordering = async {
        tokio::select! {
            () = write(socket, outgoing) => {}
            () = ending.cancelled() => {}
        }
        // The guardian ends when it finds the end of its orders.
        let _ = SockRef::from(socket).shutdown(Shutdown::Write);
    };
    let mut reading = std::pin::pin!(read(socket, awaited, orphan));
    tokio::select! {
        () = &mut reading => {}
        () = ordering => reading.await,
    }
}

/// Sends orders until nobody can give any.
async fn write(socket: &UnixStream, mut orders: mpsc::UnboundedReceiver<Outgoing>) {
    while let Some(Outgoing { frame, descriptors }) = orders.recv().await {
        let first = socket.async_io(Interest::WRITABLE, || send(socket.as_fd(), &frame, &descriptors)).await;
        let Ok(sent) = first else { return };
        let mut rest = &frame[sent..];
        while !rest.is_empty() {
            let more = socket.async_io(Interest::WRITABLE, || send(socket.as_fd(), rest, &[])).await;
            let Ok(sent) = more else { return };
            rest = &rest[sent..];
        }
    }
}

/// Hands on reports until the guardian has ended.
async fn read(socket: &UnixStream, awaited: &Mutex<Awaited>, orphan: impl Fn(Orphan)) {
    let mut inbox = Inbox::default();
    loop {
        let received = socket.async_io(Interest::READABLE, || inbox.receive(socket.as_fd())).await;
        let Ok(Some(_)) = received else { return };
        loop {
            match inbox.next::<Report>() {
                Ok(Some(Report { event: Some(event) })) => {
                    awaited.lock().unwrap_or_else(PoisonError::into_inner).tell(event, &orphan);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // What speaks another protocol is no guardian of ours.
                Err(_) => return,
            }
        }
    }
}

/// Kills what a guardian leaves behind that was killed itself: what is still in its session. Several times, for those who are just being
/// born.
fn kill_session(session: i32) {
    for _ in 0..10 {
        let all = all_processes().into_iter().flatten().filter_map(|process| process.ok()?.stat().ok());
        let left =
            all.filter(|stat| stat.session == session && !matches!(stat.state(), Ok(ProcState::Zombie)));
        let mut killed = 0;
        for pid in left.filter_map(|stat| Pid::from_raw(stat.pid)) {
            killed += usize::from(kill_process(pid, rustix::process::Signal::KILL).is_ok());
        }
        if killed == 0 {
            return;
        }
    }
}
