//! The relay with its tap, and the doors that clients come to: what `run` and `demo` are made of.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::prober_thread::{self, ProberThread};
use crate::admin::{self, Admin, ApiState, ServerInfo};
use crate::config::{OperatingMode, ServerConfig};
use crate::cri::MeteredChannel;
use crate::engine::{Inputs, NodeEngine, Outputs};
use crate::events::EventRecorder;
use crate::execsync::{self, ExecAnalyzer};
use crate::handler::Executor;
use crate::history::{self, CallHistory, Journal, journal};
use crate::inventory::{InspectRequest, RuntimeEvent, Watcher};
use crate::kubelet::{ClientActionRecorder, ClientPodStore, Kubelet};
use crate::probe::{self, RefreshTrigger, SpecResolver};
use crate::prober::{self, EnforcementMode, ProbeManager, ProberConfig};
use crate::relay::{self, CallIds, Relay, RelaySummary};
use crate::socket::{
    self, ActivationError, BindError, BindMode, BoundListener, BoundPath, SocketPath, bind, from_systemd,
};
use crate::state::{CloseError, StateError, StateStore};
use crate::tap::{self, InternalCalls, Tap};
use crate::telemetry::traces::{Traces, TracesError};

/// Why probeshim did not run, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The socket to listen on is not to be had.
    #[error("--listen: {0}")]
    Listen(#[source] BindError),
    /// The admin socket is not to be had.
    #[error("--admin: {0}")]
    Admin(#[source] BindError),
    /// The address for metrics and health is not to be had.
    #[error(
        "--http: cannot listen on {address}: {source}; choose another port, 0 for any that is free, or off"
    )]
    Http {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// What was kept is not to be had.
    #[error("--state-dir: {0}")]
    State(#[from] StateError),
    /// The state may lack the last changes.
    #[error("--state-dir: {0}")]
    StateNotClosed(#[from] CloseError),
    /// What systemd passed cannot be used.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// The system refused something that every process needs.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// Traces cannot be exported.
    #[error("--otlp-endpoint: {0}")]
    Traces(#[from] TracesError),
    /// A fault of ours ended the relay.
    #[error("the relay ended by itself")]
    RelayEnded,
}

/// All of it, running.
pub(super) struct Shim {
    pub(super) info: ServerInfo,
    pub(super) calls: Arc<CallHistory>,
    pub(super) tap_metrics: tap::TapMetrics,
    relay: Pin<Box<dyn Future<Output = Option<RelaySummary>> + Send>>,
    drain: CancellationToken,
    servers: Option<Servers>,
    engine_task: Option<JoinHandle<()>>,
    journal_thread: Option<thread::JoinHandle<()>>,
    traces_task: Option<JoinHandle<()>>,
    prober_thread: Option<ProberThread>,
    state: Option<StateStore>,
    /// Dependencies of the built-in kubelet, if it is to run.
    pub(super) kubelet_deps: Option<KubeletDeps>,
}

/// Everything the built-in kubelet needs once it is started.
pub(super) struct KubeletDeps {
    pub(super) runtime: MeteredChannel,
    pub(super) executor: Executor,
    pub(super) internal_calls: InternalCalls,
    pub(super) prober: Option<ProbeManager>,
    pub(super) events: Arc<EventRecorder>,
    /// Receives the probe specs of the manifests, if pods come from manifests.
    pub(super) spec_updates: Option<mpsc::Sender<SpecResolver>>,
    /// Client pods and their persistent state.
    pub(super) store: ClientPodStore,
    /// Set once the kubelet runs, for its users.
    pub(super) kubelet: Arc<OnceLock<Kubelet>>,
}

/// Open sockets that are not served yet.
struct Listeners {
    /// The relay's.
    main: BoundListener,
    private: BoundListener,
    public: Option<TcpListener>,
    info: ServerInfo,
}

impl Listeners {
    async fn open(
        listen: Option<&SocketPath>,
        upstream: &SocketPath,
        admin: &SocketPath,
        (http, http_pods): (Option<SocketAddr>, bool),
    ) -> Result<Self, RunError> {
        let main = match listen {
            Some(path) => bind(path, BindMode::InheritFrom(upstream)).map_err(RunError::Listen)?,
            None => from_systemd(upstream)?,
        };
        let private = bind(admin, BindMode::OwnerOnly).map_err(RunError::Admin)?;
        let public = match http {
            Some(address) => Some(bind_tcp(address).await?),
            None => None,
        };
        let info = ServerInfo {
            started: SystemTime::now(),
            listen: socket::display_name(&main.listener),
            http: public.as_ref().and_then(|listener| listener.local_addr().ok()),
            http_pods,
        };
        Ok(Self { main, private, public, info })
    }
}

/// Servers of the admin socket and of the public address.
struct Servers {
    bound_paths: Vec<BoundPath>,
    servers: JoinSet<()>,
}

/// Capacity of the queue of spec updates.
const UPDATE_QUEUE: usize = 4_096;

/// How long what was observed last may take to be decoded and shown at the end.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

impl Shim {
    /// Opens every door: the relay's, or the one that systemd passes; the admin socket; the address for metrics and health, if any. Where
    /// one cannot be opened, none stays open.
    pub(super) async fn open(config: ServerConfig) -> Result<Self, RunError> {
        let ServerConfig { relay, exec: exec_config, specs, enforcement, journal, role, .. } = config;
        let store = open_store(role, config.state.as_deref())?;
        let client_pods = store.as_ref().map(|store| store.client_pods.clone());
        let state = store.as_ref().map(|store| store.state.0.clone());
        let (upstream, redact) = (relay.upstream.clone(), exec_config.redact_commands);
        let Listeners { main, private, public, info } = Listeners::open(
            config.listen.as_ref(),
            &upstream,
            &config.admin,
            (config.http, config.http_pods),
        )
        .await?;
        let BoundListener { listener, claim: listen_claim } = main;

        let (relay_metrics, tap_metrics) = (relay::RelayMetrics::default(), tap::TapMetrics::default());
        let tap_config =
            tap::TapConfig { hands_on_requests: role == OperatingMode::Restart, ..tap::TapConfig::default() };
        let (tap, decoder) = Tap::new(tap_config, tap_metrics.clone());
        let (prober_metrics, play) = (prober::ProberMetrics::default(), Arc::new(OnceLock::new()));
        let calls = Arc::new(CallHistory::new(history::Limits::default()));
        let first_call = journal.as_ref().map_or(1, |journal| calls.load(&journal.dir, redact));
        let (events, faults) = (Arc::new(EventRecorder::new(redact)), Counter::default());
        let (journal, journal_thread) = start_journal(journal, &events)?.unzip();
        let (traces, traces_task) = config.traces.as_ref().map(Traces::start).transpose()?.unzip();
        let (runtime, exec_metrics) = (MeteredChannel::new(&upstream), execsync::ExecMetrics::default());
        let (inventory, inventory_rx) = watch::channel(Arc::default());
        let (stuck, stuck_rx) = watch::channel(Arc::default());
        let call_ids = CallIds::starting_at(first_call);
        let (inspect_tx, inspect_rx) = mpsc::channel(prober_thread::MAX_INSPECTS);
        let prober_thread = (enforcement.mode != EnforcementMode::Off).then(|| {
            let internal_calls = (tap.internal_calls(call_ids.clone()), redact);
            let (specs, metrics) = (specs.clone(), prober_metrics.clone());
            let skip_start_jitter = role == OperatingMode::Kubelet;
            let config =
                ProberConfig { specs, metrics, inspect_requests: inspect_tx, enforcement, skip_start_jitter };
            ProberThread::start((&runtime, &upstream), internal_calls, events.clone(), config)
        });
        let prober_thread = prober_thread.transpose()?;
        let prober = prober_thread.as_ref().map(|prober_thread| prober_thread.prober.clone());
        let api_state = ApiState {
            prober: prober.clone(),
            play: play.clone(),
            probes: prober_metrics,
            upstream: upstream.clone(),
            internal_calls: runtime.clone(),
            calls: calls.clone(),
            events: events.clone(),
            inventory: inventory_rx,
            stuck: stuck_rx,
            relay: relay_metrics.clone(),
            tap: tap_metrics.clone(),
            exec: exec_metrics.clone(),
            journal: journal.clone(),
            state: state.clone(),
            traces: traces.clone(),
            faults: faults.clone(),
            kept: store
                .as_ref()
                .filter(|_| role == OperatingMode::Restart)
                .map(|store| store.client_pods.pods()),
        };
        let admin = Admin::new(info.clone(), api_state);
        let servers = Servers::open(listen_claim, private, public, Arc::new(admin))?;
        let mut analyzer = ExecAnalyzer::start(exec_config, specs.clone(), runtime.client(), exec_metrics)?;
        let (spec_updates, (spec_updates_rx, refresh)) = spec_updates(role, config.sources, specs, &events);
        let kubelet_deps = store.filter(|_| role != OperatingMode::Observe).map(|store| {
            let internal_calls = tap.internal_calls(call_ids.clone());
            let executor =
                Executor::new(runtime.connect_new(&upstream), Some(internal_calls.clone()), redact);
            let (runtime, prober, events, kubelet) =
                (runtime.clone(), prober.clone(), events.clone(), play.clone());
            KubeletDeps { runtime, executor, internal_calls, prober, events, spec_updates, store, kubelet }
        });
        let runtime_events =
            runtime_events(config.watch_runtime.then_some(runtime), inspect_rx, &mut analyzer);
        let outputs =
            Outputs { inventory, stuck, calls: calls.clone(), events, journal, traces, faults, refresh };
        let restarts = (role == OperatingMode::Restart).then(|| (play.clone(), outputs.events.clone()));
        let recorder = client_pods.map(|pods| ClientActionRecorder::new(pods, restarts));
        let engine = NodeEngine::new(analyzer, prober, (play, recorder), outputs);
        let engine_task =
            tokio::spawn(engine.run(Inputs { decoder, runtime_events, spec_updates: spec_updates_rx }));
        let drain = CancellationToken::new();
        let relay = Relay::start(listener, relay, Arc::new(tap), relay_metrics, call_ids, drain.clone())?;
        Ok(Self {
            info,
            calls,
            tap_metrics,
            relay: Box::pin(relay.ended()),
            drain,
            servers: Some(servers),
            engine_task: Some(engine_task),
            journal_thread,
            traces_task,
            prober_thread,
            state,
            kubelet_deps,
        })
    }

    /// Gives up every door and tells the relay to drain. New clients find no socket, and a successor may take its place, while calls in
    /// flight are finished.
    pub(super) async fn drain(&mut self) {
        drop(self.prober_thread.take());
        if let Some(servers) = self.servers.take() {
            servers.close().await;
        }
        self.drain.cancel();
    }

    /// Waits until the relay has ended, and what it saw last has been shown.
    pub(super) async fn ended(&mut self) -> Result<RelaySummary, RunError> {
        let summary = (&mut self.relay).await.ok_or(RunError::RelayEnded)?;
        if let Some(engine_task) = self.engine_task.take() {
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, wait_followers(engine_task, &self.calls)).await;
        }
        if let Some(traces_task) = self.traces_task.take() {
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, traces_task).await;
        }
        if let Some(journal_thread) = self.journal_thread.take() {
            // The disk may be slow, and another may hold the folder.
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, wait_finished(&journal_thread)).await;
        }
        if let Some(state) = self.state.take() {
            state.close().await?;
        }
        Ok(summary)
    }
}

/// Opens the client pods of the state directory, if there is one and this mode needs them.
fn open_store(role: OperatingMode, dir: Option<&Path>) -> Result<Option<ClientPodStore>, StateError> {
    let Some(dir) = dir else { return Ok(None) };
    match role {
        OperatingMode::Restart | OperatingMode::Kubelet => ClientPodStore::open(dir).map(Some),
        OperatingMode::Observe => Ok(ClientPodStore::open_if_used(dir)),
    }
}

/// Starts the journal, if calls are recorded on disk.
fn start_journal(
    settings: Option<journal::JournalConfig>,
    events: &Arc<EventRecorder>,
) -> io::Result<Option<(Journal, thread::JoinHandle<()>)>> {
    settings.map(|settings| Journal::start(settings, events.clone())).transpose()
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

/// Starts the source of spec updates. The built-in kubelet sends them itself if pods come from manifests.
fn spec_updates(
    role: OperatingMode,
    spec_sources: probe::SpecSources,
    specs: SpecResolver,
    events: &Arc<EventRecorder>,
) -> (Option<mpsc::Sender<SpecResolver>>, SpecUpdateReceiver) {
    match role {
        OperatingMode::Kubelet => {
            let (sender, receiver) = mpsc::channel(UPDATE_QUEUE);
            (Some(sender), (receiver, RefreshTrigger::default()))
        }
        OperatingMode::Restart | OperatingMode::Observe => (None, spec_sources.watch(specs, events.clone())),
    }
}

/// Spec updates, and the trigger of an immediate refresh.
type SpecUpdateReceiver = (mpsc::Receiver<SpecResolver>, RefreshTrigger);

/// Waits until calls that were cut at the last moment have been seen by those who follow. The decoder ends with the relay, which held
/// the tap.
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

async fn bind_tcp(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Http { address, source })
}

impl Servers {
    /// Serves the API on the admin socket and, if there is one, on the public listener.
    fn open(
        listen: Option<BoundPath>,
        private: BoundListener,
        public: Option<TcpListener>,
        admin: Arc<Admin>,
    ) -> io::Result<Self> {
        let mut servers = JoinSet::new();
        servers.spawn(admin::serve_admin(UnixListener::from_std(private.listener)?, admin.clone()));
        if let Some(public) = public {
            servers.spawn(admin::serve_public(public, admin));
        }
        Ok(Self { bound_paths: listen.into_iter().chain(private.claim).collect(), servers })
    }

    /// Gives all of them up, the address before the sockets: a successor that sees a socket go finds the address free.
    async fn close(mut self) {
        self.servers.shutdown().await;
        drop(self.bound_paths);
    }
}
