//! The relay with its tap, and the doors that clients come to: what `run` and `demo` are made of.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
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

use super::client_pods::{self, ClientActionRecorder, ClientPodStore};
use super::engine::{Inputs, NodeEngine, Outputs};
use super::prober_thread::{self, ProberThread};
use crate::admin::{self, Admin, ApiState, ServerInfo};
use crate::config::{OperatingMode, ServerConfig};
use crate::cri::MeteredChannel;
use crate::exec::{self, ExecAnalyzer};
use crate::play::Kubelet;
use crate::probe::{self, RefreshTrigger, SpecResolver, SpecUpdate};
use crate::prober::{self, EnforcementMode, Executor, ProbeManager, ProberConfig};
use crate::record::{self, CallHistory, EventHistory, Journal, journal};
use crate::relay::{self, CallIds, Relay, RelaySummary};
use crate::socket::{
    self, ActivationError, BindError, BindMode, BoundListener, BoundPath, SocketPath, bind, from_systemd,
};
use crate::state::{CloseError, StateError, StateStore};
use crate::tap::{self, InternalCalls, Tap};
use crate::telemetry::traces::{Traces, TracesError};
use crate::world::{InspectRequest, RuntimeEvent, Watcher};

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
        /// What the system said.
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
    pub(super) facts: ServerInfo,
    pub(super) calls: Arc<CallHistory>,
    pub(super) tap_metrics: tap::TapMetrics,
    relay: Pin<Box<dyn Future<Output = Option<RelaySummary>> + Send>>,
    drain: CancellationToken,
    doors: Option<Servers>,
    observing: Option<JoinHandle<()>>,
    recording: Option<thread::JoinHandle<()>>,
    tracing: Option<JoinHandle<()>>,
    probing: Option<ProberThread>,
    state: Option<StateStore>,
    /// What it takes to play pods on it, or to keep them alive, if that is wanted.
    pub(super) staged: Option<KubeletDeps>,
}

/// What it takes to play pods on a shim, or to keep them alive.
pub(super) struct KubeletDeps {
    pub(super) own: MeteredChannel,
    pub(super) executor: Executor,
    pub(super) watched: InternalCalls,
    pub(super) prober: Option<ProbeManager>,
    pub(super) events: Arc<EventHistory>,
    /// Who is told what is specified, where that is what is played.
    pub(super) news: Option<mpsc::Sender<SpecUpdate>>,
    /// What is to outlive us.
    pub(super) kept: ClientPodStore,
    /// Where all others find what is played.
    pub(super) play: Arc<OnceLock<Kubelet>>,
}

/// The places that clients come to, not served yet.
struct Listeners {
    /// The relay's.
    main: BoundListener,
    private: BoundListener,
    public: Option<TcpListener>,
    facts: ServerInfo,
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
        let facts = ServerInfo {
            started: SystemTime::now(),
            listen: socket::display_name(&main.listener),
            http: public.as_ref().and_then(|listener| listener.local_addr().ok()),
            http_pods,
        };
        Ok(Self { main, private, public, facts })
    }
}

/// The places that clients come to, other than the relay's listener.
struct Servers {
    claims: Vec<BoundPath>,
    servers: JoinSet<()>,
}

/// News of what is played that may wait to be taken.
const UPDATE_QUEUE: usize = 4_096;

/// How long what was observed last may take to be decoded and shown at the end.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

impl Shim {
    /// Opens every door: the relay's, or the one that systemd passes; the admin socket; the address for metrics and health, if any. Where
    /// one cannot be opened, none stays open.
    pub(super) async fn open(settings: ServerConfig) -> Result<Self, RunError> {
        let ServerConfig {
            listen,
            admin,
            http,
            http_pods,
            relay,
            exec: watched,
            specs,
            sources: of_specs,
            enforcement,
            journal,
            traces,
            watch_runtime,
            role,
            state,
        } = settings;
        let (client_pods, kept) = client_pods::open(role, state.as_deref())?.unzip();
        let state = kept.as_ref().map(|kept| kept.state.0.clone());
        let (upstream, redacts) = (relay.upstream.clone(), watched.redact_commands);
        let Listeners { main, private, public, facts } =
            Listeners::open(listen.as_ref(), &upstream, &admin, (http, http_pods)).await?;
        let BoundListener { listener, claim: listen_claim } = main;

        let (relay_metrics, tap_metrics) = (relay::RelayMetrics::default(), tap::TapMetrics::default());
        let tap_settings =
            tap::TapConfig { hands_on_requests: role == OperatingMode::Restart, ..tap::TapConfig::default() };
        let (tap, decoder) = Tap::new(tap_settings, tap_metrics.clone());
        let (prober_metrics, play) = (prober::ProberMetrics::default(), Arc::new(OnceLock::new()));
        let calls = Arc::new(CallHistory::new(record::Limits::default()));
        let first_call =
            journal.as_ref().map_or(1, |journal| calls.load(&journal.dir, watched.redact_commands));
        let (events, faults) = (Arc::new(EventHistory::new(watched.redact_commands)), Counter::default());
        let (journal, recording) = recording(journal, &events)?.unzip();
        let (traces, tracing) = traces.as_ref().map(Traces::start).transpose()?.unzip();
        let (own, exec_metrics) = (MeteredChannel::new(&upstream), exec::ExecMetrics::default());
        let (worlds, world) = watch::channel(Arc::default());
        let (stuck, stuck_now) = watch::channel(Arc::default());
        let numbers = CallIds::starting_at(first_call);
        let (inspect_requests, enquired) = mpsc::channel(prober_thread::MAX_INSPECTS);
        let probing = (enforcement.mode != EnforcementMode::Off).then(|| {
            let received = (tap.internal_calls(numbers.clone()), watched.redact_commands);
            let (specs, metrics, skip_start_jitter) =
                (specs.clone(), prober_metrics.clone(), role == OperatingMode::Kubelet);
            let parts = ProberConfig { specs, metrics, inspect_requests, enforcement, skip_start_jitter };
            ProberThread::start((&own, &upstream), received, (events.clone(), play.clone()), parts)
        });
        let probing = probing.transpose()?;
        let prober = probing.as_ref().map(|probing| probing.prober.clone());
        let sources = ApiState {
            prober: prober.clone(),
            play: play.clone(),
            probes: prober_metrics,
            upstream: upstream.clone(),
            internal_calls: own.clone(),
            calls: calls.clone(),
            events: events.clone(),
            world,
            stuck: stuck_now,
            relay: relay_metrics.clone(),
            tap: tap_metrics.clone(),
            exec: exec_metrics.clone(),
            journal: journal.clone(),
            state: state.clone(),
            traces: traces.clone(),
            faults: faults.clone(),
            kept: kept
                .as_ref()
                .filter(|_| role == OperatingMode::Restart)
                .map(|kept| kept.client_pods.pods()),
        };
        let admin = Admin::new(facts.clone(), sources);
        let doors = Servers::open(listen_claim, private, public, Arc::new(admin))?;
        let mut inspector = ExecAnalyzer::start(watched, specs.clone(), own.client(), exec_metrics)?;
        let (reported, (news, refresh)) = spec_updates(role, of_specs, specs);
        let staged = kept.filter(|_| role != OperatingMode::Observe).map(|kept| {
            let watched = tap.internal_calls(numbers.clone());
            let executor = Executor::new(own.connect_new(&upstream), Some(watched.clone()), redacts);
            let (own, prober, events, play) = (own.clone(), prober.clone(), events.clone(), play.clone());
            KubeletDeps { own, executor, watched, prober, events, news: reported, kept, play }
        });
        let notices = runtime_events(watch_runtime.then_some(own), enquired, &mut inspector);
        let outlets =
            Outputs { worlds, stuck, calls: calls.clone(), events, journal, traces, faults, refresh };
        let restarts = (role == OperatingMode::Restart).then(|| (play.clone(), outlets.events.clone()));
        let client_recorder = client_pods.map(|recorder| ClientActionRecorder::new(recorder, restarts));
        let engine = NodeEngine::new(inspector, prober, (play, client_recorder), outlets);
        let observing = tokio::spawn(engine.run(Inputs { decoder, notices, news }));
        let drain = CancellationToken::new();
        let relay = Relay::start(listener, relay, Arc::new(tap), relay_metrics, numbers, drain.clone())?;
        Ok(Self {
            facts,
            calls,
            tap_metrics,
            relay: Box::pin(relay.ended()),
            drain,
            doors: Some(doors),
            observing: Some(observing),
            recording,
            tracing,
            probing,
            state,
            staged,
        })
    }

    /// Gives up every door and tells the relay to drain. New clients find no socket, and a successor may take its place, while calls in
    /// flight are finished.
    pub(super) async fn drain(&mut self) {
        drop(self.probing.take());
        if let Some(doors) = self.doors.take() {
            doors.close().await;
        }
        self.drain.cancel();
    }

    /// Waits until the relay has ended, and what it saw last has been shown.
    pub(super) async fn ended(&mut self) -> Result<RelaySummary, RunError> {
        let summary = (&mut self.relay).await.ok_or(RunError::RelayEnded)?;
        if let Some(observing) = self.observing.take() {
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, wait_followers(observing, &self.calls)).await;
        }
        if let Some(tracing) = self.tracing.take() {
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, tracing).await;
        }
        if let Some(recording) = self.recording.take() {
            // The disk may be slow, and another may hold the folder.
            let _ = timeout(SHUTDOWN_FLUSH_TIMEOUT, finished(&recording)).await;
        }
        if let Some(state) = self.state.take() {
            state.close().await?;
        }
        Ok(summary)
    }
}

/// Starts the journal, if calls are recorded on disk.
fn recording(
    settings: Option<journal::JournalConfig>,
    events: &Arc<EventHistory>,
) -> io::Result<Option<(Journal, thread::JoinHandle<()>)>> {
    settings.map(|settings| Journal::start(settings, events.clone())).transpose()
}

/// What the runtime tells, if it is watched.
fn runtime_events(
    watched: Option<MeteredChannel>,
    enquired: mpsc::Receiver<InspectRequest>,
    inspector: &mut ExecAnalyzer,
) -> mpsc::Receiver<RuntimeEvent> {
    if let Some(own) = watched {
        return Watcher::start(own, enquired);
    }
    inspector.events_disabled();
    mpsc::channel(1).1
}

/// How it is told what is written of probes, and by whom: whoever plays pods tells of them himself.
fn spec_updates(
    role: OperatingMode,
    of_specs: probe::SpecSources,
    specs: SpecResolver,
) -> (Option<mpsc::Sender<SpecUpdate>>, SpecNotifier) {
    match role {
        OperatingMode::Kubelet => {
            let (received, news) = mpsc::channel(UPDATE_QUEUE);
            (Some(received), (news, RefreshTrigger::default()))
        }
        OperatingMode::Restart | OperatingMode::Observe => (None, of_specs.watch(specs)),
    }
}

/// What is told, and how to have it looked for at once.
type SpecNotifier = (mpsc::Receiver<SpecUpdate>, RefreshTrigger);

/// Waits until calls that were cut at the last moment have been seen by those who follow. The decoder ends with the relay, which held
/// the tap.
async fn wait_followers(observing: JoinHandle<()>, calls: &CallHistory) {
    let _ = observing.await;
    while !calls.followers_caught_up() {
        yield_now().await;
    }
}

async fn finished(thread: &thread::JoinHandle<()>) {
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
        Ok(Self { claims: listen.into_iter().chain(private.claim).collect(), servers })
    }

    /// Gives all of them up, the address before the sockets: a successor that sees a socket go finds the address free.
    async fn close(mut self) {
        self.servers.shutdown().await;
        drop(self.claims);
    }
}
