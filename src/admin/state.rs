//! The sources from which the API answers.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};

use crate::cri::MeteredChannel;
use crate::events::EventRecorder;
use crate::execsync::Stuck;
use crate::history::{CallHistory, Journal};
use crate::inventory::Inventory;
use crate::kubelet::{ClientPodsSnapshot, Kubelet};
use crate::prober::{self, ProbeManager};
use crate::state::StateStore;
use crate::telemetry::traces::Traces;
use crate::{execsync, metrics, relay, tap};

/// Connections that may follow calls or events at a time: fewer than the admin socket serves, so that a question finds one of the rest.
pub(super) const MAX_FOLLOWERS: usize = 192;

/// What does not change while it runs.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Since when it runs.
    pub started: SystemTime,
    /// Where clients connect.
    pub listen: String,
    /// Where the public part is served, if anywhere.
    pub http: Option<SocketAddr>,
    /// Whether the pods that are played are served there, too.
    pub http_pods: bool,
}

/// The sources from which the API answers.
#[derive(Clone, Debug)]
pub struct ApiState {
    /// The last calls.
    pub calls: Arc<CallHistory>,
    /// The last events.
    pub events: Arc<EventRecorder>,
    /// What is on the node.
    pub inventory: watch::Receiver<Arc<Inventory>>,
    /// What is stuck.
    pub stuck: watch::Receiver<Arc<Stuck>>,
    /// The prober; `None` if no probes are made.
    pub prober: Option<ProbeManager>,
    /// The built-in kubelet, once it runs.
    pub kubelet: Arc<OnceLock<Kubelet>>,
    /// The pods of clients that are restarted; `None` without `--enforce restart`.
    pub client_pods: Option<watch::Receiver<Arc<ClientPodsSnapshot>>>,
    /// The journal; `None` if calls are not recorded on disk.
    pub journal: Option<Journal>,
    /// State store; `None` without --state-dir.
    pub state: Option<StateStore>,
    /// The connection on which the runtime is asked, which counts our own calls.
    pub runtime: MeteredChannel,
    /// Counters of all parts.
    pub metrics: ApiMetrics,
}

/// Counters of all parts.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    /// Of the relay.
    pub relay: relay::RelayMetrics,
    /// Of the tap.
    pub tap: tap::TapMetrics,
    /// Of the explanations of ExecSyncs.
    pub exec: execsync::ExecMetrics,
    /// Of the prober.
    pub prober: prober::ProberMetrics,
    /// Of exported traces; `None` if none are exported.
    pub traces: Option<Traces>,
    /// Panics in the observation of calls.
    pub panics: Counter,
}

impl ApiMetrics {
    /// Registers all counters, with those of the journal.
    fn register(&self, journal: Option<&Journal>) -> Registry {
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
        let help = "Panics in the observation of calls, which are forwarded all the same";
        registry.register("panics", help, self.panics.clone());
        registry
    }
}

/// The API, and the registry of metrics.
#[derive(Debug)]
pub struct Admin {
    pub(super) info: ServerInfo,
    pub(super) state: ApiState,
    pub(super) metrics: Registry,
    /// The metrics of single probes.
    pub(super) probe_metrics: Vec<Registry>,
    /// Permits of connections that follow calls or events.
    pub(super) followers: Arc<Semaphore>,
}

impl Admin {
    /// Creates the API, and registers all metrics.
    #[must_use]
    pub fn new(info: ServerInfo, state: ApiState) -> Self {
        let mut metrics = state.metrics.register(state.journal.as_ref());
        state.runtime.register(&mut metrics);
        let probe_metrics = state.metrics.prober.registries();
        let followers = Arc::new(Semaphore::new(MAX_FOLLOWERS));
        Self { info, state, metrics, probe_metrics, followers }
    }
}
