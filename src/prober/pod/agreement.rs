//! Agreement: compares the kubelet's kills with the would-be kills of the prober.

use std::time::Duration;

use tokio::time::Instant;

use super::PodState;
use super::container::{KubeletStop, ProbedContainer};
use super::workers::{Effects, ProbeWorker};
use crate::events::{Event, reason};
use crate::kill::KillPlan;
use crate::manifest::ProbeType;
use crate::prober::enforcement::EnforcementMode;
use crate::prober::threshold::ProbeResult;

/// Time that is added to the latest time at which the kubelet is expected to kill.
const MATCH_TOLERANCE: Duration = Duration::from_secs(2);

impl PodState {
    /// Records that the kubelet is expected to kill a container for a probe.
    pub(super) fn predict(&mut self, index: usize, probe_type: ProbeType, kill: &KillPlan, now: Instant) {
        let Some(worker) = self.worker(index, probe_type) else { return };
        // Most hooks cannot be observed, so a hook may take its whole grace period.
        let hook = kill.pre_stop.as_ref().and(kill.hook_period()).unwrap_or_default();
        let time_limit = Duration::from_secs(worker.state.probe.period.into())
            + worker.last_duration
            + hook
            + MATCH_TOLERANCE;
        self.containers[index].endings[probe_type as usize].expected.get_or_insert((now, time_limit));
    }

    /// Compares a stop by the kubelet with the predictions. A repeated stop of a container is not
    /// compared again.
    pub(super) fn match_stop(&mut self, index: usize, now: Instant, effects: &mut Effects) {
        let container = &self.containers[index];
        if container.their_stop.is_some() || container.kill_pending {
            return;
        }
        for probe_type in ProbeType::KILLING {
            if let Some((since, _)) = self.containers[index].endings[probe_type as usize].expected {
                let later = now.saturating_duration_since(since).as_secs_f64();
                let probe = probe_type.name();
                let message = format!(
                    "The kubelet stops the container {later:.1}s after the would-be kill for its {probe} probe"
                );
                self.confirm(index, probe_type, message, effects);
                return;
            }
            if self.containers[index].result(probe_type) == Some(ProbeResult::Failure) {
                // The prober makes no decision about a container that is being stopped, so there is
                // no would-be kill.
                let message =
                    format!("The kubelet stops the container, whose {} probe has failed", probe_type.name());
                self.confirm(index, probe_type, message, effects);
                return;
            }
        }
        // The container may be stopped because its pod terminates or its definition changed. Later
        // changes show the reason.
        let workers = || ProbeType::KILLING.into_iter().filter_map(|it| self.worker(index, it));
        let nearly = workers()
            .filter(|worker| worker.is_one_failure_short())
            .max_by_key(|worker| worker.consecutive_failures());
        let nearly = nearly.map(|worker| (worker.state.probe_type, worker.consecutive_failures() > 0));
        let stood: Vec<String> = workers().map(ProbeWorker::summary).collect();
        self.containers[index].their_stop =
            Some(KubeletStop::Unexplained { nearly, stood: stood.join("; "), since: now });
    }

    /// Handles the replacement of a container by another of its name: the kubelet has restarted it.
    pub(super) fn replaced(&mut self, index: usize, hash: Option<&str>, effects: &mut Effects) {
        let container = &mut self.containers[index];
        let (name, is_same) = (container.name().to_owned(), container.hash.as_deref() == hash);
        let stop = container.their_stop.take().filter(|_| is_same);
        if let Some(KubeletStop::Unexplained { nearly, stood, .. }) = stop {
            let known = ProbeType::KILLING.into_iter().find(|it| self.worker(index, *it).is_some());
            if let Some((probe_type, _)) = nearly {
                self.confirm_near_miss(index, probe_type, effects);
            } else if known.is_some() && self.enforcement.mode() == EnforcementMode::DryRun {
                let message = format!(
                    "The kubelet has stopped and restarted the container, and no probe result explains it: {stood}"
                );
                let event = Event::warning(reason::KILL_UNPREDICTED, message);
                effects.events.push(self.container_event(index, event));
            }
        }
        for worker in self.workers.iter_mut().filter(|worker| worker.container == name) {
            worker.last_kubelet_attempt = None;
            worker.discarded_failures = 0;
        }
    }

    /// Handles the termination of the pod. A stop of a container that was one failure short of its
    /// threshold, after a failure, counts as a predicted kill. Other stops are attributed to the
    /// termination.
    pub(in crate::prober) fn explained_by_end(&mut self, effects: &mut Effects) {
        for index in 0..self.containers.len() {
            let stop = self.containers[index].their_stop.take();
            if let Some(KubeletStop::Unexplained { nearly: Some((probe_type, true)), .. }) = stop {
                self.confirm_near_miss(index, probe_type, effects);
            }
        }
    }

    fn confirm_near_miss(&mut self, index: usize, probe_type: ProbeType, effects: &mut Effects) {
        let probe = probe_type.name();
        let message = format!(
            "The kubelet stops the container; in probeshim, the {probe} probe was one failure short of the threshold"
        );
        self.confirm(index, probe_type, message, effects);
    }

    /// Reports a predicted kill by the kubelet. The kubelet resets its counters, and so does the
    /// prober.
    fn confirm(&mut self, index: usize, probe_type: ProbeType, message: String, effects: &mut Effects) {
        if self.enforcement.mode() == EnforcementMode::DryRun {
            effects.events.push(self.container_event(index, Event::normal(reason::KILL_PREDICTED, message)));
        }
        let container = &mut self.containers[index];
        container.their_stop = Some(KubeletStop::Judged);
        container.endings.iter_mut().for_each(|ending| ending.expected = None);
        if let Some(worker) = self.worker_index(self.containers[index].name(), probe_type) {
            self.workers[worker].state.run.length = 0;
            self.workers[worker].discarded_failures = 0;
        }
    }

    /// Reports predicted kills that the kubelet has not made in time. Waits while a container of
    /// the pod is being stopped.
    pub(in crate::prober) fn overdue(&mut self, is_kubelet_there: bool, now: Instant, effects: &mut Effects) {
        if self.containers.iter().any(ProbedContainer::is_being_stopped) {
            return;
        }
        for index in 0..self.containers.len() {
            let is_running = self.containers[index].is_running();
            for probe_type in ProbeType::KILLING {
                let expected = &mut self.containers[index].endings[probe_type as usize].expected;
                let Some((_, time_limit)) =
                    expected.take_if(|(since, time_limit)| !is_running || now >= *since + *time_limit)
                else {
                    continue;
                };
                if is_running && is_kubelet_there {
                    let (probe, seconds) = (probe_type.name(), time_limit.as_secs_f64());
                    let message = format!(
                        "The kubelet has not stopped the container for its {probe} probe within {seconds:.1}s of the would-be kill"
                    );
                    let event = Event::warning(reason::KILL_NOT_OBSERVED, message);
                    effects.events.push(self.container_event(index, event));
                }
            }
        }
    }

    /// Records the outcome of a command that the kubelet executed in a container.
    pub(in crate::prober) fn heard_exec(&mut self, id: &str, command: &[String], came_to: &str) {
        let Some(index) = self.index_by_id(id) else { return };
        let name = self.containers[index].name().to_owned();
        for worker in self
            .workers
            .iter_mut()
            .filter(|worker| worker.container == name && worker.matches_command(command))
        {
            worker.last_kubelet_attempt = Some(came_to.to_owned());
        }
    }
}

impl ProbeWorker {
    /// Returns the number of consecutive failures that count.
    pub(super) fn consecutive_failures(&self) -> u32 {
        if self.state.run.last == Some(ProbeResult::Failure) { self.state.run.length } else { 0 }
    }

    /// Returns whether one more failure would reach the threshold. Discarded failures count here,
    /// because the kubelet was not late.
    fn is_one_failure_short(&self) -> bool {
        let failed = self.consecutive_failures() + self.discarded_failures;
        !self.state.on_hold && failed + 1 >= self.state.probe.failure_threshold
    }

    /// Returns a summary of the last attempts of the prober and the kubelet.
    fn summary(&self) -> String {
        let (probe, threshold) = (self.state.probe_type.name(), self.state.probe.failure_threshold);
        let ours = match (self.state.run.last, self.failures.back()) {
            (Some(ProbeResult::Failure), Some(failure)) => {
                format!("{} of {threshold} failures, the last: {}", self.state.run.length, failure.message)
            }
            (Some(last), _) => format!("{} {} in a row", self.state.run.length, last.name()),
            (None, _) => "no attempt yet".to_owned(),
        };
        let theirs = self.last_kubelet_attempt.as_deref().unwrap_or("not seen");
        format!("{probe}: {ours}; last attempt of the kubelet: {theirs}")
    }
}
