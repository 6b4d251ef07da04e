//! Signals that end the program.

use std::io;

use procfs::process::Process;
use rustix::process::Signal as System;
use tokio::signal::unix::{Signal, SignalKind, signal};

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

    /// Waits for the next signal and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            Some(()) = hung_up(&mut self.hangup) => "SIGHUP",
        }
    }
}

async fn hung_up(hangup: &mut Option<Signal>) -> Option<()> {
    hangup.as_mut()?.recv().await
}

fn is_hangup_ignored() -> bool {
    let status = Process::myself().and_then(|own| own.status());
    status.is_ok_and(|status| status.sigign & (1 << (System::HUP.as_raw() - 1)) != 0)
}
