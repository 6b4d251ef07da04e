//! Data sources of the API.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};

use crate::capture::CaptureHub;
use crate::cri::MeteredChannel;
use crate::engine::InFlightReader;
use crate::events::EventRecorder;
use crate::execsync::Stuck;
use crate::history::recorder::Timeline;
use crate::history::{CallHistory, Journal};
use crate::inventory::Inventory;
use crate::kubelet::{ClientPodsSnapshot, Kubelet};
use crate::policy::Policies;
use crate::probe::NameView;
use crate::prober::{self, EnforcementMode, ProbeManager};
use crate::state::StateStore;
use crate::telemetry::traces::Traces;
use crate::{execsync, metrics, relay, tap};

/// Maximum number of connections that follow calls or events. It is less than the number of
/// connections of the admin socket, so that connections remain for other requests.
pub(super) const MAX_FOLLOWERS: usize = 192;

/// Maximum number of streams of updates for web pages. Each occupies a connection for seconds.
pub(crate) const MAX_PAGE_STREAMS: usize = 16;

/// Maximum number of requests for results over time that are answered at the same time. Each reads
/// all recorded results from disk.
pub(super) const MAX_TIMELINE_READERS: usize = 4;

/// Facts about probeshim that do not change at run time.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Time at which probeshim started.
    pub started: SystemTime,
    /// Enforcement mode at the start.
    pub mode: EnforcementMode,
    /// Socket on which clients connect.
    pub listen: String,
    /// Admin socket.
    pub admin: String,
    /// Address of the public part of the API; `None` without an HTTP listener.
    pub http: Option<SocketAddr>,
    /// URL of the metrics for Prometheus on other machines; `None` without `--metrics-listen`.
    pub metrics: Option<String>,
    /// Whether `/pods` is served at `http` too.
    pub http_pods: bool,
}

/// Data sources of the API.
#[derive(Clone, Debug)]
pub struct ApiState {
    /// History of calls.
    pub calls: Arc<CallHistory>,
    /// Calls in flight.
    pub in_flight: InFlightReader,
    /// Captures of calls with their messages.
    pub captures: CaptureHub,
    /// Whether commands are reduced to their programs.
    pub redact: bool,
    /// History of events.
    pub events: Arc<EventRecorder>,
    /// Inventory of the node.
    pub inventory: watch::Receiver<Arc<Inventory>>,
    /// Specifications of probes, and the sources of their names.
    pub names: NameView,
    /// Stuck execs.
    pub stuck: watch::Receiver<Arc<Stuck>>,
    /// The prober; `None` if the enforcement mode is `off`.
    pub prober: Option<ProbeManager>,
    /// The built-in kubelet, once it runs.
    pub kubelet: Arc<OnceLock<Kubelet>>,
    /// The pods of clients that are restarted; `None` without `--enforce restart`.
    pub client_pods: Option<watch::Receiver<Arc<ClientPodsSnapshot>>>,
    /// Policies of the relay.
    pub policies: Policies,
    /// The journal; `None` if calls are not recorded on disk.
    pub journal: Option<Journal>,
    /// Results of probes over time.
    pub timeline: Timeline,
    /// State store; `None` without --state-dir.
    pub state: Option<StateStore>,
    /// Channel to the runtime. It counts internal calls.
    pub runtime: MeteredChannel,
    /// Metrics of all parts.
    pub metrics: ApiMetrics,
}

/// Metrics of relay, tap, ExecSync analysis, prober and traces.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    /// Metrics of the relay.
    pub relay: relay::RelayMetrics,
    /// Metrics of the tap.
    pub tap: tap::TapMetrics,
    /// Metrics of the analysis of ExecSyncs.
    pub exec: execsync::ExecMetrics,
    /// Metrics of the prober.
    pub prober: prober::ProberMetrics,
    /// Exporter of traces, with its metrics; `None` if traces are not exported.
    pub traces: Option<Traces>,
    /// Number of panics in the observation of calls.
    pub panics: Counter,
}

impl ApiMetrics {
    /// Registers the metrics of all parts and of the journal.
    pub(super) fn register(&self, journal: Option<&Journal>) -> Registry {
        let mut registry = metrics::registry();
        self.relay.register(&mut registry);
        self.tap.register(&mut registry);
        self.exec.register(&mut registry);
        self.prober.register(&mut registry);
        if let Some(journal) = journal {
            journal.register(&mut registry);
        }
        if let Some(traces) = &self.traces {
            traces.register(&mut registry);
        }
        let help = "Panics during the observation of calls; the calls are still forwarded";
        registry.register("panics", help, self.panics.clone());
        registry
    }
}

/// State of the API servers: data sources, metrics and permits of requests.
#[derive(Debug)]
pub struct Admin {
    pub(crate) info: ServerInfo,
    pub(crate) state: ApiState,
    pub(super) metrics: Registry,
    /// The metrics of single probes.
    pub(super) probe_metrics: Vec<Registry>,
    /// Permits of connections that follow calls or events.
    pub(super) followers: Arc<Semaphore>,
    /// Permits of streams of updates for web pages, on all listeners together.
    pub(crate) page_streams: Arc<Semaphore>,
    /// Permits of requests for results over time.
    pub(super) timeline_readers: Arc<Semaphore>,
    /// Addresses of the API that cannot be opened yet, with the reasons.
    failures: Mutex<BTreeMap<&'static str, String>>,
}

impl Admin {
    /// Creates the API, and registers all metrics.
    #[must_use]
    pub fn new(info: ServerInfo, state: ApiState) -> Self {
        let mut metrics = state.metrics.register(state.journal.as_ref());
        state.runtime.register(&mut metrics);
        state.policies.register(&mut metrics);
        let probe_metrics = state.metrics.prober.registries();
        let followers = Arc::new(Semaphore::new(MAX_FOLLOWERS));
        let page_streams = Arc::new(Semaphore::new(MAX_PAGE_STREAMS));
        let timeline_readers = Arc::new(Semaphore::new(MAX_TIMELINE_READERS));
        Self {
            info,
            state,
            metrics,
            probe_metrics,
            followers,
            page_streams,
            timeline_readers,
            failures: Mutex::default(),
        }
    }

    /// Records why an address of the API cannot be opened; `None` once it is open.
    pub fn set_failure(&self, address: &'static str, failure: Option<String>) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failure {
            Some(failure) => failures.insert(address, failure),
            None => failures.remove(address),
        };
    }

    /// Returns why addresses of the API cannot be opened yet.
    pub(super) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
