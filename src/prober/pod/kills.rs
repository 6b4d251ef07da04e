//! Who would be killed, and what somebody else does about it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::PodState;
use super::container::Ending;
use super::jobs::{Signals, Todo};
use crate::probe::ProbeType;
use crate::prober::decision::kill;
use crate::prober::machine::{Life, State};
use crate::prober::notice::{Notice, What};
use crate::prober::verdict::ProbeResult;
use crate::relay::Head;

/// How much later than it would the kubelet may kill, beyond a round of its probe.
const COMPARING: Duration = Duration::from_secs(10);

impl PodState {
    /// A call stops a container.
    pub(in crate::prober) fn stopping(&mut self, id: &str, call: &Weak<Head>, todo: &mut Todo) {
        let Some(place) = self.containers.iter().position(|container| *container.id == *id) else { return };
        self.containers[place].stopper = call.clone();
        if !self.is_ending() {
            self.compare(place, todo);
        }
    }

    /// A call stops the pod.
    pub(in crate::prober) fn stopping_all(&mut self, call: &Weak<Head>) {
        self.stopper = call.clone();
    }

    pub(in crate::prober) fn is_ending(&self) -> bool {
        self.has_ended || self.is_over || self.stopper.strong_count() > 0
    }

    /// Says whether a container would be killed, and begins to count anew as if it had been.
    pub(in crate::prober) fn decide(&mut self, place: usize, now: Instant, todo: &mut Todo) {
        let container = &self.containers[place];
        if !matches!(container.state, State::Running(_)) || self.is_ending() || container.is_being_stopped() {
            return;
        }
        for probe_type in ProbeType::ENDING {
            if self.containers[place].result(probe_type) != Some(ProbeResult::Failure) {
                continue;
            }
            let name = self.containers[place].name().to_owned();
            let kill = kill(&self.spec, &name, probe_type, |other| self.state_of(other));
            let message = format!(
                "{} (dry-run: would be stopped with a grace period of {}s)",
                kill.message, kill.grace_period
            );
            todo.notices.push(self.notice(place, probe_type, What::WouldKill, message));
            let container = &mut self.containers[place];
            let ending = &mut container.endings[probe_type as usize];
            let open_since = ending.open_since.or(Some(now));
            *ending = Ending { count: ending.count + 1, last: Some(now), open_since };
            let next = Life { container_id: container.id.clone(), would_have_ended: ending.count };
            container.results[probe_type as usize] = Some((next, ProbeResult::at_first(probe_type)));
        }
    }

    /// Somebody stops a container: was that to be expected?
    pub(in crate::prober) fn compare(&mut self, place: usize, todo: &mut Todo) {
        for probe_type in ProbeType::ENDING {
            let ending = &mut self.containers[place].endings[probe_type as usize];
            let (probe, count) = (probe_type.name(), ending.count);
            if ending.open_since.take().is_some() {
                let message = format!(
                    "Is being stopped, as it would have been for its {probe} probe (verdict {count})"
                );
                todo.notices.push(self.notice(place, probe_type, What::StoppedToo, message));
            } else if let Some(job) = self.job_of(place, probe_type)
                && let run = job.machine.run
                && run.last == Some(ProbeResult::Failure)
                && run.length > 0
            {
                let (length, threshold) = (run.length, job.machine.probe.failure_threshold);
                let message = format!(
                    "Is being stopped after {length} failures of its {probe} probe; {threshold} are its threshold"
                );
                todo.notices.push(self.notice(place, probe_type, What::StoppedBefore, message));
            }
        }
    }

    /// Says who should have been killed by the kubelet by now, and has not been.
    pub(in crate::prober) fn spared(&mut self, is_kubelet_there: bool, now: Instant, todo: &mut Todo) {
        for place in 0..self.containers.len() {
            if !matches!(self.containers[place].state, State::Running(_)) {
                // It has ended, whoever ended it.
                self.containers[place].endings.iter_mut().for_each(|ending| ending.open_since = None);
            }
            for probe_type in ProbeType::ENDING {
                let Some(job) = self.job_of(place, probe_type) else { continue };
                let probe = &job.machine.probe;
                let round =
                    u64::from(probe.period) * u64::from(probe.failure_threshold) + u64::from(probe.timeout);
                let limit = COMPARING + Duration::from_secs(round);
                let ending = &mut self.containers[place].endings[probe_type as usize];
                if ending.open_since.is_none_or(|since| now < since + limit) {
                    continue;
                }
                ending.open_since = None;
                if is_kubelet_there {
                    let (probe, limit) = (probe_type.name(), limit.as_secs());
                    let message = format!(
                        "Has not been stopped for its {probe} probe within {limit}s of when it would have been"
                    );
                    todo.notices.push(self.notice(place, probe_type, What::NotStopped, message));
                }
            }
        }
    }

    pub(in crate::prober) fn notice(
        &self,
        place: usize,
        probe_type: ProbeType,
        what: What,
        message: String,
    ) -> Notice {
        let (pod, container) = (self.names.clone(), self.containers[place].names.clone());
        Notice { pod, container, probe_type, what, message }
    }

    /// A fault of ours ended an attempt of a worker.
    pub(in crate::prober) fn fault_of(&self, signals: &Arc<Signals>) -> Option<Notice> {
        let job = &self.jobs[self.place_of(signals)?];
        let place = self.place_named(&job.container)?;
        let probe_type = job.machine.probe_type;
        let message = format!("{} probe was not made: a fault of probeshim's own", probe_type.title());
        Some(self.notice(place, probe_type, What::Fault, message))
    }
}
