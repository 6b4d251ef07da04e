//! A pod that is probed: what is known of its containers, and what their probes say.

mod comparison;
mod container;
mod jobs;
mod kills;
mod order;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::enforcement::Enforcement;
use super::machine::{Ends, Life, Seen, State, View};
use super::status::{Basis, Phase, Stage, phase};
use super::verdict::ProbeResult;
use crate::probe::{ContainerKind, ContainerSpec, PodSpec, ProbeType};
use crate::relay::CallInfo;
use crate::tap;

pub(in crate::prober) use container::{Age, Container, Known};
pub(in crate::prober) use jobs::{Job, Outcome, Signals, Task, Todo};
pub(in crate::prober) use order::{Order, Pardon};

use container::Ending;

/// A container that ran for longer when the prober started has not been started for it to see.
const SURVIVING: Duration = Duration::from_secs(10);

/// A pod with its workers.
#[derive(Debug)]
pub(in crate::prober) struct Pod {
    state: Mutex<PodState>,
    /// Whose turn it is to kill: one after the other, as the kubelet's worker of the pod.
    pub(in crate::prober) turn: Semaphore,
}

/// What is known of it.
#[derive(Debug)]
pub(in crate::prober) struct PodState {
    pub(in crate::prober) names: Arc<tap::PodRef>,
    pub(in crate::prober) spec: Arc<PodSpec>,
    /// The sandbox that it lives in.
    sandbox: Arc<str>,
    /// Its address, once it is known.
    pub(in crate::prober) address: Option<Arc<str>>,
    /// Its sandbox does not run any more.
    pub(in crate::prober) has_ended: bool,
    /// Somebody has it stopped, for as long as the call is there.
    stopper: Weak<CallInfo>,
    /// Whether somebody plays it.
    pub(in crate::prober) played: Played,
    /// Which of its containers are started again; `None` for all that somebody plays.
    pub(in crate::prober) kept: Option<HashSet<String>>,
    /// Nobody looks at it any more.
    is_over: bool,
    pub(in crate::prober) containers: Vec<Container>,
    pub(in crate::prober) jobs: Vec<Job>,
    /// Probes that have had a worker: another one comes only once none before it has one.
    launched: HashSet<(String, ProbeType)>,
    /// When it is looked at again though nothing has changed.
    pub(in crate::prober) next_sync: Instant,
    /// When the prober started.
    since: Instant,
    enforcement: Arc<Enforcement>,
}

/// Whether somebody plays a pod, who looks at it as often as a kubelet would: only then is readiness looked at out of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prober) enum Played {
    /// Nobody does.
    No,
    /// Somebody does.
    Yes,
    /// Somebody does, and is about to end it.
    Ending,
}

impl Pod {
    pub(in crate::prober) fn new(
        names: Arc<tap::PodRef>,
        enforcement: Arc<Enforcement>,
        since: Instant,
        now: Instant,
    ) -> Self {
        let state = PodState {
            names,
            spec: Arc::default(),
            sandbox: "".into(),
            address: None,
            has_ended: false,
            stopper: Weak::new(),
            played: Played::No,
            kept: None,
            is_over: false,
            containers: Vec::new(),
            jobs: Vec::new(),
            launched: HashSet::new(),
            next_sync: now,
            since,
            enforcement,
        };
        Self { state: Mutex::new(state), turn: Semaphore::new(1) }
    }

    pub(in crate::prober) fn lock(&self) -> MutexGuard<'_, PodState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodState {
    /// Takes what is written of the pod. A probe that is written otherwise than before is another probe.
    pub(in crate::prober) fn specify(&mut self, spec: PodSpec) {
        for job in &mut self.jobs {
            match spec.container(&job.container).and_then(|it| it.probe(job.machine.probe_type)) {
                Some(probe) if probe.is_same_as(&job.machine.probe) => job.machine.probe = probe.clone(),
                _ => {
                    job.signals.stop.notify_one();
                    self.launched.remove(&(job.container.clone(), job.machine.probe_type));
                }
            }
        }
        self.spec = Arc::new(spec);
    }

    /// Takes the sandbox that it lives in. In another one everything begins anew that had ended with the last.
    pub(in crate::prober) fn lives_in(&mut self, sandbox: &Arc<str>) {
        if self.sandbox != *sandbox {
            self.sandbox = sandbox.clone();
            let mut launched = std::mem::take(&mut self.launched);
            launched.retain(|(name, probe_type)| self.job_at(name, *probe_type).is_some());
            self.launched = launched;
        }
    }

    /// Takes what is known of a container.
    pub(in crate::prober) fn see(&mut self, known: Known, todo: &mut Todo) {
        let name = known.names.name.as_deref().unwrap_or_default();
        let Some(place) = self.place_named(name) else {
            let container = self.begun(known);
            self.containers.push(container);
            return;
        };
        let container = &mut self.containers[place];
        if container.id == known.id {
            container.update(known);
        } else if known.age.is_newer_than(container.age) {
            self.replaced(place, known.hash.as_deref(), todo);
            self.containers[place] = self.begun(known);
        }
    }

    /// A container has been removed.
    pub(in crate::prober) fn lose(&mut self, id: &str) {
        self.containers.retain(|container| *container.id != *id);
    }

    pub(super) fn begun(&self, known: Known) -> Container {
        let Known { names, id, age, state, is_spared, hash } = known;
        let mut container = Container {
            names,
            id,
            age,
            state,
            was_started: false,
            stopper: Weak::new(),
            results: [const { None }; 3],
            endings: [Ending::default(); 3],
            is_spared,
            is_doomed: false,
            hash,
            their_stop: None,
        };
        container.was_started = self.has_surely_started(&container);
        container
    }

    /// Of a container that ran before there was a prober, it is not known whether its startup probe has succeeded. One that still runs
    /// when that probe would long have ended it has.
    pub(super) fn has_surely_started(&self, container: &Container) -> bool {
        let State::Running(since) = container.state else { return false };
        let startup = self.spec_of(container).and_then(|spec| spec.probe(ProbeType::Startup).cloned());
        let budget = startup.map_or(0, |probe| {
            u64::from(probe.initial_delay) + u64::from(probe.period) * u64::from(probe.failure_threshold)
        });
        self.is_survivor(since) && self.since.saturating_duration_since(since) > Duration::from_secs(budget)
    }

    pub(super) fn is_survivor(&self, since: Instant) -> bool {
        self.since.checked_duration_since(since).is_some_and(|age| age > SURVIVING)
    }

    /// Looks again at what is so: starts workers that are missing, has readiness looked at, and says who would be killed.
    pub(in crate::prober) fn sync(&mut self, now: Instant, todo: &mut Todo) {
        if self.is_over {
            return;
        }
        self.next_sync = now + Duration::from_secs(60).mul_f64(1.0 + fastrand::f64() / 2.0);
        self.launch(todo);
        for place in 0..self.containers.len() {
            self.containers[place].was_started = self.basis(place).is_started();
            if self.played == Played::No {
                self.trigger_readiness(place);
            }
            self.decide(place, now, todo);
        }
    }

    /// Who plays it looks at it.
    pub(in crate::prober) fn look(&mut self, now: Instant, todo: &mut Todo) {
        self.sync(now, todo);
        for place in 0..self.containers.len() {
            self.trigger_readiness(place);
        }
    }

    /// Has it looked again whether a container is ready that was not.
    fn trigger_readiness(&self, place: usize) {
        if self.basis(place).awaits_readiness()
            && let Some(job) = self.job_of(place, ProbeType::Readiness)
        {
            job.signals.trigger.notify_one();
        }
    }

    /// Holds something to be so, or nothing any more. Tells whether that is new.
    pub(super) fn hold(
        &mut self,
        name: &str,
        probe_type: ProbeType,
        life: &Life,
        result: Option<ProbeResult>,
    ) -> bool {
        let Some(place) = self.place_named(name) else { return false };
        let container = &mut self.containers[place];
        if container.id != life.container_id {
            return false;
        }
        let held = &mut container.results[probe_type as usize];
        let is_of_life = held.as_ref().is_some_and(|(known, _)| known == life);
        match result {
            Some(result) if is_of_life && held.as_ref().is_some_and(|(_, known)| *known == result) => false,
            Some(result) => {
                *held = Some((life.clone(), result));
                true
            }
            None => {
                if is_of_life {
                    *held = None;
                }
                false
            }
        }
    }

    pub(super) fn view(&self, name: &str, probe_type: ProbeType) -> View {
        let place = self.place_named(name);
        View { is_pod_over: self.is_finished(), container: place.map(|place| self.seen(place, probe_type)) }
    }

    pub(super) fn seen(&self, place: usize, probe_type: ProbeType) -> Seen {
        let container = &self.containers[place];
        let spec = self.spec_of(container);
        let role = spec.map_or(ContainerKind::Regular, |spec| spec.role);
        let ending = container.endings[probe_type as usize];
        let state = match (container.state, ending.last) {
            (State::Running(since), Some(last)) => State::Running(since.max(last)),
            (state, _) => state,
        };
        let is_restarted = match container.state {
            State::Terminated(Some(code)) => {
                spec.is_none_or(|spec| spec.is_restarted(self.spec.restart_policy, code))
                    || self.restarts_all()
            }
            _ => true,
        };
        Seen {
            life: Life { container_id: container.id.clone(), would_have_ended: ending.count },
            state,
            role,
            is_started: self.basis(place).is_started(),
            is_restarted,
            is_survivor: matches!(state, State::Running(since) if self.is_survivor(since)),
            ends: match role {
                ContainerKind::Regular if self.has_ended || self.is_over || self.played == Played::Ending => {
                    Ends::Pod
                }
                // The call may fail.
                ContainerKind::Regular if self.is_ending() || container.is_being_stopped() => Ends::Container,
                _ => Ends::Nobody,
            },
        }
    }

    /// Whether a container has ended in a way that makes all of them start again.
    pub(super) fn restarts_all(&self) -> bool {
        self.containers.iter().any(|container| match container.state {
            State::Terminated(Some(code)) => {
                self.spec_of(container).is_some_and(|spec| spec.restarts_all_containers(code))
            }
            _ => false,
        })
    }

    pub(super) fn basis(&self, place: usize) -> Basis {
        let container = &self.containers[place];
        Basis {
            state: container.state,
            role: self.spec_of(container).map_or(ContainerKind::Regular, |spec| spec.role),
            startup: container.result(ProbeType::Startup),
            readiness: container.result(ProbeType::Readiness),
            was_started: container.was_started,
            has_startup_worker: self.job_of(place, ProbeType::Startup).is_some(),
            has_readiness_worker: self.job_of(place, ProbeType::Readiness).is_some(),
        }
    }

    /// Nothing of it will be probed any more: it has come to its end, or its sandbox and all of its containers have.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.phase(), Phase::Succeeded | Phase::Failed)
            || (self.has_ended && !self.containers.iter().any(Container::is_running))
    }

    pub(super) fn phase(&self) -> Phase {
        let stage = |name: &str| {
            let place = self.place_named(name);
            match place.map_or(State::Waiting, |place| self.containers[place].state) {
                State::Waiting => Stage::Waiting,
                State::Running(_) => {
                    Stage::Running { is_started: place.is_some_and(|place| self.basis(place).is_started()) }
                }
                State::Terminated(code) => Stage::Ended(code),
            }
        };
        phase(&self.spec, false, stage)
    }

    pub(super) fn state_of(&self, name: &str) -> Option<State> {
        self.place_named(name).map(|place| self.containers[place].state)
    }

    pub(super) fn spec_of(&self, container: &Container) -> Option<&Arc<ContainerSpec>> {
        self.spec.container(container.name())
    }

    pub(super) fn place_named(&self, name: &str) -> Option<usize> {
        self.containers.iter().position(|container| container.name() == name)
    }

    /// The place of the container with this id.
    pub(super) fn place_with(&self, id: &str) -> Option<usize> {
        self.containers.iter().position(|container| *container.id == *id)
    }
}
