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
use crate::manifest::{ContainerKind, GRACE_PERIOD, Handler, Hook, ProbeType};
use crate::prober::enforcement::{EnforcementMode, KillLimit, KillPermit};
use crate::prober::kill_plan;
use crate::prober::probe_state::ContainerRun;
use crate::prober::threshold::ProbeResult;
use crate::relay::CallInfo;

/// Time after which the kubelet has stopped all containers of a pod that terminates, since it stops
/// them together.
const TOGETHER: Duration = Duration::from_secs(10);

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
            self.sync_after_stops(now);
        }
    }

    /// Handles an ExecSync of a kubelet without a timeout. If its command is the container's
    /// preStop hook, the container is about to be stopped. If it is the postStart hook, the workers
    /// do not see the container before its end.
    pub(in crate::prober) fn hook_begins(&mut self, id: &str, command: &[String], call: &Weak<CallInfo>) {
        let Some(index) = self.index_by_id(id) else { return };
        let spec = self.spec_of(&self.containers[index]);
        let is_hook = |hook: &Hook| matches!(hook, Hook::Exec(own) if own == command);
        if spec.and_then(|spec| spec.pre_stop()).is_some_and(is_hook) {
            self.containers[index].stopper = call.clone();
        } else if spec.and_then(|spec| spec.post_start()).is_some_and(is_hook) {
            self.containers[index].post_start = call.clone();
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

    /// Returns the container that the kubelet has recently stopped for an unknown reason, if the
    /// stop of the container with this index may follow, because the pod terminates.
    pub(super) fn stopped_before(&self, index: usize, now: Instant) -> Option<&str> {
        let window = self.stop_window(index);
        let is_recent = |since: Instant| now < since + window;
        self.unexplained_stops().find(|(_, since)| is_recent(*since)).map(|(name, _)| name)
    }

    fn unexplained_stops(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.containers.iter().filter_map(|container| match container.their_stop {
            Some(KubeletStop::Unexplained { since, .. }) => Some((container.name(), since)),
            _ => None,
        })
    }

    /// Returns the longest time from the stop of another container to the stop of this one if the
    /// pod terminates. A preStop hook that is no command delays the stop invisibly, and sidecars
    /// are stopped last.
    fn stop_window(&self, index: usize) -> Duration {
        let spec = self.spec_of(&self.containers[index]);
        let is_late = spec.is_some_and(|spec| {
            spec.role == ContainerKind::Sidecar
                || spec.pre_stop().is_some_and(|hook| !matches!(hook, Hook::Exec(_)))
        });
        if !is_late {
            return TOGETHER;
        }
        let grace = self.spec.termination_grace_period.unwrap_or(GRACE_PERIOD);
        Duration::from_secs(grace.into()).max(TOGETHER)
    }

    /// Lets the pod be synced once a stop can no longer be the begin of its termination.
    pub(super) fn sync_after_stops(&mut self, now: Instant) {
        let windows = (0..self.containers.len()).map(|index| self.stop_window(index));
        let windows: Vec<Duration> = windows.collect();
        let ends = self.unexplained_stops().flat_map(|(_, since)| windows.iter().map(move |it| since + *it));
        let next = ends.filter(|end| *end > now).min();
        self.next_sync = next.map_or(self.next_sync, |next| next.min(self.next_sync));
    }

    /// Returns why a container is not killed although its probe has failed: it, or its pod, is
    /// being stopped.
    pub(in crate::prober) fn hold_reason(&self, index: usize, now: Instant) -> Option<String> {
        if self.containers[index].is_being_stopped() {
            return Some("the container is being stopped".to_owned());
        }
        if self.is_ending() {
            return Some("the pod is being stopped".to_owned());
        }
        let other = self.stopped_before(index, now)?;
        Some(format!("the kubelet has stopped the container {other}, and may stop the pod"))
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
        let is_at_its_end = self.hold_reason(index, now).is_some();
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
            if let Some((reason, why)) = self.kill_blocker(index, probe_type, &kill, now, effects) {
                let message = format!("{} ({why})", kill.message);
                effects.events.push(self.container_event(index, Event::warning(reason, message)));
                if reason == reason::WOULD_KILL {
                    effects.would_kill.push(probe_type);
                }
                self.reset_counters(index, probe_type, now);
                if reason == reason::WOULD_KILL && self.enforcement.mode() == EnforcementMode::DryRun {
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
        probe_type: ProbeType,
        kill: &KillPlan,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<(&'static str, String)> {
        let grace_period = KillPlan::stop_timeout(kill.grace_period);
        let InventoryObject { sandbox, container } = &self.containers[index].object;
        let pause = self.enforcement.pause_of(sandbox, container);
        if !self.enforcement.mode().kills() {
            // A kubelet kills nothing for an exec probe that a pause answers. Its other probes do
            // not pass through probeshim.
            if let Some(pause) = pause.filter(|_| self.is_exec(index, probe_type)) {
                return Some((
                    reason::KILL_SKIPPED,
                    format!("dry-run: {pause} answers the kubelet's probes"),
                ));
            }
            let but = kill.blocked_by.as_ref().map(|obstacle| format!(", but {obstacle}"));
            let would = format!("dry-run: would be stopped with a grace period of {grace_period}s");
            return Some((reason::WOULD_KILL, would + &but.unwrap_or_default()));
        }
        if self.enforcement.is_protected(sandbox, container) {
            return Some((reason::WOULD_KILL, "not stopped: it matches --never-kill".to_owned()));
        }
        if let Some(pause) = pause {
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

    /// Returns whether a probe of a container runs a command.
    fn is_exec(&self, index: usize, probe_type: ProbeType) -> bool {
        self.worker(index, probe_type)
            .is_some_and(|worker| matches!(worker.state.probe.handler, Handler::Exec(_)))
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
        } else if self.hold_reason(index, now).is_some() {
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
