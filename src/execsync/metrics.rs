//! Metrics of ExecSyncs and of the inventory.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::analysis::CallRecord;
use super::identity::ProbeMatch;
use super::watchdog::{Stuck, StuckKind};
use crate::inventory::Inventory;

/// Upper bounds of the phase histogram, in seconds: from `true` in a synthetic container to a child
/// process that keeps the output open.
const PHASES: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Upper bounds of the margin histogram, in seconds. A margin below 0 is a response after the
/// timeout.
const MARGINS: [f64; 12] = [-30.0, -5.0, -1.0, 0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Maximum number of probes with separate margins; a node has fewer. Further probes are counted
/// together.
const PROBES: usize = 2_000;

/// Metrics of ExecSyncs and of the inventory. Clones share their values.
#[derive(Clone, Debug)]
pub struct ExecMetrics {
    phases: Family<PhaseLabel, Histogram>,
    states: Family<StateLabel, Counter>,
    assessments: Family<AssessmentLabel, Counter>,
    margins: Family<ProbeLabels, Histogram>,
    probes: Arc<Mutex<HashSet<ProbeLabels>>>,
    in_flight: Gauge,
    busiest: Gauge,
    stuck: Family<KindLabel, Gauge>,
    sandboxes: Gauge,
    containers: Gauge,
    refused: Counter,
    unsampled: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AssessmentLabel {
    assessment: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    namespace: String,
    pod: String,
    container: String,
    probe: &'static str,
}

impl Default for ExecMetrics {
    fn default() -> Self {
        Self {
            phases: Family::new_with_constructor(|| Histogram::new(PHASES)),
            states: Family::default(),
            assessments: Family::default(),
            margins: Family::new_with_constructor(|| Histogram::new(MARGINS)),
            probes: Arc::default(),
            in_flight: Gauge::default(),
            busiest: Gauge::default(),
            stuck: Family::default(),
            sandboxes: Gauge::default(),
            containers: Gauge::default(),
            refused: Counter::default(),
            unsampled: Counter::default(),
        }
    }
}

impl ExecMetrics {
    /// Creates a sample of each family, because families without samples are not encoded.
    #[cfg(test)]
    pub(crate) fn create_samples(&self) {
        drop(self.phases.get_or_create(&PhaseLabel { phase: "" }));
        drop(self.states.get_or_create(&StateLabel { state: "" }));
        drop(self.assessments.get_or_create(&AssessmentLabel { assessment: "" }));
        drop(self.margins.get_or_create(&ProbeLabels::default()));
        drop(self.stuck.get_or_create(&KindLabel { kind: "" }));
    }

    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "exec_phase",
            "Duration of each phase of the ExecSyncs whose phases are all known, without the drain phase after a timeout",
            Unit::Seconds,
            self.phases.clone(),
        );
        registry.register(
            "exec_phase_coverage",
            "ExecSyncs by the completeness of their phases",
            self.states.clone(),
        );
        registry.register("exec_assessments", "ExecSyncs by assessment", self.assessments.clone());
        registry.register_with_unit(
            "exec_margin",
            "Time between the end of ExecSyncs and their timeout; negative after the timeout",
            Unit::Seconds,
            self.margins.clone(),
        );
        registry.register("exec_in_flight", "ExecSyncs in flight on the node", self.in_flight.clone());
        registry.register(
            "exec_in_flight_busiest",
            "ExecSyncs in flight in the container that has the most",
            self.busiest.clone(),
        );
        registry.register("exec_stuck", "Stuck ExecSyncs, leaked processes and zombies", self.stuck.clone());
        registry.register("sandboxes", "Pod sandboxes on the node", self.sandboxes.clone());
        registry.register("containers", "Containers on the node", self.containers.clone());
        registry.register(
            "objects_over_limit",
            "Sandboxes and containers that are not observed, because there are too many",
            self.refused.clone(),
        );
        registry.register(
            "evidence_not_sampled",
            "Requests to the sampler that were dropped, because its queue was full",
            self.unsampled.clone(),
        );
    }

    pub(super) fn recorded(&self, record: &CallRecord) {
        let Some(insight) = record.analysis.as_deref().filter(|_| !record.is_amended) else { return };
        let state = insight.phases.state();
        self.states.get_or_create(&StateLabel { state }).inc();
        self.assessments.get_or_create(&AssessmentLabel { assessment: insight.assessment.name() }).inc();
        if let Some(parts) = record.counted_phases() {
            for (phase, time) in parts.named() {
                if let Some(time) = time {
                    self.phases.get_or_create(&PhaseLabel { phase }).observe(time.as_secs_f64());
                }
            }
        }
        if let Some(margin) = insight.margin {
            self.margins
                .get_or_create(&self.labels_of(record))
                .observe(margin.as_signed_ms(|margin| margin.as_secs_f64()));
        }
    }

    /// Returns the labels of the call's probe, or the common labels `other` if there are too many
    /// probes. Calls without a known probe are counted together as `unknown`.
    fn labels_of(&self, record: &CallRecord) -> ProbeLabels {
        let (call, insight) = (&record.call, record.analysis.as_deref());
        let Some(probe) = insight.and_then(|insight| insight.identity.label()) else {
            return ProbeLabels { probe: ProbeMatch::UNKNOWN, ..ProbeLabels::default() };
        };
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let pod = call.pod.as_deref();
        let labels = ProbeLabels {
            namespace: text(pod.and_then(|pod| pod.namespace.as_ref())),
            pod: text(pod.and_then(|pod| pod.name.as_ref())),
            container: text(call.container.as_deref().and_then(|container| container.name.as_ref())),
            probe,
        };
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        if !probes.contains(&labels) && probes.len() >= PROBES {
            return ProbeLabels { probe: "other", ..ProbeLabels::default() };
        }
        probes.insert(labels.clone());
        labels
    }

    /// Removes the margins of a pod that is gone.
    pub(super) fn pod_gone(&self, namespace: &str, pod: &str) {
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.retain(|labels| {
            let is_gone = labels.namespace == namespace && labels.pod == pod;
            if is_gone {
                self.margins.remove(labels);
            }
            !is_gone
        });
    }

    /// Sets the number of ExecSyncs in flight: on the node, and in the container that has the most.
    pub(super) fn in_flight(&self, all: usize, busiest: usize) {
        self.in_flight.set(i64::try_from(all).unwrap_or(i64::MAX));
        self.busiest.set(i64::try_from(busiest).unwrap_or(i64::MAX));
    }

    pub(super) fn stuck(&self, stuck: &Stuck) {
        for kind in StuckKind::ALL {
            let of_kind = stuck.values().filter(|stuck| stuck.kind == kind);
            let count: i64 = of_kind.map(|stuck| i64::from(stuck.count())).sum();
            self.stuck.get_or_create(&KindLabel { kind: kind.name() }).set(count);
        }
    }

    pub(super) fn inventory(&self, inventory: &Inventory) {
        self.sandboxes.set(i64::try_from(inventory.sandboxes().count()).unwrap_or(i64::MAX));
        self.containers.set(i64::try_from(inventory.containers().count()).unwrap_or(i64::MAX));
        self.refused.inner().store(inventory.refused(), Ordering::Relaxed);
    }

    pub(super) fn not_sampled(&self) {
        self.unsampled.inc();
    }
}
