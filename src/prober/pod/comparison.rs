//! Beside a kubelet: whether it kills whom we would have killed.

use std::time::Duration;

use tokio::time::Instant;

use super::PodState;
use super::jobs::{Job, Todo};
use crate::probe::ProbeType;
use crate::prober::machine::State;
use crate::prober::notice::What;
use crate::prober::verdict::{ProbeResult, Run};

/// How much later than a round of its probe the kubelet may kill.
const SLACK: Duration = Duration::from_secs(2);

/// A stop of the kubelet's of which it is not known yet what it was for.
#[derive(Clone, Debug)]
pub(in crate::prober) struct Unexplained {
    /// The probe that was one failure short of its threshold, if one was.
    nearly: Option<ProbeType>,
    /// How all of them stood, ours and the kubelet's.
    stood: String,
}

impl PodState {
    /// The kubelet stops a container: was that to be expected?
    pub(super) fn compare(&mut self, place: usize, now: Instant, todo: &mut Todo) {
        for probe_type in ProbeType::ENDING {
            if let Some(since) = self.containers[place].endings[probe_type as usize].open_since.take() {
                let later = now.saturating_duration_since(since).as_secs_f64();
                let probe = probe_type.name();
                let message = format!(
                    "The kubelet stops it, {later:.1}s after it would have been for its {probe} probe"
                );
                self.foreseen(place, probe_type, message, todo);
                return;
            }
        }
        // It may be stopped for its pod's sake, or for another definition: what comes next tells.
        let jobs = || ProbeType::ENDING.into_iter().filter_map(|it| self.job_of(place, it));
        let nearly = jobs().filter(|job| job.is_one_short()).max_by_key(|job| job.failed());
        let nearly = nearly.map(|job| job.machine.probe_type);
        let stood: Vec<String> = jobs().map(Job::standing).collect();
        self.containers[place].unexplained = Some(Unexplained { nearly, stood: stood.join("; ") });
    }

    /// A container is replaced by another of its name: the kubelet has restarted it.
    pub(super) fn replaced(&mut self, place: usize, hash: Option<&str>, todo: &mut Todo) {
        let container = &mut self.containers[place];
        let is_same = container.hash.as_deref() == hash;
        let Some(Unexplained { nearly, stood }) = container.unexplained.take().filter(|_| is_same) else {
            return;
        };
        if let Some(probe_type) = nearly {
            self.nearly_foreseen(place, probe_type, todo);
            return;
        }
        let message = format!("The kubelet has stopped and restarted it, and nothing here told why: {stood}");
        let known = ProbeType::ENDING.into_iter().find(|it| self.job_of(place, *it).is_some());
        if let Some(probe_type) = known {
            todo.notices.push(self.notice(place, probe_type, What::NotForeseen, message));
        }
    }

    /// The pod ends. Who was about to be killed was killed; of others it was not for their sake.
    pub(in crate::prober) fn explained_by_end(&mut self, todo: &mut Todo) {
        for place in 0..self.containers.len() {
            let unexplained = self.containers[place].unexplained.take();
            let nearly = unexplained.and_then(|it| it.nearly);
            let has_failed =
                |it: &ProbeType| self.job_of(place, *it).is_some_and(|job| job.machine.run.length > 0);
            if let Some(probe_type) = nearly.filter(has_failed) {
                self.nearly_foreseen(place, probe_type, todo);
            }
        }
    }

    fn nearly_foreseen(&mut self, place: usize, probe_type: ProbeType, todo: &mut Todo) {
        let probe = probe_type.name();
        let message = format!("The kubelet stops it; its {probe} probe was one failure short of that here");
        self.foreseen(place, probe_type, message, todo);
    }

    /// The kubelet has done what was to be expected: its own count begins anew, and so does ours.
    fn foreseen(&mut self, place: usize, probe_type: ProbeType, message: String, todo: &mut Todo) {
        todo.notices.push(self.notice(place, probe_type, What::Foreseen, message));
        let name = self.containers[place].name().to_owned();
        let is_it = |job: &&mut Job| job.container == name && job.machine.probe_type == probe_type;
        if let Some(job) = self.jobs.iter_mut().find(is_it) {
            job.machine.run = Run { length: 0, ..job.machine.run };
        }
    }

    /// Says whom the kubelet should have killed by now, and has not.
    pub(in crate::prober) fn spared(&mut self, is_kubelet_there: bool, now: Instant, todo: &mut Todo) {
        for place in 0..self.containers.len() {
            if !matches!(self.containers[place].state, State::Running(_)) {
                // It has ended, whoever ended it.
                self.containers[place].endings.iter_mut().for_each(|ending| ending.open_since = None);
            }
            for probe_type in ProbeType::ENDING {
                let Some(job) = self.job_of(place, probe_type) else { continue };
                let mut limit = Duration::from_secs(job.machine.probe.period.into()) + job.took + SLACK;
                let container = &self.containers[place];
                if self.spec_of(container).is_some_and(|spec| spec.pre_stop().is_some()) {
                    // Nothing is seen of most hooks.
                    limit +=
                        Duration::from_secs(self.spec.termination_grace_period.unwrap_or_default().into());
                }
                let ending = &mut self.containers[place].endings[probe_type as usize];
                if ending.open_since.is_none_or(|since| now < since + limit) {
                    continue;
                }
                ending.open_since = None;
                if is_kubelet_there {
                    let (probe, limit) = (probe_type.name(), limit.as_secs_f64());
                    let message = format!(
                        "The kubelet has not stopped it for its {probe} probe within {limit:.1}s of when it would have been"
                    );
                    todo.notices.push(self.notice(place, probe_type, What::Invented, message));
                }
            }
        }
    }

    /// The kubelet has executed a command in a container.
    pub(in crate::prober) fn heard_exec(&mut self, id: &str, command: &[String], came_to: &str) {
        let Some(container) = self.containers.iter().find(|container| *container.id == *id) else { return };
        let name = container.name().to_owned();
        for job in self.jobs.iter_mut().filter(|job| job.container == name && job.executes(command)) {
            job.theirs = Some(came_to.to_owned());
        }
    }
}

impl Job {
    /// How often it has failed in a row.
    fn failed(&self) -> u32 {
        if self.machine.run.last == Some(ProbeResult::Failure) { self.machine.run.length } else { 0 }
    }

    /// Whether one more failure would be enough.
    fn is_one_short(&self) -> bool {
        !self.machine.on_hold && self.failed() + 1 >= self.machine.probe.failure_threshold
    }

    /// How it stands, with the last attempts of both sides.
    fn standing(&self) -> String {
        let (probe, threshold) = (self.machine.probe_type.name(), self.machine.probe.failure_threshold);
        let ours = match (self.machine.run.last, self.failures.back()) {
            (Some(ProbeResult::Failure), Some(failure)) => {
                format!(
                    "{} of {threshold} failures, the last of them: {}",
                    self.machine.run.length, failure.message
                )
            }
            (Some(last), _) => format!("{} {} in a row", self.machine.run.length, last.name()),
            (None, _) => "no attempt yet".to_owned(),
        };
        let theirs = self.theirs.as_ref().map(|theirs| format!("; the kubelet's last: {theirs}"));
        format!("{probe}: {ours}{}", theirs.unwrap_or_default())
    }
}
