//! A call, and for an ExecSync what explains it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::evidence::Evidence;
use super::exec_instance::{EventTime, ExecInstance};
use super::identity::ProbeMatch;
use super::phases::Phases;
use super::slowness::Assessment;
use crate::relay::TraceContext;
use crate::tap::Call;

/// A call that has ended, as it is kept, shown, counted and exported.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// The call.
    pub call: Arc<Call>,
    /// What explains it, for an ExecSync.
    pub analysis: Option<Arc<ExecAnalysis>>,
    /// The trace that its caller says it belongs to.
    pub trace: Option<TraceContext>,
    /// Whether it takes the place of what was recorded of the same call before: its command has ended since.
    pub is_amended: bool,
    /// When the call ended; `None` of one that an earlier probeshim recorded.
    pub ended: Option<Instant>,
}

/// What explains an ExecSync.
#[derive(Clone, Debug)]
pub struct ExecAnalysis {
    /// Whose it was.
    pub identity: ProbeMatch,
    /// Where the time went.
    pub phases: Phases,
    /// How far its end was from its timeout; `None` without a timeout.
    pub margin: Option<TimeoutMargin>,
    /// Of a call that did not tell how its command ended: what events tell.
    pub command_outcome: Option<CommandOutcome>,
    /// Whether it took its time, or failed, so that evidence was asked for.
    pub assessment: Assessment,
    /// What went on in the container and on the node meanwhile; only of calls that were slow or failed.
    pub evidence: Option<Arc<Evidence>>,
}

/// How far the end of a call was from its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutMargin {
    /// It ended so long before.
    Under(Duration),
    /// It ended so long after.
    Over(Duration),
}

impl TimeoutMargin {
    pub(super) fn between(timeout: Duration, took: Duration) -> Self {
        timeout.checked_sub(took).map_or_else(|| Self::Over(took.saturating_sub(timeout)), Self::Under)
    }

    /// In this unit; negative where the timeout was over.
    #[must_use]
    pub fn as_signed_ms(self, unit: impl Fn(Duration) -> f64) -> f64 {
        match self {
            Self::Under(margin) => unit(margin),
            Self::Over(margin) => -unit(margin),
        }
    }
}

/// What became of a command whose call failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandOutcome {
    /// When it started, after the beginning of the call.
    pub started: Option<Duration>,
    /// When it ended, after the beginning of the call. It may have ended after the call.
    pub exited: Option<Duration>,
    /// How it ended: its exit code, or 128 and a signal.
    pub status: Option<u32>,
}

impl CommandOutcome {
    /// What became of the command of a call that does not tell it itself.
    pub(super) fn from_call(call: &Call, instance: Option<&ExecInstance>, since: Instant) -> Option<Self> {
        if call.exec.as_ref().is_some_and(|exec| exec.result.is_some()) {
            return None;
        }
        let instance = instance?;
        let after = |moment: Option<EventTime>| moment.map(|moment| moment.after(since));
        Some(Self {
            started: after(instance.started),
            exited: after(instance.exited),
            status: instance.status,
        })
    }

    /// Whether it was killed.
    #[must_use]
    pub fn is_killed(&self) -> Option<bool> {
        self.status.map(|status| status == 128 + 9)
    }
}

impl CallRecord {
    /// The same, without what only its span needs.
    #[must_use]
    pub fn strip_trace(self) -> Self {
        Self { trace: None, ..self }
    }

    /// The same, with nothing of its command but the program, and nothing of what probes wrote.
    pub(crate) fn redacted(mut self) -> Self {
        if self.call.exec.is_some() || self.call.kill.is_some() {
            let mut call = (*self.call).clone();
            call.exec = call.exec.map(|exec| Box::new(exec.redacted()));
            call.kill = call.kill.map(|kill| Box::new(kill.redacted()));
            self.call = Arc::new(call);
        }
        self
    }

    /// A call of which nothing more is to be told.
    #[must_use]
    pub fn unanalyzed(call: Call, trace: Option<TraceContext>, ended: Option<Instant>) -> Self {
        Self { call: Arc::new(call), analysis: None, trace, is_amended: false, ended }
    }
}
