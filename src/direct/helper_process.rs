//! The helper, from the view of probeshim: its start, requests and replies.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exec_helper::PROCESS_NAME;
use exec_helper::packet::{MAX_PACKET_BYTES, receive, send, socket_pair};
use exec_helper::protocol::{
    Exited, HelperCommand, HelperEvent, HelperReply, HelperRequest, Launch, NotRecorded, NotStarted,
    Recorded, Watch,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::process_lists::ProcessLists;
use super::verification::Argv;

/// The helper's program.
const PROGRAM: &[u8] = include_bytes!(env!("PROBESHIM_EXEC_HELPER"));

/// Time between two pings of a helper that has work.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Time after which a helper that has not answered is killed.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A running helper. Dropping it ends the helper and the commands that it runs.
#[derive(Debug)]
pub(super) struct HelperProcess {
    socket: Arc<UnixStream>,
    pending: Arc<Mutex<Pending>>,
    next_number: AtomicU64,
    ended: CancellationToken,
    dropped: CancellationToken,
}

/// Callers that wait for events, by the number of their request.
#[derive(Debug, Default)]
struct Pending {
    execs: HashMap<u64, oneshot::Sender<ExecEnd>>,
    watches: HashMap<u64, oneshot::Sender<Result<Recorded, NotRecorded>>>,
    /// Number of answered pings.
    pongs: u64,
}

/// End of an exec.
#[derive(Debug)]
pub(super) enum ExecEnd {
    Exited(Exited),
    NotStarted(NotStarted),
}

/// An exec of the helper, which ends with an event. The event is missing if the helper ends first.
#[derive(Debug)]
pub(super) struct PendingExec {
    pub(super) number: u64,
    pub(super) end: oneshot::Receiver<ExecEnd>,
}

/// A watch of the helper, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct PendingWatch {
    helper: Arc<HelperProcess>,
    number: u64,
    pub(super) end: oneshot::Receiver<Result<Recorded, NotRecorded>>,
}

impl HelperProcess {
    /// Starts a helper, whose processes are in one of these lists.
    pub(super) fn start(lists: &ProcessLists) -> io::Result<Arc<Self>> {
        let program = sealed_program()?;
        let (our_socket, helper_socket) = socket_pair()?;
        let our_socket = std::os::unix::net::UnixStream::from(our_socket);
        our_socket.set_nonblocking(true)?;
        let socket = Arc::new(UnixStream::from_std(our_socket)?);
        // The descriptor closes at the exec, after the kernel has opened the program.
        let mut command = tokio::process::Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.arg0(PROCESS_NAME).env_clear().current_dir("/");
        command.stdin(Stdio::from(helper_socket)).stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut process = command.spawn()?;
        let pid = process.id().unwrap_or_default();
        info!(pid, "exec helper started");
        let list = match lists.create() {
            Ok((list, file)) => {
                // It is the first request, so the socket has room.
                let request = HelperRequest::for_command(HelperCommand::ListProcesses(true));
                send(socket.as_fd(), &request, &[file.as_fd()])?;
                Some(list)
            }
            Err(error) => {
                warn!(%error, "the processes of the exec helper are in no list: those that change their \
                      privileges may outlive a crash of probeshim");
                None
            }
        };
        let helper = Arc::new(Self {
            socket: socket.clone(),
            pending: Arc::default(),
            next_number: AtomicU64::new(1),
            ended: CancellationToken::new(),
            dropped: CancellationToken::new(),
        });
        let (pending, ended, dropped) =
            (helper.pending.clone(), helper.ended.clone(), helper.dropped.clone());
        tokio::spawn(async move {
            let status = tokio::select! {
                biased;
                () = read_replies(&socket, &pending) => None,
                () = dropped.cancelled() => None,
                // A stopped child may still have the helper's end of the socket.
                status = process.wait() => Some(status),
                () = hangs(&socket, &pending) => {
                    warn!(pid, "exec helper does not answer, and is killed");
                    let _ = process.start_kill();
                    None
                }
            };
            ended.cancel();
            // Callers that wait learn that the helper has ended.
            *lock(&pending) = Pending::default();
            let _ = SockRef::from(&*socket).shutdown(std::net::Shutdown::Both);
            drop(socket);
            let status = match status {
                Some(status) => status,
                None => process.wait().await,
            };
            if let Some(list) = list {
                // The helper has ended, so that the list has only those processes that it left.
                let _ = spawn_blocking(move || list.end()).await;
            }
            if dropped.is_cancelled() {
                info!(pid, "exec helper ended");
            } else {
                warn!(pid, ?status, "exec helper ended unexpectedly");
            }
        });
        Ok(helper)
    }

    /// Returns whether the helper has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Launches a command. Fails if the request cannot be sent, and nothing is started then.
    pub(super) async fn launch(
        &self,
        mut launch: Launch,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<PendingExec> {
        let number = self.next_number();
        launch.exec = number;
        let (sender, end) = oneshot::channel();
        lock(&self.pending).execs.insert(number, sender);
        let request = HelperCommand::Launch(Box::new(launch));
        if let Err(error) = self.send(request, descriptors).await {
            lock(&self.pending).execs.remove(&number);
            return Err(error);
        }
        Ok(PendingExec { number, end })
    }

    /// Kills the process of an exec.
    pub(super) async fn kill(&self, exec: u64) {
        // If the helper has ended, the exec has ended for its caller too.
        let _ = self.send(HelperCommand::Kill(exec), &[]).await;
    }

    /// Starts to record the process that the runtime starts for a command in these cgroups, beside
    /// this init process.
    pub(super) async fn watch(
        self: &Arc<Self>,
        argv: Argv,
        init: i32,
        cgroups: Vec<OwnedFd>,
    ) -> io::Result<PendingWatch> {
        let number = self.next_number();
        let (sender, end) = oneshot::channel();
        lock(&self.pending).watches.insert(number, sender);
        let watch = PendingWatch { helper: self.clone(), number, end };
        let cgroups: Vec<BorrowedFd<'_>> = cgroups.iter().map(OwnedFd::as_fd).collect();
        self.send(HelperCommand::Watch(Watch { number, argv, init }), &cgroups).await?;
        Ok(watch)
    }

    async fn send(&self, command: HelperCommand, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let request = HelperRequest::for_command(command);
        let socket = &self.socket;
        socket.async_io(Interest::WRITABLE, || send(socket.as_fd(), &request, descriptors)).await
    }

    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.dropped.cancel();
    }
}

impl PendingWatch {
    /// Returns whether the helper has ended, so that the watch ends without an event.
    pub(super) fn helper_has_ended(&self) -> bool {
        self.helper.has_ended()
    }
}

impl Drop for PendingWatch {
    fn drop(&mut self) {
        if lock(&self.helper.pending).watches.remove(&self.number).is_some() {
            let request = HelperRequest::for_command(HelperCommand::Unwatch(self.number));
            // If the socket is full, the watch ends after its time limit.
            let _ = send(self.helper.socket.as_fd(), &request, &[]);
        }
    }
}

/// Waits until the helper, while it has work, does not answer for [`ANSWER_LIMIT`]. It may have
/// been stopped.
async fn hangs(socket: &UnixStream, pending: &Mutex<Pending>) {
    loop {
        sleep(PING_INTERVAL).await;
        let pongs = {
            let pending = lock(pending);
            if pending.execs.is_empty() && pending.watches.is_empty() {
                continue;
            }
            pending.pongs
        };
        // If the socket is full, the helper has requests to handle.
        let _ = send(socket.as_fd(), &HelperRequest::for_command(HelperCommand::Ping(true)), &[]);
        sleep(ANSWER_LIMIT).await;
        if lock(pending).pongs == pongs {
            return;
        }
    }
}

/// Passes replies on until the helper has closed its end.
async fn read_replies(socket: &UnixStream, pending: &Mutex<Pending>) {
    let mut buffer = vec![0; MAX_PACKET_BYTES];
    loop {
        let received =
            socket.async_io(Interest::READABLE, || receive::<HelperReply>(socket.as_fd(), &mut buffer)).await;
        match received {
            Ok(Some((HelperReply { event: Some(event) }, _))) => lock(pending).pass_on(event),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => {
                warn!(%error, "the exec helper sent an invalid reply");
                return;
            }
        }
    }
}

impl Pending {
    fn pass_on(&mut self, event: HelperEvent) {
        // A caller that no longer waits has dropped its receiver.
        match event {
            HelperEvent::Exited(exited) => {
                let _ = self.execs.remove(&exited.exec).map(|caller| caller.send(ExecEnd::Exited(exited)));
            }
            HelperEvent::NotStarted(refusal) => {
                let caller = self.execs.remove(&refusal.exec);
                let _ = caller.map(|caller| caller.send(ExecEnd::NotStarted(refusal)));
            }
            HelperEvent::Recorded(recorded) => {
                let _ = self.watches.remove(&recorded.watch).map(|caller| caller.send(Ok(recorded)));
            }
            HelperEvent::NotRecorded(failed) => {
                let _ = self.watches.remove(&failed.watch).map(|caller| caller.send(Err(failed)));
            }
            HelperEvent::Pong(_) => self.pongs += 1,
        }
    }
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a file in memory with the helper's program, which cannot be changed. A process in a
/// container that opens it through `/proc/PID/exe` cannot write to it (CVE-2019-5736).
fn sealed_program() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag, and allow the exec of every file in memory.
    let file = memfd_create(PROCESS_NAME, flags | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(PROCESS_NAME, flags))?;
    let mut file = File::from(file);
    file.write_all(PROGRAM)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}
