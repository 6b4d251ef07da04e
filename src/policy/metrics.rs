//! Metrics of fault rules.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::fault::Action;

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
