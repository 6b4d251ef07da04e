//! State of one probe of one container: decides the next action and applies results, without side
//! effects.

use crate::manifest::{ContainerKind, Probe, ProbeType};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::threshold::{ProbeResult, ResultRun, apply_threshold};

/// State of a probe. Its result run continues in the next container, as in the kubelet.
#[derive(Debug)]
pub(super) struct ProbeState {
    pub(super) probe_type: ProbeType,
    pub(super) probe: Arc<Probe>,
    pub(super) run: ResultRun,
    /// Whether no attempts are made until the container is replaced.
    pub(super) on_hold: bool,
    /// The container that was seen last.
    container_run: Option<ContainerRun>,
}

/// A container from its start to its end; in dry-run, to its would-be kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerRun {
    pub(super) container_id: Arc<str>,
    /// Number of would-be kills of the container for this probe.
    pub(super) would_have_ended: u32,
}

/// State of a pod and one of its containers, as a probe sees it.
#[derive(Clone, Debug)]
pub(super) struct PodView {
    /// Whether the pod has ended permanently.
    pub(super) is_pod_over: bool,
    /// The container, once there is one.
    pub(super) container: Option<ContainerView>,
}

/// State of a container, as a probe sees it.
#[derive(Clone, Debug)]
pub(super) struct ContainerView {
    pub(super) run: ContainerRun,
    pub(super) state: ObservedState,
    pub(super) role: ContainerKind,
    /// Whether the startup probe has succeeded or the container has none.
    pub(super) is_started: bool,
    /// Whether another container will be started after this one has ended.
    pub(super) is_restarted: bool,
    /// Whether the container started more than ten seconds before the prober.
    pub(super) predates_prober: bool,
    /// Termination of the container or its pod that is in progress.
    pub(super) ends: Terminating,
}

/// Termination of a container or its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminating {
    /// Neither is being terminated.
    None,
    /// The container is being stopped.
    Container,
    /// The pod is being terminated.
    Pod,
}

/// State of a container, as far as probes depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObservedState {
    /// The container does not run yet.
    Waiting,
    /// The container has run since this time, in whole seconds of the wall clock; in dry-run, since
    /// its would-be restart.
    Running(Instant),
    /// The container has ended with this exit code; `None` if the code is not known yet.
    Terminated(Option<i32>),
}

/// Change of a stored probe result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResultUpdate {
    /// The result of this container is removed.
    Remove(ContainerRun),
    /// The container has this result.
    Set(ContainerRun, ProbeResult),
}

/// Next action of a probe worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Make an attempt.
    Attempt,
    /// Wait for the next tick.
    Wait,
    /// Exit.
    Exit,
}

impl ProbeState {
    pub(super) fn new(probe_type: ProbeType, probe: Arc<Probe>) -> Self {
        Self { probe_type, probe, run: ResultRun::default(), on_hold: false, container_run: None }
    }

    /// Returns the action at a tick, by the kubelet's checks in their order (`prober/worker.go`:
    /// `doProbe`).
    pub(super) fn next_action(
        &mut self,
        view: &PodView,
        now: Instant,
        updates: &mut Vec<ResultUpdate>,
    ) -> NextAction {
        if view.is_pod_over {
            return NextAction::Exit;
        }
        let Some(seen) = &view.container else { return NextAction::Wait };
        self.observe_container(seen, updates);
        if self.on_hold {
            return NextAction::Wait;
        }
        let life = &seen.run;
        let since = match seen.state {
            ObservedState::Running(since) => since,
            ObservedState::Waiting => {
                updates.push(ResultUpdate::Set(life.clone(), ProbeResult::Failure));
                return NextAction::Wait;
            }
            ObservedState::Terminated(exit_code) => {
                updates.push(ResultUpdate::Set(life.clone(), ProbeResult::Failure));
                let is_done = exit_code.is_some() && !seen.is_restarted;
                return if is_done { NextAction::Exit } else { NextAction::Wait };
            }
        };
        let ends_containers = ProbeType::KILLING.contains(&self.probe_type);
        if seen.ends == Terminating::Pod && ends_containers {
            updates.push(ResultUpdate::Set(life.clone(), ProbeResult::Success));
            return NextAction::Exit;
        }
        if seen.ends == Terminating::Container && ends_containers {
            return NextAction::Wait;
        }
        // The start time has no fraction of a second, so an attempt may come up to one second
        // early.
        let delay = Duration::from_secs(self.probe.initial_delay.into());
        if now.saturating_duration_since(since) < delay {
            return NextAction::Wait;
        }
        if seen.is_started == (self.probe_type == ProbeType::Startup) {
            return NextAction::Wait;
        }
        NextAction::Attempt
    }

    /// Applies the result of an attempt.
    pub(super) fn record_result(&mut self, result: ProbeResult, updates: &mut Vec<ResultUpdate>) {
        let verdict = apply_threshold(self.probe_type, &self.probe, self.run, result);
        self.run = verdict.run;
        self.on_hold |= verdict.on_hold;
        updates.extend(
            self.container_run
                .clone()
                .zip(verdict.result)
                .map(|(life, result)| ResultUpdate::Set(life, result)),
        );
    }

    /// Ends the probe. Returns the removal of its result, if it had a container.
    pub(super) fn end(&mut self) -> Option<ResultUpdate> {
        self.container_run.take().map(ResultUpdate::Remove)
    }

    /// Starts with a new container: sets the initial value and ends the hold. The result run
    /// continues.
    fn observe_container(&mut self, seen: &ContainerView, updates: &mut Vec<ResultUpdate>) {
        if self.container_run.as_ref() == Some(&seen.run) {
            return;
        }
        updates.extend(self.container_run.replace(seen.run.clone()).map(ResultUpdate::Remove));
        self.on_hold = false;
        let is_kept = seen.predates_prober && matches!(seen.state, ObservedState::Running(_));
        let first = if !is_kept {
            Some(ProbeResult::initial_value(self.probe_type))
        } else if self.probe_type == ProbeType::Startup
            && seen.role == ContainerKind::Sidecar
            && seen.is_started
        {
            Some(ProbeResult::Success)
        } else {
            None
        };
        updates.extend(first.map(|first| ResultUpdate::Set(seen.run.clone(), first)));
    }
}

#[cfg(test)]
pub(super) mod tests;
