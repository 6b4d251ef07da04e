//! Monitor of a container: a small process between procrun and the container's processes. It
//! launches and reaps them, and kills all of them when the container ends or procrun exits. Its
//! subcommand is `monitor`.
//!
//! The monitor is this program, started again. It leads a session, so that no signal of procrun's
//! terminal reaches the container. It is a child subreaper: every descendant that loses its parent
//! becomes its child. As in a PID namespace, the exit of the container's first process ends all
//! others.

mod fds;
mod handle;
mod message_io;
mod process;
mod protocol;
mod reaper;

use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::fs::Mode;
use rustix::process::{getpid, set_child_subreaper, setsid, umask};
use rustix::thread::set_name;
use signal_hook::consts::{FORBIDDEN, SIGABRT, SIGBUS, SIGPIPE, SIGSYS, SIGTRAP};

use protocol::{MessageReader, MonitorCommand, MonitorRequest, STREAMS};
use reaper::ProcessTree;

pub(super) use handle::{Monitor, Monitors};
pub(super) use process::{Exit, LaunchError, MonitoredProcess, StdStreams};
pub(super) use protocol::{Command, Orphan, SignalTarget};

/// Path of the program from which monitors are started: the running program, even if its file was
/// replaced.
pub const SELF_EXE: &str = "/proc/self/exe";

/// Name of a monitor's process in `ps` and `top`.
const NAME: &CStr = c"probeshim-guard";

/// Last signal that is not a real-time signal.
const LAST_SIGNAL: i32 = 31;

/// Signals whose disposition is kept: std handles SIGPIPE, and the others report faults of the
/// process itself.
const SKIPPED_SIGNALS: [i32; 5] = [SIGABRT, SIGBUS, SIGPIPE, SIGSYS, SIGTRAP];

/// Umask of a container, as with runc.
const UMASK: u32 = 0o022;

/// Subcommand that makes this program a monitor.
pub const SUBCOMMAND: &str = "monitor";

/// Runs a monitor until the container has ended or procrun has exited. procrun holds the other end
/// of standard input. Fails if standard input is not a socket or a system call fails.
pub fn run() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // setsid fails for the leader of a process group. A shell may make this process a leader, but
    // procrun does not.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    set_name(NAME)?;
    reset_inherited_state()?;
    let tree = Arc::new(ProcessTree::new(socket.try_clone()?));
    let ordered = tree.clone();
    thread::spawn(move || {
        // The container ends whenever the exchange ends, even with an error.
        let _ = serve_requests(&socket, &ordered);
        ordered.kill_all();
    });
    tree.reap();
    Ok(())
}

/// Resets the state that a container would inherit from the process that started procrun:
/// descriptors, ignored signals and the umask.
fn reset_inherited_state() -> io::Result<()> {
    fds::close_on_exec()?;
    // Exec resets caught signals, but not ignored ones, so each signal gets a handler without
    // effect. The handlers also make the monitor ignore `pkill probeshim`, which is meant for
    // procrun: procrun ends its containers in order. If SIGCHLD stayed ignored, children could not
    // be reaped.
    for signal in
        (1..=LAST_SIGNAL).filter(|signal| !SKIPPED_SIGNALS.contains(signal) && !FORBIDDEN.contains(signal))
    {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    umask(Mode::from_raw_mode(UMASK));
    Ok(())
}

fn serve_requests(socket: &UnixStream, tree: &ProcessTree) -> io::Result<()> {
    let mut inbox = MessageReader::default();
    let mut streams: VecDeque<OwnedFd> = VecDeque::new();
    while let Some(descriptors) = inbox.receive(socket.as_fd())? {
        streams.extend(descriptors);
        while let Some(order) = inbox.next::<MonitorRequest>()? {
            match order.act {
                Some(MonitorCommand::Launch(launch)) => {
                    let mut stream = || streams.pop_front().ok_or(io::ErrorKind::InvalidData);
                    let pair: [OwnedFd; STREAMS] = [stream()?, stream()?];
                    tree.launch(launch, pair);
                }
                Some(MonitorCommand::Signal(signal)) => tree.signal(signal),
                Some(MonitorCommand::KillAll(_)) => tree.kill_all(),
                None => {}
            }
        }
    }
    Ok(())
}
