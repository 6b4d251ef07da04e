//! The command that `play` runs once its pods are ready, such as a test.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::process::{Pid, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::{Child, Command};

use super::service_manager::without_service_manager;
use super::signals::{ShutdownSignal, ShutdownSignals, exit_code_of};
use crate::socket::SocketPath;

/// Variable with the admin socket, which the client commands of probeshim read.
const ADMIN_VARIABLE: &str = "PROBESHIM_ADMIN";

/// Variable with the socket of the runtime, which crictl reads.
const RUNTIME_VARIABLE: &str = "CONTAINER_RUNTIME_ENDPOINT";

/// Reason for the end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// The command ended by itself, with this exit code.
    Exited(u8),
    /// This process received a signal, and passed it on.
    Signalled(ShutdownSignal),
}

/// Runs a command to its end, with the standard streams of this process, and passes on the signals
/// that this process receives. The second signal kills the command. Returns the exit code of the
/// command, which is 128 and a signal's number if a signal ended it, or the first signal that this
/// process received.
pub(super) async fn run(
    command: &[OsString],
    admin: &SocketPath,
    relay: &SocketPath,
    signals: &mut ShutdownSignals,
) -> io::Result<CommandEnd> {
    let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(args).env(ADMIN_VARIABLE, admin.to_string()).env(RUNTIME_VARIABLE, relay.to_string());
    let mut child = without_service_manager(&mut command).kill_on_drop(true).spawn()?;
    let mut received = None;
    loop {
        tokio::select! {
            status = child.wait() => {
                let status = status?;
                return Ok(received.map_or_else(|| CommandEnd::Exited(exit_code(status)), CommandEnd::Signalled));
            }
            signal = signals.next() => {
                if received.is_some() {
                    // Fails only if the command has just ended.
                    let _ = child.start_kill();
                } else {
                    pass_on(signal, &child);
                    received = Some(signal);
                }
            }
        }
    }
}

/// Sends a signal to the command, unless the terminal has sent it to the command too: on Ctrl-C, a
/// terminal signals all processes of the foreground process group.
fn pass_on(signal: ShutdownSignal, child: &Child) {
    if signal == ShutdownSignal::Interrupt && is_in_foreground() {
        return;
    }
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    if let Some(pid) = pid {
        // Fails only if the command has just ended.
        let _ = kill_process(pid, signal.system());
    }
}

/// Returns whether this process is in the foreground process group of its terminal.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Returns the exit code of a command, as shells do.
fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, signal) => exit_code_of(signal.unwrap_or_default()),
    }
}
