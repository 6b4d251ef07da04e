//! All policies of the relay: faults, pauses, coalescing, limits and direct exec.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::registry::Registry;

use super::admission::ExecPolicies;
use super::coalesce::Coalescer;
use super::direct::{DirectContainer, DirectExecutor, DirectPolicies, DirectSettings};
use super::interceptor::PolicyInterceptor;
use super::limit::{ExecLimiter, ExecLimits};
use super::metrics::ExecMetrics;
use super::node_view::NodeView;
use super::pause::Pauses;
use super::rules::FaultRules;
use crate::cri::MethodName;
use crate::relay::{CallInfo, CallPolicy, Interceptor, Peer};

/// Name of the method whose calls are paused, coalesced and limited.
const EXEC_SYNC: &str = "ExecSync";

/// All policies of a relay. Clones share them.
#[derive(Clone, Debug)]
pub struct Policies {
    /// Fault rules.
    pub faults: FaultRules,
    /// Pauses.
    pub pauses: Pauses,
    limiter: ExecLimiter,
    coalescer: Coalescer,
    /// Whether calls are coalesced.
    coalesces: Arc<AtomicBool>,
    direct: DirectPolicies,
    metrics: ExecMetrics,
}

/// Settings of the policies for `ExecSync`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecSettings {
    /// Limits of concurrent calls.
    pub limits: ExecLimits,
    /// Whether probes with the same request share one call.
    pub coalesce_probes: bool,
    /// Calls that run without the runtime.
    pub direct: DirectSettings,
}

impl Default for Policies {
    fn default() -> Self {
        let metrics = ExecMetrics::default();
        Self {
            faults: FaultRules::default(),
            pauses: Pauses::default(),
            limiter: ExecLimiter::new(metrics.clone()),
            coalescer: Coalescer::default(),
            coalesces: Arc::default(),
            direct: DirectPolicies::default(),
            metrics,
        }
    }
}

impl Policies {
    /// Connects the policies with the node. Until then, calls that name an object by its id match
    /// no rule that selects pods or containers.
    pub fn connect(&self, node: NodeView) {
        let node = Arc::new(node);
        self.faults.connect(&node);
        self.pauses.connect(&node);
    }

    /// Sets the executor of calls that run without the runtime. All calls go to the runtime until
    /// then.
    pub fn set_direct_executor(&self, executor: Arc<dyn DirectExecutor>) {
        self.direct.set_executor(executor);
    }

    /// Changes the settings of the policies for `ExecSync`.
    pub fn set_exec(&self, settings: ExecSettings) {
        self.limiter.set(settings.limits);
        self.coalesces.store(settings.coalesce_probes, Ordering::Relaxed);
        self.direct.set(settings.direct);
    }

    /// Returns the settings of the policies for `ExecSync`.
    #[must_use]
    pub fn exec(&self) -> ExecSettings {
        let coalesce_probes = self.coalesces.load(Ordering::Relaxed);
        ExecSettings { limits: self.limiter.limits(), coalesce_probes, direct: self.direct.settings() }
    }

    /// Returns the containers in which probeshim executes commands, or tries to, sorted by id.
    #[must_use]
    pub fn direct_containers(&self) -> Vec<DirectContainer> {
        self.direct.containers()
    }

    /// Returns the number of calls that wait because of a limit, and of those that wait for the
    /// result of an identical one.
    #[must_use]
    pub fn waiting(&self) -> [u64; 2] {
        self.metrics.waiting()
    }

    /// Registers the metrics of the policies.
    pub fn register(&self, registry: &mut Registry) {
        self.faults.register(registry);
        self.pauses.register(registry);
        self.metrics.register(registry);
        self.direct.register(registry);
    }

    /// Returns the policies that are in effect for a call to `ExecSync`. A call that does not pass
    /// the relay is not coalesced.
    fn exec_policies(&self, info: &CallInfo, is_relayed: bool) -> Option<ExecPolicies> {
        let limiter = Some(&self.limiter).filter(|limiter| limiter.is_limited()).cloned();
        let shares = self.coalesces.load(Ordering::Relaxed) && is_relayed;
        let coalescer = shares.then(|| self.coalescer.clone());
        // A pause answers the probes of a kubelet. The prober runs on, without kills.
        let is_paused = self.pauses.is_active() && info.is_from_kubelet();
        let direct = self.direct.active();
        (is_paused || limiter.is_some() || shares || direct.is_some()).then(|| ExecPolicies {
            pauses: info.is_from_kubelet().then(|| self.pauses.clone()),
            limiter,
            coalescer,
            direct,
            metrics: self.metrics.clone(),
        })
    }

    /// Returns the interceptor of a call that probeshim makes to the runtime directly.
    pub(super) fn interceptor_of_own(&self, info: &Arc<CallInfo>) -> Option<Box<dyn Interceptor>> {
        self.new_interceptor(info, false)
    }

    fn new_interceptor(&self, info: &Arc<CallInfo>, is_relayed: bool) -> Option<Box<dyn Interceptor>> {
        let MethodName::Known(method) = info.method else { return None };
        let faults = self.faults.select(info);
        let is_exec = method.name() == EXEC_SYNC;
        let exec = if is_exec { self.exec_policies(info, is_relayed) } else { None };
        if faults.is_none() && exec.is_none() {
            return None;
        }
        let (node, info) = (self.faults.node(), info.clone());
        Some(Box::new(PolicyInterceptor { node, method, info, faults, exec }))
    }

    /// Ends the fault rules and the pauses. `cause` is named in their events.
    pub fn end(&self, cause: &str) {
        self.faults.end(cause);
        // Without names, all end.
        let _ = self.pauses.resume(&[], cause);
    }
}

impl CallPolicy for Policies {
    fn interceptor(&self, info: &Arc<CallInfo>) -> Option<Box<dyn Interceptor>> {
        self.new_interceptor(info, true)
    }

    fn refuses(&self, peer: Option<&Peer>) -> bool {
        self.faults.refuses(peer)
    }
}
