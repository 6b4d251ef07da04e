//! The task off the byte path to which everything comes that is seen, and from which everything goes that is known.
//!
//! ```text
//! decoder ────sightings──┐                  ┌──► world (snapshots)
//! watcher ────notices────┼──► Observatory ──┼──► record (calls, events)
//! inspector ──answers────┘                  └──► metrics
//! ```

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tracing::{error, info, warn};

use super::client_pods::ClientActionRecorder;
use crate::containerd::{TaskEvent, TimestampedEvent};
use crate::exec::{CallRecord, ExecAnalyzer, Stuck};
use crate::play::Kubelet;
use crate::probe::{RefreshTrigger, SpecUpdate};
use crate::prober::ProbeManager;
use crate::record::{CallHistory, Event, EventHistory, Journal};
use crate::tap::{
    Call, Decoder, ExecRequest, Observation, Observations, TapEvent, is_object_call, is_read_only,
};
use crate::telemetry::traces::Traces;
use crate::terminal::sanitize;
use crate::world::{Change, Inventory, RuntimeEvent, Sandbox, Source};

/// How often what is stuck is looked for.
const STUCK_INTERVAL: Duration = Duration::from_secs(1);

/// Notices that are taken at once.
const MAX_BATCH: usize = 64;

/// Where what is seen comes from.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) decoder: Decoder,
    pub(super) notices: mpsc::Receiver<RuntimeEvent>,
    pub(super) news: mpsc::Receiver<SpecUpdate>,
}

/// Where what is known is kept.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) worlds: watch::Sender<Arc<Inventory>>,
    pub(super) stuck: watch::Sender<Arc<Stuck>>,
    pub(super) calls: Arc<CallHistory>,
    pub(super) events: Arc<EventHistory>,
    pub(super) journal: Option<Journal>,
    pub(super) traces: Option<Traces>,
    /// Faults of our own.
    pub(super) faults: Counter,
    /// For those who know of pods: there is a new one.
    pub(super) refresh: RefreshTrigger,
}

/// Everything that is known, and the way it came to be known.
#[derive(Debug)]
pub(super) struct NodeEngine {
    world: Arc<Inventory>,
    inspector: ExecAnalyzer,
    /// Who makes probes, if anybody does.
    prober: Option<ProbeManager>,
    /// What is played, if anything is.
    play: Arc<OnceLock<Kubelet>>,
    /// Who tells what clients do with what is kept alive, if anything is.
    recorder: Option<ClientActionRecorder>,
    outlets: Outputs,
    listed: InitialLists,
}

/// Of what a list has come: what is in the first one was there before, and is no news.
#[derive(Clone, Copy, Debug, Default)]
struct InitialLists {
    sandboxes: bool,
    containers: bool,
}

impl NodeEngine {
    pub(super) fn new(
        inspector: ExecAnalyzer,
        prober: Option<ProbeManager>,
        (play, recorder): (Arc<OnceLock<Kubelet>>, Option<ClientActionRecorder>),
        outlets: Outputs,
    ) -> Self {
        let (world, listed) = (Arc::default(), InitialLists::default());
        Self { world, inspector, prober, play, recorder, outlets, listed }
    }

    /// Takes everything that comes, until the tap is gone and what it saw has been taken.
    pub(super) async fn run(mut self, inlets: Inputs) {
        let Inputs { mut decoder, mut notices, mut news } = inlets;
        let mut looks = interval(STUCK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_seen, mut observations) = (Vec::new(), Vec::with_capacity(MAX_BATCH));
        loop {
            let due = self.inspector.next_tick();
            let faults = self.outlets.faults.get();
            tokio::select! {
                more = decoder.next(|event| last_seen.push(event)) => {
                    for tap_event in last_seen.drain(..) {
                        self.catch_panics(|it| it.on_tap_event(tap_event));
                    }
                    if !more {
                        break;
                    }
                }
                count = notices.recv_many(&mut observations, MAX_BATCH), if !notices.is_closed() || !notices.is_empty() => {
                    for notice in observations.drain(..count) {
                        self.catch_panics(|it| it.on_runtime_event(notice));
                    }
                }
                Some(news) = news.recv() => self.catch_panics(|it| it.on_spec_update(news)),
                heard = self.inspector.recv() => self.catch_panics(|it| it.inspector.handle(heard, Instant::now())),
                _ = looks.tick() => self.catch_panics(Self::check_stuck),
                () = until(due) => self.catch_panics(|it| it.inspector.tick(Instant::now())),
            }
            self.catch_panics(Self::record);
            if self.outlets.faults.get() > faults {
                // What is due may be what is wrong, and due again at once.
                sleep(STUCK_INTERVAL).await;
            }
        }
        self.catch_panics(|it| it.inspector.flush(Instant::now()));
        self.catch_panics(Self::record);
    }

    /// Does one thing. A fault of ours in it loses what was looked at, and no more: what comes next is seen, and traffic is not touched.
    fn catch_panics(&mut self, step: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| step(self))).is_err() {
            self.outlets.faults.inc();
            error!(
                "a fault of probeshim's own: what was looked at is lost, please report it; traffic is not touched"
            );
        }
    }

    fn on_tap_event(&mut self, event: TapEvent) {
        let now = Instant::now();
        match event {
            TapEvent::ExecRequested(request) => {
                if let Some(prober) = &self.prober {
                    hook_begins(prober, &request);
                }
                self.inspector.on_request(&self.world, *request);
            }
            TapEvent::StopRequested(stopping) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.stopping(&self.world, &stopping, self.listed.is_whole());
                }
                if let Some(prober) = self.prober.as_ref().filter(|_| !stopping.is_removal) {
                    prober.on_stop_requested(&stopping);
                }
            }
            TapEvent::Streamed(observations) => self.apply(Source::Event, observations, false),
            // Whoever waits may have gone.
            TapEvent::Barrier(seen) => drop(seen.send(())),
            TapEvent::CallEnded(mut ended) => {
                let events = std::mem::take(&mut ended.observations.items);
                let is_act = !is_read_only(&ended.call.method);
                self.apply(
                    Source::Call,
                    Observations { observed_since: ended.observations.observed_since, items: events },
                    is_act,
                );
                if let Some(client_recorder) = &mut self.recorder {
                    client_recorder.ended(&self.world, &mut ended);
                }
                if ended.info.is_from_kubelet() {
                    if let Some(play) = self.play.get() {
                        play.on_kubelet_seen();
                    }
                    if let Some(prober) = &self.prober {
                        prober.kubelet_seen();
                        on_kubelet_exec(prober, &ended.call);
                    }
                }
                self.inspector.on_end(&self.world, ended, now);
            }
        }
    }

    fn on_runtime_event(&mut self, notice: RuntimeEvent) {
        let now = Instant::now();
        match notice {
            RuntimeEvent::Connected { runtime, has_exec_events } => {
                info!(
                    name = runtime.name,
                    version = runtime.version,
                    tells_execs = has_exec_events,
                    "the runtime is watched"
                );
                self.outlets.events.push(Event::runtime_condition(Some(&runtime)));
                self.inspector.events_available(has_exec_events, now);
            }
            RuntimeEvent::Disconnected => {
                self.outlets.events.push(Event::runtime_condition(None));
                self.inspector.events_interrupted(now);
            }
            RuntimeEvent::Observed(source, observations) => self.apply(source, observations, false),
            RuntimeEvent::Task(stamped) => {
                self.oom(&stamped);
                self.inspector.on_task_event(&stamped, now);
            }
        }
    }

    /// Something has become of what is written of probes.
    fn on_spec_update(&mut self, news: SpecUpdate) {
        match news {
            SpecUpdate::Specs(specs) => {
                self.inspector.set_specs(specs.clone());
                if let Some(prober) = &self.prober {
                    prober.set_specs(specs);
                }
            }
            SpecUpdate::Problem(problem) => {
                warn!("{}", sanitize(&problem));
                self.outlets.events.push(Event::invalid_spec(problem));
            }
            SpecUpdate::Resolved(problem) => {
                info!("no longer so: {}", sanitize(&problem));
                self.outlets.events.push(Event::spec_resolved(&problem));
            }
        }
    }

    fn oom(&self, stamped: &TimestampedEvent) {
        if let TaskEvent::OutOfMemory { container } = &stamped.event
            && let Some(container) = self.world.container(container)
        {
            self.outlets.events.push(Event::oom_killed(container, &self.world));
        }
    }

    /// Takes what was told. `is_act`: somebody has just made it so.
    fn apply(&mut self, source: Source, observations: Observations, is_act: bool) {
        if observations.items.is_empty() {
            return;
        }
        let before = self.listed;
        self.listed.sandboxes |=
            observations.items.iter().any(|fact| matches!(fact, Observation::SandboxList(_)));
        self.listed.containers |=
            observations.items.iter().any(|fact| matches!(fact, Observation::ContainerList(_)));
        let changes =
            self.world.fold(source, observations.observed_since, Instant::now(), observations.items);
        if !changes.is_empty() {
            self.changed(&changes, is_act, before);
        }
        if self.listed.is_whole() {
            if let Some(recorder) = self.recorder.as_mut().filter(|_| !before.is_whole()) {
                recorder.listed(&self.world);
            }
            if let Some(prober) = &self.prober {
                prober.mark_listed();
            }
        }
    }

    /// Something has become of the node.
    fn changed(&mut self, changes: &[Change], is_act: bool, before: InitialLists) {
        self.outlets.worlds.send_replace(self.world.clone());
        if let Some(recorder) = &mut self.recorder {
            recorder.changed(&self.world);
        }
        self.inspector.on_changes(&self.world, changes, Instant::now());
        if let Some(prober) = &self.prober {
            prober.changed(&self.world, changes);
        }
        for change in changes {
            if (is_act || before.has(change))
                && !self.is_reported(change)
                && let Some(event) = Event::from_change(change, &self.world)
            {
                self.outlets.events.push(event);
            }
            match (change, &self.recorder) {
                (Change::ContainerExited(container), Some(client_recorder))
                    if is_act || before.has(change) =>
                {
                    client_recorder.exited(&self.world, container);
                }
                (
                    Change::ContainerStarted(container) | Change::ContainerUpdated(container),
                    Some(keeping),
                ) => {
                    keeping.has_started(&self.world, container);
                }
                (Change::SandboxRemoved(sandbox), Some(keeping)) => {
                    keeping.on_sandbox_gone(&self.world, sandbox)
                }
                _ => {}
            }
            if let Change::SandboxStarted(sandbox) = change {
                self.outlets.refresh.trigger();
                self.invalid(sandbox);
            }
        }
    }

    /// Whether who plays a pod tells of it himself.
    fn is_reported(&self, change: &Change) -> bool {
        let (Change::ContainerCreated(container) | Change::ContainerStarted(container)) = change else {
            return false;
        };
        let pod = self.world.sandbox_of(container).map(|sandbox| &sandbox.pod);
        self.play.get().is_some_and(|play| pod.is_some_and(|pod| play.has(pod)))
    }

    /// Tells what a pod's annotations say in vain.
    fn invalid(&self, sandbox: &Sandbox) {
        for problem in self.inspector.annotation_problems(sandbox) {
            let (namespace, pod) = (sandbox.pod.namespace.as_deref(), sandbox.pod.name.as_deref());
            warn!(namespace, pod, "{}", sanitize(&problem));
            self.outlets.events.push(Event::invalid_annotation(sandbox, problem));
        }
    }

    /// Looks for what is stuck, and tells what is new of it and what is over.
    fn check_stuck(&mut self) {
        let now = Instant::now();
        self.inspector.tick(now);
        let (before, stuck) = (self.outlets.stuck.borrow().clone(), self.inspector.stuck());
        if *before == stuck {
            return;
        }
        for (_, new) in stuck.iter().filter(|(key, _)| !before.contains_key(key)) {
            let event = Event::stuck_exec(new, now - new.since);
            warn!(kind = new.kind.name(), call = new.call, pid = new.pid, "{}", sanitize(&event.message));
            self.outlets.events.push(event);
        }
        for (_, old) in before.iter().filter(|(key, _)| !stuck.contains_key(key)) {
            let event = Event::no_longer_stuck(old, now - old.since);
            info!(kind = old.kind.name(), call = old.call, pid = old.pid, "{}", sanitize(&event.message));
            self.outlets.events.push(event);
        }
        self.outlets.stuck.send_replace(Arc::new(stuck));
    }

    fn record(&mut self) {
        for record in self.inspector.take_records() {
            self.catch_panics(|it| it.store(record));
        }
    }

    fn store(&self, record: CallRecord) {
        if let Some(traces) = &self.outlets.traces
            && is_object_call(&record.call.method)
            && !record.is_amended
        {
            traces.export(record.span());
        }
        let record = self.outlets.calls.push(record.strip_trace());
        if let Some(journal) = &self.outlets.journal {
            journal.write(record);
        }
    }
}

impl InitialLists {
    fn is_whole(self) -> bool {
        self.sandboxes && self.containers
    }

    /// Whether a list had come of what has changed.
    fn has(self, change: &Change) -> bool {
        match change {
            Change::SandboxStarted(_) | Change::SandboxStopped(_) | Change::SandboxRemoved(_) => {
                self.sandboxes
            }
            Change::ContainerCreated(_)
            | Change::ContainerStarted(_)
            | Change::ContainerExited(_)
            | Change::ContainerRemoved(_) => self.containers,
            Change::SandboxUpdated(_) | Change::ContainerUpdated(_) => false,
        }
    }
}

/// What a kubelet executes without a timeout may be a hook.
fn hook_begins(prober: &ProbeManager, request: &ExecRequest) {
    let id = request.container.as_ref().and_then(|container| container.id.as_deref());
    if let Some(id) = id.filter(|_| request.exec.timeout().is_none())
        && request.info.upgrade().is_some_and(|head| head.is_from_kubelet())
    {
        prober.on_kubelet_exec_start(id, &request.exec.command, &request.info);
    }
}

/// A kubelet's probe may be one that we make as well.
fn on_kubelet_exec(prober: &ProbeManager, call: &Call) {
    let id = call.container.as_ref().and_then(|container| container.id.as_deref());
    let (Some(exec), Some(id)) = (&call.exec, id) else { return };
    let came_to = match exec.result {
        Some(result) => format!("exit code {}", result.exit_code),
        None => call.ending.to_string(),
    };
    prober.on_kubelet_exec_end(id, &exec.command, &came_to);
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::MeteredChannel;
    use crate::exec;
    use crate::probe::SpecResolver;
    use crate::socket::SocketPath;

    #[tokio::test]
    async fn a_fault_is_counted_and_what_comes_next_is_seen() {
        let client = MeteredChannel::new(&SocketPath::parse("/nowhere.sock").unwrap()).client();
        let inspector = ExecAnalyzer::start(
            exec::SlownessConfig::default(),
            SpecResolver::default(),
            client,
            exec::ExecMetrics::default(),
        );
        let events = Arc::new(EventHistory::default());
        let outlets = Outputs {
            worlds: watch::channel(Arc::default()).0,
            stuck: watch::channel(Arc::default()).0,
            calls: Arc::new(CallHistory::new(crate::record::Limits::default())),
            events: events.clone(),
            journal: None,
            traces: None,
            faults: Counter::default(),
            refresh: RefreshTrigger::default(),
        };
        let mut engine = NodeEngine::new(inspector.unwrap(), None, (Arc::default(), None), outlets);
        engine.catch_panics(|_| panic!("for the test"));
        engine.catch_panics(|it| it.on_runtime_event(RuntimeEvent::Disconnected));
        assert_eq!(engine.outlets.faults.get(), 1);
        assert_eq!(events.select(&crate::record::EventFilter::default()).len(), 1);
    }
}
