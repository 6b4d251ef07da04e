//! Metrics of the policies.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::fault::Action;
use super::forward_kind::ForwardKind;

/// Numbers of active rules and of injected faults.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultMetrics {
    active: Gauge,
    injected: Family<ActionLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: &'static str,
}

impl FaultMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("fault_rules", "Fault rules that are active", self.active.clone());
        for action in Action::names() {
            drop(self.injected.get_or_create(&ActionLabel { action }));
        }
        registry.register(
            "faults_injected",
            "Faults injected into calls and connections",
            self.injected.clone(),
        );
    }

    pub(super) fn set_active(&self, rules: usize) {
        self.active.set(i64::try_from(rules).unwrap_or(i64::MAX));
    }

    pub(super) fn add(&self, action: &Action) {
        self.injected.get_or_create(&ActionLabel { action: action.name() }).inc();
    }

    pub(super) fn add_refused(&self, connections: usize) {
        self.injected
            .get_or_create(&ActionLabel { action: Action::Refuse.name() })
            .inc_by(connections as u64);
    }
}

/// Numbers of active pauses, and of probes that they answered.
#[derive(Clone, Debug, Default)]
pub(super) struct PauseMetrics {
    active: Gauge,
    pub(super) answered: Counter,
}

impl PauseMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("pauses", "Pauses of probes that are active", self.active.clone());
        registry.register(
            "paused_probes",
            "Exec probes that a pause answered in place of the runtime",
            self.answered.clone(),
        );
    }

    pub(super) fn set_active(&self, pauses: usize) {
        self.active.set(i64::try_from(pauses).unwrap_or(i64::MAX));
    }
}

/// Numbers of `ExecSyncs` that waited, were refused or shared the call of another.
#[derive(Clone, Debug)]
pub(super) struct ExecMetrics {
    waiting_for_limit: Gauge,
    waiting_for_response: Gauge,
    pub(super) queue_duration: Histogram,
    pub(super) rejected: Counter,
    pub(super) coalesced: Counter,
}

/// Upper bounds of the buckets of waiting times, in seconds.
const QUEUE_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

impl Default for ExecMetrics {
    fn default() -> Self {
        Self {
            waiting_for_limit: Gauge::default(),
            waiting_for_response: Gauge::default(),
            queue_duration: Histogram::new(QUEUE_BUCKETS),
            rejected: Counter::default(),
            coalesced: Counter::default(),
        }
    }
}

/// Counts a waiting call until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting(Gauge);

impl Waiting {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ExecMetrics {
    /// Counts a call that waits because of a limit.
    pub(super) fn wait_for_limit(&self) -> Waiting {
        Waiting::new(&self.waiting_for_limit)
    }

    /// Counts a call that waits for the response of another.
    pub(super) fn wait_for_response(&self) -> Waiting {
        Waiting::new(&self.waiting_for_response)
    }

    /// Returns the number of calls that wait because of a limit, and for the response of another.
    pub(super) fn waiting(&self) -> [u64; 2] {
        let count = |gauge: &Gauge| gauge.get().try_into().unwrap_or(0);
        [count(&self.waiting_for_limit), count(&self.waiting_for_response)]
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "exec_sync_queued",
            "ExecSyncs that wait because of a limit",
            self.waiting_for_limit.clone(),
        );
        registry.register(
            "exec_sync_sharing",
            "ExecSyncs that wait for the result of an identical one",
            self.waiting_for_response.clone(),
        );
        registry.register_with_unit(
            "exec_sync_queue_duration",
            "Time for which ExecSyncs waited because of a limit",
            Unit::Seconds,
            self.queue_duration.clone(),
        );
        registry.register(
            "exec_sync_rejected",
            "ExecSyncs that were refused because of a limit",
            self.rejected.clone(),
        );
        registry.register(
            "exec_sync_coalesced",
            "ExecSyncs that shared the call of an identical one",
            self.coalesced.clone(),
        );
    }
}

/// Numbers of `ExecSyncs` that were executed without the runtime, and of those that were not
/// although direct exec applies to them.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectMetrics {
    pub(super) executed: Counter,
    forwarded: Family<ReasonLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl DirectMetrics {
    pub(super) fn add_forwarded(&self, kind: ForwardKind) {
        self.forwarded.get_or_create(&ReasonLabel { reason: kind.name() }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        for kind in ForwardKind::ALL {
            drop(self.forwarded.get_or_create(&ReasonLabel { reason: kind.name() }));
        }
        registry.register(
            "direct_execs",
            "ExecSyncs that probeshim executed without the runtime",
            self.executed.clone(),
        );
        registry.register(
            "forwarded_execs",
            "ExecSyncs that the runtime executed although direct exec applies to them",
            self.forwarded.clone(),
        );
    }
}
