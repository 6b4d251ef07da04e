//! Signals that end the program or hand its work over.

use std::io;

use procfs::process::Process;
use rustix::process::Signal as System;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that ends the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT, which a terminal sends on Ctrl-C.
    Interrupt,
    /// SIGHUP, which a terminal sends when it is closed.
    Hangup,
}

impl ShutdownSignal {
    /// Returns the name of the signal.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::Hangup => "SIGHUP",
        }
    }

    /// Returns the signal of the operating system.
    pub(super) fn system(self) -> System {
        match self {
            Self::Terminate => System::TERM,
            Self::Interrupt => System::INT,
            Self::Hangup => System::HUP,
        }
    }

    /// Returns the exit code that shells give a command that ends because of the signal: 130 for
    /// SIGINT, 143 for SIGTERM.
    pub(super) fn exit_code(self) -> u8 {
        exit_code_of(self.system().as_raw())
    }
}

/// Returns the exit code that shells give a command that a signal ends: 128 and the signal's
/// number.
pub(super) fn exit_code_of(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |number| number.saturating_add(128))
}

/// SIGTERM, SIGINT, and SIGHUP unless the program was started with SIGHUP ignored, as by nohup.
pub(super) struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    /// Catches SIGCHLD. The parent process may have ignored it, and then this process could not
    /// wait for its children.
    _child: Signal,
}

impl ShutdownSignals {
    /// Starts to catch the signals.
    pub(super) fn new() -> io::Result<Self> {
        let hangup = if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup,
            _child: signal(SignalKind::child())?,
        })
    }

    /// Starts to catch the signals of a service, for which SIGHUP means to read its configuration
    /// again. A program with a terminal ends when the terminal is closed.
    pub(super) fn of_service() -> io::Result<Self> {
        let signals = Self::new()?;
        Ok(if has_terminal() { signals } else { Self { hangup: None, ..signals } })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> ShutdownSignal {
        tokio::select! {
            _ = self.terminate.recv() => ShutdownSignal::Terminate,
            _ = self.interrupt.recv() => ShutdownSignal::Interrupt,
            Some(()) = hung_up(&mut self.hangup) => ShutdownSignal::Hangup,
        }
    }
}

/// SIGUSR2, which requests a successor.
pub(super) struct HandoverSignal(Signal);

impl HandoverSignal {
    /// Starts to catch the signal, whose default action would end the process.
    pub(super) fn new() -> io::Result<Self> {
        signal(SignalKind::user_defined2()).map(Self)
    }

    /// Waits for the signal.
    pub(super) async fn received(&mut self) {
        self.0.recv().await;
    }
}

/// Waits for a signal, if it is caught.
pub(super) async fn hung_up(hangup: &mut Option<Signal>) -> Option<()> {
    hangup.as_mut()?.recv().await
}

/// Returns whether the process has a terminal, whose end sends SIGHUP.
pub(super) fn has_terminal() -> bool {
    Process::myself().and_then(|own| own.stat()).is_ok_and(|stat| stat.tty_nr != 0)
}

fn is_hangup_ignored() -> bool {
    let status = Process::myself().and_then(|own| own.status());
    status.is_ok_and(|status| status.sigign & (1 << (System::HUP.as_raw() - 1)) != 0)
}
