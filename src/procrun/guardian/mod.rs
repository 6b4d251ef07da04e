//! The guardian of a container: a small process between procrun and the container's processes, which launches them, reaps them,
//! and ends everything below it when the container ends or procrun is gone.
//!
//! It is our own program, started again. It leads a session of its own, so that no signal of procrun's terminal reaches the
//! container, and every process below it that loses its parent becomes its child, however far it went. As in a PID namespace,
//! the end of the container's first process is the end of all.

mod household;
mod owner;
mod protocol;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::process::{getpid, set_child_subreaper, setsid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use household::Household;
use protocol::{Act, Inbox, Order, STREAMS};

pub(super) use owner::{Exit, Guardian, Guardians, LaunchError, Process};
pub(super) use protocol::{Command, Stray, Target};

/// The program that guardians are started from: this one, also where its file has been replaced.
pub const OURSELVES: &str = "/proc/self/exe";

/// The subcommand that makes this program a guardian.
pub const SUBCOMMAND: &str = "guardian";

/// Serves procrun, which holds the other end of standard input, until it or the container is gone.
#[must_use]
pub fn run() -> ExitCode {
    // Nobody reads what a guardian prints. Where this fails, procrun sees that it has ended, and says so.
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Started by a shell that gave it a process group, it would lead one, and cannot have a session; procrun never does.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // Caught, not ignored: what is ignored would be ignored by the container as well. `pkill probeshim` is for procrun, which
        // ends its containers in order.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let household = Arc::new(Household::new(socket.try_clone()?));
    let ordered = household.clone();
    thread::spawn(move || {
        // Whatever ends the conversation, the container ends.
        let _ = follow_orders(&socket, &ordered);
        ordered.end();
    });
    household.reap();
    Ok(())
}

fn follow_orders(socket: &UnixStream, household: &Household) -> io::Result<()> {
    let mut inbox = Inbox::default();
    let mut streams: VecDeque<OwnedFd> = VecDeque::new();
    while let Some(descriptors) = inbox.receive(socket.as_fd())? {
        streams.extend(descriptors);
        while let Some(order) = inbox.next::<Order>()? {
            match order.act {
                Some(Act::Launch(launch)) => {
                    let mut stream = || streams.pop_front().ok_or(io::ErrorKind::InvalidData);
                    let pair: [OwnedFd; STREAMS] = [stream()?, stream()?];
                    household.launch(launch, pair);
                }
                Some(Act::Strike(strike)) => household.strike(strike),
                None => {}
            }
        }
    }
    Ok(())
}
