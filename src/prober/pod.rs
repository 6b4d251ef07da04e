//! A pod that is probed: what is known of its containers, and what their probes say.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::decision::kill;
use super::machine::{Effect, Ends, Life, Machine, Next, Seen, State, View};
use super::notice::{Notice, What};
use super::status::{Basis, Phase, phase};
use super::verdict::ProbeResult;
use crate::probe::{ContainerSpec, Handler, PodSpec, Probe, ProbeType, Role};
use crate::relay::Head;
use crate::tap;

/// A container that ran for longer when the prober started has not been started for it to see.
const SURVIVING: Duration = Duration::from_secs(10);

/// How much later than it would the kubelet may kill, beyond a round of its probe.
const COMPARING: Duration = Duration::from_secs(10);

/// A pod with its workers.
#[derive(Debug)]
pub(super) struct Pod {
    inner: Mutex<Inner>,
}

/// What is known of it.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) names: Arc<tap::Pod>,
    pub(super) spec: Arc<PodSpec>,
    /// Its address, once it is known.
    pub(super) address: Option<Arc<str>>,
    /// Its sandbox does not run any more.
    pub(super) has_ended: bool,
    /// Somebody has it stopped, for as long as the call is there.
    stopper: Weak<Head>,
    /// Nobody looks at it any more.
    is_over: bool,
    pub(super) containers: Vec<Container>,
    pub(super) workers: Vec<Worker>,
    /// Probes that have had a worker: another one comes only once none before it has one.
    launched: HashSet<(String, ProbeType)>,
    /// When it is looked at again though nothing has changed.
    pub(super) next_sync: Instant,
    /// When the prober started.
    since: Instant,
}

/// A container of it: of those of its name the newest.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) names: Arc<tap::Container>,
    pub(super) id: Arc<str>,
    age: Age,
    pub(super) state: State,
    pub(super) was_started: bool,
    /// Somebody has it stopped, for as long as the call is there.
    stopper: Weak<Head>,
    pub(super) exit: Option<(i32, String)>,
    /// What each type of probe is held to say.
    results: [Option<(Life, ProbeResult)>; 3],
    /// What each type of probe would have done to it.
    endings: [Ending; 3],
}

/// What a probe would have done to a container.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    /// How often it would have ended it.
    count: u32,
    /// When it would have done so last.
    last: Option<Instant>,
    /// Whether it is still to be seen what somebody else does.
    is_open: bool,
}

/// A worker, and what it works on.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) container: String,
    pub(super) machine: Machine,
    pub(super) signals: Arc<Signals>,
}

/// What a worker is told while it waits.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// It is to end.
    pub(super) stop: Notify,
    /// It is to make an attempt now.
    pub(super) trigger: Notify,
}

/// What an attempt needs to know.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) pod: Arc<tap::Pod>,
    pub(super) container: Arc<tap::Container>,
    pub(super) container_id: Arc<str>,
    pub(super) spec: Arc<ContainerSpec>,
    pub(super) probe: Arc<Probe>,
    pub(super) probe_type: ProbeType,
    pub(super) address: Arc<str>,
}

/// What is to be done once nobody looks at the pod any more.
#[derive(Debug, Default)]
pub(super) struct Todo {
    /// Workers to start.
    pub(super) launch: Vec<(Arc<Signals>, Arc<Probe>)>,
    pub(super) notices: Vec<Notice>,
}

/// What is known of a container from the world.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) names: Arc<tap::Container>,
    pub(super) id: Arc<str>,
    pub(super) age: Age,
    pub(super) state: State,
    pub(super) exit: Option<(i32, String)>,
}

/// What tells which of two containers is the newer one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    /// In nanoseconds since 1970; 0 where it is not known yet.
    pub(super) created_at: i64,
    /// When it was seen first.
    pub(super) seen: Instant,
}

impl Pod {
    pub(super) fn new(names: Arc<tap::Pod>, since: Instant, now: Instant) -> Self {
        let inner = Inner {
            names,
            spec: Arc::default(),
            address: None,
            has_ended: false,
            stopper: Weak::new(),
            is_over: false,
            containers: Vec::new(),
            workers: Vec::new(),
            launched: HashSet::new(),
            next_sync: now,
            since,
        };
        Self { inner: Mutex::new(inner) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes what is written of the pod. A probe that is written otherwise than before is another probe.
    pub(super) fn specify(&mut self, spec: PodSpec) {
        for worker in &self.workers {
            let probe = spec.container(&worker.container).and_then(|it| it.probe(worker.machine.probe_type));
            if probe.is_none_or(|probe| **probe != *worker.machine.probe) {
                worker.signals.stop.notify_one();
                self.launched.remove(&(worker.container.clone(), worker.machine.probe_type));
            }
        }
        self.spec = Arc::new(spec);
    }

    /// Takes what is known of a container.
    pub(super) fn see(&mut self, known: Known) {
        let name = known.names.name.as_deref();
        let place = self.containers.iter().position(|container| container.names.name.as_deref() == name);
        let Some(place) = place else {
            let container = self.begun(known);
            self.containers.push(container);
            return;
        };
        let container = &mut self.containers[place];
        if container.id == known.id {
            container.update(known);
        } else if known.age.is_newer_than(container.age) {
            self.containers[place] = self.begun(known);
        }
    }

    /// A container has been removed.
    pub(super) fn lose(&mut self, id: &str) {
        self.containers.retain(|container| *container.id != *id);
    }

    fn begun(&self, known: Known) -> Container {
        let Known { names, id, age, state, exit } = known;
        let mut container = Container {
            names,
            id,
            age,
            state,
            was_started: false,
            stopper: Weak::new(),
            exit,
            results: [const { None }; 3],
            endings: [Ending::default(); 3],
        };
        container.was_started = self.has_surely_started(&container);
        container
    }

    /// Of a container that ran before there was a prober, it is not known whether its startup probe has succeeded. One that still runs
    /// when that probe would long have ended it has.
    fn has_surely_started(&self, container: &Container) -> bool {
        let State::Running(since) = container.state else { return false };
        let startup = self.spec_of(container).and_then(|spec| spec.probe(ProbeType::Startup).cloned());
        let budget = startup.map_or(0, |probe| {
            u64::from(probe.initial_delay) + u64::from(probe.period) * u64::from(probe.failure_threshold)
        });
        self.is_survivor(since) && self.since.saturating_duration_since(since) > Duration::from_secs(budget)
    }

    fn is_survivor(&self, since: Instant) -> bool {
        self.since.checked_duration_since(since).is_some_and(|age| age > SURVIVING)
    }

    /// A call stops a container.
    pub(super) fn stopping(&mut self, id: &str, call: &Weak<Head>, todo: &mut Todo) {
        let Some(place) = self.containers.iter().position(|container| *container.id == *id) else { return };
        self.containers[place].stopper = call.clone();
        if !self.is_ending() {
            self.compare(place, todo);
        }
    }

    /// A call stops the pod.
    pub(super) fn stopping_all(&mut self, call: &Weak<Head>) {
        self.stopper = call.clone();
    }

    fn is_ending(&self) -> bool {
        self.has_ended || self.is_over || self.stopper.strong_count() > 0
    }

    /// Looks again at what is so: starts workers that are missing, has readiness looked at, and says who would be killed.
    pub(super) fn sync(&mut self, now: Instant, todo: &mut Todo) {
        self.next_sync = now + Duration::from_secs(60).mul_f64(1.0 + fastrand::f64() / 2.0);
        self.launch(todo);
        for place in 0..self.containers.len() {
            let basis = self.basis(place);
            self.containers[place].was_started = basis.is_started();
            if basis.awaits_readiness()
                && let Some(worker) = self.worker_of(place, ProbeType::Readiness)
            {
                worker.signals.trigger.notify_one();
            }
            self.decide(place, now, todo);
        }
    }

    /// Starts the workers of all probes, those of regular containers first. As the kubelet, it goes no further than to the first that is
    /// there when it is about one that has been there before.
    fn launch(&mut self, todo: &mut Todo) {
        let spec = self.spec.clone();
        let mut is_blocked = false;
        for container in spec.containers.iter().filter(|container| container.role != Role::Init) {
            for (probe_type, probe) in container.all_probes() {
                let key = (container.name.clone(), probe_type);
                let is_there =
                    |worker: &Worker| (&worker.container, worker.machine.probe_type) == (&key.0, key.1);
                if self.workers.iter().any(is_there) {
                    is_blocked = true;
                } else if !is_blocked || !self.launched.contains(&key) {
                    let signals = Arc::new(Signals::default());
                    let machine = Machine::new(probe_type, probe.clone());
                    let worker = Worker { container: key.0.clone(), machine, signals: signals.clone() };
                    self.workers.push(worker);
                    self.launched.insert(key);
                    todo.launch.push((signals, probe.clone()));
                }
            }
        }
    }

    /// What a worker does next.
    pub(super) fn next(
        &mut self,
        signals: &Arc<Signals>,
        now: Instant,
        todo: &mut Todo,
    ) -> (Next, Option<Task>) {
        let Some(place) = self.place_of(signals) else { return (Next::Exit, None) };
        let (name, probe_type) =
            (self.workers[place].container.clone(), self.workers[place].machine.probe_type);
        let view = self.view(&name, probe_type);
        let mut effects = Vec::new();
        let mut next = self.workers[place].machine.next(&view, now, &mut effects);
        let task = (next == Next::Attempt).then(|| self.task(place)).flatten();
        if next == Next::Attempt && task.is_none() {
            // Where the kubelet does not know the address yet it asks this host; we know better.
            next = Next::Wait;
        }
        self.apply(&name, probe_type, effects, now, todo);
        (next, task)
    }

    /// What came of a worker's attempt.
    pub(super) fn judge(
        &mut self,
        signals: &Arc<Signals>,
        result: ProbeResult,
        now: Instant,
        todo: &mut Todo,
    ) {
        let Some(place) = self.place_of(signals) else { return };
        let mut effects = Vec::new();
        let worker = &mut self.workers[place];
        worker.machine.judge(result, &mut effects);
        let (name, probe_type) = (worker.container.clone(), worker.machine.probe_type);
        self.apply(&name, probe_type, effects, now, todo);
    }

    /// A worker has ended. If its probe is written otherwise by now, another one begins.
    pub(super) fn ended(&mut self, signals: &Arc<Signals>, now: Instant, todo: &mut Todo) {
        let Some(place) = self.place_of(signals) else { return };
        let mut worker = self.workers.remove(place);
        let probe_type = worker.machine.probe_type;
        if let Some(Effect::Forget(life)) = worker.machine.end() {
            self.hold(&worker.container, probe_type, &life, None);
        }
        if !self.launched.contains(&(worker.container, probe_type)) && !self.is_over {
            self.sync(now, todo);
        }
    }

    /// Stops all workers, for good.
    pub(super) fn stop(&mut self) {
        self.is_over = true;
        for worker in &self.workers {
            worker.signals.stop.notify_one();
        }
    }

    fn apply(
        &mut self,
        name: &str,
        probe_type: ProbeType,
        effects: Vec<Effect>,
        now: Instant,
        todo: &mut Todo,
    ) {
        let mut changed = None;
        for effect in effects {
            let (life, result) = match effect {
                Effect::Forget(life) => (life, None),
                Effect::Hold(life, result) => (life, Some(result)),
            };
            if self.hold(name, probe_type, &life, result) {
                changed = result.or(changed);
            }
        }
        // As in the kubelet's main loop, to which an alive container is no news.
        let is_news = |result| probe_type != ProbeType::Liveness || result == ProbeResult::Failure;
        if changed.is_some_and(is_news) {
            self.sync(now, todo);
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
        let Some(container) = self.named(name) else { return false };
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

    /// Says whether a container would be killed, and begins to count anew as if it had been.
    fn decide(&mut self, place: usize, now: Instant, todo: &mut Todo) {
        let container = &self.containers[place];
        if !matches!(container.state, State::Running(_)) || self.is_ending() || container.is_being_stopped() {
            return;
        }
        for probe_type in [ProbeType::Liveness, ProbeType::Startup] {
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
            *ending = Ending { count: ending.count + 1, last: Some(now), is_open: true };
            let next = Life { container_id: container.id.clone(), would_have_ended: ending.count };
            container.results[probe_type as usize] = Some((next, ProbeResult::at_first(probe_type)));
        }
    }

    /// Somebody stops a container: was that to be expected?
    fn compare(&mut self, place: usize, todo: &mut Todo) {
        for probe_type in [ProbeType::Liveness, ProbeType::Startup] {
            let ending = &mut self.containers[place].endings[probe_type as usize];
            let (probe, count) = (probe_type.name(), ending.count);
            if std::mem::take(&mut ending.is_open) {
                let message = format!(
                    "Is being stopped, as it would have been for its {probe} probe (verdict {count})"
                );
                todo.notices.push(self.notice(place, probe_type, What::StoppedToo, message));
            } else if let Some(worker) = self.worker_of(place, probe_type)
                && let run = worker.machine.run
                && run.last == ProbeResult::Failure
                && run.length > 0
            {
                let (length, threshold) = (run.length, worker.machine.probe.failure_threshold);
                let message = format!(
                    "Is being stopped after {length} failures of its {probe} probe; {threshold} are its threshold"
                );
                todo.notices.push(self.notice(place, probe_type, What::StoppedBefore, message));
            }
        }
    }

    /// Says who should have been killed by the kubelet by now, and has not been.
    pub(super) fn spared(&mut self, is_kubelet_there: bool, now: Instant, todo: &mut Todo) {
        for place in 0..self.containers.len() {
            for probe_type in [ProbeType::Liveness, ProbeType::Startup] {
                let Some(worker) = self.worker_of(place, probe_type) else { continue };
                let probe = &worker.machine.probe;
                let round =
                    u64::from(probe.period) * u64::from(probe.failure_threshold) + u64::from(probe.timeout);
                let limit = COMPARING + Duration::from_secs(round);
                let ending = &mut self.containers[place].endings[probe_type as usize];
                if !ending.is_open || ending.last.is_none_or(|last| now < last + limit) {
                    continue;
                }
                ending.is_open = false;
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

    fn notice(&self, place: usize, probe_type: ProbeType, what: What, message: String) -> Notice {
        let (pod, container) = (self.names.clone(), self.containers[place].names.clone());
        Notice { pod, container, probe_type, what, message }
    }

    fn view(&self, name: &str, probe_type: ProbeType) -> View {
        let is_pod_over = matches!(self.phase(), Phase::Succeeded | Phase::Failed);
        let place = self.containers.iter().position(|container| container.name() == name);
        View { is_pod_over, container: place.map(|place| self.seen(place, probe_type)) }
    }

    fn seen(&self, place: usize, probe_type: ProbeType) -> Seen {
        let container = &self.containers[place];
        let spec = self.spec_of(container);
        let role = spec.map_or(Role::Regular, |spec| spec.role);
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
                Role::Regular if self.is_ending() => Ends::Pod,
                Role::Regular if container.is_being_stopped() => Ends::Container,
                _ => Ends::Nobody,
            },
        }
    }

    /// Whether a container has ended in a way that makes all of them start again.
    fn restarts_all(&self) -> bool {
        self.containers.iter().any(|container| match container.state {
            State::Terminated(Some(code)) => {
                self.spec_of(container).is_some_and(|spec| spec.restarts_all(code))
            }
            _ => false,
        })
    }

    pub(super) fn basis(&self, place: usize) -> Basis {
        let container = &self.containers[place];
        Basis {
            state: container.state,
            role: self.spec_of(container).map_or(Role::Regular, |spec| spec.role),
            startup: container.result(ProbeType::Startup),
            readiness: container.result(ProbeType::Readiness),
            was_started: container.was_started,
            has_startup_worker: self.worker_of(place, ProbeType::Startup).is_some(),
            has_readiness_worker: self.worker_of(place, ProbeType::Readiness).is_some(),
        }
    }

    fn task(&self, place: usize) -> Option<Task> {
        let worker = &self.workers[place];
        let container = self.containers.iter().find(|container| container.name() == worker.container)?;
        let probe = &worker.machine.probe;
        let needs_address = match &probe.handler {
            Handler::Exec(_) => false,
            Handler::Http(get) => get.host.is_none(),
            Handler::Tcp(socket) => socket.host.is_none(),
            Handler::Grpc(_) => true,
        };
        let address = self.address.clone().or_else(|| (!needs_address).then(|| "".into()))?;
        Some(Task {
            pod: self.names.clone(),
            container: container.names.clone(),
            container_id: container.id.clone(),
            spec: self.spec_of(container)?.clone(),
            probe: probe.clone(),
            probe_type: worker.machine.probe_type,
            address,
        })
    }

    pub(super) fn phase(&self) -> Phase {
        phase(&self.spec, |name| self.state_of(name))
    }

    pub(super) fn state_of(&self, name: &str) -> Option<State> {
        self.containers.iter().find(|container| container.name() == name).map(|container| container.state)
    }

    fn spec_of(&self, container: &Container) -> Option<&Arc<ContainerSpec>> {
        self.spec.container(container.name())
    }

    fn named(&mut self, name: &str) -> Option<&mut Container> {
        self.containers.iter_mut().find(|container| container.name() == name)
    }

    fn worker_of(&self, place: usize, probe_type: ProbeType) -> Option<&Worker> {
        let name = self.containers[place].name();
        self.workers.iter().find(|it| it.container == name && it.machine.probe_type == probe_type)
    }

    fn place_of(&self, signals: &Arc<Signals>) -> Option<usize> {
        self.workers.iter().position(|worker| Arc::ptr_eq(&worker.signals, signals))
    }
}

impl Container {
    pub(super) fn name(&self) -> &str {
        self.names.name.as_deref().unwrap_or_default()
    }

    /// What a probe is held to say of it, as it is now.
    pub(super) fn result(&self, probe_type: ProbeType) -> Option<ProbeResult> {
        self.results[probe_type as usize].as_ref().map(|(_, result)| *result)
    }

    fn is_being_stopped(&self) -> bool {
        self.stopper.strong_count() > 0
    }

    /// How often a probe would have ended it.
    pub(super) fn would_have_ended(&self, probe_type: ProbeType) -> u32 {
        self.endings[probe_type as usize].count
    }

    fn update(&mut self, known: Known) {
        let Known { names, age, state, exit, .. } = known;
        (self.names, self.age, self.exit) = (names, age, exit);
        // When it was started is learned once.
        if !matches!((self.state, state), (State::Running(_), State::Running(_))) {
            self.state = state;
        }
    }
}

impl Age {
    fn is_newer_than(self, other: Self) -> bool {
        if self.created_at != 0 && other.created_at != 0 {
            self.created_at > other.created_at
        } else {
            self.seen > other.seen
        }
    }
}
