//! Results of one probe in one minute.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::durations::Durations;
use crate::execsync::{Assessment, CallRecord, ExecVerdict, cause_name, cause_names};
use crate::prober::{AttemptVerdict, ProbeAttempt};

/// Maximum number of ids of failed calls in a row.
const MAX_FAILED: usize = 3;

/// Number of bytes of the output that a kubelet keeps (`pkg/probe/exec/exec.go`: `maxReadLength`).
const KUBELET_OUTPUT_BYTES: usize = 10 << 10;

/// Results of one probe in one minute, or in several that were merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Minute {
    /// Number of the minute since 1970 in which the attempts ended.
    pub minute: u64,
    /// Number of successes.
    pub successes: u32,
    /// Number of failures without those because of the timeout.
    pub failures: u32,
    /// Number of failures because of the timeout.
    pub timeouts: u32,
    /// Number of errors, which a kubelet does not count.
    pub errors: u32,
    /// Number of attempts that probeshim discarded, because its prober was late.
    pub discarded: u32,
    /// Number of attempts whose result is unknown, such as those of a client that gave up.
    pub unknown: u32,
    /// Number of attempts that probeshim answered itself: faults, limits, pauses.
    pub not_sent: u32,
    /// Number of attempts that were slow, and did not fail.
    pub slow: u32,
    /// Number of slow attempts that succeeded after their timeout.
    pub late: u32,
    /// Number of failures and timeouts after a success in the same container.
    pub failures_after_success: u32,
    /// Number of failed ExecSyncs with more output than a kubelet keeps.
    pub large_outputs: u32,
    /// Durations of all attempts.
    pub durations: Durations,
    /// Time in each phase of the ExecSyncs whose phases are known, as
    /// [`CallRecord::counted_phases`] returns it.
    pub phases: PhaseSums,
    /// Number of slow and failed ExecSyncs by the names of their causes, as [`cause_names`] returns
    /// them.
    pub causes: BTreeMap<String, u32>,
    /// Number of ExecSyncs with the causes start, run and unknown-phase, and an unusual duration,
    /// during which processes were stalled for at least a tenth of the time: on CPU, I/O and
    /// memory.
    pub stalls: [u32; 3],
    /// The slowest ExecSync.
    pub slowest: Option<CallSample>,
    /// Ids of the first failed ExecSyncs.
    pub failed_calls: Vec<u64>,
}

/// An ExecSync of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallSample {
    /// Id of the call.
    pub id: u64,
    /// Duration of the call.
    pub duration: Duration,
}

/// Time in each phase of several ExecSyncs, in the order of [`PhaseDurations::named`].
///
/// [`PhaseDurations::named`]: crate::execsync::PhaseDurations::named
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseSums {
    /// Number of ExecSyncs.
    pub calls: u32,
    /// Sum of each phase: queue, prepare, start, run, drain, other.
    pub sums: [Duration; 6],
}

impl Minute {
    /// Returns the number of the minute of a time.
    #[must_use]
    pub fn number(time: SystemTime) -> u64 {
        time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60
    }

    /// Returns the beginning of the minute.
    #[must_use]
    pub fn start(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.minute.saturating_mul(60))).unwrap_or(UNIX_EPOCH)
    }

    /// Returns the number of attempts.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        let Self { successes, failures, timeouts, errors, discarded, unknown, .. } = self;
        let counts = [successes, failures, timeouts, errors, discarded, unknown];
        counts.into_iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the number of failures, timeouts and errors.
    #[must_use]
    pub fn failed(&self) -> u32 {
        self.failures.saturating_add(self.timeouts).saturating_add(self.errors)
    }

    /// Returns the number of attempts without a result: discarded, or given up by their client.
    #[must_use]
    pub fn without_result(&self) -> u32 {
        self.discarded.saturating_add(self.unknown)
    }

    /// Returns the number of attempts with a verdict.
    pub(in crate::history) fn count_mut(&mut self, verdict: ExecVerdict) -> &mut u32 {
        match verdict {
            ExecVerdict::Success => &mut self.successes,
            ExecVerdict::Failure => &mut self.failures,
            ExecVerdict::TimedOut => &mut self.timeouts,
            ExecVerdict::Error => &mut self.errors,
            ExecVerdict::Unknown => &mut self.unknown,
        }
    }

    /// Adds an ExecSync.
    pub fn add_call(&mut self, record: &CallRecord) {
        let (Some(exec), Some(analysis)) = (record.call.exec.as_deref(), record.analysis.as_deref()) else {
            return;
        };
        let (id, duration) = (record.call.id, record.call.duration);
        self.durations.add(duration);
        if self.slowest.is_none_or(|slowest| slowest.duration < duration) {
            self.slowest = Some(CallSample { id, duration });
        }
        // The prober was late, so the attempt says nothing about the probe.
        if exec.is_discarded {
            self.discarded += 1;
            return;
        }
        let verdict = ExecVerdict::from_record(record).unwrap_or(ExecVerdict::Unknown);
        *self.count_mut(verdict) += 1;
        let output = exec.result.map(|result| result.stdout_bytes.saturating_add(result.stderr_bytes));
        let is_cut = output.is_some_and(|bytes| bytes > KUBELET_OUTPUT_BYTES);
        self.large_outputs +=
            u32::from(is_cut && matches!(verdict, ExecVerdict::Failure | ExecVerdict::TimedOut));
        if verdict != ExecVerdict::Success && self.failed_calls.len() < MAX_FAILED {
            self.failed_calls.push(id);
        }
        let causes = cause_names(record);
        for cause in causes.iter().copied().chain(cause_name::left_out(record, verdict)) {
            *self.causes.entry(cause.to_owned()).or_default() += 1;
        }
        if !analysis.is_sent() {
            self.not_sent += 1;
            return;
        }
        let is_late = record.is_late();
        self.late += u32::from(is_late);
        self.slow += u32::from(is_late || matches!(analysis.assessment, Assessment::Slow(_)));
        if let Some(parts) = record.counted_phases() {
            self.phases.calls += 1;
            for (sum, (_, phase)) in self.phases.sums.iter_mut().zip(parts.named()) {
                *sum = sum.saturating_add(phase.unwrap_or_default());
            }
        }
        // The time of the node's processes explains no other cause.
        let is_start = causes.contains(&"start");
        if let Some(evidence) = analysis.evidence.as_deref()
            && !record.is_usual_duration()
            && (is_start || causes.contains(&"run") || causes.contains(&"unknown-phase"))
        {
            let (pressure, window) = evidence.stalls(is_start);
            for (count, is_stalled) in self.stalls.iter_mut().zip(pressure.notable(window)) {
                *count += u32::from(is_stalled);
            }
        }
    }

    /// Adds an attempt of the prober that is no ExecSync.
    pub fn add_attempt(&mut self, attempt: &ProbeAttempt) {
        if attempt.is_discarded {
            self.discarded += 1;
        } else {
            *self.count_mut(attempt.verdict.into()) += 1;
        }
        self.durations.add(attempt.duration);
    }

    /// Adds the results of another row of the same probe.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            minute: _,
            successes,
            failures,
            timeouts,
            errors,
            discarded,
            unknown,
            not_sent,
            slow,
            late,
            failures_after_success,
            large_outputs,
            durations,
            phases,
            causes,
            stalls,
            slowest,
            failed_calls,
        } = other;
        for (count, more) in [
            (&mut self.successes, successes),
            (&mut self.failures, failures),
            (&mut self.timeouts, timeouts),
            (&mut self.errors, errors),
            (&mut self.discarded, discarded),
            (&mut self.unknown, unknown),
            (&mut self.not_sent, not_sent),
            (&mut self.slow, slow),
            (&mut self.late, late),
            (&mut self.failures_after_success, failures_after_success),
            (&mut self.large_outputs, large_outputs),
        ] {
            *count = count.saturating_add(*more);
        }
        self.durations.merge(durations);
        self.phases.calls = self.phases.calls.saturating_add(phases.calls);
        for (sum, more) in self.phases.sums.iter_mut().zip(phases.sums) {
            *sum = sum.saturating_add(more);
        }
        for (cause, more) in causes {
            match self.causes.get_mut(cause) {
                Some(count) => *count = count.saturating_add(*more),
                None => drop(self.causes.insert(cause.clone(), *more)),
            }
        }
        for (count, more) in self.stalls.iter_mut().zip(stalls) {
            *count = count.saturating_add(*more);
        }
        if let Some(more) = slowest
            && self.slowest.is_none_or(|known| known.duration < more.duration)
        {
            self.slowest = Some(*more);
        }
        let room = MAX_FAILED.saturating_sub(self.failed_calls.len());
        self.failed_calls.extend(failed_calls.iter().take(room));
    }

    /// Returns an upper bound of a quantile of the durations, from 0 to 1: that of its bucket, or
    /// the duration of the slowest ExecSync if none is in a longer bucket. `None` without
    /// durations.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let bound = self.durations.quantile(quantile)?;
        let slowest = self.slowest.map(|slowest| slowest.duration);
        let longest = slowest.filter(|slowest| self.durations.has_in_longest_bucket(*slowest));
        Some(longest.map_or(bound, |longest| longest.min(bound)))
    }
}

impl From<AttemptVerdict> for ExecVerdict {
    fn from(verdict: AttemptVerdict) -> Self {
        match verdict {
            AttemptVerdict::Success => Self::Success,
            AttemptVerdict::Failure => Self::Failure,
            AttemptVerdict::TimedOut => Self::TimedOut,
            AttemptVerdict::Error => Self::Error,
        }
    }
}
