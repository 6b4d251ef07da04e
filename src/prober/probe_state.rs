//! One probe of one container: what is done next, and what a result leads to. It decides, and does nothing itself.

use crate::manifest::{ContainerKind, Probe, ProbeType};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::threshold::{ProbeResult, ResultRun, apply_threshold};

/// A probe, with what is remembered of it. Its runs outlive the container that they began in, as with the kubelet.
#[derive(Debug)]
pub(super) struct ProbeState {
    pub(super) probe_type: ProbeType,
    pub(super) probe: Arc<Probe>,
    pub(super) run: ResultRun,
    /// Nothing is probed until there is another container.
    pub(super) on_hold: bool,
    /// The container that was seen last.
    container_run: Option<ContainerRun>,
}

/// A container from its start to its end; in dry-run, to what would have been its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerRun {
    pub(super) container_id: Arc<str>,
    /// How often this probe would have ended it.
    pub(super) would_have_ended: u32,
}

/// What is seen of a pod and one of its containers.
#[derive(Clone, Debug)]
pub(super) struct PodView {
    /// The pod has ended for good.
    pub(super) is_pod_over: bool,
    /// The container, once there is one.
    pub(super) container: Option<ContainerView>,
}

/// What is seen of a container.
#[derive(Clone, Debug)]
pub(super) struct ContainerView {
    pub(super) run: ContainerRun,
    pub(super) state: ObservedState,
    pub(super) role: ContainerKind,
    /// Its startup probe has succeeded, or there is none.
    pub(super) is_started: bool,
    /// Once it has ended, another one will be started.
    pub(super) is_restarted: bool,
    /// It ran well before there was a prober.
    pub(super) predates_prober: bool,
    /// Who is being ended, if anybody is.
    pub(super) ends: Terminating,
}

/// Who is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminating {
    /// Nobody.
    None,
    /// The container.
    Container,
    /// The pod.
    Pod,
}

/// How far a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObservedState {
    /// It does not run yet.
    Waiting,
    /// It runs since then, in whole seconds of the clock on the wall; in dry-run, since it would have been started.
    Running(Instant),
    /// It has ended with this exit code; `None` where that is not known yet.
    Terminated(Option<i32>),
}

/// Something that is held to be so from now on, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResultUpdate {
    /// Nothing is known of this container any more.
    Remove(ContainerRun),
    /// This is so.
    Set(ContainerRun, ProbeResult),
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// An attempt.
    Attempt,
    /// Nothing, until it is time again.
    Wait,
    /// Nothing, ever.
    Exit,
}

impl ProbeState {
    pub(super) fn new(probe_type: ProbeType, probe: Arc<Probe>) -> Self {
        Self { probe_type, probe, run: ResultRun::default(), on_hold: false, container_run: None }
    }

    /// It is time for an attempt: whether there is to be one, in the kubelet's order of questions.
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
        // In whole seconds, of which the start's are cut off: up to one too early.
        let delay = Duration::from_secs(self.probe.initial_delay.into());
        if now.saturating_duration_since(since) < delay {
            return NextAction::Wait;
        }
        if seen.is_started == (self.probe_type == ProbeType::Startup) {
            return NextAction::Wait;
        }
        NextAction::Attempt
    }

    /// An attempt has come to a result.
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

    /// It ends.
    pub(super) fn end(&mut self) -> Option<ResultUpdate> {
        self.container_run.take().map(ResultUpdate::Remove)
    }

    /// Takes a container that is new. What was counted is not forgotten.
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
