//! The relay with its tap, the sockets, and the observing parts, which `run`, `play` and `demo`
//! share.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::error::{RunError, both};
use super::kubelet::KubeletStarter;
use super::listeners::{ApiAddress, ApiEndpoint, Listeners};
use super::node_facts::node_facts;
use super::prober_thread::{self, ProberThread};
use super::servers::Servers;
use super::service_manager::{start_watchdog, starting};
use super::shared::Shared;
use super::spec_updates::SpecUpdates;
use super::store::open_store;
use crate::admin::{Admin, ApiMetrics, ApiState, ServerInfo};
use crate::capture::CaptureHub;
use crate::config::{OperatingMode, ServerConfig};
use crate::cri::MeteredChannel;
use crate::engine::{InFlightReader, Inputs, NodeEngine, Outputs};
use crate::events::EventRecorder;
use crate::execsync::{self, ExecAnalyzer};
use crate::history::recorder::{Timeline, TimelineSources};
use crate::history::timeline::NodeFacts;
use crate::history::{self, CallHistory, Journal, journal};
use crate::inventory::{InspectRequest, RuntimeEvent, Watcher};
use crate::kubelet::{ClientActionRecorder, ClientPodStore, ClientPods};
use crate::policy::Policies;
use crate::probe::NameView;
use crate::prober::{self, AttemptReporter, ProbeAttempt};
use crate::relay::{self, CallIds, Relay, RelaySummary};
use crate::state::StateStore;
use crate::tap::{self, Tap};
use crate::telemetry::traces::{TraceConfig, Traces};

/// All parts, running.
pub(super) struct Shim {
    pub(super) info: ServerInfo,
    /// The socket that systemd passed, for a successor.
    pub(super) passed: Option<OwnedFd>,
    calls: Arc<CallHistory>,
    relay: Pin<Box<dyn Future<Output = Option<RelaySummary>> + Send>>,
    drain: CancellationToken,
    /// Servers of the API; `None` while their addresses are left to a successor.
    servers: Option<Servers>,
    admin: Arc<Admin>,
    api_addresses: Vec<ApiAddress>,
    engine_task: Option<JoinHandle<()>>,
    /// Ids of calls, and the journal in which a successor finds the next id. The journal's thread
    /// ends once the journal is dropped.
    handover: Option<(CallIds, Journal)>,
    journal_thread: Option<thread::JoinHandle<()>>,
    traces_task: Option<JoinHandle<()>>,
    prober_thread: Option<ProberThread>,
    /// Answers the watchdog of systemd until it is dropped.
    pub(super) watchdog: Option<AbortOnDropHandle<()>>,
    state: Option<StateStore>,
    /// Starts the built-in kubelet; `None` in the mode `Observe`, or after the start.
    pub(super) kubelet_starter: Option<KubeletStarter>,
    policies: Policies,
}

/// Time at the end in which the last observations are decoded and shown.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens the state and the sockets. The error has the problems of both.
async fn open_files(config: &ServerConfig) -> Result<(Option<ClientPodStore>, Listeners), RunError> {
    let store = open_store(config).await;
    let listeners = Listeners::open(config).await;
    if let (Ok(Some(store)), Err(_)) = (&store, &listeners) {
        // The thread that writes the state ends before the directory of the state may be removed.
        let _ = store.state.close().await;
    }
    both(store, listeners)
}

impl Shim {
    /// Opens all sockets, starts all parts, and connects them.
    pub(super) async fn open(config: ServerConfig) -> Result<Self, RunError> {
        let (store, listeners) = open_files(&config).await?;
        let (state, client_pods) =
            store.as_ref().map(|store| (store.state.clone(), store.client_pods.clone())).unzip();
        let (redact, node) = (config.exec.redact_commands, node_facts(&config));
        let Recording { calls, events, journal, journal_thread, traces, traces_task, first_call } =
            Recording::start(config.journal, config.traces.as_ref(), redact)?;
        let (metrics, runtime) = (new_metrics(traces.clone()), MeteredChannel::new(&config.relay.upstream));
        let restarts_client_pods = config.operating_mode == OperatingMode::Restart;
        let tap_config = tap::TapConfig { hands_on_requests: restarts_client_pods, ..Default::default() };
        let (tap, decoder) = Tap::new(tap_config, metrics.tap.clone());
        let call_ids = CallIds::starting_at(first_call);
        let (mode, internal_calls) = (config.operating_mode, tap.internal_calls(call_ids.clone()));
        let shared =
            Shared::new(mode, redact, config.specs, &runtime, &metrics, &events, internal_calls.clone());
        let (inspect_requests, inspect_rx) = mpsc::channel(prober_thread::MAX_INSPECTS);
        let (timeline, reporter, attempts) = timeline(&events, journal.as_ref(), &metrics, node, redact);
        let prober_thread = shared.start_prober(config.enforcement, inspect_requests.clone(), reporter)?;
        let (prober, prober_handle) =
            prober_thread.as_ref().map(|started| (started.prober.clone(), started.thread.clone())).unzip();
        let (inventory, inventory_rx) = watch::channel(Arc::default());
        let (stuck, stuck_rx) = watch::channel(Arc::default());
        let specs = shared.start_policies(config.policies, inventory_rx.clone(), &config.admin)?;
        let (policies, captures) = (shared.policies.clone(), CaptureHub::new(tap.body_capture()));
        let (in_flight, in_flight_queries) = InFlightReader::new(tap.calls_in_flight(), internal_calls);
        let updates = SpecUpdates::start(config.sources, &listeners.info.listen, &shared, &events);
        let api_state = ApiState {
            names: NameView { specs: specs.subscribe(), sources: updates.names.clone() },
            calls: calls.clone(),
            in_flight,
            captures: captures.clone(),
            redact,
            events: events.clone(),
            inventory: inventory_rx,
            stuck: stuck_rx,
            prober: prober.clone(),
            kubelet: shared.kubelet.clone(),
            client_pods: client_pods.as_ref().filter(|_| restarts_client_pods).map(ClientPods::pods),
            policies: policies.clone(),
            journal: journal.clone(),
            timeline: timeline.clone(),
            state: state.clone(),
            runtime: runtime.clone(),
            metrics: metrics.clone(),
        };
        let admin = Arc::new(Admin::new(listeners.info.clone(), api_state));
        let servers = Servers::open(listeners.relay.claim, listeners.api, &admin)?;
        let mut analyzer =
            ExecAnalyzer::start(config.exec, shared.specs.clone(), runtime.client(), metrics.exec.clone())?;
        let handover = journal.clone().map(|journal| (call_ids.clone(), journal));
        let watched = config.watch_runtime.then_some(runtime);
        let inputs = Inputs {
            decoder,
            runtime_events: runtime_events(watched, inspect_rx, &mut analyzer),
            spec_updates: updates.receiver,
            in_flight_queries,
            attempts,
        };
        let kubelet_starter = shared.kubelet_starter(store, prober.clone(), updates.sender);
        let recorder = client_pods.map(|pods| ClientActionRecorder::new(pods, shared.restarter()));
        let outputs = Outputs {
            inventory,
            stuck,
            specs,
            calls: calls.clone(),
            events,
            journal,
            timeline,
            captures,
            traces,
            faults: metrics.panics,
            inspect_requests,
            refresh: updates.refresh,
        };
        let engine = NodeEngine::new(analyzer, prober, shared.kubelet, recorder, outputs);
        let (engine_task, drain) = (tokio::spawn(engine.run(inputs)), CancellationToken::new());
        let (listener, tap, policy) = (listeners.relay.listener, Arc::new(tap), Arc::new(policies.clone()));
        let relay =
            Relay::start(listener, config.relay, tap, policy, metrics.relay, call_ids, drain.clone())?;
        Ok(Self {
            info: listeners.info,
            passed: listeners.passed,
            watchdog: start_watchdog(prober_handle.into_iter().chain(relay.threads()).collect()),
            calls,
            relay: Box::pin(relay.ended()),
            drain,
            servers: Some(servers),
            admin,
            api_addresses: listeners.api_addresses,
            engine_task: Some(engine_task),
            handover,
            journal_thread,
            traces_task,
            prober_thread,
            state,
            kubelet_starter,
            policies,
        })
    }

    /// Stops the prober and the API, removes the paths of all sockets, and starts the drain of the
    /// relay. Another probeshim can take the paths while calls in flight finish. Fault rules and
    /// pauses end, so that the drain need not wait for the calls that they hold.
    pub(super) async fn drain(&mut self) {
        self.policies.end("the end of probeshim");
        drop(self.prober_thread.take());
        self.release(0).await;
        self.drain.cancel();
    }

    /// Stops the API, and removes the paths of all sockets. Another probeshim can take them while
    /// the relay and the prober continue. `more_calls` is the number of ids that calls of this
    /// process may have from now on, before those of the other. Does nothing if the paths are
    /// released already.
    pub(super) async fn release(&mut self, more_calls: u64) {
        let Some(servers) = self.servers.take() else { return };
        if let Some((call_ids, journal)) = self.handover.clone() {
            // The disk may be slow. A successor then leaves a larger gap.
            let written = spawn_blocking(move || {
                if let Err(error) = journal.hand_over(call_ids.peek() + more_calls) {
                    warn!(%error, "the next id of a call is not left for a successor");
                }
            });
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, written).await;
        }
        servers.close().await;
    }

    /// Serves the API at the released addresses again, because no successor has started.
    pub(super) async fn reclaim(&mut self) -> Result<(), RunError> {
        if self.servers.is_none() {
            let endpoints = ApiEndpoint::open_possible(&self.api_addresses).await;
            self.servers = Some(Servers::open(None, endpoints, &self.admin)?);
            if let Some((_, journal)) = self.handover.clone() {
                drop(spawn_blocking(move || journal.resume()));
            }
        }
        Ok(())
    }

    /// Waits until the relay has ended and its last observations have been shown.
    pub(super) async fn ended(&mut self) -> Result<RelaySummary, RunError> {
        let summary = (&mut self.relay).await.ok_or(RunError::RelayEnded)?;
        drop(self.handover.take());
        if let Some(engine_task) = self.engine_task.take() {
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, wait_followers(engine_task, &self.calls)).await;
        }
        if let Some(traces_task) = self.traces_task.take() {
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, traces_task).await;
        }
        if let Some(journal_thread) = self.journal_thread.take() {
            // The disk may be slow, or another process may hold the directory.
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, wait_finished(&journal_thread)).await;
        }
        if let Some(state) = self.state.take() {
            state.close().await?;
        }
        Ok(summary)
    }
}

/// Returns the metrics of all parts, at zero.
fn new_metrics(traces: Option<Traces>) -> ApiMetrics {
    ApiMetrics {
        relay: relay::RelayMetrics::default(),
        tap: tap::TapMetrics::default(),
        exec: execsync::ExecMetrics::default(),
        prober: prober::ProberMetrics::default(),
        traces,
        panics: Counter::default(),
    }
}

/// Records of calls and events: history, journal and traces.
struct Recording {
    calls: Arc<CallHistory>,
    events: Arc<EventRecorder>,
    journal: Option<Journal>,
    journal_thread: Option<thread::JoinHandle<()>>,
    traces: Option<Traces>,
    traces_task: Option<JoinHandle<()>>,
    /// Id of the first call. Earlier ids are in the journal.
    first_call: u64,
}

impl Recording {
    /// Loads the calls of the journal, and starts the journal and the export of traces if they are
    /// configured.
    fn start(
        journal: Option<journal::JournalConfig>,
        traces: Option<&TraceConfig>,
        redact: bool,
    ) -> Result<Self, RunError> {
        starting();
        let calls = Arc::new(CallHistory::new(history::Limits::default()));
        let first_call = journal.as_ref().map_or(1, |journal| calls.load(&journal.dir, redact));
        let events = Arc::new(EventRecorder::new(redact));
        let journal =
            journal.map(|journal| Journal::start(journal, first_call, events.clone())).transpose()?;
        let (journal, journal_thread) = journal.unzip();
        let (traces, traces_task) = traces.map(Traces::start).transpose()?.unzip();
        Ok(Self { calls, events, journal, journal_thread, traces, traces_task, first_call })
    }
}

/// Starts the record of results, with a reporter of the prober's attempts and their receiver.
fn timeline(
    events: &Arc<EventRecorder>,
    journal: Option<&Journal>,
    metrics: &ApiMetrics,
    node: NodeFacts,
    redact: bool,
) -> (Timeline, AttemptReporter, mpsc::Receiver<ProbeAttempt>) {
    let (attempts, received) = AttemptReporter::new();
    let (events, tap) = (events.clone(), metrics.tap.clone());
    let sources = TimelineSources { events, tap, attempts: attempts.clone(), redact };
    (Timeline::start(sources, journal.cloned(), node), attempts, received)
}

/// Starts the watcher of the runtime, if the runtime is watched.
fn runtime_events(
    runtime: Option<MeteredChannel>,
    inspect_rx: mpsc::Receiver<InspectRequest>,
    analyzer: &mut ExecAnalyzer,
) -> mpsc::Receiver<RuntimeEvent> {
    if let Some(runtime) = runtime {
        return Watcher::start(runtime, inspect_rx);
    }
    analyzer.events_disabled();
    mpsc::channel(1).1
}

/// Waits until followers have received the calls that the end of the drain aborted. The engine ends
/// with the relay, which owned the tap.
async fn wait_followers(engine_task: JoinHandle<()>, calls: &CallHistory) {
    let _ = engine_task.await;
    while !calls.followers_caught_up() {
        yield_now().await;
    }
}

async fn wait_finished(thread: &thread::JoinHandle<()>) {
    while !thread.is_finished() {
        sleep(Duration::from_millis(5)).await;
    }
}
