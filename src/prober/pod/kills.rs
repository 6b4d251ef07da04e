//! Who is killed, or would be.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::container::{Ending, TheirStop};
use super::jobs::{Signals, Todo};
use super::order::{Order, Pardon};
use super::{Played, PodState};
use crate::probe::{Hook, ProbeType};
use crate::prober::decision::{self, Kill};
use crate::prober::enforcement::{Mode, Sentence};
use crate::prober::machine::Life;
use crate::prober::notice::{Notice, Remark, What};
use crate::prober::verdict::ProbeResult;
use crate::relay::CallInfo;

/// For how long a pod may be about to end once the kubelet has stopped one of its containers for a reason that is not known.
const UNCERTAIN: Duration = Duration::from_secs(60);

impl PodState {
    /// A call stops a container.
    pub(in crate::prober) fn stopping(
        &mut self,
        id: &str,
        call: &Weak<CallInfo>,
        now: Instant,
        todo: &mut Todo,
    ) {
        let Some(place) = self.place_with(id) else { return };
        self.containers[place].stopper = call.clone();
        let is_kubelet = call.upgrade().is_some_and(|head| head.is_from_kubelet());
        if is_kubelet && !self.is_ending() {
            self.compare(place, now, todo);
        }
    }

    /// A call of a kubelet's executes a command in a container, without a timeout. Where that is what is done before it is stopped, it is
    /// about to be.
    pub(in crate::prober) fn hook_begins(&mut self, id: &str, command: &[String], call: &Weak<CallInfo>) {
        let Some(place) = self.place_with(id) else { return };
        let spec = self.spec_of(&self.containers[place]);
        let is_hook = |hook: &Hook| matches!(hook, Hook::Exec(own) if own == command);
        if spec.and_then(|spec| spec.pre_stop()).is_some_and(is_hook) {
            self.containers[place].stopper = call.clone();
        }
    }

    /// Whether a call that stopped the pod or a container has ended since this was asked last. It may have failed.
    pub(in crate::prober) fn is_let_go(&mut self) -> bool {
        let calls = self.containers.iter_mut().map(|container| &mut container.stopper);
        let mut is_let_go = false;
        for call in calls.chain([&mut self.stopper]) {
            if call.strong_count() == 0 && !call.ptr_eq(&Weak::new()) {
                *call = Weak::new();
                is_let_go = true;
            }
        }
        is_let_go
    }

    /// A call stops the pod.
    pub(in crate::prober) fn stopping_all(&mut self, call: &Weak<CallInfo>, todo: &mut Todo) {
        self.stopper = call.clone();
        self.explained_by_end(todo);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.has_ended
            || self.is_over
            || self.played == Played::Ending
            || self.spec.is_deleted
            || self.stopper.strong_count() > 0
    }

    /// Whether the kubelet stops one of its containers for a reason that is not known, or has just done so: the pod may be about to end.
    fn may_be_ending(&self, now: Instant) -> bool {
        self.containers.iter().any(|container| match container.their_stop {
            Some(TheirStop::Unexplained { since, .. }) => {
                container.is_being_stopped() || now < since + UNCERTAIN
            }
            _ => false,
        })
    }

    /// Decides what becomes of a container whose liveness or startup probe has failed. Where it is not killed, it is told what would have
    /// become of it, and that probe begins to count anew as if it had.
    pub(super) fn decide(&mut self, place: usize, now: Instant, todo: &mut Todo) {
        let container = &self.containers[place];
        let is_at_its_end = self.is_ending() || self.may_be_ending(now) || container.is_being_stopped();
        if !container.is_running() || is_at_its_end || container.is_doomed {
            return;
        }
        for probe_type in ProbeType::KILLING {
            if self.containers[place].result(probe_type) != Some(ProbeResult::Failure) {
                continue;
            }
            let name = self.containers[place].name().to_owned();
            let kill = decision::kill(&self.spec, &name, probe_type, |other| self.state_of(other));
            if let Some((what, why)) = self.mercy(place, &kill, now, todo) {
                let message = format!("{} ({why})", kill.message);
                todo.notices.push(self.notice(place, probe_type, what, message));
                self.begin_anew(place, probe_type, now);
                if self.enforcement.mode() == Mode::DryRun {
                    self.expect(place, probe_type, &kill, now);
                }
                continue;
            }
            let job = self.job_of(place, probe_type);
            let threshold = job.map_or(1, |job| job.machine.probe.failure_threshold);
            let failures = job.map(|job| job.last_failures(threshold)).unwrap_or_default();
            let container = &mut self.containers[place];
            container.is_doomed = true;
            if self.enforcement.mode() == Mode::Restart {
                // Somebody else sees to it.
                return;
            }
            let (names, container_id) = (container.names.clone(), container.id.clone());
            todo.kills.push(Order { container: names, container_id, probe_type, kill, threshold, failures });
            return;
        }
    }

    /// Why a container is not killed, if it is not.
    fn mercy(&self, place: usize, kill: &Kill, now: Instant, todo: &mut Todo) -> Option<(What, String)> {
        let grace_period = kill.grace_period_after(Duration::ZERO);
        if !self.enforcement.mode().kills() {
            let but = kill.obstacle.as_ref().map(|obstacle| format!(", but that {obstacle}"));
            let would = format!("dry-run: would be stopped with a grace period of {grace_period}s");
            return Some((What::WouldKill, would + &but.unwrap_or_default()));
        }
        if self.containers[place].is_spared {
            return Some((What::WouldKill, "never killed: it is excluded".to_owned()));
        }
        if let Some(obstacle) = &kill.obstacle {
            return Some((What::KillSkipped, format!("not stopped: {obstacle}")));
        }
        if self.enforcement.mode() == Mode::Restart && !self.is_started_again(self.containers[place].name()) {
            return Some((What::KillSkipped, "not stopped: nobody would start it again".to_owned()));
        }
        match self.enforcement.sentence(now) {
            Sentence::Kill => None,
            Sentence::Tell => Some((What::WouldKill, "dry-run since just now".to_owned())),
            Sentence::Hold { is_first } => {
                if is_first {
                    todo.remarks.extend(self.enforcement.kills(now).most.map(Remark::KillRateLimited));
                }
                Some((What::KillSkipped, "not stopped: there have been too many kills".to_owned()))
            }
        }
    }

    /// Whether there is somebody who starts a container again.
    fn is_started_again(&self, name: &str) -> bool {
        self.played != Played::No && self.kept.as_ref().is_none_or(|kept| kept.contains(name))
    }

    /// A probe counts anew, as if its container had been restarted.
    fn begin_anew(&mut self, place: usize, probe_type: ProbeType, now: Instant) {
        let container = &mut self.containers[place];
        let ending = &mut container.endings[probe_type as usize];
        *ending = Ending { count: ending.count + 1, last: Some(now), ..*ending };
        let next = Life { container_id: container.id.clone(), would_have_ended: ending.count };
        container.results[probe_type as usize] = Some((next, ProbeResult::at_first(probe_type)));
    }

    /// Whether a container that was to be killed is left alone.
    pub(in crate::prober) fn pardon_for(&self, id: &str, now: Instant) -> Option<Pardon> {
        let Some(place) = self.place_with(id) else { return Some(Pardon::Gone) };
        let container = &self.containers[place];
        if !container.is_running() {
            Some(Pardon::Gone)
        } else if self.is_ending() || self.may_be_ending(now) || container.is_being_stopped() {
            Some(Pardon::Others)
        } else if container.is_spared {
            Some(Pardon::Excluded)
        } else if !self.enforcement.mode().kills() {
            Some(Pardon::Switched)
        } else {
            None
        }
    }

    /// A container that was to be killed is left alone from now on: its probe counts anew.
    pub(in crate::prober) fn pardoned(&mut self, order: &Order, now: Instant) {
        let Some(place) = self.place_with(&order.container_id) else { return };
        self.containers[place].is_doomed = false;
        self.begin_anew(place, order.probe_type, now);
    }

    /// A container has been killed for a probe.
    pub(in crate::prober) fn killed(&mut self, name: &str, probe_type: ProbeType) {
        if let Some(job) = self.job_at(name, probe_type) {
            self.jobs[job].kills += 1;
        }
    }

    pub(super) fn notice(&self, place: usize, probe_type: ProbeType, what: What, message: String) -> Notice {
        let (pod, container) = (self.names.clone(), self.containers[place].names.clone());
        Notice { pod, container, probe_type, what, message }
    }

    /// Tells of an attempt of a worker that ended with a panic.
    pub(in crate::prober) fn fault_of(&self, signals: &Arc<Signals>) -> Option<Notice> {
        let job = &self.jobs[self.place_of(signals)?];
        let place = self.place_named(&job.container)?;
        let probe_type = job.machine.probe_type;
        let message = format!("{} probe was not made: probeshim panicked", probe_type.title());
        Some(self.notice(place, probe_type, What::Panicked, message))
    }
}
