//! Decides which containers are killed, or would be.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::container::{InventoryObject, KubeletStop, WouldKillStats};
use super::kill_request::{KillAbort, KillRequest};
use super::workers::{Effects, ProbeWorkerHandle};
use super::{Management, PodState};
use crate::events::{Event, reason};
use crate::kill::KillPlan;
use crate::manifest::{Hook, ProbeType};
use crate::prober::enforcement::{EnforcementMode, KillLimit, KillPermit};
use crate::prober::kill_plan;
use crate::prober::probe_state::ContainerRun;
use crate::prober::threshold::ProbeResult;
use crate::relay::CallInfo;

/// Time for which a pod may be about to terminate after the kubelet stopped one of its containers
/// for an unknown reason.
const RECENT_STOP_WINDOW: Duration = Duration::from_secs(60);

impl PodState {
    /// Handles a call that stops a container.
    pub(in crate::prober) fn stopping(
        &mut self,
        id: &str,
        call: &Weak<CallInfo>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(index) = self.index_by_id(id) else { return };
        self.containers[index].stopper = call.clone();
        let is_kubelet = call.upgrade().is_some_and(|head| head.is_from_kubelet());
        if is_kubelet && !self.is_ending() {
            self.match_stop(index, now, effects);
        }
    }

    /// Handles an ExecSync of a kubelet without a timeout. If its command is the container's
    /// preStop hook, the container is about to be stopped.
    pub(in crate::prober) fn hook_begins(&mut self, id: &str, command: &[String], call: &Weak<CallInfo>) {
        let Some(index) = self.index_by_id(id) else { return };
        let spec = self.spec_of(&self.containers[index]);
        let is_hook = |hook: &Hook| matches!(hook, Hook::Exec(own) if own == command);
        if spec.and_then(|spec| spec.pre_stop()).is_some_and(is_hook) {
            self.containers[index].stopper = call.clone();
        }
    }

    /// Returns whether a call that stopped the pod or a container has ended since the last query.
    /// The call may have failed.
    pub(in crate::prober) fn is_released(&mut self) -> bool {
        let calls = self.containers.iter_mut().map(|container| &mut container.stopper);
        let mut is_released = false;
        for call in calls.chain([&mut self.stopper]) {
            if call.strong_count() == 0 && !call.ptr_eq(&Weak::new()) {
                *call = Weak::new();
                is_released = true;
            }
        }
        is_released
    }

    /// Handles a call that stops the pod.
    pub(in crate::prober) fn stopping_all(&mut self, call: &Weak<CallInfo>, effects: &mut Effects) {
        self.stopper = call.clone();
        self.explained_by_end(effects);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.has_ended
            || self.workers_stopped
            || self.played == Management::Terminating
            || self.spec.is_deleted
            || self.stopper.strong_count() > 0
    }

    /// Returns whether the kubelet is stopping a container for an unknown reason, or has recently
    /// done so. The pod may then be about to terminate.
    fn may_be_ending(&self, now: Instant) -> bool {
        self.containers.iter().any(|container| match container.their_stop {
            Some(KubeletStop::Unexplained { since, .. }) => {
                container.is_being_stopped() || now < since + RECENT_STOP_WINDOW
            }
            _ => false,
        })
    }

    /// Decides about the kill of a container whose liveness or startup probe has failed. If the
    /// container is not killed, an event reports the would-be kill and the reason, and the probe
    /// starts to count again, as it would after a kill.
    pub(super) fn decide(&mut self, index: usize, now: Instant, effects: &mut Effects) {
        let mode = self.enforcement.mode();
        if mode == EnforcementMode::Off {
            return;
        }
        let container = &self.containers[index];
        let is_at_its_end = self.is_ending() || self.may_be_ending(now) || container.is_being_stopped();
        if !container.is_running() || is_at_its_end || container.kill_pending {
            return;
        }
        for probe_type in ProbeType::KILLING {
            if self.containers[index].result(probe_type) != Some(ProbeResult::Failure) {
                continue;
            }
            let name = self.containers[index].name().to_owned();
            let kill =
                kill_plan::plan_kill(mode, &self.spec, &name, probe_type, |other| self.state_of(other));
            if let Some((reason, why)) = self.kill_blocker(index, &kill, now, effects) {
                let message = format!("{} ({why})", kill.message);
                effects.events.push(self.container_event(index, Event::warning(reason, message)));
                if reason == reason::WOULD_KILL {
                    effects.would_kill.push(probe_type);
                }
                self.reset_counters(index, probe_type, now);
                if self.enforcement.mode() == EnforcementMode::DryRun {
                    self.predict(index, probe_type, &kill, now);
                }
                continue;
            }
            let worker = self.worker(index, probe_type);
            let threshold = worker.map_or(1, |worker| worker.state.probe.failure_threshold);
            let failures = worker.map(|worker| worker.last_failures(threshold)).unwrap_or_default();
            let container = &mut self.containers[index];
            container.kill_pending = true;
            if self.enforcement.mode() == EnforcementMode::Restart {
                // The pod worker kills the container.
                return;
            }
            let (names, container_id) = (container.names.clone(), container.id.clone());
            effects.kill_requests.push(KillRequest {
                container: names,
                container_id,
                probe_type,
                kill,
                threshold,
                failures,
            });
            return;
        }
    }

    /// Returns the reason and the message of the event if a container is not killed.
    fn kill_blocker(
        &self,
        index: usize,
        kill: &KillPlan,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<(&'static str, String)> {
        let grace_period = KillPlan::stop_timeout(kill.grace_period);
        if !self.enforcement.mode().kills() {
            let but = kill.blocked_by.as_ref().map(|obstacle| format!(", but {obstacle}"));
            let would = format!("dry-run: would be stopped with a grace period of {grace_period}s");
            return Some((reason::WOULD_KILL, would + &but.unwrap_or_default()));
        }
        let InventoryObject { sandbox, container } = &self.containers[index].object;
        if self.enforcement.is_protected(sandbox, container) {
            return Some((reason::WOULD_KILL, "not stopped: it matches --never-kill".to_owned()));
        }
        if let Some(pause) = self.enforcement.pause_of(sandbox, container) {
            return Some((reason::KILL_SKIPPED, format!("not stopped: {pause} holds kills")));
        }
        if let Some(obstacle) = &kill.blocked_by {
            return Some((reason::KILL_SKIPPED, format!("not stopped: {obstacle}")));
        }
        if self.enforcement.mode() == EnforcementMode::Restart
            && !self.will_be_restarted(self.containers[index].name())
        {
            return Some((reason::KILL_SKIPPED, "not stopped: it would not be restarted".to_owned()));
        }
        match self.enforcement.permit_kill(now) {
            KillPermit::Allow => None,
            KillPermit::DryRun => {
                Some((reason::WOULD_KILL, "not stopped: the enforcement mode has just changed".to_owned()))
            }
            KillPermit::RateLimited { is_first } => {
                if is_first {
                    effects.global_events.extend(self.enforcement.kills(now).most.map(KillLimit::event));
                }
                Some((reason::KILL_SKIPPED, "not stopped: --max-kills is reached".to_owned()))
            }
        }
    }

    /// Returns whether a pod worker restarts the container after a kill.
    fn will_be_restarted(&self, name: &str) -> bool {
        self.played != Management::External && self.kept.as_ref().is_none_or(|kept| kept.contains(name))
    }

    /// Resets the counters of a probe, as a restart of its container would.
    fn reset_counters(&mut self, index: usize, probe_type: ProbeType, now: Instant) {
        let container = &mut self.containers[index];
        let ending = &mut container.endings[probe_type as usize];
        *ending = WouldKillStats { count: ending.count + 1, last: Some(now), ..*ending };
        let next = ContainerRun { container_id: container.id.clone(), would_have_ended: ending.count };
        container.results[probe_type as usize] = Some((next, ProbeResult::initial_value(probe_type)));
    }

    /// Returns the reason to abort the kill of a container, if there is one.
    pub(in crate::prober) fn abort_reason(&self, id: &str, now: Instant) -> Option<KillAbort> {
        let Some(index) = self.index_by_id(id) else { return Some(KillAbort::Gone) };
        let container = &self.containers[index];
        let InventoryObject { sandbox, container: object } = &container.object;
        if !container.is_running() {
            Some(KillAbort::Gone)
        } else if self.is_ending() || self.may_be_ending(now) || container.is_being_stopped() {
            Some(KillAbort::Others)
        } else if self.enforcement.is_protected(sandbox, object) {
            Some(KillAbort::Excluded)
        } else if self.enforcement.pause_of(sandbox, object).is_some() {
            Some(KillAbort::Paused)
        } else if !self.enforcement.mode().kills() {
            Some(KillAbort::Switched)
        } else {
            None
        }
    }

    /// Ends the kill of a container without success. The probe starts to count again.
    pub(in crate::prober) fn kill_aborted(&mut self, order: &KillRequest, now: Instant) {
        let Some(index) = self.index_by_id(&order.container_id) else { return };
        self.containers[index].kill_pending = false;
        self.reset_counters(index, order.probe_type, now);
    }

    /// Counts a kill of a container for a probe.
    pub(in crate::prober) fn killed(&mut self, name: &str, probe_type: ProbeType) {
        if let Some(worker) = self.worker_index(name, probe_type) {
            self.workers[worker].kill_count += 1;
        }
    }

    /// Returns the event with references to the pod and to a container of it.
    pub(super) fn container_event(&self, index: usize, event: Event) -> Event {
        event.for_container(self.names.clone(), self.containers[index].names.clone())
    }

    /// Returns the event of an attempt that ended with a panic.
    pub(in crate::prober) fn panic_event(&self, handle: &Arc<ProbeWorkerHandle>) -> Option<Event> {
        let worker = &self.workers[self.index_of(handle)?];
        let index = self.index_by_name(&worker.container)?;
        let message = format!("{} probe attempt failed: probeshim panicked", worker.state.probe_type.title());
        Some(self.container_event(index, Event::warning(reason::PROBE_PANICKED, message)))
    }
}
