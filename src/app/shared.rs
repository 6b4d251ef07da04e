//! Settings and handles that several parts share, and the parts that start from them.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, watch};

use super::error::RunError;
use super::kubelet::KubeletStarter;
use super::policies;
use super::prober_thread::ProberThread;
use super::signals::has_terminal;
use crate::admin::ApiMetrics;
use crate::config::{OperatingMode, PolicySettings};
use crate::cri::MeteredChannel;
use crate::direct::HelperExecutor;
use crate::events::EventRecorder;
use crate::handler::Executor;
use crate::inventory::{InspectRequest, Inventory};
use crate::kubelet::{ClientPodStore, Kubelet, KubeletDeps, Restarter};
use crate::policy::{KnownExecs, NodeView, Policies};
use crate::probe::SpecResolver;
use crate::prober::{AttemptReporter, EnforcementMode, EnforcementSettings, ProbeManager, ProberConfig};
use crate::socket::SocketPath;
use crate::tap::InternalCalls;

/// Settings and handles that several parts share.
pub(super) struct Shared {
    pub(super) operating_mode: OperatingMode,
    /// Whether commands are left out of messages.
    redact: bool,
    pub(super) specs: SpecResolver,
    runtime: MeteredChannel,
    metrics: ApiMetrics,
    events: Arc<EventRecorder>,
    internal_calls: InternalCalls,
    pub(super) policies: Policies,
    /// Set once the built-in kubelet runs.
    pub(super) kubelet: Arc<OnceLock<Kubelet>>,
}

impl Shared {
    pub(super) fn new(
        operating_mode: OperatingMode,
        redact: bool,
        specs: SpecResolver,
        runtime: &MeteredChannel,
        metrics: &ApiMetrics,
        events: &Arc<EventRecorder>,
        internal_calls: InternalCalls,
    ) -> Self {
        let (runtime, metrics, events) = (runtime.clone(), metrics.clone(), events.clone());
        Self {
            operating_mode,
            redact,
            specs,
            runtime,
            metrics,
            events,
            internal_calls,
            kubelet: Arc::default(),
            policies: Policies::default(),
        }
    }

    /// Starts the prober, unless the enforcement mode is `off`.
    pub(super) fn start_prober(
        &self,
        enforcement: EnforcementSettings,
        inspect_requests: mpsc::Sender<InspectRequest>,
        attempts: AttemptReporter,
    ) -> io::Result<Option<ProberThread>> {
        if enforcement.mode == EnforcementMode::Off {
            return Ok(None);
        }
        let config = ProberConfig {
            specs: self.specs.clone(),
            metrics: self.metrics.prober.clone(),
            inspect_requests,
            attempts,
            skip_start_jitter: self.operating_mode == OperatingMode::Kubelet,
            enforcement: EnforcementSettings { pauses: self.policies.pauses.clone(), ..enforcement },
        };
        let (internal_calls, policies) = (self.internal_calls.clone(), self.policies.clone());
        let events = self.events.clone();
        ProberThread::start(&self.runtime, internal_calls, policies, self.redact, events, config).map(Some)
    }

    /// Returns the starter of the built-in kubelet; `None` in the mode `Observe`.
    pub(super) fn kubelet_starter(
        &self,
        store: Option<ClientPodStore>,
        prober: Option<ProbeManager>,
        spec_updates: Option<mpsc::Sender<SpecResolver>>,
    ) -> Option<KubeletStarter> {
        let store = store.filter(|_| self.operating_mode != OperatingMode::Observe)?;
        let (runtime, internal_calls) = (self.runtime.clone(), self.internal_calls.clone());
        let executor = Executor::new(runtime.connect_new(), Some(internal_calls.clone()), self.redact)
            .with_policies(self.policies.clone());
        let events = self.events.clone();
        let deps = KubeletDeps { runtime, executor, internal_calls, prober, events, spec_updates, store };
        Some(KubeletStarter { deps, kubelet: self.kubelet.clone() })
    }

    /// Activates the policies. Returns the channel of the specs that they see.
    pub(super) fn start_policies(
        &self,
        settings: PolicySettings,
        inventory: watch::Receiver<Arc<Inventory>>,
        admin: &SocketPath,
    ) -> Result<watch::Sender<SpecResolver>, RunError> {
        let (specs, specs_rx) = watch::channel(self.specs.clone());
        let (calls, events) = (self.internal_calls.clone(), self.events.clone());
        let known_execs = KnownExecs::default();
        let node = NodeView { inventory, specs: specs_rx, calls, events, known_execs };
        let (client, socket) = (self.runtime.connect_new(), self.runtime.socket().as_path().to_owned());
        let executor = HelperExecutor::new(client, socket, admin.as_path());
        self.policies.set_direct_executor(Arc::new(executor));
        // Without a terminal, SIGHUP asks for the configuration.
        let reads_on_hangup = self.operating_mode != OperatingMode::Kubelet && !has_terminal();
        policies::start(&self.policies, settings, node, reads_on_hangup)?;
        Ok(specs)
    }

    /// Returns the restarter of client pods; `None` unless the mode is `Restart`.
    pub(super) fn restarter(&self) -> Option<Restarter> {
        (self.operating_mode == OperatingMode::Restart)
            .then(|| Restarter { kubelet: self.kubelet.clone(), events: self.events.clone() })
    }
}
