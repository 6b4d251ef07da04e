//! The signals that end the program.

use std::io;

use procfs::process::Process;
use rustix::process::Signal as System;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT, and SIGHUP unless it was ignored when the program was started, as nohup does.
pub(super) struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    /// Caught for as long as this is: whoever started the program may have ignored it, and then nobody could wait for a child.
    _child: Signal,
}

impl ShutdownSignals {
    /// Catches all from now on.
    pub(super) fn new() -> io::Result<Self> {
        let hangup = if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup,
            _child: signal(SignalKind::child())?,
        })
    }

    /// The name of the next one.
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
