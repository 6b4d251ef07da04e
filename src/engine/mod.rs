//! The event loop: a task off the byte path that receives every observation, and passes it to the
//! inventory, the ExecSync analyzer, the prober, the history and the event recorder.
//!
//! ```text
//! decoder ────tap events─┐             ┌──► inventory (snapshots)
//! watcher ────events─────┼──► engine ──┼──► history, events
//! analyzer ───messages───┘             └──► metrics
//! ```

mod changes;
mod in_flight;
mod stop_events;
mod stops;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{error, info, warn};

use crate::capture::CaptureHub;
use crate::containerd::{TaskEvent, TimestampedEvent};
use crate::deadline;
use crate::events::{Event, EventRecorder, reason};
use crate::execsync::{CallRecord, ExecAnalyzer, Stuck, StuckExec};
use crate::history::recorder::Timeline;
use crate::history::{CallHistory, Journal};
use crate::inventory::{InspectRequest, Inventory, RuntimeEvent, RuntimeInfo, Source};
use crate::kubelet::{ClientActionRecorder, Kubelet};
use crate::probe::{RefreshTrigger, SpecResolver};
use crate::prober::{ProbeAttempt, ProbeManager};
use crate::tap::{Call, Decoder, ExecRequest, Observations, TapEvent, is_object_call, is_read_only};
use crate::telemetry::traces::Traces;
use crate::terminal::sanitize;

pub(crate) use in_flight::InFlightQuery;
pub use in_flight::InFlightReader;

use changes::InitialLists;
use in_flight::{Details, RecordsQuery, RequestsInFlight};
use stops::StopObserver;

/// Interval between searches for stuck execs.
const STUCK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of runtime events that are received together.
const MAX_BATCH: usize = 64;

/// Sources of the engine.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) decoder: Decoder,
    pub(crate) runtime_events: mpsc::Receiver<RuntimeEvent>,
    pub(crate) spec_updates: mpsc::Receiver<SpecResolver>,
    pub(crate) in_flight_queries: mpsc::Receiver<InFlightQuery>,
    pub(crate) attempts: mpsc::Receiver<ProbeAttempt>,
}

/// Destinations of the engine.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) inventory: watch::Sender<Arc<Inventory>>,
    pub(crate) stuck: watch::Sender<Arc<Stuck>>,
    pub(crate) specs: watch::Sender<SpecResolver>,
    pub(crate) calls: Arc<CallHistory>,
    pub(crate) events: Arc<EventRecorder>,
    pub(crate) journal: Option<Journal>,
    /// Results of probes over time.
    pub(crate) timeline: Timeline,
    pub(crate) captures: CaptureHub,
    pub(crate) traces: Option<Traces>,
    /// Number of panics of the engine.
    pub(crate) faults: Counter,
    /// Queue of requests for information that is missing about an object.
    pub(crate) inspect_requests: mpsc::Sender<InspectRequest>,
    /// Refreshes the spec sources when a sandbox starts.
    pub(crate) refresh: RefreshTrigger,
}

/// State of the node, and the components that receive observations.
#[derive(Debug)]
pub(crate) struct NodeEngine {
    inventory: Arc<Inventory>,
    analyzer: ExecAnalyzer,
    /// The prober, if probes are enabled.
    prober: Option<ProbeManager>,
    /// The built-in kubelet, once it runs.
    kubelet: Arc<OnceLock<Kubelet>>,
    /// Recorder of the clients' actions on their pods, if client pods are restarted.
    recorder: Option<ClientActionRecorder>,
    requests_in_flight: RequestsInFlight,
    /// Queries that wait for the records of calls.
    records_queries: Vec<RecordsQuery>,
    /// The stops of containers by clients.
    stops: StopObserver,
    outputs: Outputs,
    initial_lists: InitialLists,
}

impl NodeEngine {
    pub(crate) fn new(
        analyzer: ExecAnalyzer,
        prober: Option<ProbeManager>,
        kubelet: Arc<OnceLock<Kubelet>>,
        recorder: Option<ClientActionRecorder>,
        outputs: Outputs,
    ) -> Self {
        let (inventory, initial_lists) = (Arc::default(), InitialLists::default());
        let requests_in_flight = RequestsInFlight::default();
        let stops = StopObserver::since(SystemTime::now());
        Self {
            inventory,
            analyzer,
            prober,
            kubelet,
            recorder,
            requests_in_flight,
            records_queries: Vec::new(),
            stops,
            outputs,
            initial_lists,
        }
    }

    /// Handles all inputs, until the tap is closed and its last events have been handled.
    pub(crate) async fn run(mut self, inputs: Inputs) {
        let Inputs { mut decoder, mut runtime_events, mut spec_updates, mut in_flight_queries, mut attempts } =
            inputs;
        let mut stuck_checks = interval(STUCK_INTERVAL);
        stuck_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut tap_events, mut batch) = (Vec::new(), Vec::with_capacity(MAX_BATCH));
        loop {
            let due = self.analyzer.next_tick();
            let faults = self.outputs.faults.get();
            tokio::select! {
                more = decoder.next(|event| tap_events.push(event)) => {
                    for event in tap_events.drain(..) {
                        self.catch_panics(|it| it.on_tap_event(event));
                    }
                    if !more {
                        break;
                    }
                }
                count = runtime_events.recv_many(&mut batch, MAX_BATCH), if !runtime_events.is_closed() || !runtime_events.is_empty() => {
                    for event in batch.drain(..count) {
                        self.catch_panics(|it| it.on_runtime_event(event));
                    }
                }
                Some(specs) = spec_updates.recv() => self.catch_panics(|it| it.set_specs(specs)),
                Some(query) = in_flight_queries.recv() => self.catch_panics(|it| it.on_in_flight_query(query)),
                Some(attempt) = attempts.recv() => self.catch_panics(|it| it.outputs.timeline.add_attempt(&attempt)),
                message = self.analyzer.recv() => self.catch_panics(|it| it.analyzer.handle(message, Instant::now())),
                _ = stuck_checks.tick() => self.catch_panics(Self::check_stuck),
                () = deadline::reached(due) => self.catch_panics(|it| it.analyzer.tick(Instant::now())),
            }
            self.catch_panics(Self::record);
            if self.outputs.faults.get() > faults {
                // The work that the timer triggers may be the cause of the panic, and may be
                // pending again immediately.
                sleep(STUCK_INTERVAL).await;
            }
        }
        self.catch_panics(|it| it.analyzer.flush(Instant::now()));
        self.catch_panics(Self::record);
        while let Ok(attempt) = attempts.try_recv() {
            self.catch_panics(|it| it.outputs.timeline.add_attempt(&attempt));
        }
        self.catch_panics(|it| it.outputs.timeline.end(SystemTime::now(), Instant::now()));
    }

    /// Runs one step. A panic loses only the observation of this step: later observations are
    /// handled, and traffic is not affected.
    fn catch_panics(&mut self, step: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| step(self))).is_err() {
            self.outputs.faults.inc();
            error!(
                "bug in probeshim: the observation of a call panicked, please report it; traffic is not affected"
            );
        }
    }

    fn on_tap_event(&mut self, event: TapEvent) {
        let now = Instant::now();
        match event {
            TapEvent::RequestHeld(request) => self.requests_in_flight.hold(*request),
            TapEvent::ExecRequested(request) => {
                self.requests_in_flight.remove(request.id);
                if let Some(prober) = &self.prober {
                    on_untimed_kubelet_exec(prober, &request);
                }
                self.observe_exec_request(&request);
                self.analyzer.on_request(&self.inventory, *request);
            }
            TapEvent::StopRequested(request) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.on_stop_requested(&self.inventory, &request, self.initial_lists.is_complete());
                }
                if let Some(prober) = self.prober.as_ref().filter(|_| !request.is_removal) {
                    prober.on_stop_requested(&request);
                }
                self.observe_stop_request(&request);
                self.requests_in_flight.stop(request);
            }
            TapEvent::Streamed(observations) => self.apply(Source::Event, observations, false),
            // The waiting task may be gone.
            TapEvent::Barrier(reached) => drop(reached.send(())),
            TapEvent::CallEnded(mut call) => {
                self.outputs.captures.on_call_ended(&mut call);
                self.requests_in_flight.remove(call.call.id);
                let items = std::mem::take(&mut call.observations.items);
                let is_mutating = !is_read_only(&call.call.method);
                self.apply(
                    Source::Call,
                    Observations { observed_since: call.observations.observed_since, items },
                    is_mutating,
                );
                if let Some(recorder) = &mut self.recorder {
                    recorder.on_call_ended(&self.inventory, &mut call);
                }
                self.observe_start(&call);
                if call.info.is_from_kubelet() {
                    self.observe_call_end(&call);
                    if let Some(kubelet) = self.kubelet.get() {
                        kubelet.on_kubelet_seen();
                    }
                    if let Some(prober) = &self.prober {
                        prober.kubelet_seen();
                        on_kubelet_exec(prober, &call.call);
                    }
                }
                self.analyzer.on_end(&self.inventory, call, now);
            }
        }
    }

    fn on_runtime_event(&mut self, event: RuntimeEvent) {
        let now = Instant::now();
        match event {
            RuntimeEvent::Connected { runtime, has_exec_events } => {
                info!(
                    name = runtime.name,
                    version = runtime.version,
                    has_exec_events,
                    "watching the runtime"
                );
                let RuntimeInfo { name, version } = &runtime;
                self.outputs.timeline.set_runtime(format!("{name} {version}"));
                self.record_event(Event::normal(reason::RUNTIME_READY, format!("{name} {version} answers")));
                self.analyzer.events_available(has_exec_events, now);
            }
            RuntimeEvent::Disconnected => {
                let message = "The runtime does not answer, or its events have ended; probeshim retries until it answers";
                self.record_event(Event::warning(reason::RUNTIME_UNAVAILABLE, message));
                self.analyzer.events_interrupted(now);
            }
            RuntimeEvent::Unresponsive => {
                let message = "The runtime has not answered a list of containers within 10 s";
                self.record_event(Event::warning(reason::RUNTIME_UNAVAILABLE, message));
            }
            RuntimeEvent::Observed(source, observations) => self.apply(source, observations, false),
            RuntimeEvent::Task(task_event) => {
                self.record_oom(&task_event);
                self.analyzer.on_task_event(&task_event, now);
            }
        }
    }

    /// Passes changed probe specs to the analyzer and the prober.
    fn set_specs(&mut self, specs: SpecResolver) {
        self.analyzer.set_specs(specs.clone());
        self.outputs.specs.send_replace(specs.clone());
        if let Some(prober) = &self.prober {
            prober.set_specs(specs);
        }
    }

    fn record_event(&self, event: Event) {
        self.outputs.events.record(event);
    }

    fn record_oom(&self, task_event: &TimestampedEvent) {
        if let TaskEvent::OutOfMemory { container } = &task_event.event
            && let Some(container) = self.inventory.container(container)
        {
            let message = "The kernel killed a process of the container because its memory was used up";
            let event = Event::warning(reason::CONTAINER_OUT_OF_MEMORY, message);
            self.record_event(self.inventory.with_container_refs(container, event));
        }
    }

    /// Updates the stuck execs and the results over time. Records an event for each new stuck exec,
    /// for each one that has ended, and each time when the number of a container's zombies has
    /// doubled.
    fn check_stuck(&mut self) {
        let now = Instant::now();
        self.record_stops();
        self.outputs.timeline.tick(SystemTime::now(), now);
        self.analyzer.tick(now);
        let (before, stuck) = (self.outputs.stuck.borrow().clone(), self.analyzer.stuck());
        if *before == stuck {
            return;
        }
        let is_worth_event =
            |(key, new): &(&_, &StuckExec)| before.get(*key).is_none_or(|known| new.has_doubled_since(known));
        for (_, new) in stuck.iter().filter(is_worth_event) {
            let event = new.event(now - new.since);
            warn!(kind = new.kind.name(), call = new.call, pid = new.pid, "{}", sanitize(&event.message));
            self.record_event(event);
        }
        for (_, old) in before.iter().filter(|(key, _)| !stuck.contains_key(key)) {
            let event = old.resolved_event(now - old.since);
            info!(kind = old.kind.name(), call = old.call, pid = old.pid, "{}", sanitize(&event.message));
            self.record_event(event);
        }
        self.outputs.stuck.send_replace(Arc::new(stuck));
    }

    fn on_in_flight_query(&mut self, query: InFlightQuery) {
        match query {
            InFlightQuery::Details(query) => self.answer_in_flight(query),
            InFlightQuery::Records(answer) => {
                self.records_queries.extend(RecordsQuery::new(self.analyzer.unrecorded(), answer));
            }
        }
    }

    /// Answers with the details of the calls in flight.
    fn answer_in_flight(&self, query: oneshot::Sender<Details>) {
        let mut details = self.analyzer.in_flight();
        let redacts = self.analyzer.redacts();
        for (id, mut request) in self.requests_in_flight.details(redacts) {
            let container_id = request.container.as_ref().and_then(|container| container.id.as_deref());
            let container = container_id.and_then(|id| self.inventory.container(id));
            let sandbox = match &request.pod {
                Some(pod) => pod.id.as_deref().and_then(|id| self.inventory.sandbox(id)),
                None => container.and_then(|container| self.inventory.sandbox_of(container)),
            };
            request.pod = sandbox.map(|sandbox| sandbox.pod.clone()).or(request.pod);
            request.container =
                container.map(|container| container.container_ref.clone()).or(request.container);
            details.insert(id, request);
        }
        // The reader may have given up.
        let _ = query.send(details);
    }

    fn record(&mut self) {
        for record in self.analyzer.take_records() {
            let id = record.call.id;
            self.catch_panics(|it| it.store(record));
            let waiting = std::mem::take(&mut self.records_queries);
            self.records_queries = waiting.into_iter().filter_map(|query| query.without(id)).collect();
        }
    }

    fn store(&mut self, record: CallRecord) {
        if let Some(traces) = &self.outputs.traces
            && is_object_call(&record.call.method)
            && !record.is_amended
        {
            traces.export(record.span());
        }
        let record = self.outputs.calls.push(record.strip_trace());
        let threshold = self.analyzer.failure_threshold(&self.inventory, &record);
        self.outputs.timeline.add_call(&record, threshold);
        let thresholds = self.analyzer.failure_thresholds(&self.inventory, &record);
        self.observe_record(&record, &thresholds);
        self.outputs.captures.on_record(&record);
        if let Some(journal) = &self.outputs.journal {
            journal.write(record);
        }
    }
}

/// Reports a kubelet's ExecSync without a timeout, which may be a hook.
fn on_untimed_kubelet_exec(prober: &ProbeManager, request: &ExecRequest) {
    let id = request.container.as_ref().and_then(|container| container.id.as_deref());
    if let Some(id) = id.filter(|_| request.exec.timeout().is_none())
        && request.info.upgrade().is_some_and(|head| head.is_from_kubelet())
    {
        prober.on_kubelet_exec_start(id, &request.exec.command, &request.info);
    }
}

/// Reports a kubelet's ExecSync, which may be a probe that the prober runs as well.
fn on_kubelet_exec(prober: &ProbeManager, call: &Call) {
    let id = call.container.as_ref().and_then(|container| container.id.as_deref());
    let (Some(exec), Some(id)) = (&call.exec, id) else { return };
    let came_to = match exec.result {
        Some(result) => format!("exit code {}", result.exit_code),
        None => call.ending.to_string(),
    };
    prober.on_kubelet_exec_end(id, &exec.command, &came_to);
}

#[cfg(test)]
mod tests;
