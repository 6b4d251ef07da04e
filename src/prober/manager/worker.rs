//! Makes the attempts of one probe of one container at its period.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::error;

use super::ManagerInner;
use crate::events::{Event, reason};
use crate::handler::ContainerNames;
use crate::handler::meter::AttemptMeter;
use crate::handler::meter::Series;
use crate::handler::{ProbeError, ProbeOutcome, ProbeTarget, ProbeTry, attempt};
use crate::manifest::Probe;
use crate::prober::enforcement::EnforcementMode;
use crate::prober::lateness::{Delay, timed};
use crate::prober::pod::{AttemptContext, AttemptResult, Effects, ProbeWorkerHandle, ProbedPod};
use crate::prober::probe_state::NextAction;
use crate::prober::threshold::ProbeResult;
use crate::tap::EndedCall;

/// Maximum number of tries of an attempt whose outcome is an error, one right after the other
/// (`prober/prober.go`: `maxProbeRetries`).
const MAX_PROBE_RETRIES: usize = 3;

/// Task that makes the attempts of one probe.
pub(super) struct Worker {
    pub(super) shared: Arc<ManagerInner>,
    pub(super) pod: Arc<ProbedPod>,
    pub(super) signals: Arc<ProbeWorkerHandle>,
    /// Whether the first attempt is made at a random time within the first period.
    pub(super) is_spread: bool,
    /// Meter of the time that the attempts take from the prober's thread, once there has been one.
    pub(super) meter: Option<Arc<AttemptMeter>>,
    /// Number of attempts in a row that were discarded because the prober was late.
    pub(super) discarded: u32,
}

/// The last try of an attempt.
struct Tried {
    result: Result<ProbeOutcome, ProbeError>,
    /// The ExecSync of an exec probe, which is reported once it is decided whether the attempt is
    /// discarded.
    call: Option<EndedCall>,
    /// Duration of the try.
    took: Duration,
    delay: Delay,
}

impl Worker {
    /// Makes attempts until the probe ends or the worker is stopped. Attempts keep to a grid that
    /// begins now. If an attempt takes longer than the period, the next follows immediately, and
    /// the ticks missed in between are skipped.
    pub(super) async fn run(mut self, probe: Arc<Probe>) {
        let period = Duration::from_secs(probe.period.into());
        let mut is_stopped = false;
        if self.is_spread || self.shared.is_young(period) {
            // The workers of a new prober start together, so their first attempts are spread.
            tokio::select! {
                () = self.signals.stop.notified() => is_stopped = true,
                () = sleep(period.mul_f64(fastrand::f64())) => {}
            }
        }
        let mut due = Instant::now();
        let mut ticks = interval_at(due + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !is_stopped && self.tick(due).await {
            tokio::select! {
                () = self.signals.stop.notified() => break,
                tick = ticks.tick() => due = tick,
                () = self.signals.manual_trigger.notified() => {
                    ticks.reset();
                    due = Instant::now();
                }
            }
        }
        let mut effects = Effects::default();
        self.pod.lock().on_worker_exit(&self.signals, Instant::now(), &mut effects);
        self.shared.apply_effects(&self.pod, effects);
        if let Some(meter) = self.meter {
            meter.end();
            self.shared.metrics.end(&meter.series);
        }
    }

    /// Makes the attempt of the tick at `due`, if there is to be one. Returns `false` once there
    /// will be no more. A panic is caught and reported, and the tick counts as one without an
    /// attempt.
    async fn tick(&mut self, due: Instant) -> bool {
        let worked = AssertUnwindSafe(self.do_probe(due)).catch_unwind().await;
        worked.unwrap_or_else(|_| {
            self.fault();
            true
        })
    }

    /// Makes the attempt of a tick. In the mode `off` there is none, and the probe continues to
    /// count once the mode is another one.
    async fn do_probe(&mut self, due: Instant) -> bool {
        if self.shared.enforcement.mode() == EnforcementMode::Off {
            return true;
        }
        let now = Instant::now();
        let mut effects = Effects::default();
        let (next, task) = self.pod.lock().next_action(&self.signals, now, &mut effects);
        self.shared.apply_effects(&self.pod, effects);
        if let Some(task) = task {
            self.shared.metrics.late(now - due);
            // The future is large, and most ticks make no attempt.
            Box::pin(self.attempt(&task)).await;
            self.pod.lock().on_attempt_end(&self.signals);
        }
        next != NextAction::Exit
    }

    /// Makes an attempt, and records its result.
    async fn attempt(&mut self, task: &AttemptContext) {
        let new_meter = || AttemptMeter::new(Series::new(task), &self.shared.thread_use);
        let meter = self.meter.get_or_insert_with(new_meter).clone();
        let started = Instant::now();
        let mut tried = self.shared.attempt_with_retries(task, &meter).await;
        let duration = started.elapsed();
        if self.shared.enforcement.mode() == EnforcementMode::Off {
            return;
        }
        let metrics = &self.shared.metrics;
        let (reason, message) = event_message(task, &tried.result);
        let is_discarded = tried.is_discarded(&task.probe, self.discarded);
        tried.report_call(is_discarded);
        self.shared.attempts.report(task, &tried.result, is_discarded, duration, tried.took);
        if is_discarded {
            self.discarded += 1;
            metrics.discarded(&meter.series, tried.delay.culprit.as_ref());
            let message = tried.discarded_message(task, &message);
            self.shared.record_attempt_event(task, reason::PROBE_DISCARDED, message);
            if result_of(&tried.result) == Some(ProbeResult::Failure) {
                self.pod.lock().discard_failure(&self.signals);
            }
            return;
        }
        self.discarded = 0;
        if let Some(reason) = reason {
            self.shared.record_attempt_event(task, reason, message.clone());
        }
        let result = match &tried.result {
            Ok(outcome) => result_of_outcome(outcome),
            Err(error) => {
                metrics.errored(&meter.series);
                self.pod.lock().record_error(&self.signals, &task.container_id, error.to_string());
                return;
            }
        };
        let margin = f64::from(task.probe.timeout) - tried.took.as_secs_f64();
        metrics.attempted(&meter.series, result, duration, margin);
        let mut effects = Effects::default();
        let outcome = AttemptResult { result, duration, message };
        let now = Instant::now();
        self.pod.lock().record_attempt(&self.signals, &task.container_id, outcome, now, &mut effects);
        self.shared.apply_effects(&self.pod, effects);
    }

    fn fault(&self) {
        self.shared.metrics.fault();
        self.pod.lock().on_attempt_end(&self.signals);
        let Some(event) = self.pod.lock().panic_event(&self.signals) else { return };
        let pod = event.pod.as_ref().and_then(|pod| pod.name.as_deref());
        let container = event.container.as_ref().and_then(|container| container.name.as_deref());
        error!(pod, container, "bug in probeshim: {}; please report it", event.message);
        self.shared.events.record(event);
    }
}

impl Tried {
    /// Returns whether the attempt is discarded, after `in_a_row` discarded ones. A success within
    /// the timeout counts, because a late prober can only make it look slower.
    fn is_discarded(&self, probe: &Probe, in_a_row: u32) -> bool {
        let timeout = timeout_of(probe);
        let is_sure = result_of(&self.result) == Some(ProbeResult::Success) && self.took <= timeout;
        !is_sure && self.delay.discards(timeout, in_a_row, probe.failure_threshold)
    }

    /// Reports the ExecSync of an exec probe, with its mark if the attempt is discarded.
    fn report_call(&mut self, is_discarded: bool) {
        if let Some(mut call) = self.call.take()
            && is_discarded
        {
            call.discard();
        }
    }

    /// Returns the message of a discarded attempt. It has no number that changes, so that equal
    /// events are counted together. `message` is the message of the attempt if it counted.
    fn discarded_message(&self, task: &AttemptContext, message: &str) -> String {
        let title = task.probe_type.title();
        let by = match &self.delay.culprit {
            Some(culprit) => format!("the {} took most of its time", culprit.series),
            None => "no probe took much of its time".to_owned(),
        };
        let separator = if message.is_empty() { "" } else { ": " };
        format!(
            "{title} probe discarded: the prober was late by more than a tenth of the timeout, and {by}{separator}{message}"
        )
    }
}

fn timeout_of(probe: &Probe) -> Duration {
    Duration::from_secs(probe.timeout.into())
}

/// Returns the result of an attempt; `None` if its outcome is an error.
fn result_of(tried: &Result<ProbeOutcome, ProbeError>) -> Option<ProbeResult> {
    tried.as_ref().ok().map(result_of_outcome)
}

fn result_of_outcome(outcome: &ProbeOutcome) -> ProbeResult {
    match outcome {
        ProbeOutcome::Success(_) | ProbeOutcome::Warning(_) => ProbeResult::Success,
        ProbeOutcome::Failure(_) => ProbeResult::Failure,
    }
}

/// Returns the reason and the message of an attempt's event, which are the kubelet's
/// (`prober/prober.go`: `probe`). A success without a warning has no reason.
fn event_message(
    task: &AttemptContext,
    tried: &Result<ProbeOutcome, ProbeError>,
) -> (Option<&'static str>, String) {
    let title = task.probe_type.title();
    match tried {
        Ok(ProbeOutcome::Success(_)) => (None, String::new()),
        Ok(ProbeOutcome::Warning(output)) => {
            (Some(reason::PROBE_WARNING), format!("{title} probe warning: {output}"))
        }
        Ok(ProbeOutcome::Failure(output)) => {
            (Some(reason::UNHEALTHY), format!("{title} probe failed: {output}"))
        }
        Err(error) => {
            let result = error.outcome();
            let message = format!("{title} probe errored and resulted in {result} state: {error}");
            (Some(reason::UNHEALTHY), message)
        }
    }
}

impl ManagerInner {
    /// Tries an attempt until its outcome is no error, at most `MAX_PROBE_RETRIES` times. Returns
    /// the last try (`prober/prober.go`: `runProbeWithRetries`).
    async fn attempt_with_retries(&self, task: &AttemptContext, meter: &Arc<AttemptMeter>) -> Tried {
        let target =
            ProbeTarget { container_id: &task.container_id, container: &task.spec, pod_ip: &task.address };
        let names = ContainerNames { pod: task.pod.clone(), container: task.container.clone() };
        let mut tries = 1;
        loop {
            let started = Instant::now();
            let attempt = attempt(&task.probe, &target, &names, &self.executor);
            let (ProbeTry { result, call }, delay) = timed(meter, timeout_of(&task.probe), attempt).await;
            if result.is_ok() || tries == MAX_PROBE_RETRIES {
                return Tried { result, call, took: started.elapsed(), delay };
            }
            tries += 1;
        }
    }

    fn record_attempt_event(&self, task: &AttemptContext, reason: &'static str, message: String) {
        let event = Event::warning(reason, message);
        self.events.record(event.for_container(task.pod.clone(), task.container.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{ContainerSpec, ProbeType};
    use crate::prober::probe_state::tests::probe;

    /// Repeats `TestRecordContainerEventUnknownStatus` and the rows success, warning, failure and
    /// unknown with error of `TestProbe` (`prober_test.go`), for each probe type.
    #[test]
    fn events_of_failed_probes_have_the_kubelets_messages() {
        for probe_type in ProbeType::ALL {
            let task = AttemptContext {
                pod: Arc::default(),
                container: Arc::default(),
                container_id: "c".into(),
                spec: Arc::new(ContainerSpec::named("main")),
                probe: Arc::new(probe()),
                probe_type,
                address: "".into(),
            };
            let title = probe_type.title();
            let text = |text: &str| text.to_owned();
            let unhealthy = |message: &str| (Some(reason::UNHEALTHY), format!("{title} probe {message}"));
            let warned = (Some(reason::PROBE_WARNING), format!("{title} probe warning: look"));
            let (well, badly) = (Some(ProbeResult::Success), Some(ProbeResult::Failure));
            for (tried, result, expected) in [
                (Ok(ProbeOutcome::Success(text("fine"))), well, (None, String::new())),
                (Ok(ProbeOutcome::Warning(text("look"))), well, warned),
                (Ok(ProbeOutcome::Failure(text("bad"))), badly, unhealthy("failed: bad")),
                (
                    Err(ProbeError::Exec(text("gone"))),
                    None,
                    unhealthy("errored and resulted in unknown state: gone"),
                ),
                (
                    Err(ProbeError::Body(text("cut"))),
                    None,
                    unhealthy("errored and resulted in failure state: cut"),
                ),
            ] {
                assert_eq!((event_message(&task, &tried), result_of(&tried)), (expected, result));
            }
        }
    }
}
