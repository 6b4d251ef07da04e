//! Calls in flight, as far as they are known.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cause::is_killed_at_timeout;
use super::identity::ProbeMatch;
use crate::object_ref::{ContainerRef, PodRef};
use crate::relay::{CallInfo, CallMarks};
use crate::tap::ExecCall;

/// A call in flight.
#[derive(Clone, Debug)]
pub struct CallInFlight {
    /// A copy of the call's information.
    pub info: CallInfo,
    /// Details from its request.
    pub details: RequestDetails,
}

/// Details of a call in flight. They are empty unless its request has been decoded.
#[derive(Clone, Debug, Default)]
pub struct RequestDetails {
    /// The pod.
    pub pod: Option<Arc<PodRef>>,
    /// The container.
    pub container: Option<Arc<ContainerRef>>,
    /// The command, if the call is an ExecSync.
    pub exec: Option<Arc<ExecCall>>,
    /// The probe or hook to which an ExecSync is attributed.
    pub probe_match: ProbeMatch,
    /// Progress of the command; `None` if no event of the runtime describes it.
    pub progress: Option<CommandProgress>,
    /// The marks of the call, if the policy holds the request.
    pub held: Option<CallMarks>,
}

/// Progress of the command of an ExecSync in flight, as the runtime's events describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandProgress {
    /// The pid of the command on the host, once it has started.
    pub pid: Option<u32>,
    /// The time at which the command started.
    pub started: Option<Instant>,
    /// The time at which the command exited.
    pub exited: Option<Instant>,
    /// The exit code of the command, or 128 plus the number of the signal that ended it.
    pub status: Option<u32>,
}

impl CallInFlight {
    /// Returns the time since the start of the call.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.info.since.elapsed()
    }
}

impl RequestDetails {
    /// Returns the phase that decides about the call: `queue` while the policy holds the request,
    /// then that of the command, and `run` once the command was killed at its timeout; `None` if it
    /// is unknown.
    #[must_use]
    pub fn phase(&self) -> Option<&'static str> {
        let has_timed_out = |progress: &CommandProgress| {
            self.exec.as_deref().is_some_and(|exec| progress.has_timed_out(exec))
        };
        match self.progress {
            _ if self.held.is_some() => Some("queue"),
            Some(progress) if has_timed_out(&progress) => Some("run"),
            progress => progress.map(|progress| progress.phase()),
        }
    }
}

impl CommandProgress {
    /// Returns whether the command was killed at its timeout.
    #[must_use]
    pub fn has_timed_out(&self, exec: &ExecCall) -> bool {
        let ran =
            self.started.zip(self.exited).map(|(started, exited)| exited.saturating_duration_since(started));
        exec.timeout().is_some_and(|timeout| is_killed_at_timeout(self.status, ran, timeout))
    }

    /// Returns the phase of the call: `start`, `run`, or `drain` after the exit.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match (self.started, self.exited) {
            (_, Some(_)) => "drain",
            (Some(_), None) => "run",
            (None, None) => "start",
        }
    }
}
