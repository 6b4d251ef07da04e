//! The monitor of a container: a small process between procrun and the container's processes, which launches them, reaps them,
//! and ends everything below it when the container ends or procrun is gone. The command line calls it `monitor`.
//!
//! It is our own program, started again. It leads a session of its own, so that no signal of procrun's terminal reaches the
//! container, and every process below it that loses its parent becomes its child, however far it went. As in a PID namespace,
//! the end of the container's first process is the end of all.

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
pub(super) use process::{MonitoredProcess, StdStreams};
pub(super) use protocol::{Command, Orphan, SignalTarget};

/// The program that monitors are started from: this one, also where its file has been replaced.
pub const SELF_EXE: &str = "/proc/self/exe";

/// What `ps` and `top` call it.
const NAME: &CStr = c"probeshim-guard";

/// The last signal that is not a real-time one.
const LAST_SIGNAL: i32 = 31;

/// Signals that tell of faults of a process's own, and one that std takes care of.
const SKIPPED_SIGNALS: [i32; 5] = [SIGABRT, SIGBUS, SIGPIPE, SIGSYS, SIGTRAP];

/// The umask of a container, as with runc.
const UMASK: u32 = 0o022;

/// The subcommand that makes this program a monitor.
pub const SUBCOMMAND: &str = "monitor";

/// Serves procrun, which holds the other end of standard input, until it or the container is gone. Fails where there is no procrun, or
/// the system refuses what a monitor needs.
pub fn run() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Started by a shell that gave it a process group, it would lead one, and cannot have a session; procrun never does.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    set_name(NAME)?;
    reset_inherited_state()?;
    let tree = Arc::new(ProcessTree::new(socket.try_clone()?));
    let ordered = tree.clone();
    thread::spawn(move || {
        // Whatever ends the conversation, the container ends.
        let _ = serve_requests(&socket, &ordered);
        ordered.kill_all();
    });
    tree.reap();
    Ok(())
}

/// What a container gets from here is what it would get from a runtime of its own, whoever started procrun: no descriptors but its own, no
/// signals that are ignored, and the usual umask.
fn reset_inherited_state() -> io::Result<()> {
    fds::close_on_exec()?;
    // What is caught is reset when a program is executed, and what is ignored is not. It also makes this process deaf to them: `pkill
    // probeshim` is for procrun, which ends its containers in order. A child whose end is ignored could not be reaped.
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
