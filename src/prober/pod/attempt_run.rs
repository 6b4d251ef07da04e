//! The last attempts of a probe with equal outcomes.

use std::sync::Arc;
use std::time::SystemTime;

use crate::prober::threshold::ProbeResult;

/// Maximum length of an error message, in characters.
const MAX_ERROR_CHARS: usize = 1024;

/// The attempts at the end of a container's attempts that have equal outcomes.
///
/// A result run knows results only: the kubelet ignores an attempt that errored, after three tries
/// (`prober/prober.go`: `runProbeWithRetries`; `prober/worker.go`: `doProbe` returns before it
/// counts). A liveness probe whose command does not exist therefore keeps its initial result,
/// success, for ever. Attempts that errored are counted here.
#[derive(Clone, Debug)]
pub struct AttemptRun {
    /// ID of the container.
    container_id: Arc<str>,
    /// Outcome of the attempts.
    pub outcome: AttemptOutcome,
    /// Number of the attempts.
    pub length: u32,
    /// Time at which the first of the attempts ended.
    pub since: SystemTime,
}

/// An attempt that has begun and has not ended.
#[derive(Clone, Debug)]
pub(in crate::prober) struct AttemptInFlight {
    /// ID of the container.
    container_id: Arc<str>,
    /// Time at which the attempt began.
    since: SystemTime,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The attempt has this result, which counts.
    Result(ProbeResult),
    /// The attempt errored with this message, and does not count.
    Error(String),
}

impl AttemptRun {
    /// Returns the run that an attempt continues or begins. The message is that of the last error.
    pub(super) fn after(
        last: Option<Self>,
        container_id: &Arc<str>,
        outcome: AttemptOutcome,
        now: SystemTime,
    ) -> Self {
        let outcome = outcome.shortened();
        match last.filter(|last| last.is_about(container_id) && last.outcome.is_like(&outcome)) {
            Some(last) => Self { outcome, length: last.length.saturating_add(1), ..last },
            None => Self { container_id: container_id.clone(), outcome, length: 1, since: now },
        }
    }

    /// Returns whether the attempts were made in this container.
    pub(in crate::prober) fn is_about(&self, container_id: &Arc<str>) -> bool {
        self.container_id == *container_id
    }

    /// Returns the message of the last error, if the attempts errored.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match &self.outcome {
            AttemptOutcome::Result(_) => None,
            AttemptOutcome::Error(message) => Some(message),
        }
    }
}

impl AttemptInFlight {
    /// Returns an attempt in a container that begins at this time.
    pub(super) fn new(container_id: &Arc<str>, since: SystemTime) -> Self {
        Self { container_id: container_id.clone(), since }
    }

    /// Returns the time at which the attempt began, if it is made in this container.
    pub(in crate::prober) fn since_in(&self, container_id: &Arc<str>) -> Option<SystemTime> {
        (self.container_id == *container_id).then_some(self.since)
    }
}

impl AttemptOutcome {
    /// Returns whether both are the same result, or both are errors.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Result(one), Self::Result(other)) => one == other,
            (Self::Error(_), Self::Error(_)) => true,
            _ => false,
        }
    }

    fn shortened(self) -> Self {
        match self {
            Self::Error(message) => Self::Error(message.chars().take(MAX_ERROR_CHARS).collect()),
            result @ Self::Result(_) => result,
        }
    }
}
