//! Results of one exec probe in one container.

use std::time::{Duration, SystemTime};

use crate::execsync::{CallRecord, ExecVerdict, ProbeMatch};
use crate::manifest::ExecPurpose;
use crate::tap::ExecCall;
use crate::terminal::format;

/// Failure threshold of a probe that does not set one.
const DEFAULT_FAILURE_THRESHOLD: u32 = 3;

/// Maximum time from the failure that reached the threshold to the stop of the container. A kubelet
/// that syncs the pod at this moment stops the container later.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Maximum time from a failure to the stop for a probe without a known threshold.
const MAX_DELAY_UNKNOWN: Duration = Duration::from_secs(5);

/// Results of one exec probe in one container.
#[derive(Clone, Debug)]
pub(super) struct ProbeRun {
    command: Vec<String>,
    timeout_seconds: i64,
    /// The probes with this command and timeout; empty if no known probe has them.
    purposes: Vec<ExecPurpose>,
    threshold: Option<u32>,
    /// Number of failures since the last success.
    pub(super) failures: u32,
    /// Whether an attempt has succeeded.
    pub(super) has_succeeded: bool,
    /// End of the last failure.
    last_failure: SystemTime,
    /// Whether the container is ready, as far as this probe decides it.
    is_ready: bool,
}

/// A change of the readiness of a container that had been ready before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadinessChange {
    /// The readiness probe has failed this number of times in a row.
    NotReady(u32),
    /// The readiness probe has succeeded again.
    Ready,
}

impl ProbeRun {
    pub(super) fn new(exec: &ExecCall) -> Self {
        Self {
            command: exec.command.clone(),
            timeout_seconds: exec.timeout_seconds,
            purposes: Vec::new(),
            threshold: None,
            failures: 0,
            has_succeeded: false,
            last_failure: SystemTime::UNIX_EPOCH,
            is_ready: false,
        }
    }

    /// Returns whether a call is an attempt of the probe.
    pub(super) fn is_for(&self, exec: &ExecCall) -> bool {
        self.command == exec.command && self.timeout_seconds == exec.timeout_seconds
    }

    /// Adds an attempt by the kubelet's rules: errors do not count.
    pub(super) fn add(&mut self, record: &CallRecord, threshold: Option<u32>) -> Option<ReadinessChange> {
        if let Some(ProbeMatch::Matched { uses, .. }) = record.analysis.as_deref().map(|it| &it.identity) {
            self.purposes.clone_from(uses);
        }
        self.threshold = threshold.or(self.threshold);
        let decides_readiness = self.purposes.contains(&ExecPurpose::Readiness);
        match ExecVerdict::from_record(record)? {
            ExecVerdict::Success => {
                let is_change = self.has_succeeded && !self.is_ready;
                (self.failures, self.has_succeeded, self.is_ready) = (0, true, true);
                (is_change && decides_readiness).then_some(ReadinessChange::Ready)
            }
            ExecVerdict::Failure | ExecVerdict::TimedOut => {
                self.failures = self.failures.saturating_add(1);
                self.last_failure =
                    record.call.start.checked_add(record.call.duration).unwrap_or(record.call.start);
                let is_change =
                    self.is_ready && self.failures >= self.threshold.unwrap_or(DEFAULT_FAILURE_THRESHOLD);
                self.is_ready &= !is_change;
                (is_change && decides_readiness).then_some(ReadinessChange::NotReady(self.failures))
            }
            ExecVerdict::Error | ExecVerdict::Unknown => None,
        }
    }

    /// Returns whether the probe is certainly the reason of a stop at a time: the threshold of a
    /// probe that kills was reached shortly before. `hook` is the time that a preStop hook may have
    /// taken.
    pub(super) fn is_reason(&self, stopped: SystemTime, hook: Duration) -> bool {
        let is_reached = self.threshold.is_some_and(|threshold| self.failures >= threshold);
        is_reached && self.killing().count() == 1 && self.failed_before(stopped, MAX_DELAY + hook)
    }

    /// Returns whether the probe may be the reason of a stop at a time: it failed shortly before,
    /// and is not known to be a probe that does not kill.
    pub(super) fn may_be_reason(&self, stopped: SystemTime, hook: Duration) -> bool {
        let may_kill = self.purposes.is_empty() || self.killing().next().is_some();
        let is_reached = self.threshold.is_none_or(|threshold| self.failures >= threshold);
        may_kill && self.failures > 0 && is_reached && self.failed_before(stopped, MAX_DELAY_UNKNOWN + hook)
    }

    /// Returns the type of the probe that killed the container, if it is known. Of a startup and a
    /// liveness probe with one command, the liveness probe begins after the first success.
    pub(super) fn probe(&self) -> Option<ExecPurpose> {
        let mut killing = self.killing();
        match (killing.next(), killing.next()) {
            (only, None) => only,
            _ if self.has_succeeded => Some(ExecPurpose::Liveness),
            _ => Some(ExecPurpose::Startup),
        }
    }

    /// Returns the command as text.
    pub(super) fn command(&self) -> String {
        format::command(&self.command)
    }

    /// Returns the time of the last failure.
    pub(super) fn last_failure(&self) -> SystemTime {
        self.last_failure
    }

    fn killing(&self) -> impl Iterator<Item = ExecPurpose> {
        let kills = |purpose: &ExecPurpose| matches!(purpose, ExecPurpose::Liveness | ExecPurpose::Startup);
        self.purposes.iter().copied().filter(kills)
    }

    fn failed_before(&self, stopped: SystemTime, max_delay: Duration) -> bool {
        stopped.duration_since(self.last_failure).is_ok_and(|delay| delay <= max_delay)
    }
}
