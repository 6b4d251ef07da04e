//! What the API tells of.

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
use crate::socket::SocketPath;
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

/// What the API reads from.
#[derive(Clone, Debug)]
pub struct ApiState {
    /// The runtime's socket.
    pub upstream: SocketPath,
    /// The calls that are our own.
    pub internal_calls: MeteredChannel,
    /// The last calls.
    pub calls: Arc<CallHistory>,
    /// The last events.
    pub events: Arc<EventRecorder>,
    /// What is on the node.
    pub inventory: watch::Receiver<Arc<Inventory>>,
    /// What is stuck.
    pub stuck: watch::Receiver<Arc<Stuck>>,
    /// What the relay counts.
    pub relay: relay::RelayMetrics,
    /// What the tap counts.
    pub tap: tap::TapMetrics,
    /// Who makes them, if anybody does.
    pub prober: Option<ProbeManager>,
    /// The pods of clients that are restarted; `None` without `--enforce restart`.
    pub kept: Option<watch::Receiver<Arc<ClientPodsSnapshot>>>,
    /// What is played, once anything is.
    pub play: Arc<OnceLock<Kubelet>>,
    /// What is counted of probes.
    pub probes: prober::ProberMetrics,
    /// What is counted of ExecSyncs.
    pub exec: execsync::ExecMetrics,
    /// What is recorded on disk, if anything is.
    pub journal: Option<Journal>,
    /// State store; `None` without --state-dir.
    pub state: Option<StateStore>,
    /// What is exported as traces, if anything is.
    pub traces: Option<Traces>,
    /// Faults of our own in what watches.
    pub faults: Counter,
}

/// The API, and the registry of metrics.
#[derive(Debug)]
pub struct Admin {
    pub(super) facts: ServerInfo,
    pub(super) from: ApiState,
    pub(super) metrics: Registry,
    /// The metrics of single probes.
    pub(super) probe_metrics: Vec<Registry>,
    /// Permits of connections that follow calls or events.
    pub(super) followers: Arc<Semaphore>,
}

impl Admin {
    /// An API that tells of these, and keeps the registry of metrics.
    #[must_use]
    pub fn new(facts: ServerInfo, from: ApiState) -> Self {
        let mut metrics = metrics::registry();
        from.relay.register(&mut metrics);
        from.tap.register(&mut metrics);
        from.internal_calls.register(&mut metrics);
        from.exec.register(&mut metrics);
        from.probes.register(&mut metrics);
        let probe_metrics = from.probes.registries();
        if let Some(journal) = &from.journal {
            journal.register(&mut metrics);
        }
        if let Some(traces) = &from.traces {
            traces.register(&mut metrics);
        }
        metrics.register(
            "panics",
            "Panics in the observation of calls, which are forwarded all the same",
            from.faults.clone(),
        );
        let followers = Arc::new(Semaphore::new(MAX_FOLLOWERS));
        Self { facts, from, metrics, probe_metrics, followers }
    }
}
