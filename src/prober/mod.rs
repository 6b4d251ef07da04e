//! Probes, made as the kubelet makes them, and what they amount to.
//!
//! ```text
//! world, specs ──► Prober ──► Pod ◄──► Machine (decides), verdict, status
//!                               ▲
//!                            Worker ──► handler ──► runtime (ExecSync), the pod's address
//!                               └──► Witness, metrics
//! ```

mod decision;
pub mod handler;
mod machine;
mod metrics;
mod node;
mod notice;
mod pod;
mod report;
mod status;
mod verdict;
mod worker;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::cri::v1::ContainerState;
use crate::probe::{PodSpec, Specs};
use crate::tap::Stopping;
use crate::world::{self, Change, Enquiry, Sandbox, World};
use handler::Executor;
use machine::State;
use pod::{Age, Known, Pod, Todo};
use worker::Worker;

pub use metrics::Metrics;
pub use notice::{Notice, What, Witness};
pub use report::{ContainerReport, PodReport, ProbeReport};
pub use status::{Condition, Phase};
pub use verdict::{ProbeResult, Run, Verdict, step};

/// From one look at all pods to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Pods that are looked at in one go.
const AT_ONCE: usize = 64;

/// For how long a kubelet that was seen is taken to be there.
const KUBELET: Duration = Duration::from_secs(60);

/// What is done about probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// They are made, and it is said what would be killed.
    DryRun,
}

/// Makes probes, and says what would be killed. Copies share it.
#[derive(Clone, Debug)]
pub struct Prober {
    shared: Arc<Shared>,
}

/// What its workers share.
#[derive(Debug)]
struct Shared {
    executor: Executor,
    metrics: Metrics,
    witness: Arc<dyn Witness>,
    enquiries: mpsc::Sender<Enquiry>,
    runtime: Handle,
    inner: Mutex<Inner>,
}

/// What a prober is made of.
#[derive(Debug)]
pub struct Parts {
    /// What is written of probes.
    pub specs: Specs,
    /// Who executes commands.
    pub executor: Executor,
    /// What is counted.
    pub metrics: Metrics,
    /// Who is told of what happens.
    pub witness: Arc<dyn Witness>,
    /// Who is asked what has to be known of pods and containers.
    pub enquiries: mpsc::Sender<Enquiry>,
    /// Where probes are made.
    pub runtime: Handle,
}

#[derive(Debug)]
struct Inner {
    /// When the first list of the node had come: until then everything has been there before.
    since: Instant,
    is_listed: bool,
    specs: Specs,
    pods: HashMap<Arc<str>, Entry>,
    /// When a kubelet was seen last.
    kubelet_seen: Option<Instant>,
    is_over: bool,
}

/// A pod of the node. One that has no probe is only remembered.
#[derive(Debug)]
struct Entry {
    sandbox: Arc<Sandbox>,
    containers: Vec<Arc<world::Container>>,
    pod: Option<Arc<Pod>>,
}

impl Mode {
    /// All of them, by their names.
    pub const NAMED: [(&'static str, Self); 2] = [("off", Self::Off), ("dry-run", Self::DryRun)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::DryRun => "dry-run",
        }
    }
}

impl Prober {
    /// A prober that knows nothing of the node yet, and works where `parts` say.
    #[must_use]
    pub fn start(parts: Parts) -> Self {
        let Parts { specs, executor, metrics, witness, enquiries, runtime } = parts;
        let inner = Inner {
            since: Instant::now(),
            is_listed: false,
            specs,
            pods: HashMap::new(),
            kubelet_seen: None,
            is_over: false,
        };
        let inner = Mutex::new(inner);
        let shared = Arc::new(Shared { executor, metrics, witness, enquiries, runtime, inner });
        shared.runtime.spawn(shared.clone().keep_house());
        Self { shared }
    }

    /// Something has become of the node.
    pub fn changed(&self, world: &World, changes: &[Change]) {
        let mut inner = self.shared.lock();
        let mut touched: Vec<Arc<str>> = Vec::new();
        let mut seen = HashSet::new();
        for change in changes {
            if let Some(key) = inner.take(world, change)
                && seen.insert(key.clone())
            {
                touched.push(key);
            }
        }
        let now = Instant::now();
        for key in touched {
            self.shared.refresh(&mut inner, &key, now);
        }
    }

    /// A kubelet has been seen to use the runtime.
    pub fn kubelet_seen(&self) {
        self.shared.lock().kubelet_seen = Some(Instant::now());
    }

    /// The whole node has been listed: what comes from now on is new.
    pub fn listed(&self) {
        let mut inner = self.shared.lock();
        if !inner.is_listed {
            (inner.is_listed, inner.since) = (true, Instant::now());
        }
    }

    /// What is written of probes is different from now on.
    pub fn specify(&self, specs: Specs) {
        let mut inner = self.shared.lock();
        inner.specs = specs;
        let (keys, now): (Vec<_>, _) = (inner.pods.keys().cloned().collect(), Instant::now());
        for key in keys {
            self.shared.refresh(&mut inner, &key, now);
        }
    }

    /// Somebody has a sandbox or container stopped.
    pub fn stopping(&self, stopping: &Stopping) {
        let Stopping { head, sandbox, container } = stopping;
        let Some(pod) = self.shared.lock().pod_of(sandbox.as_deref(), container.as_deref()) else { return };
        let mut todo = Todo::default();
        match container {
            Some(container) => pod.lock().stopping(container, head, &mut todo),
            None => pod.lock().stopping_all(head),
        }
        self.shared.carry_out(&pod, todo);
    }

    /// Ends all workers.
    pub fn stop(&self) {
        let mut inner = self.shared.lock();
        inner.is_over = true;
        for pod in inner.pods.values().filter_map(|entry| entry.pod.as_ref()) {
            pod.lock().stop();
        }
        inner.pods.clear();
    }

    /// How all pods are that are probed.
    #[must_use]
    pub fn report(&self) -> Vec<PodReport> {
        self.shared.pods().iter().map(|pod| pod.lock().report()).collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.lock().pods.values().filter_map(|entry| entry.pod.clone()).collect()
    }

    /// Whether there has been a prober for less than this.
    fn is_young(&self, period: Duration) -> bool {
        let inner = self.lock();
        !inner.is_listed || inner.since.elapsed() < period
    }

    /// Looks at every pod again and again, a few at a time: the probes of none wait for all the others.
    async fn keep_house(self: Arc<Self>) {
        loop {
            sleep(LOOK).await;
            let (keys, is_kubelet_there) = {
                let inner = self.lock();
                if inner.is_over {
                    return;
                }
                let is_kubelet_there = inner.kubelet_seen.is_some_and(|seen| seen.elapsed() < KUBELET);
                (inner.pods.keys().cloned().collect::<Vec<_>>(), is_kubelet_there)
            };
            for keys in keys.chunks(AT_ONCE) {
                self.look(keys, is_kubelet_there);
                yield_now().await;
            }
        }
    }

    /// Does what is due for some pods, and asks for what still has to be known.
    fn look(self: &Arc<Self>, keys: &[Arc<str>], is_kubelet_there: bool) {
        let now = Instant::now();
        let inner = self.lock();
        let entries = keys.iter().filter_map(|key| inner.pods.get(key));
        let probed: Vec<Arc<Pod>> = entries
            .filter_map(|entry| {
                self.ask(entry.unknown());
                entry.pod.clone()
            })
            .collect();
        drop(inner);
        for pod in probed {
            let mut todo = Todo::default();
            let mut inner = pod.lock();
            if inner.next_sync <= now {
                inner.sync(now, &mut todo);
            }
            inner.spared(is_kubelet_there, now, &mut todo);
            drop(inner);
            self.carry_out(&pod, todo);
        }
    }

    /// Has the runtime asked. What finds no room is wanted again a second later.
    fn ask(&self, enquiries: Vec<Enquiry>) {
        for enquiry in enquiries {
            let _ = self.enquiries.try_send(enquiry);
        }
    }

    /// Looks again at a pod of which something new is known.
    fn refresh(self: &Arc<Self>, inner: &mut Inner, key: &Arc<str>, now: Instant) {
        let since = inner.since;
        let Some(entry) = inner.pods.get_mut(key) else { return };
        let spec = inner.specs.pod(&entry.sandbox, &entry.containers);
        if entry.pod.is_none() && !spec.is_probed() {
            return;
        }
        let pod = entry.pod.get_or_insert_with(|| Arc::new(Pod::new(entry.sandbox.pod.clone(), since, now)));
        let (pod, mut todo) = (pod.clone(), Todo::default());
        entry.tell(&mut pod.lock(), spec, now, &mut todo);
        self.carry_out(&pod, todo);
        self.ask(entry.unknown());
    }

    /// Does what a pod wants done, once nobody looks at it.
    fn carry_out(self: &Arc<Self>, pod: &Arc<Pod>, todo: Todo) {
        for notice in todo.notices {
            if notice.what == What::WouldKill {
                self.metrics.verdict(notice.probe_type.name());
            }
            self.witness.notice(notice);
        }
        for (signals, probe) in todo.launch {
            let worker = Worker { shared: self.clone(), pod: pod.clone(), signals, series: None };
            self.metrics.begun();
            let metrics = self.metrics.clone();
            self.runtime.spawn(async move {
                worker.run(probe).await;
                metrics.ended();
            });
        }
    }
}

impl Inner {
    /// Takes a change. Tells which pod it concerns.
    fn take(&mut self, world: &World, change: &Change) -> Option<Arc<str>> {
        if self.is_over {
            return None;
        }
        match change {
            Change::SandboxRuns(sandbox)
            | Change::SandboxStopped(sandbox)
            | Change::SandboxUpdated(sandbox) => self.sandbox(sandbox),
            Change::SandboxGone(sandbox) => {
                let key = key_of(sandbox);
                let is_last = self.pods.get(&key).is_some_and(|entry| entry.sandbox.id == sandbox.id);
                let entry = if is_last { self.pods.remove(&key) } else { None };
                if let Some(pod) = entry.and_then(|entry| entry.pod) {
                    pod.lock().stop();
                }
                None
            }
            Change::ContainerCreated(container)
            | Change::ContainerStarted(container)
            | Change::ContainerExited(container)
            | Change::ContainerUpdated(container) => {
                let sandbox = world.sandbox_of(container)?.clone();
                let key = self.sandbox(&sandbox)?;
                let entry = self.pods.get_mut(&key)?;
                let known = entry.containers.iter_mut().find(|known| known.id == container.id);
                match known {
                    Some(known) => *known = container.clone(),
                    None => entry.containers.push(container.clone()),
                }
                Some(key)
            }
            Change::ContainerGone(container) => {
                let key = key_of(world.sandbox_of(container)?);
                let entry = self.pods.get_mut(&key)?;
                entry.containers.retain(|known| known.id != container.id);
                if let Some(pod) = &entry.pod {
                    pod.lock().lose(&container.id);
                }
                Some(key)
            }
        }
    }

    /// The pod of a sandbox or container, if it is probed.
    fn pod_of(&self, sandbox: Option<&str>, container: Option<&str>) -> Option<Arc<Pod>> {
        let has = |entry: &&Entry| {
            sandbox.is_some_and(|id| *entry.sandbox.id == *id)
                || container.is_some_and(|id| entry.containers.iter().any(|known| *known.id == *id))
        };
        self.pods.values().find(has)?.pod.clone()
    }

    /// Takes a sandbox, if it is its pod's newest one.
    fn sandbox(&mut self, sandbox: &Arc<Sandbox>) -> Option<Arc<str>> {
        let key = key_of(sandbox);
        match self.pods.get_mut(&key) {
            None => {
                let entry = Entry { sandbox: sandbox.clone(), containers: Vec::new(), pod: None };
                self.pods.insert(key.clone(), entry);
            }
            Some(entry) if entry.sandbox.id == sandbox.id || sandbox.attempt >= entry.sandbox.attempt => {
                entry.sandbox = sandbox.clone();
            }
            Some(_) => return None,
        }
        Some(key)
    }
}

impl Entry {
    /// Tells a pod all that is known of it.
    fn tell(&self, pod: &mut pod::Inner, spec: PodSpec, now: Instant, todo: &mut Todo) {
        pod.names = self.sandbox.pod.clone();
        pod.has_ended = !self.sandbox.is_ready;
        pod.address = address(&self.sandbox);
        if *pod.spec != spec {
            pod.specify(spec);
        }
        for container in &self.containers {
            if let Some(state) = state(container, now) {
                let (names, id) = (container.name.clone(), container.id.clone());
                let age = Age { created_at: container.created_at, seen: container.seen };
                pod.see(Known { names, id, age, state, exit: container.exit.clone() });
            }
        }
        pod.sync(now, todo);
    }

    /// What has to be known of it.
    fn unknown(&self) -> Vec<Enquiry> {
        if self.pod.is_none() {
            return Vec::new();
        }
        let is_unknown = |container: &&Arc<world::Container>| match container.state {
            ContainerState::ContainerRunning => container.started_at == 0,
            ContainerState::ContainerExited => container.exit.is_none(),
            _ => false,
        };
        let containers = self.containers.iter().filter(is_unknown);
        let mut unknown: Vec<_> = containers.map(|it| Enquiry::Container(it.id.clone())).collect();
        if self.sandbox.is_ready && address(&self.sandbox).is_none() {
            unknown.push(Enquiry::Sandbox(self.sandbox.id.clone()));
        }
        unknown
    }
}

/// What tells pods apart: the uid with the names, since people who make pods by hand copy uids; the sandbox's id where there is none.
fn key_of(sandbox: &Sandbox) -> Arc<str> {
    let pod = &sandbox.pod;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match pod.uid.as_deref().filter(|uid| !uid.is_empty()) {
        Some(uid) => format!("{uid}/{}/{}", text(&pod.namespace), text(&pod.name)).into(),
        None => sandbox.id.clone(),
    }
}

/// The address of a pod, once it is known.
fn address(sandbox: &Sandbox) -> Option<Arc<str>> {
    match sandbox.addresses.first() {
        Some(address) => Some(address.as_str().into()),
        None if sandbox.is_host_network == Some(true) => Some(node::address().into()),
        None => None,
    }
}

/// How far a container has come; `None` while that is not known whole. One that has not been started yet is not there yet: a kubelet, which
/// starts what it creates, does not see it in between, and would take what is held of it then for a verdict.
fn state(container: &world::Container, now: Instant) -> Option<State> {
    match container.state {
        ContainerState::ContainerRunning => {
            Some(State::Running(started(container.started_at, SystemTime::now(), now)?))
        }
        ContainerState::ContainerExited => {
            Some(State::Terminated(container.exit.as_ref().map(|(code, _)| *code)))
        }
        ContainerState::ContainerCreated | ContainerState::ContainerUnknown => None,
    }
}

/// When a container was started, by our clock; of the time on the wall only whole seconds count, as the kubelet keeps them.
fn started(started_at: i64, wall: SystemTime, now: Instant) -> Option<Instant> {
    let seconds = u64::try_from(started_at / 1_000_000_000).ok().filter(|seconds| *seconds > 0)?;
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    match wall.duration_since(started) {
        Ok(age) => now.checked_sub(age),
        Err(early) => now.checked_add(early.duration()),
    }
}

#[cfg(test)]
mod tests;
