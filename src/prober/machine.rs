//! One probe of one container: what is done next, and what a result leads to. It decides, and does nothing itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::verdict::{ProbeResult, Run, step};
use crate::probe::{ContainerKind, Probe, ProbeType};

/// A probe, with what is remembered of it. Its runs outlive the container that they began in, as with the kubelet.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) probe_type: ProbeType,
    pub(super) probe: Arc<Probe>,
    pub(super) run: Run,
    /// Nothing is probed until there is another container.
    pub(super) on_hold: bool,
    /// The container that was seen last.
    life: Option<Life>,
}

/// A container from its start to its end; in dry-run, to what would have been its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) container_id: Arc<str>,
    /// How often this probe would have ended it.
    pub(super) would_have_ended: u32,
}

/// What is seen of a pod and one of its containers.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The pod has ended for good.
    pub(super) is_pod_over: bool,
    /// The container, once there is one.
    pub(super) container: Option<Seen>,
}

/// What is seen of a container.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) life: Life,
    pub(super) state: State,
    pub(super) role: ContainerKind,
    /// Its startup probe has succeeded, or there is none.
    pub(super) is_started: bool,
    /// Once it has ended, another one will be started.
    pub(super) is_restarted: bool,
    /// It ran well before there was a prober.
    pub(super) is_survivor: bool,
    /// Who is being ended, if anybody is.
    pub(super) ends: Ends,
}

/// Who is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// Nobody.
    Nobody,
    /// The container.
    Container,
    /// The pod.
    Pod,
}

/// How far a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It does not run yet.
    Waiting,
    /// It runs since then, in whole seconds of the clock on the wall; in dry-run, since it would have been started.
    Running(Instant),
    /// It has ended with this exit code; `None` where that is not known yet.
    Terminated(Option<i32>),
}

/// Something that is held to be so from now on, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing is known of this container any more.
    Forget(Life),
    /// This is so.
    Hold(Life, ProbeResult),
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An attempt.
    Attempt,
    /// Nothing, until it is time again.
    Wait,
    /// Nothing, ever.
    Exit,
}

impl Machine {
    pub(super) fn new(probe_type: ProbeType, probe: Arc<Probe>) -> Self {
        Self { probe_type, probe, run: Run::default(), on_hold: false, life: None }
    }

    /// It is time for an attempt: whether there is to be one, in the kubelet's order of questions.
    pub(super) fn next(&mut self, view: &View, now: Instant, effects: &mut Vec<Effect>) -> Next {
        if view.is_pod_over {
            return Next::Exit;
        }
        let Some(seen) = &view.container else { return Next::Wait };
        self.adopt(seen, effects);
        if self.on_hold {
            return Next::Wait;
        }
        let life = &seen.life;
        let since = match seen.state {
            State::Running(since) => since,
            State::Waiting => {
                effects.push(Effect::Hold(life.clone(), ProbeResult::Failure));
                return Next::Wait;
            }
            State::Terminated(exit_code) => {
                effects.push(Effect::Hold(life.clone(), ProbeResult::Failure));
                let is_done = exit_code.is_some() && !seen.is_restarted;
                return if is_done { Next::Exit } else { Next::Wait };
            }
        };
        let ends_containers = ProbeType::KILLING.contains(&self.probe_type);
        if seen.ends == Ends::Pod && ends_containers {
            effects.push(Effect::Hold(life.clone(), ProbeResult::Success));
            return Next::Exit;
        }
        if seen.ends == Ends::Container && ends_containers {
            return Next::Wait;
        }
        // In whole seconds, of which the start's are cut off: up to one too early.
        let delay = Duration::from_secs(self.probe.initial_delay.into());
        if now.saturating_duration_since(since) < delay {
            return Next::Wait;
        }
        if seen.is_started == (self.probe_type == ProbeType::Startup) {
            return Next::Wait;
        }
        Next::Attempt
    }

    /// An attempt has come to a result.
    pub(super) fn judge(&mut self, result: ProbeResult, effects: &mut Vec<Effect>) {
        let verdict = step(self.probe_type, &self.probe, self.run, result);
        self.run = verdict.run;
        self.on_hold |= verdict.holds;
        effects
            .extend(self.life.clone().zip(verdict.result).map(|(life, result)| Effect::Hold(life, result)));
    }

    /// It ends.
    pub(super) fn end(&mut self) -> Option<Effect> {
        self.life.take().map(Effect::Forget)
    }

    /// Takes a container that is new. What was counted is not forgotten.
    fn adopt(&mut self, seen: &Seen, effects: &mut Vec<Effect>) {
        if self.life.as_ref() == Some(&seen.life) {
            return;
        }
        effects.extend(self.life.replace(seen.life.clone()).map(Effect::Forget));
        self.on_hold = false;
        let is_kept = seen.is_survivor && matches!(seen.state, State::Running(_));
        let first = if !is_kept {
            Some(ProbeResult::at_first(self.probe_type))
        } else if self.probe_type == ProbeType::Startup
            && seen.role == ContainerKind::Sidecar
            && seen.is_started
        {
            Some(ProbeResult::Success)
        } else {
            None
        };
        effects.extend(first.map(|first| Effect::Hold(seen.life.clone(), first)));
    }
}

#[cfg(test)]
pub(super) mod tests;
