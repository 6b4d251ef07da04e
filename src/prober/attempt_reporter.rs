//! Reports attempts of the prober, for the record of results over time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use super::pod::AttemptContext;
use crate::handler::{ProbeError, ProbeOutcome};
use crate::manifest::{Handler, Probe, ProbeType};
use crate::object_ref::{ContainerRef, PodRef};

/// Maximum number of attempts that wait to be received.
const QUEUE_CAPACITY: usize = 4_096;

/// An attempt of the prober that has ended.
#[derive(Clone, Debug)]
pub struct ProbeAttempt {
    /// The pod.
    pub pod: Arc<PodRef>,
    /// The container.
    pub container: Arc<ContainerRef>,
    /// The probe, with its settings.
    pub probe: Arc<Probe>,
    /// The type of the probe.
    pub probe_type: ProbeType,
    /// The verdict of the last try.
    pub verdict: AttemptVerdict,
    /// Whether the attempt is discarded, because the prober was late.
    pub is_discarded: bool,
    /// Duration of all tries together.
    pub duration: Duration,
    /// Time at which the attempt ended.
    pub ended: SystemTime,
}

/// Verdict of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// The probe succeeded.
    Success,
    /// The probe failed before its timeout.
    Failure,
    /// The probe failed because of its timeout.
    TimedOut,
    /// The attempt errored, which a kubelet does not count.
    Error,
}

/// Sends attempts to a receiver. An attempt that finds the queue full is dropped and counted. The
/// default has no receiver, and counts nothing.
#[derive(Clone, Debug, Default)]
pub struct AttemptReporter {
    queue: Option<mpsc::Sender<ProbeAttempt>>,
    dropped: Arc<AtomicU64>,
}

impl AttemptReporter {
    /// Creates a reporter and the receiver of its attempts.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<ProbeAttempt>) {
        let (queue, received) = mpsc::channel(QUEUE_CAPACITY);
        (Self { queue: Some(queue), dropped: Arc::default() }, received)
    }

    /// Returns the number of attempts that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Reports an attempt that has ended now. Attempts by exec are ExecSyncs, which are observed
    /// like those of clients, and are not reported. `duration` is that of all tries, and `took`
    /// that of the last one.
    pub(super) fn report(
        &self,
        task: &AttemptContext,
        result: &Result<ProbeOutcome, ProbeError>,
        is_discarded: bool,
        duration: Duration,
        took: Duration,
    ) {
        let Some(queue) = &self.queue else { return };
        if matches!(task.probe.handler, Handler::Exec(_)) {
            return;
        }
        let attempt = ProbeAttempt {
            pod: task.pod.clone(),
            container: task.container.clone(),
            probe: task.probe.clone(),
            probe_type: task.probe_type,
            verdict: AttemptVerdict::new(result, took, &task.probe),
            is_discarded,
            duration,
            ended: SystemTime::now(),
        };
        if queue.try_send(attempt).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl AttemptVerdict {
    /// Returns the verdict of a try that took this time.
    fn new(result: &Result<ProbeOutcome, ProbeError>, took: Duration, probe: &Probe) -> Self {
        match result {
            Ok(ProbeOutcome::Success(_) | ProbeOutcome::Warning(_)) => Self::Success,
            Ok(ProbeOutcome::Failure(_)) if took.as_secs() >= u64::from(probe.timeout) => Self::TimedOut,
            Ok(ProbeOutcome::Failure(_)) => Self::Failure,
            Err(_) => Self::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{ContainerSpec, GrpcHealth};
    use crate::prober::probe_state::tests::probe;

    fn task(handler: Handler) -> AttemptContext {
        AttemptContext {
            pod: Arc::default(),
            container: Arc::default(),
            container_id: "c".into(),
            spec: Arc::new(ContainerSpec::named("main")),
            probe: Arc::new(Probe { handler, timeout: 2, ..probe() }),
            probe_type: ProbeType::Readiness,
            address: "".into(),
        }
    }

    #[test]
    fn attempts_by_exec_are_not_reported_and_others_have_the_verdict_of_the_last_try() {
        let (reporter, mut received) = AttemptReporter::new();
        let exec = task(Handler::Exec(vec!["true".to_owned()]));
        let grpc = task(Handler::Grpc(GrpcHealth { port: 1, service: String::new(), is_tls: false }));
        let failure = Ok(ProbeOutcome::Failure("bad".to_owned()));
        for is_discarded in [false, true] {
            reporter.report(&exec, &failure, is_discarded, Duration::ZERO, Duration::ZERO);
            assert!(received.try_recv().is_err());
        }
        reporter.report(&grpc, &failure, true, Duration::ZERO, Duration::ZERO);
        assert!(received.try_recv().unwrap().is_discarded);
        for (result, duration, took, verdict) in [
            (Ok(ProbeOutcome::Warning(String::new())), 3, 3, AttemptVerdict::Success),
            (failure.clone(), 1, 1, AttemptVerdict::Failure),
            (failure.clone(), 2, 2, AttemptVerdict::TimedOut),
            (failure.clone(), 5, 1, AttemptVerdict::Failure),
            (Err(ProbeError::Exec("gone".to_owned())), 9, 9, AttemptVerdict::Error),
        ] {
            let [duration, took] = [duration, took].map(Duration::from_secs);
            reporter.report(&grpc, &result, false, duration, took);
            let attempt = received.try_recv().unwrap();
            assert_eq!((attempt.verdict, attempt.duration), (verdict, duration));
        }
    }

    #[test]
    fn attempts_that_find_the_queue_full_are_dropped_and_counted() {
        let (reporter, received) = AttemptReporter::new();
        let task = task(Handler::Grpc(GrpcHealth { port: 1, service: String::new(), is_tls: false }));
        let success = Ok(ProbeOutcome::Success(String::new()));
        for _ in 0..QUEUE_CAPACITY + 3 {
            reporter.report(&task, &success, false, Duration::ZERO, Duration::ZERO);
        }
        assert_eq!((received.len(), reporter.dropped()), (QUEUE_CAPACITY, 3));
        AttemptReporter::default().report(&task, &success, false, Duration::ZERO, Duration::ZERO);
    }
}
