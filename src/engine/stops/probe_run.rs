//! Results of one exec probe in one container.

use std::time::{Duration, SystemTime};

use crate::execsync::{CallRecord, ExecVerdict, ProbeMatch};
use crate::manifest::{ExecPurpose, Probe};
use crate::tap::ExecCall;
use crate::terminal::format;

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
    /// Failure thresholds of these probes, as far as they are known.
    thresholds: Vec<(ExecPurpose, u32)>,
    /// Number of failures since the last success, of all probes with this command.
    failures: u32,
    /// Whether an attempt has succeeded; `None` if earlier attempts were not observed.
    pub(super) has_succeeded: Option<bool>,
    /// End of the last failure.
    last_failure: SystemTime,
    /// Whether the container is ready, as far as this probe decides it.
    is_ready: bool,
}

/// A change of the readiness of a container that had been ready before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadinessChange {
    /// The readiness probe has failed this number of times in a row, if it is known.
    NotReady(Option<u32>),
    /// The readiness probe has succeeded again.
    Ready,
}

impl ProbeRun {
    /// Creates a probe without results. `is_start_observed` is set if all of its attempts in the
    /// container are observed.
    pub(super) fn new(exec: &ExecCall, is_start_observed: bool) -> Self {
        Self {
            command: exec.command.clone(),
            timeout_seconds: exec.timeout_seconds,
            purposes: Vec::new(),
            thresholds: Vec::new(),
            failures: 0,
            has_succeeded: is_start_observed.then_some(false),
            last_failure: SystemTime::UNIX_EPOCH,
            is_ready: false,
        }
    }

    /// Returns whether a call is an attempt of the probe.
    pub(super) fn is_for(&self, exec: &ExecCall) -> bool {
        self.command == exec.command && self.timeout_seconds == exec.timeout_seconds
    }

    /// Adds an attempt by the kubelet's rules: errors do not count.
    pub(super) fn add(
        &mut self,
        record: &CallRecord,
        thresholds: &[(ExecPurpose, u32)],
    ) -> Option<ReadinessChange> {
        if let Some(ProbeMatch::Matched { uses, .. }) = record.analysis.as_deref().map(|it| &it.identity) {
            self.purposes.clone_from(uses);
        }
        if !thresholds.is_empty() {
            self.thresholds = thresholds.to_vec();
        }
        let decides_readiness = self.purposes.contains(&ExecPurpose::Readiness);
        // The command ended with its container, which a kubelet does not probe again.
        if record.has_ended_with_container() {
            return None;
        }
        match ExecVerdict::from_record(record)? {
            ExecVerdict::Success => {
                let is_change = self.has_succeeded == Some(true) && !self.is_ready;
                (self.failures, self.has_succeeded, self.is_ready) = (0, Some(true), true);
                (is_change && decides_readiness).then_some(ReadinessChange::Ready)
            }
            ExecVerdict::Failure | ExecVerdict::TimedOut => {
                self.failures = self.failures.saturating_add(1);
                self.last_failure =
                    record.call.start.checked_add(record.call.duration).unwrap_or(record.call.start);
                let threshold =
                    self.threshold(ExecPurpose::Readiness).unwrap_or(Probe::DEFAULT_FAILURE_THRESHOLD);
                let is_change = self.is_ready && self.failures >= threshold;
                self.is_ready &= !is_change;
                (is_change && decides_readiness)
                    .then_some(ReadinessChange::NotReady(self.failures_in_a_row()))
            }
            ExecVerdict::Error | ExecVerdict::Unknown => None,
        }
    }

    /// Returns whether the probe is certainly the reason of a stop at a time: the threshold of a
    /// probe that kills was reached shortly before. `hook` is the time that a preStop hook may have
    /// taken.
    pub(super) fn is_reason(&self, stopped: SystemTime, hook: Duration) -> bool {
        let [only] = self.killing()[..] else { return false };
        let is_reached = self.threshold(only).is_some_and(|threshold| self.failures >= threshold);
        is_reached && self.failed_before(stopped, MAX_DELAY + hook)
    }

    /// Returns whether the probe may be the reason of a stop at a time: it failed shortly before,
    /// and is not known to be a probe that does not kill. Failures before the observation count
    /// too, and are not known.
    pub(super) fn may_be_reason(&self, stopped: SystemTime, hook: Duration) -> bool {
        let is_reached = |purpose| {
            self.has_succeeded.is_none()
                || self.threshold(purpose).is_none_or(|threshold| self.failures >= threshold)
        };
        let may_kill = self.purposes.is_empty() || self.killing().into_iter().any(is_reached);
        may_kill && self.failures > 0 && self.failed_before(stopped, MAX_DELAY_UNKNOWN + hook)
    }

    /// Returns the type of the probe that killed the container, or the possible types, joined with
    /// `or`; `None` if no known probe has this command.
    pub(super) fn types(&self) -> Option<String> {
        let names: Vec<&str> = self.killing().into_iter().map(ExecPurpose::name).collect();
        (!names.is_empty()).then(|| names.join(" or "))
    }

    /// Returns the number of failures since the last success; `None` if several probes with this
    /// command run at this time, or if earlier attempts were not observed.
    pub(super) fn failures_in_a_row(&self) -> Option<u32> {
        self.has_succeeded?;
        let is_startup = self.purposes.contains(&ExecPurpose::Startup) && self.has_succeeded == Some(false);
        let others = self.purposes.iter().filter(|purpose| **purpose != ExecPurpose::Startup);
        (is_startup || others.count() < 2).then_some(self.failures)
    }

    /// Returns the command as text.
    pub(super) fn command(&self) -> String {
        format::command(&self.command)
    }

    /// Returns the time of the last failure.
    pub(super) fn last_failure(&self) -> SystemTime {
        self.last_failure
    }

    /// Returns the probes with this command that can kill the container at this time. Of a startup
    /// and a liveness probe, the liveness probe begins after the first success.
    fn killing(&self) -> Vec<ExecPurpose> {
        let excluded = match self.has_succeeded {
            _ if !self.purposes.contains(&ExecPurpose::Startup) => None,
            _ if !self.purposes.contains(&ExecPurpose::Liveness) => None,
            Some(true) => Some(ExecPurpose::Startup),
            Some(false) => Some(ExecPurpose::Liveness),
            None => None,
        };
        let kills = |purpose: &ExecPurpose| {
            matches!(purpose, ExecPurpose::Liveness | ExecPurpose::Startup) && Some(*purpose) != excluded
        };
        self.purposes.iter().copied().filter(kills).collect()
    }

    fn threshold(&self, purpose: ExecPurpose) -> Option<u32> {
        self.thresholds.iter().find(|(known, _)| *known == purpose).map(|(_, threshold)| *threshold)
    }

    fn failed_before(&self, stopped: SystemTime, max_delay: Duration) -> bool {
        stopped.duration_since(self.last_failure).is_ok_and(|delay| delay <= max_delay)
    }
}
